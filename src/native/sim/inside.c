// SPDX-License-Identifier: Apache-2.0
/*
 * What requests, packets and completions cost inside a simulated host: bytes of PCIe transactions,
 * cycles of cores, walks of the IOMMU, reads of translations, interrupts. host_inside.c calls it.
 * The bytes of transactions are those of the model that was published with pcie-bench (Neugebauer
 * et al., SIGCOMM 2018).
 */
#include "sim/inside.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t pieces(uint64_t bytes, uint32_t each)
{
    return (uint32_t)((bytes + each - 1) / each);
}

/* ---- making it ------------------------------------------------------------------------------- */

int vb_sim_inside_create(const struct vb_inside_config *config, struct vb_inside **inside)
{
    struct vb_inside *made = calloc(1, sizeof(*made));
    int error = -ENOMEM;

    if (!made)
        return error;
    made->config = *config;
    made->first = made->last = UINT32_MAX;
    made->core = calloc(config->cores, sizeof(*made->core));
    made->walk_free_at = calloc(config->iommu_walks, sizeof(*made->walk_free_at));
    made->slice = calloc(config->slices + 1u, sizeof(*made->slice));
    if (made->core && made->walk_free_at && made->slice)
        error = vb_sim_inside_cache_open(&made->iotlb, config->iommu_entries);
    if (!error)
        error = vb_sim_inside_cache_open(&made->mtt, config->mtt_entries);
    if (error) {
        vb_sim_inside_destroy(made);
        return error;
    }
    for (uint32_t i = 0; i < config->cores; ++i)
        made->core[i].timer_at = UINT64_MAX;
    *inside = made;
    return 0;
}

static void free_lists(struct vb_inside_core *core)
{
    free(core->waits.item);
    free(core->comes.item);
}

void vb_sim_inside_destroy(struct vb_inside *inside)
{
    if (!inside)
        return;
    for (uint32_t i = 0; inside->core && i < inside->config.cores; ++i)
        free_lists(&inside->core[i]);
    vb_sim_inside_cache_close(&inside->iotlb);
    vb_sim_inside_cache_close(&inside->mtt);
    free(inside->core);
    free(inside->walk_free_at);
    free(inside->slice);
    free(inside);
}

void vb_sim_inside_record(struct vb_inside *inside, uint8_t row, uint8_t what, uint64_t at,
                          uint64_t end, uint32_t bytes)
{
    if (inside->sliced < inside->config.slices)
        inside->slice[inside->sliced++] =
            (struct vb_inside_slice){at, end, inside->flow, bytes, row, what};
}

/* ---- cores ----------------------------------------------------------------------------------- */

static uint64_t spinning(const struct vb_inside *inside, const struct vb_inside_core *core,
                         uint64_t now)
{
    uint64_t from = core->free_at > core->spins_from ? core->free_at : core->spins_from;

    return core->flows && !inside->config.interrupts && now > from ? now - from : 0;
}

uint64_t vb_sim_inside_spun(const struct vb_inside *inside, uint32_t core, uint64_t now)
{
    return inside->core[core].spun + spinning(inside, &inside->core[core], now);
}

