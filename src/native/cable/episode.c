// SPDX-License-Identifier: Apache-2.0
/*
 * What becomes of the stations of an episode: one alone sends its frame; several notice the
 * collision, send a jam and back off by truncated binary exponential backoff (IEEE
 * 802.3, 4.2.3.2.5), or give their frames up.
 */
#include "cable/state.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t cable_longest(const struct vb_cable *cable)
{
    uint64_t most = 0, least = UINT64_MAX, second = 0;

    for (uint32_t i = 0; i < cable->stations; i++) {
        uint64_t place = cable->station[i].place;

        if (place >= most) {
            second = most;
            most = place;
        } else if (place > second) {
            second = place;
        }
        if (place < least)
            least = place;
    }
    if (cable->config.star)
        return cable->stations > 1 ? most + second : 0;
    return most - least;
}

static bool cable_is_possible(const struct vb_cable_config *config, uint32_t stations)
{
    return stations > 0 && stations >> VB_CABLE_NUMBER_BITS == 0 && config->bit_ps > 0 &&
           config->slot_bits > 0 && config->tries > 0 && config->tries <= UINT16_MAX &&
           config->doublings < 32 && config->header_bits <= config->slot_bits &&
           config->fragment_bits <= config->slot_bits + config->jam_bits &&
           (config->jam_bits > 0 || config->fragment_bits > 0);
}

struct cable_placed {
    uint64_t place;
    uint32_t station;
};

static int cable_by_place(const void *a, const void *b)
{
    const struct cable_placed *left = a, *right = b;

    if (left->place != right->place)
        return left->place < right->place ? -1 : 1;
    return left->station < right->station ? -1 : 1;
}

/* Puts the stations to their places. false: no memory. */
static bool cable_rank(struct vb_cable *cable, const uint64_t *place)
{
    struct cable_placed *placed = calloc(cable->stations, sizeof(*placed));

    if (!placed)
        return false;
    for (uint32_t i = 0; i < cable->stations; i++) {
        cable->station[i].place = place[i];
        placed[i] = (struct cable_placed){place[i], i};
    }
    qsort(placed, cable->stations, sizeof(*placed), cable_by_place);
    for (uint32_t i = 0; i < cable->stations; i++)
        cable->station[placed[i].station].rank = i;
    free(placed);
    return true;
}

static struct vb_cable_station *cable_stations(uint32_t count)
{
    size_t size = count * sizeof(struct vb_cable_station);
    struct vb_cable_station *station = aligned_alloc(VB_CABLE_LINE, size);

    if (station)
        memset(station, 0, size);
    return station;
}

int vb_cable_open(struct vb_cable *cable, const struct vb_cable_config *config, uint32_t stations,
                  const uint64_t *place)
{
    *cable = (struct vb_cable){.config = *config, .random = config->seed, .stations = stations};
    if (!cable_is_possible(config, stations))
        return -EINVAL;
    cable->last_sender = UINT32_MAX;
    cable->gap_ps = config->gap_bits * config->bit_ps;
    cable->slot_ps = config->slot_bits * config->bit_ps;
    cable->header_ps = config->header_bits * config->bit_ps;
    cable->jam_ps = config->jam_bits * config->bit_ps;
    cable->fragment_ps = config->fragment_bits * config->bit_ps;
    cable->busy.rising = cable->busy.falling = INT64_MIN / 4;
    cable->busy.longest = cable->busy.second = INT64_MIN / 4;
    cable->station = cable_stations(stations);
    while (cable->bucket_bits < 63 && UINT64_C(1) << cable->bucket_bits < cable->slot_ps)
        cable->bucket_bits++;
    cable->bucket = calloc(VB_CABLE_BUCKETS, sizeof(*cable->bucket));
    cable->filled = calloc(VB_CABLE_BUCKETS / 64, sizeof(*cable->filled));
    cable->heap = calloc(stations, sizeof(*cable->heap));
    cable->near = calloc(stations, sizeof(*cable->near));
    cable->candidate = calloc(stations, sizeof(*cable->candidate));
    cable->talker = calloc(stations, sizeof(*cable->talker));
    cable->key = calloc(stations, sizeof(*cable->key));
    cable->spare = calloc(stations, sizeof(*cable->spare));
    cable->among = calloc(stations / 64 + 1, sizeof(*cable->among));
    cable->talker_at = calloc(stations, sizeof(*cable->talker_at));
    if (!cable->station || !cable->bucket || !cable->filled || !cable->heap || !cable->near ||
        !cable->candidate || !cable->talker || !cable->key || !cable->spare || !cable->among ||
        !cable->talker_at || !cable_rank(cable, place)) {
        vb_cable_close(cable);
        return -ENOMEM;
    }
    cable->from_timer = VB_CABLE_NEVER;
    cable->ideal_log = log1p(-1.0 / stations);
    cable->longest_ps = cable_longest(cable);
    if (cable->longest_ps >> (64 - VB_CABLE_NUMBER_BITS) != 0) {
        vb_cable_close(cable);
        return -EINVAL;
    }
    while (cable->longest_ps >> cable->cell_shift >= VB_CABLE_CELLS)
        cable->cell_shift++;
    return 0;
}

