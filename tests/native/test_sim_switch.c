// SPDX-License-Identifier: Apache-2.0
/*
 * A switch's decisions at their limits (event/switch.h): which packets find room, which are marked,
 * where floods end, and when a run is a deadlock. Each case sets the state of a switch by hand, and
 * has one packet that meets it.
 */
#include "check.h"
#include "event/detour.h"
#include "event/link.h"
#include "event/sample.h"
#include "event/switch.h"
#include "event/tap.h"
#include "event/telemetry.h"
#include "event/watchdog.h"
#include "routes.h"
#include "starved.h"
#include "yard.h"

enum { HOSTS = 3, BYTES = 1000 };

static const uint64_t RATE = 100000000000, DELAY = 1000000;

static struct vb_world *world;
static uint32_t host[HOSTS], arrived[HOSTS], dropped_packets;

static uint32_t packet_of(uint32_t from, uint32_t to)
{
    uint32_t packet = vb_world_pool_take(&world->partition->pool);
    struct vb_world_packet *at = vb_world_packet_at(world->partition, packet);

    memset(at, 0, sizeof(*at));
    at->source = from + 1;
    at->target = to + 1;
    at->bytes = at->payload = BYTES;
    at->hops = (uint8_t)world->hop_limit;
    return packet;
}

static void arrive(void *context, uint32_t number, uint32_t packet)
{
    (void)context;
    ++arrived[number];
    vb_world_pool_give(&world->partition->pool, packet);
}

static void dropped(void *context, struct vb_world_partition *part, uint32_t packet)
{
    (void)context;
    (void)part;
    (void)packet;
    ++dropped_packets;
}

static void ready(void *context, uint32_t number)
{
    (void)context;
    (void)number;
}

/* A host sends a packet to host `to`. */
static void call(void *context, uint32_t from, uint32_t to)
{
    (void)context;
    vb_world_send(world->partition, host[from], packet_of(from, to));
}

static const struct vb_world_host_calls calls = {
    .arrive = arrive, .ready = ready, .call = call, .dropped = dropped};

static void open_world(void)
{
    memset(arrived, 0, sizeof(arrived));
    dropped_packets = 0;
    CHECK_EQ(vb_world_create(7, &calls, NULL, &world), 0);
}

static struct vb_world_switch *world_switch(uint32_t node)
{
    return world->node[node].sw;
}

/* The port with this number of a switch. */
static struct vb_world_port *port_at(uint32_t node, uint32_t number)
{
    return &world->port[world->node[node].port[number]];
}

static int run_on(void)
{
    return vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX);
}

/* Two switches, nodes 0 and 1, whose ports 2 are linked; host 0 and 1 are at the first one's ports
 * 0 and 1, and host 2 at the second one's port 0. */
static void open_pair(struct vb_world_switch_config config)
{
    const int32_t first[] = {0, 1, 2}, second[] = {2, 2, 0};

    config.ports = 3;
    open_world();
    yard_switch(world, &config);
    yard_switch(world, &config);
    for (uint32_t i = 0; i < HOSTS; ++i)
        host[i] = yard_host(world, i / 2, i % 2, RATE, DELAY);
    yard_connect(world, 0, 2, 1, 2, RATE, DELAY);
    CHECK_EQ(vb_world_set_routes(world, world_switch(0), first, HOSTS, 1), 0);
    CHECK_EQ(vb_world_set_routes(world, world_switch(1), second, HOSTS, 1), 0);
}

/* ---- room ------------------------------------------------------------------------------------ */

struct admission {
    enum vb_world_flow_control flow_control;
    uint32_t used, held, above; /* in the shared buffer; of the input; in its headroom */
    uint32_t queue;             /* at the output */
    double alpha;
    bool fits;
    uint32_t used_after, held_after, above_after;
    bool stops; /* the sender is paused */
};