static uint64_t later_of(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

uint64_t vb_sim_inside_charge(struct vb_inside *inside, uint32_t core, uint64_t now,
                              enum vb_inside_cost cost, uint32_t times)
{
    uint64_t cycles = (uint64_t)inside->config.cost[cost] * times;

    inside->counters.cost[cost] += times;
    return vb_sim_inside_work(inside, core, now, (uint8_t)cost,
                              (cycles * inside->config.cycle) >> VB_INSIDE_SHIFT);
}

uint64_t vb_sim_inside_work(struct vb_inside *inside, uint32_t core, uint64_t now, uint8_t what,
                            uint64_t took)
{
    struct vb_inside_core *on = &inside->core[core];

    on->spun += spinning(inside, on, now);
    if (on->free_at < now)
        on->free_at = now;
    on->free_at += took;
    on->busy += took;
    if (took)
        vb_sim_inside_record(inside, (uint8_t)core, what, on->free_at - took, on->free_at, 0);
    return on->free_at - now;
}

void vb_sim_inside_begins_to_poll(struct vb_inside *inside, uint32_t core, uint64_t now)
{
    struct vb_inside_core *on = &inside->core[core];

    if (!on->flows++)
        on->spins_from = now;
}

void vb_sim_inside_ends_polling(struct vb_inside *inside, uint32_t core, uint64_t now)
{
    struct vb_inside_core *on = &inside->core[core];

    on->spun += spinning(inside, on, now);
    on->spins_from = now;
    --on->flows;
}

/* ---- the PCIe link --------------------------------------------------------------------------- */

/* How long a direction is occupied by so many bytes. */
static uint64_t inside_time(const struct vb_inside *inside, uint64_t bytes)
{
    return (bytes * inside->config.byte_time) >> VB_INSIDE_SHIFT;
}

/* Transactions of one kind, as they are on a direction. */
struct inside_burst {
    enum vb_inside_tlp tlp;
    uint32_t count;
    uint64_t bytes;
};

/* Puts transactions on a direction, behind what is there. Returns when they begin. */
static uint64_t occupy(struct vb_inside *inside, struct vb_inside_link *link, uint64_t now,
                       const struct inside_burst *burst)
{
    uint64_t took = inside_time(inside, burst->bytes);

    if (link->free_at < now)
        link->free_at = now;
    link->free_at += took;
    link->busy += took;
    link->bytes += burst->bytes;
    link->tlp[burst->tlp].count += burst->count;
    link->tlp[burst->tlp].bytes += burst->bytes;
    return link->free_at - took;
}

/* Transactions that are on a direction from `at` on. */
static void record_burst(struct vb_inside *inside, const struct vb_inside_link *link, uint64_t at,
                         const struct inside_burst *burst)
{
    vb_sim_inside_record(inside, link == &inside->up ? VB_INSIDE_ROW_UP : VB_INSIDE_ROW_DOWN,
                         (uint8_t)burst->tlp, at, at + inside_time(inside, burst->bytes),
                         (uint32_t)burst->bytes);
}

static struct inside_burst writes_of(const struct vb_inside *inside, uint64_t bytes)
{
    uint32_t count = pieces(bytes, inside->config.mps);

    return (struct inside_burst){VB_INSIDE_WRITE, count,
                                 (uint64_t)count * VB_INSIDE_REQUEST + bytes};
}

static struct inside_burst asks_of(const struct vb_inside *inside, uint64_t bytes)
{
    uint32_t count = pieces(bytes, inside->config.mrrs);

    return (struct inside_burst){VB_INSIDE_READ, count, (uint64_t)count * VB_INSIDE_REQUEST};
}

static struct inside_burst answers_of(const struct vb_inside *inside, uint64_t bytes)
{
    uint32_t count = pieces(bytes, inside->config.mps);

    return (struct inside_burst){VB_INSIDE_DATA, count,
                                 (uint64_t)count * VB_INSIDE_COMPLETION + bytes};
}

static void read_from_memory(struct vb_inside *inside, uint64_t now, uint64_t bytes)
{
    const struct inside_burst asks = asks_of(inside, bytes), answers = answers_of(inside, bytes);

    occupy(inside, &inside->up, now, &asks);
    occupy(inside, &inside->down, now, &answers);
}

/* When the data leave memory that are in the adapter at `done`. */
static uint64_t leaves_memory_at(const struct vb_inside *inside, uint64_t bytes, uint64_t done)
{
    return done - inside->config.round_trip / 2 -
           inside_time(inside, answers_of(inside, bytes).bytes);
}

/*
 * A read whose data are in the adapter at `done`, and which was asked for no earlier than it had to
 * be. Returns when that begins.
 */
static uint64_t record_read(struct vb_inside *inside, uint64_t bytes, uint64_t done)
{
    const struct inside_burst asks = asks_of(inside, bytes), answers = answers_of(inside, bytes);
    uint64_t at = leaves_memory_at(inside, bytes, done);

    record_burst(inside, &inside->down, at, &answers);
    at -= inside->config.round_trip - inside->config.round_trip / 2 + inside->config.memory +
          inside_time(inside, asks.bytes);
    record_burst(inside, &inside->up, at, &asks);
    return at;
}

/* How long a direction is occupied from now on. */
static uint64_t backlog(const struct vb_inside_link *link, uint64_t now)
{
    return link->free_at > now ? link->free_at - now : 0;
}

/* The delay of a read that was put on both directions, if its window of tags is free. */
static uint64_t read_delay(const struct vb_inside *inside, uint64_t now)
{
    return backlog(&inside->up, now) + backlog(&inside->down, now) + inside->config.round_trip +
           inside->config.memory;
}

/* ---- translations ---------------------------------------------------------------------------- */

/* A walk through the IOMMU's tables: of so many at a time, the one that is free first. */
static uint64_t walk(struct vb_inside *inside, uint64_t now)
{
    uint64_t *free_at = inside->walk_free_at;

    for (uint32_t i = 1; i < inside->config.iommu_walks; ++i)
        if (inside->walk_free_at[i] < *free_at)
            free_at = &inside->walk_free_at[i];
    *free_at = (*free_at > now ? *free_at : now) + inside->config.iommu_miss;
    return *free_at - now;
}

/* The adapter reads an entry of its table of pages, which is in the host's memory. */
static uint64_t read_translation(struct vb_inside *inside, uint64_t now)
{
    uint64_t delay;

    read_from_memory(inside, now, VB_INSIDE_LINE);
    delay = read_delay(inside, now);
    record_read(inside, VB_INSIDE_LINE, now + delay);
    return delay;
}

/* A connection's data go round through its memory of `buffer` bytes. */
static uint64_t page_key(const struct vb_inside *inside, uint64_t space, uint64_t at, uint32_t page)
{
    return space << 32 | at % inside->config.buffer / page;
}

/* The delay that the pages of a transfer add. */
static uint64_t inside_translate(struct vb_inside *inside, uint64_t now, uint32_t bytes,
                                 uint64_t space, uint64_t at)
{
    const struct vb_inside_config *config = &inside->config;
    uint64_t own = 0, walked = 0;

    for (uint64_t p = at - at % config->mtt_page; config->mtt_entries && p < at + bytes;
         p += config->mtt_page)
        if (!vb_sim_inside_cache_touch(&inside->mtt, page_key(inside, space, p, config->mtt_page)))
            own = read_translation(inside, now);
    for (uint64_t p = at - at % config->iommu_page; config->iommu_entries && p < at + bytes;
         p += config->iommu_page)
        if (!vb_sim_inside_cache_touch(&inside->iotlb,
                                       page_key(inside, space, p, config->iommu_page)))
            walked = walk(inside, now);
    return own + walked;
}

/* ---- the adapter's work ---------------------------------------------------------------------- */

uint32_t vb_sim_inside_request_bytes(const struct vb_inside *inside, enum vb_inside_request kind,
                                     bool has_payload, uint64_t payload)
{
    uint32_t segments = kind == VB_INSIDE_ADDRESSES ? 64 : kind == VB_INSIDE_NAMES_MEMORY ? 32 : 16;
    uint32_t data = 16; /* of an element: address, key and length */

    if (has_payload && payload <= inside->config.inline_most)
        data = 4 + (uint32_t)payload;
    return pieces(segments + data, VB_INSIDE_LINE) * VB_INSIDE_LINE;
}

static const struct inside_burst doorbell = {VB_INSIDE_WRITE, 1, VB_INSIDE_REQUEST + 8};

/* A request by BlueFlame: in lines of a write-combining buffer. */
static struct inside_burst blueflame_of(uint64_t bytes)
{
    uint32_t lines = pieces(bytes, VB_INSIDE_LINE);

    return (struct inside_burst){VB_INSIDE_WRITE, lines,
                                 (uint64_t)lines * (VB_INSIDE_REQUEST + VB_INSIDE_LINE)};
}

static void ring(struct vb_inside *inside, uint64_t now, uint64_t bytes, bool whole)
{
    const struct inside_burst written = whole ? blueflame_of(bytes) : doorbell;

    ++*(whole ? &inside->counters.blueflames : &inside->counters.doorbells);
    occupy(inside, &inside->down, now, &written);
    if (!whole)
        read_from_memory(inside, now, bytes);
}

/* The adapter has the requests at `done`. */
static void record_ring(struct vb_inside *inside, uint64_t bytes, bool whole, uint64_t done)
{
    const struct inside_burst written = whole ? blueflame_of(bytes) : doorbell;
    uint64_t there = whole ? done : record_read(inside, bytes, done);

    record_burst(inside, &inside->down,
                 there - inside->config.round_trip / 2 - inside_time(inside, written.bytes),
                 &written);
}

uint64_t vb_sim_inside_charge_post(struct vb_inside *inside, uint32_t core, uint64_t now,
                                   uint32_t requests, uint64_t bytes)
{
    const struct vb_inside_config *config = &inside->config;
    bool whole = config->blueflame && requests == 1;
    uint64_t delay = config->round_trip / 2;

    vb_sim_inside_charge(inside, core, now, VB_INSIDE_POST, requests);
    delay += vb_sim_inside_charge(inside, core, now, VB_INSIDE_DOORBELL, 1);
    inside->counters.requests += requests;
    ring(inside, now, bytes, whole);
    delay += backlog(&inside->down, now);
    if (!whole)
        delay += backlog(&inside->up, now) + config->round_trip + config->memory;
    record_ring(inside, bytes, whole, now + delay);
    return delay;
}

/* Reads take turns at the tags: so many bytes in a round trip. */
static uint64_t wait_for_tags(struct vb_inside *inside, uint64_t now, uint32_t bytes)
{
    const struct vb_inside_config *config = &inside->config;
    uint64_t window = (uint64_t)config->tags * config->mrrs, trip, wait;

    trip = config->round_trip + config->memory;
    wait = inside->window_free_at > now ? inside->window_free_at - now : 0;
    inside->window_free_at = now + wait + bytes * trip / window;
    return wait + (bytes > window ? (bytes - window) * trip / window : 0);
}

/* The row of memory has the payload alone. */
static void record_memory(struct vb_inside *inside, enum vb_inside_tlp what, uint64_t at,
                          uint32_t payload)
{
    if (payload)
        vb_sim_inside_record(inside, VB_INSIDE_ROW_MEMORY, (uint8_t)what, at, at, payload);
}

uint64_t vb_sim_inside_charge_fetch(struct vb_inside *inside, uint64_t now, uint64_t posted,
                                    const struct vb_inside_piece *piece)
{
    uint32_t bytes = piece->payload + piece->headers;
    uint64_t delay =
        posted + inside_translate(inside, now, piece->payload, piece->space, piece->at);
    uint64_t wait = wait_for_tags(inside, now, bytes);

    inside->counters.fetched += piece->payload;
    inside->counters.headers_fetched += piece->headers;
    read_from_memory(inside, now, bytes);
    delay += later_of(wait, backlog(&inside->up, now) + backlog(&inside->down, now)) +
             inside->config.round_trip + inside->config.memory;
    record_read(inside, bytes, now + delay);
    record_memory(inside, VB_INSIDE_READ, leaves_memory_at(inside, bytes, now + delay),
                  piece->payload);
    return delay;
}

uint64_t vb_sim_inside_charge_place(struct vb_inside *inside, uint64_t now,
                                    const struct vb_inside_piece *piece)
{
    const struct inside_burst writes = writes_of(inside, piece->payload + piece->headers);
    uint64_t delay = inside_translate(inside, now, piece->payload, piece->space, piece->at);

    inside->counters.placed += piece->payload;
    inside->counters.headers_placed += piece->headers;
    record_burst(inside, &inside->up, occupy(inside, &inside->up, now, &writes) + delay, &writes);
    delay += backlog(&inside->up, now);
    record_memory(inside, VB_INSIDE_WRITE, now + delay + inside->config.round_trip / 2,
                  piece->payload);
    return delay;
}

void vb_sim_inside_charge_receive(struct vb_inside *inside, uint64_t now)
{
    read_from_memory(inside, now, VB_INSIDE_RECEIVE);
    record_read(inside, VB_INSIDE_RECEIVE, now + read_delay(inside, now));
}

uint64_t vb_sim_inside_charge_completion(struct vb_inside *inside, uint64_t now)
{
    const struct inside_burst writes = writes_of(inside, inside->config.cqe);

    ++inside->counters.completions;
    occupy(inside, &inside->up, now, &writes);
    record_burst(inside, &inside->up, now, &writes);
    return vb_sim_inside_write_time(inside);
}

uint64_t vb_sim_inside_write_time(const struct vb_inside *inside)
{
    return inside_time(inside, VB_INSIDE_REQUEST + inside->config.cqe) +
           inside->config.round_trip / 2;
}

uint64_t vb_sim_inside_message_time(const struct vb_inside *inside)
{
    return inside_time(inside, VB_INSIDE_MSI);
}

uint64_t vb_sim_inside_charge_message(struct vb_inside *inside, uint64_t now, uint32_t merged,
                                      bool follows)
{
    static const struct inside_burst message = {VB_INSIDE_SIGNAL, 1, VB_INSIDE_MSI};
    uint64_t way = follows ? vb_sim_inside_write_time(inside) : inside->config.round_trip / 2;

    ++inside->counters.interrupts;
    inside->counters.merged += merged;
    occupy(inside, &inside->up, now, &message);
    record_burst(inside, &inside->up, now + way - inside->config.round_trip / 2, &message);
    return way + vb_sim_inside_message_time(inside);
}

uint64_t vb_sim_inside_charge_interrupt(struct vb_inside *inside, uint32_t core, uint64_t now)
{
    vb_sim_inside_charge(inside, core, now, VB_INSIDE_INTERRUPT, 1);
    vb_sim_inside_charge(inside, core, now, VB_INSIDE_WAKEUP, 1);
    /* One call returns from its sleep, and another has armed the queue. */
    return vb_sim_inside_charge(inside, core, now, VB_INSIDE_SYSCALL, 2);
}

uint64_t vb_sim_inside_interrupt_time(const struct vb_inside *inside)
{
    const uint32_t *cost = inside->config.cost;
    uint64_t cycles = (uint64_t)cost[VB_INSIDE_INTERRUPT] + cost[VB_INSIDE_WAKEUP] +
                      2 * (uint64_t)cost[VB_INSIDE_SYSCALL];

    return (cycles * inside->config.cycle) >> VB_INSIDE_SHIFT;
}