void vb_cable_close(struct vb_cable *cable)
{
    free(cable->station);
    free(cable->bucket);
    free(cable->filled);
    free(cable->heap);
    free(cable->near);
    free(cable->candidate);
    free(cable->talker);
    free(cable->key);
    free(cable->spare);
    free(cable->among);
    free(cable->talker_at);
    cable->station = NULL;
    cable->bucket = NULL;
    cable->filled = NULL;
    cable->heap = NULL;
    cable->near = NULL;
    cable->candidate = NULL;
    cable->talker = NULL;
    cable->key = NULL;
    cable->spare = NULL;
    cable->among = NULL;
    cable->talker_at = NULL;
}

const struct vb_cable_counters *vb_cable_counters(const struct vb_cable *cable, uint32_t station)
{
    return &cable->station[station].counters;
}

static void cable_begin_frame(struct vb_cable *cable, uint32_t index, uint64_t from, uint64_t born,
                              uint32_t bits)
{
    struct vb_cable_station *station = &cable->station[index];

    station->bits = bits;
    station->born = born;
    station->tried = 0;
    station->deferred = false;
    vb_cable_wait(cable, index, from);
}

int vb_cable_offer(struct vb_cable *cable, uint32_t station, uint64_t now, uint64_t born,
                   uint32_t bits, uint64_t token)
{
    if (bits == 0)
        return -EINVAL;
    if (cable->station[station].bits > 0 || cable->station[station].makes_frames)
        return -EBUSY;
    cable->station[station].token = token;
    cable_begin_frame(cable, station, now, born, bits);
    return 0;
}

/* When the frame after one that was born then is born. */
static uint64_t cable_next_birth(struct vb_cable *cable, const struct vb_cable_station *station,
                                 uint64_t born)
{
    return born + (uint64_t)(-log(vb_cable_fraction(cable)) * (double)station->source_mean_ps);
}

int vb_cable_source(struct vb_cable *cable, uint32_t index, uint64_t now, uint32_t bits,
                    uint64_t mean_ps)
{
    struct vb_cable_station *station = &cable->station[index];
    uint64_t born = now;

    if (bits == 0)
        return -EINVAL;
    if (station->bits > 0 || station->makes_frames)
        return -EBUSY;
    station->makes_frames = true;
    station->source_bits = bits;
    station->source_mean_ps = mean_ps;
    if (mean_ps > 0)
        born = cable_next_birth(cable, station, now);
    station->source_next = born;
    if (mean_ps > 0)
        station->source_next = cable_next_birth(cable, station, born);
    cable_begin_frame(cable, index, born, born, bits);
    return 0;
}

/* The station's frame is done, whatever became of it. */
static void cable_end_frame(struct vb_cable *cable, uint32_t index, uint64_t end)
{
    struct vb_cable_station *station = &cable->station[index];
    uint64_t born;

    station->bits = 0;
    if (!station->makes_frames)
        return;
    if (station->source_mean_ps == 0) {
        cable_begin_frame(cable, index, end, end, station->source_bits);
        return;
    }
    born = station->source_next;
    station->source_next = cable_next_birth(cable, station, born);
    cable_begin_frame(cable, index, born > end ? born : end, born, station->source_bits);
}

static void cable_count_sent(struct vb_cable *cable, const struct vb_cable_talker *talker)
{
    struct vb_cable_station *station = &cable->station[talker->station];

    station->counters.sent++;
    station->counters.sent_bits += station->bits;
    station->counters.waited_ps += talker->start - station->born;
    cable->runs += cable->last_sender != talker->station;
    cable->last_sender = talker->station;
    cable->last_end = talker->end;
}

static void cable_back_off(struct vb_cable *cable, const struct vb_cable_talker *talker)
{
    uint32_t doublings = cable->station[talker->station].tried;
    uint64_t slots;

    if (doublings > cable->config.doublings)
        doublings = cable->config.doublings;
    slots = cable->config.ideal ? 0 : vb_cable_random(cable) >> 1 >> (63 - doublings);
    vb_cable_wait(cable, talker->station, talker->end + slots * cable->slot_ps);
}

static enum vb_cable_outcome cable_outcome(struct vb_cable *cable, struct vb_cable_talker *talker)
{
    struct vb_cable_station *station = &cable->station[talker->station];