/* The buffer has 10,000 bytes, an input's threshold is 4000, its headroom 2000. */
static void expect_admission(const struct admission *it)
{
    struct vb_world_switch_config config = yard_lanes(1, it->flow_control, 6400);
    enum vb_world_drop_reason reason =
        it->flow_control == VB_WORLD_PAUSES ? VB_WORLD_DROP_HEADROOM : VB_WORLD_DROP_FULL;
    struct vb_world_port *in, *out;
    struct vb_world_lane *lane;
    uint32_t packet;

    config.buffer = 10000;
    config.lane[0].alpha = it->alpha;
    config.lane[0].stop = it->flow_control == VB_WORLD_PAUSES ? 4000 : 0;
    config.lane[0].spare = 2000;
    config.management = 5000;
    open_pair(config);
    in = port_at(0, 0);
    out = port_at(0, 1);
    lane = &in->lanes->lane[it->flow_control == VB_WORLD_VL15];
    world_switch(0)->used = it->used;
    lane->held = it->held;
    if (it->flow_control == VB_WORLD_PAUSES)
        lane->above = it->above;
    packet = packet_of(0, 1);
    vb_world_packet_at(world->partition, packet)->lane = it->flow_control == VB_WORLD_VL15;
    CHECK_EQ(vb_world_switch_admit(world->partition, world_switch(0), in, out, it->queue, packet),
             it->fits);
    CHECK_EQ(world_switch(0)->used, it->used_after);
    CHECK_EQ(lane->held, it->held_after);
    if (it->flow_control == VB_WORLD_PAUSES)
        CHECK_EQ(lane->above, it->above_after);
    CHECK_EQ(lane->stopped, it->stops);
    CHECK_EQ(in->traffic.pauses, it->stops);
    CHECK_EQ(in->traffic.dropped[reason] + out->traffic.dropped[reason], !it->fits);
    CHECK_EQ(dropped_packets, !it->fits);
    vb_world_destroy(world);
}