    if (!talker->cut) {
        if (talker->crossed)
            station->counters.crossed++;
        else
            cable_count_sent(cable, talker);
        return talker->crossed ? VB_CABLE_CROSSED : VB_CABLE_SENT;
    }
    station->counters.collisions++;
    station->tried++;
    if (talker->end - talker->start > cable->slot_ps + cable->jam_ps) {
        station->counters.late++;
        return VB_CABLE_LATE;
    }
    if (station->tried < cable->config.tries || cable->config.ideal)
        return VB_CABLE_COLLIDED;
    station->counters.excessive++;
    return VB_CABLE_EXCESSIVE;
}

/* Returns the number of entries that it wrote: 1 or 0. */
static uint32_t cable_finish(struct vb_cable *cable, struct vb_cable_talker *talker,
                             struct vb_cable_entry *log)
{
    struct vb_cable_station *station = &cable->station[talker->station];
    enum vb_cable_outcome outcome = cable_outcome(cable, talker);

    station->ready = talker->end + cable->gap_ps;
    if (log)
        *log =
            (struct vb_cable_entry){talker->start,   talker->end,       station->token,
                                    talker->station, (uint16_t)outcome, (uint16_t)station->tried};
    if (outcome != VB_CABLE_COLLIDED)
        cable_end_frame(cable, talker->station, talker->end);
    else
        cable_back_off(cable, talker);
    return log && (outcome != VB_CABLE_COLLIDED || cable->config.log_collisions);
}

/* The end of each signal: of its frame, or of the jam. */
static void cable_find_ends(struct vb_cable *cable)
{
    for (uint32_t i = 0; i < cable->talkers; i++) {
        struct vb_cable_talker *talker = &cable->talker[i];
        uint64_t header = talker->start + cable->header_ps, heard, least;

        talker->end = header + cable->station[talker->station].bits * cable->config.bit_ps;
        if (cable->talkers == 1)
            continue;
        heard = cable->longest_ps == 0 ? talker->start : talker->heard;
        talker->cut = heard < talker->end;
        talker->crossed = !talker->cut;
        if (!talker->cut)
            continue;
        heard = (heard > header ? heard : header) + cable->jam_ps;
        least = talker->start + cable->fragment_ps;
        talker->end = heard > least ? heard : least;
    }
}

/* On a cable: how long signals are to be heard on the way to either end. */
static void cable_keep_ends_along(struct vb_cable *cable)
{
    int64_t rising = INT64_MIN / 4, falling = rising;

    for (uint32_t i = 0; i < cable->talkers; i++) {
        int64_t end = (int64_t)cable->talker[i].end, place = (int64_t)cable->talker[i].place;

        rising = rising < end + place ? end + place : rising;
        falling = falling < end - place ? end - place : falling;
    }
    cable->busy.rising = rising;
    cable->busy.falling = falling;
}

/* On a hub: the two signals that end last. */
static void cable_keep_ends_of_hub(struct vb_cable *cable)
{
    struct vb_cable_busy *busy = &cable->busy;

    busy->longest = busy->second = INT64_MIN / 4;
    for (uint32_t i = 0; i < cable->talkers; i++) {
        int64_t end = (int64_t)(cable->talker[i].end + cable->talker[i].place);

        if (busy->longest < end) {
            busy->second = busy->longest;
            busy->longest = end;
            busy->longest_is = cable->talker[i].station;
        } else if (busy->second < end) {
            busy->second = end;
        }
    }
}

/* Keeps when the signals of the episode have passed. */
static void cable_keep_ends(struct vb_cable *cable)
{
    uint64_t last = 0;

    if (cable->config.star)
        cable_keep_ends_of_hub(cable);
    else
        cable_keep_ends_along(cable);
    for (uint32_t i = 0; i < cable->talkers; i++)
        last = last < cable->talker[i].end ? cable->talker[i].end : last;
    cable->busy.until = last + cable->longest_ps + cable->gap_ps;
}

uint64_t vb_cable_next(struct vb_cable *cable)
{
    uint64_t start = vb_cable_earliest(cable);

    return start == VB_CABLE_NEVER ? start : start + cable->longest_ps + 1;
}

uint32_t vb_cable_run(struct vb_cable *cable, uint64_t until, uint64_t frames,
                      struct vb_cable_entry *log, uint32_t capacity)
{
    uint32_t count = 0;

    while (frames > 0 && (!log || capacity - count >= cable->stations)) {
        uint64_t start = vb_cable_earliest(cable);

        if (start == VB_CABLE_NEVER || start + cable->longest_ps >= until)
            break;
        vb_cable_gather(cable, start);
        cable_find_ends(cable);
        cable_keep_ends(cable);
        cable->collisions += cable->talkers > 1;
        for (uint32_t i = 0; i < cable->talkers; i++)
            count += cable_finish(cable, &cable->talker[i], log ? log + count : NULL);
        frames -= cable->talkers == 1;
        vb_cable_settle(cable);
    }
    return count;
}