static void a_packet_fits_up_to_the_last_byte(void)
{
    static const struct admission cases[] = {
        /* lossy: all of the buffer, or alpha times what is free of it */
        {VB_WORLD_LOSSY, 9000, 0, 0, 0, 0, true, 10000, 0, 0, false},
        {VB_WORLD_LOSSY, 9001, 0, 0, 0, 0, false, 9001, 0, 0, false},
        {VB_WORLD_LOSSY, 0, 0, 0, 50000, 0, true, 1000, 0, 0, false},
        {VB_WORLD_LOSSY, 6000, 0, 0, 1000, 0.5, true, 7000, 0, 0, false},
        {VB_WORLD_LOSSY, 6000, 0, 0, 1001, 0.5, false, 6000, 0, 0, false},
        {VB_WORLD_LOSSY, 9001, 0, 0, 0, 8, false, 9001, 0, 0, false},
        /* pauses: below the threshold, beyond it, and beyond the headroom */
        {VB_WORLD_PAUSES, 0, 3000, 0, 0, 0, true, 1000, 4000, 0, false},
        {VB_WORLD_PAUSES, 0, 3001, 0, 0, 0, true, 999, 4001, 1, true},
        {VB_WORLD_PAUSES, 0, 4000, 0, 0, 0, true, 0, 5000, 1000, true},
        {VB_WORLD_PAUSES, 0, 5000, 1000, 0, 0, true, 0, 6000, 2000, true},
        {VB_WORLD_PAUSES, 0, 5001, 1001, 0, 0, false, 0, 5001, 1001, false},
        {VB_WORLD_PAUSES, 500, 3500, 500, 0, 0, true, 1500, 4500, 500, true},
        {VB_WORLD_PAUSES, 9400, 0, 0, 0, 0, true, 10000, 1000, 400, true},
        {VB_WORLD_PAUSES, 10000, 0, 0, 0, 0, true, 10000, 1000, 1000, true},
        /* credits are for room that there is */
        {VB_WORLD_CREDITS, 0, 3, 0, 0, 0, true, 0, 3 + 16, 0, false},
        /* VL15 has a queue of its own beside the buffer */
        {VB_WORLD_VL15, 10000, 0, 0, 4000, 0, true, 10000, 0, 0, false},
        {VB_WORLD_VL15, 0, 0, 0, 4001, 0, false, 0, 0, 0, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        expect_admission(&cases[i]);
}

/* Reserved room is for its own flows, as long as they keep to it. */
static void reserved_room_is_for_its_flows(void)
{
    static const struct {
        uint32_t used, reserved_used;
        bool flagged, fits;
        uint32_t used_after, reserved_used_after;
    } cases[] = {
        {6000, 0, false, true, 7000, 0},       {6001, 0, false, false, 6001, 0},
        {6001, 2000, true, true, 6001, 3000},  {6000, 2001, true, true, 7000, 2001},
        {6001, 2001, true, false, 6001, 2001},
    };
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_LOSSY, 0);

    config.buffer = 10000;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_world_switch *sw;
        uint32_t packet;

        open_pair(config);
        sw = world_switch(0);
        sw->reserved = 3000;
        sw->used = cases[i].used;
        sw->reserved_used = cases[i].reserved_used;
        packet = packet_of(0, 1);
        vb_world_packet_at(world->partition, packet)->flags =
            cases[i].flagged ? VB_WORLD_RESERVED : 0;
        CHECK_EQ(
            vb_world_switch_admit(world->partition, sw, port_at(0, 0), port_at(0, 1), 0, packet),
            cases[i].fits);
        CHECK_EQ(sw->used, cases[i].used_after);
        CHECK_EQ(sw->reserved_used, cases[i].reserved_used_after);
        CHECK_EQ(!!(vb_world_packet_at(world->partition, packet)->flags & VB_WORLD_RESERVED),
                 cases[i].reserved_used_after != cases[i].reserved_used);
        vb_world_destroy(world);
    }
}

/* What leaves frees the headroom first; the sender goes on when that is empty, and `go` is met. */
static void a_pause_ends_with_the_headroom(void)
{
    static const struct {
        uint32_t held, above;
        uint32_t used_after, above_after;
        bool stopped;
    } cases[] = {
        {5000, 1000, 4000, 0, true},  {4001, 1, 3001, 0, true},    {3001, 1000, 2001, 0, true},
        {3000, 1000, 2000, 0, false}, {3000, 0, 2000, 0, false},   {2500, 999, 1500, 0, false},
        {5000, 1001, 3999, 1, true},  {3000, 1001, 1999, 1, true},
    };
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_PAUSES, 0);

    config.lane[0].stop = 4000;
    config.lane[0].go = 2000;
    config.lane[0].spare = 2000;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_world_lane *lane;
        struct vb_world_switch *sw;

        open_pair(config);
        sw = world_switch(0);
        lane = &port_at(0, 0)->lanes->lane[0];
        lane->held = cases[i].held;
        lane->above = cases[i].above;
        lane->stopped = true;
        sw->used = cases[i].held - cases[i].above;
        vb_world_switch_left(world->partition, sw, 0, 0, BYTES, false, 0);
        CHECK_EQ(sw->used, cases[i].used_after);
        CHECK_EQ(lane->held, cases[i].held - BYTES);
        CHECK_EQ(lane->above, cases[i].above_after);
        CHECK_EQ(lane->stopped, cases[i].stopped);
        vb_world_destroy(world);
    }
}

/* ---- a queue without lanes ------------------------------------------------------------------- */

/* The packet meets so many bytes that its output is still sending. */
static void meet_queue(struct vb_world_switch_config config, uint32_t bytes, uint8_t flags,
                       uint64_t reserved)
{
    uint32_t packet;

    open_pair(config);
    port_at(0, 1)->free_at = (uint64_t)bytes * port_at(0, 1)->byte_time;
    port_at(0, 1)->reserved_buffer = reserved;
    packet = packet_of(0, 1);
    vb_world_packet_at(world->partition, packet)->flags = flags;
    vb_world_switch_arrive(world->partition, world_switch(0), world->node[0].port[0], packet);
}

static void a_queue_without_lanes_has_its_limit(void)
{
    const struct vb_world_switch_config config = {.buffer = 5000};
    static const struct {
        uint32_t bytes;
        uint8_t flags;
        uint32_t reserved;
        bool fits;
    } cases[] = {
        {4000, 0, 0, true},
        {4001, 0, 0, false},
        {2000, 0, 2000, true},
        {2001, 0, 2000, false},
        {4000, VB_WORLD_RESERVED, 2000, true},
        {4001, VB_WORLD_RESERVED, 2000, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        meet_queue(config, cases[i].bytes, cases[i].flags, cases[i].reserved);
        CHECK_EQ(port_at(0, 1)->traffic.packets, cases[i].fits);
        CHECK_EQ(port_at(0, 1)->traffic.dropped[VB_WORLD_DROP_FULL], !cases[i].fits);
        CHECK_EQ(port_at(0, 1)->traffic.queued_max, cases[i].fits ? cases[i].bytes + BYTES : 0);
        vb_world_destroy(world);
    }
}

/* ECN begins above `low`, and each packet has it from `high` on; FECN begins above its limit. */
static void marks_begin_at_their_limits(void)
{
    static const struct {
        struct vb_world_marking mark;
        uint32_t fecn, bytes, marked;
    } cases[] = {
        {{2000, 2001, 1}, 0, 2000, 0}, {{2000, 2001, 1}, 0, 2001, 1},
        {{2000, 2000, 1}, 0, 2000, 0}, {{2000, 4000, 0}, 0, 3999, 0},
        {{2000, 4000, 0}, 0, 4000, 1}, {{2000, 1000000, 1e9}, 0, 2001, 1},
        {{2000, 0, 1}, 0, 50000, 0},   {{0}, 2000, 2000, 0},
        {{0}, 2000, 2001, 1},          {{2000, 2001, 1}, 2000, 2001, 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_world_switch_config config = {.mark = cases[i].mark, .fecn = cases[i].fecn};
        struct vb_world_packet *at;

        meet_queue(config, cases[i].bytes, 0, 0);
        at = vb_world_packet_at(world->partition, world->port[port_at(0, 1)->peer].arrive_first);
        CHECK_EQ(port_at(0, 1)->traffic.marked, cases[i].marked);
        CHECK_EQ(at->header[4], cases[i].fecn && cases[i].bytes > cases[i].fecn ? 0x80 : 0);
        CHECK_EQ(at->level_marks & VB_WORLD_CE,
                 cases[i].marked - (at->header[4] != 0) ? VB_WORLD_CE : 0);
        vb_world_destroy(world);
    }
}

/* ---- times ------------------------------------------------------------------------------------
 */

enum { SENDING = BYTES * 80 }; /* ps of a packet at 100 Gb/s */

/* A packet is lost if its transmission began before the link was up again, be it by a picosecond.
 */
static void a_link_loses_what_was_on_it(void)
{
    const uint64_t down = 5 * DELAY, up = 10 * DELAY;
    const struct {
        uint64_t sent;
        bool lost;
    } cases[] = {
        {0, false},           {down - DELAY - SENDING - 1, false},
        {down - DELAY, true}, {up - 1, true},
        {up, false},          {up + 1, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        open_pair((struct vb_world_switch_config){0});
        CHECK_EQ(vb_world_set_link(world, host[0], 0, false, down), 0);
        CHECK_EQ(vb_world_set_link(world, host[0], 0, true, up), 0);
        vb_world_call(world->partition, cases[i].sent, 0, 1);
        CHECK_EQ(run_on(), VB_WORLD_END_EMPTY);
        CHECK_EQ(arrived[1], !cases[i].lost);
        CHECK_EQ(world->port[world->node[host[0]].port[0]].traffic.dropped[VB_WORLD_DROP_DOWN],
                 cases[i].lost);
        vb_world_destroy(world);
    }
}

/* A packet counts as sent from the picosecond on in which its transmission begins. */
static void a_packet_counts_when_it_begins(void)
{
    for (uint32_t cut_through = 0; cut_through <= 300; cut_through += 300) {
        const struct vb_world_port *port;
        struct vb_world_port_counters traffic;

        open_pair((struct vb_world_switch_config){.cut_through = cut_through});
        port = &world->port[world->node[host[0]].port[0]];
        for (int i = 0; i < 3; ++i)
            vb_world_send(world->partition, host[0], packet_of(0, 1));
        for (uint64_t sent = 1; sent <= 3; ++sent)
            for (uint64_t now = (sent - 1) * SENDING; now < sent * SENDING; now += SENDING - 1) {
                CHECK_EQ(vb_world_run(world, now, UINT64_MAX), VB_WORLD_END_TIME);
                traffic = vb_world_traffic(world, port);
                CHECK_EQ(traffic.packets, sent);
                CHECK_EQ(traffic.bytes, sent * BYTES);
                CHECK_EQ(traffic.busy, now);
            }
        vb_world_destroy(world);
    }
}

/* What is being sent is in nobody's reserved buffer, and what waits is in that of its flow. */
static void what_waits_in_reserved_buffer_is_not_others(void)
{
    static const struct {
        uint64_t now;
        uint32_t reserved, others;
    } cases[] = {
        {0, 5000, 1000},         {SENDING - 1, 5000, 0}, {SENDING, 5000, 1000},
        {SENDING - 1, 400, 600}, {SENDING - 1, 0, 1000}, {0, 900, 1100},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        uint32_t number;

        open_pair((struct vb_world_switch_config){.buffer = 9000});
        number = world->node[0].port[1];
        for (int n = 0; n < 2; ++n) {
            uint32_t packet = packet_of(0, 1);

            vb_world_packet_at(world->partition, packet)->flags = VB_WORLD_RESERVED;
            vb_world_link_send(world->partition, number, packet, world->port[number].free_at);
        }
        world->port[number].reserved_buffer = cases[i].reserved;
        world->partition->now = cases[i].now;
        CHECK_EQ(vb_world_switch_others_queue(world->partition, &world->port[number]),
                 cases[i].others);
        vb_world_destroy(world);
    }
}

/* ---- cut-through ------------------------------------------------------------------------------
 */

/* Packets are passed on early between links of one rate whose bytes take whole picoseconds. */
static void packets_cut_through_between_links_of_one_rate(void)
{
    static const uint64_t rates[][3] = {
        {100, 100, 100}, {50, 100, 100}, {100, 50, 100}, {100, 100, 50}, {100, 0, 100},
        {50, 0, 100},    {0, 50, 50},    {0, 100, 50},   {3, 3, 3},
    };
    static const bool cuts[] = {true, false, false, false, true, false, true, false, false};

    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); ++i) {
        const struct vb_world_switch_config config = {.ports = 3, .cut_through = 300};

        open_world();
        yard_switch(world, &config);
        for (uint32_t port = 0; port < 3; ++port)
            if (rates[i][port]) /* others have no link */
                yard_host(world, 0, port, rates[i][port] * 1000000000, DELAY);
        for (uint32_t number = 0; number < world->ports; ++number) {
            const struct vb_world_port *port = &world->port[number];

            CHECK_EQ(port->early, !port->to_host && cuts[i] ? 300 : 0); /* hosts wait for all */
        }
        vb_world_destroy(world);
    }
}

/* ---- FECN of lanes --------------------------------------------------------------------------- */

enum { TO_HOST = 1, TO_SWITCH = 2 }; /* ports of the first switch */

struct congestion {
    enum vb_world_fecn at;
    bool to_hosts;
    int victim;      /* the port that is in Victim_Mask; 0: none */
    uint32_t output; /* TO_HOST or TO_SWITCH */
    uint32_t queue;  /* bytes */
    bool has_credits;
    bool marked;
};

/* Bytes of FECN's limit, and the blocks that the packet takes of the input's room. */
enum { LIMIT = 1280, BLOCKS = (BYTES + VB_WORLD_CREDIT_BLOCK - 1) / VB_WORLD_CREDIT_BLOCK };

static void expect_congestion(const struct congestion *it)
{
    struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_CREDITS, 64000);
    struct vb_world_lane *lane;

    config.fecn = LIMIT;
    config.fecn_at = it->at;
    config.fecn_to_hosts = it->to_hosts;
    open_pair(config);
    if (it->victim)
        CHECK_EQ(vb_world_switch_set_victim(world_switch(0), (uint32_t)it->victim), 0);
    lane = &port_at(0, it->output)->lanes->lane[0];
    if (it->at == VB_WORLD_FECN_INPUT)
        port_at(0, 0)->lanes->lane[0].held = it->queue / VB_WORLD_CREDIT_BLOCK - BLOCKS;
    else
        lane->bytes = it->queue;
    if (!it->has_credits)
        lane->peer_room = 0;
    vb_world_switch_arrive(world->partition, world_switch(0), world->node[0].port[0],
                           packet_of(0, it->output == TO_HOST ? 1 : 2));
    CHECK_EQ(port_at(0, it->output)->traffic.marked, it->marked);
    vb_world_destroy(world);
}

/* At the root of a congestion a lane has credits. Victim_Mask has ports that are one without. */
static void fecn_tells_roots_from_victims(void)
{
    static const struct congestion cases[] = {
        {VB_WORLD_FECN_ROOT, false, 0, TO_HOST, LIMIT, true, false},
        {VB_WORLD_FECN_ROOT, false, 0, TO_HOST, LIMIT + 1, true, true},
        {VB_WORLD_FECN_ROOT, false, 0, TO_HOST, LIMIT + 1, false, false},
        {VB_WORLD_FECN_ROOT, true, 0, TO_HOST, LIMIT + 1, false, true},
        {VB_WORLD_FECN_ROOT, true, 0, TO_HOST, LIMIT, false, false},
        {VB_WORLD_FECN_ROOT, false, TO_HOST, TO_HOST, LIMIT + 1, false, true},
        {VB_WORLD_FECN_ROOT, false, TO_SWITCH, TO_HOST, LIMIT + 1, false, false},
        {VB_WORLD_FECN_ROOT, false, 0, TO_SWITCH, LIMIT + 1, false, false},
        {VB_WORLD_FECN_ROOT, true, 0, TO_SWITCH, LIMIT + 1, false, false},
        {VB_WORLD_FECN_ROOT, true, TO_HOST, TO_SWITCH, LIMIT + 1, false, false},
        {VB_WORLD_FECN_ROOT, false, TO_SWITCH, TO_SWITCH, LIMIT + 1, false, true},
        {VB_WORLD_FECN_OUTPUT, false, 0, TO_HOST, LIMIT, false, false},
        {VB_WORLD_FECN_OUTPUT, false, 0, TO_HOST, LIMIT + 1, false, true},
        {VB_WORLD_FECN_INPUT, false, 0, TO_HOST, LIMIT, true, false},
        {VB_WORLD_FECN_INPUT, false, 0, TO_HOST, LIMIT + VB_WORLD_CREDIT_BLOCK, true, true},
        {VB_WORLD_FECN_INPUT, true, TO_HOST, TO_HOST, LIMIT, false, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        expect_congestion(&cases[i]);
}

/* The input's bytes of a lane with pauses are bytes, and not blocks. */
static void fecn_of_an_input_with_pauses_counts_bytes(void)
{
    for (uint32_t more = 0; more < 2; ++more) {
        struct vb_world_switch_config config = yard_lanes(1, VB_WORLD_PAUSES, 0);

        config.fecn = LIMIT;
        config.fecn_at = VB_WORLD_FECN_INPUT;
        config.lane[0].stop = 64000;
        open_pair(config);
        port_at(0, 0)->lanes->lane[0].held = LIMIT - BYTES + more;
        vb_world_switch_arrive(world->partition, world_switch(0), world->node[0].port[0],
                               packet_of(0, 1));
        CHECK_EQ(port_at(0, 1)->traffic.marked, more);
        vb_world_destroy(world);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* A table with one lane that is none changes nothing, wherever it stands. */
static void each_entry_of_a_table_of_lanes_is_checked(void)
{
    enum { ENTRIES = 3 * 3 * 16 };
    uint8_t lanes[ENTRIES] = {0};

    open_pair(yard_lanes(2, VB_WORLD_LOSSY, 0));
    memset(lanes, 1, sizeof(lanes));
    CHECK_EQ(vb_world_switch_set_lanes(world_switch(0), lanes, true), 0);
    memset(lanes, 0, sizeof(lanes));
    for (uint32_t i = 0; i < ENTRIES; ++i) {
        lanes[i] = 2;
        CHECK_EQ(vb_world_switch_set_lanes(world_switch(0), lanes, false), -EINVAL);
        lanes[i] = 0;
        CHECK(world_switch(0)->by_lane);
        CHECK_EQ(world_switch(0)->lane_of[i], 1);
    }
    vb_world_destroy(world);
}

/* ---- floods ---------------------------------------------------------------------------------- */

/*
 * A switch that floods sends by all its ports but that by which the packet came. The next one is
 * not the router that the packet is for, so that it ends there, though that one has a route.
 */
static void a_flood_ends_at_the_next_switch(void)
{
    const int32_t none[] = {-1, -1, -1};

    open_pair((struct vb_world_switch_config){.floods = true});
    CHECK_EQ(vb_world_set_routes(world, world_switch(0), none, HOSTS, 1), 0);
    vb_world_call(world->partition, 0, 0, 2);
    CHECK_EQ(run_on(), VB_WORLD_END_EMPTY);
    CHECK_EQ(arrived[0], 0);
    CHECK_EQ(arrived[1], 1);
    CHECK_EQ(arrived[2], 0);
    CHECK_EQ(port_at(1, 2)->traffic.dropped[VB_WORLD_DROP_ROUTE], 1);
    CHECK_EQ(dropped_packets, 1);
    CHECK_EQ(world->partition->copied, 1);
    vb_world_call(world->partition, world->now, 2,
                  1); /* the second has a route, the first floods */
    CHECK_EQ(run_on(), VB_WORLD_END_EMPTY);
    CHECK_EQ(arrived[0], 1);
    CHECK_EQ(arrived[1], 2);
    CHECK_EQ(dropped_packets, 1);
    vb_world_destroy(world);
}

/* Each switch takes one from the hop limit, and drops what has none left. */
static void a_hop_limit_is_the_number_of_links(void)
{
    static const uint32_t limits[] = {1, 2, 3, 4};

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); ++i) {
        open_pair((struct vb_world_switch_config){0});
        world->hop_limit = limits[i];
        vb_world_call(world->partition, 0, 0, 2);
        CHECK_EQ(run_on(), VB_WORLD_END_EMPTY);
        CHECK_EQ(arrived[2], limits[i] > 2);
        CHECK_EQ(port_at(0, 0)->traffic.dropped[VB_WORLD_DROP_HOPS], limits[i] == 1);
        CHECK_EQ(port_at(1, 2)->traffic.dropped[VB_WORLD_DROP_HOPS], limits[i] == 2);
        vb_world_destroy(world);
    }
}

/* ---- deadlocks ------------------------------------------------------------------------------- */

/* A packet that no event can let go on is a deadlock at once, though timers are pending. */
static void a_run_is_stuck_as_soon_as_a_packet_is(void)
{
    const uint64_t later = 1000 * DELAY;

    open_pair(yard_lanes(1, VB_WORLD_CREDITS, 6400));
    world->port[world->node[host[0]].port[0]].lanes->lane[0].peer_room = 0;
    vb_world_call(world->partition, DELAY, 0, 1);
    vb_world_call(world->partition, later, 1, 2);
    CHECK_EQ(run_on(), VB_WORLD_END_STUCK);
    CHECK_EQ(world->now, DELAY);
    CHECK_EQ(run_on(), VB_WORLD_END_STUCK); /* and stays so */
    CHECK_EQ(world->now, DELAY);
    vb_world_destroy(world);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int build_all_kinds(void)
{
    const struct vb_world_detour_config detours = {.adaptive = true, .gap = DELAY};
    const uint16_t group[] = {0, 1, 0, 0, 1};
    struct vb_world_switch_config config = yard_pauses(true);
    const struct vb_world_link link = {.rate = RATE, .delay = DELAY};
    struct vb_world_switch *sw;
    uint32_t node;
    int error = 0;

    config.ports = 3;
    config.floods = true;
    for (uint32_t i = 0; i < 2 && !error; ++i) {
        error = vb_world_switch_create(&config, &sw);
        if (!error)
            error = vb_world_add_switch(world, sw, &node);
    }
    for (uint32_t i = 0; i < HOSTS && !error; ++i) {
        error = vb_world_add_host(world, &host[i]);
        if (!error)
            error = vb_world_connect(world, host[i], 0, i / 2, i % 2, &link);
    }
    if (!error)
        error = vb_world_connect(world, 0, 2, 1, 2, &link);
    if (!error)
        error = vb_world_set_detours(world, &detours, group, 5);
    if (!error)
        error = vb_world_add_storm(world, host[0], 0, DELAY, 3 * DELAY);
    return error ? error : vb_world_halt(world, 2 * DELAY, true);
}

/* Each allocation of a fabric fails once: what failed says so, and nothing is left of it. */
static void each_part_of_a_fabric_may_lack_memory(void)
{
    long before = starved_blocks();
    bool failed = true;

    for (int allocation = 0; failed; ++allocation) {
        int error;

        starved_after(allocation);
        error = vb_world_create(7, &calls, NULL, &world);
        if (!error) {
            error = build_all_kinds();
            vb_world_destroy(world);
        }
        failed = starved_end();
        CHECK_EQ(error, failed ? -ENOMEM : 0);
        CHECK_EQ(starved_blocks(), before);
    }
}

int main(void)
{
    RUN(a_packet_fits_up_to_the_last_byte);
    RUN(reserved_room_is_for_its_flows);
    RUN(a_pause_ends_with_the_headroom);
    RUN(a_queue_without_lanes_has_its_limit);
    RUN(marks_begin_at_their_limits);
    RUN(a_link_loses_what_was_on_it);
    RUN(a_packet_counts_when_it_begins);
    RUN(what_waits_in_reserved_buffer_is_not_others);
    RUN(packets_cut_through_between_links_of_one_rate);
    RUN(fecn_tells_roots_from_victims);
    RUN(fecn_of_an_input_with_pauses_counts_bytes);
    RUN(each_entry_of_a_table_of_lanes_is_checked);
    RUN(a_flood_ends_at_the_next_switch);
    RUN(a_hop_limit_is_the_number_of_links);
    RUN(a_run_is_stuck_as_soon_as_a_packet_is);
    RUN(each_part_of_a_fabric_may_lack_memory);
    return 0;
}
