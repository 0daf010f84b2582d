// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a simulated host: the two directions of the adapter's PCIe link, the processor's
 * cores, caches of translations, and interrupts. host_inside.c calls it for each request, packet
 * and completion of a host that has an inside, and it answers how long each takes. It knows no
 * packets and makes no events.
 *
 * Each direction and each core is a queue: work is put behind what is there at the time of the
 * call. Delays without work (half of a round trip, a walk through the IOMMU's tables) are added to
 * the answer and occupy nothing, so a later call for an earlier moment never waits for them. Slices
 * are recorded with these delays, each behind what it follows from; so those of a direction may
 * overlap. Times are in ps. The Python binding computes the parameters; their defaults and sources
 * are in inside.py.
 */
#ifndef VB_SIM_INSIDE_H
#define VB_SIM_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/inside_cache.h"
#include "transport/coming.h"

enum {
    VB_INSIDE_SHIFT = 20,      /* of byte_time and cycle: ps in units of 2^-20 */
    VB_INSIDE_REQUEST = 24,    /* bytes of a memory read or write beside its data */
    VB_INSIDE_COMPLETION = 20, /* the same of a completion with data */
    VB_INSIDE_MSI = 28,        /* all of a message-signalled interrupt */
    VB_INSIDE_LINE = 64,       /* a write-combining buffer */
    VB_INSIDE_RECEIVE = 16,    /* a receive request */
    VB_INSIDE_AHEAD = 9216,    /* two packets: how far the adapter fetches ahead of the wire */
};

#define VB_INSIDE_NO_FLOW UINT32_MAX /* in slices: programs, and their sockets */

/* What a core spends cycles on. */
enum vb_inside_cost {
    VB_INSIDE_POST,      /* a request is written */
    VB_INSIDE_DOORBELL,  /* a store to the adapter */
    VB_INSIDE_POLL,      /* a completion is taken */
    VB_INSIDE_INTERRUPT, /* the handler */
    VB_INSIDE_WAKEUP,    /* a process is woken, and switched to */
    VB_INSIDE_SYSCALL,
    VB_INSIDE_COSTS
};

enum vb_inside_tlp {
    VB_INSIDE_WRITE,
    VB_INSIDE_READ,
    VB_INSIDE_DATA,
    VB_INSIDE_SIGNAL,
    VB_INSIDE_TLPS
};

/* Rows of the recorded slices, beside the numbers of cores. */
enum vb_inside_row {
    VB_INSIDE_ROW_UP = 252,
    VB_INSIDE_ROW_DOWN,
    VB_INSIDE_ROW_MEMORY,
    VB_INSIDE_ROW_WIRE,
};

struct vb_inside_config {
    uint64_t byte_time;  /* of a direction */
    uint64_t round_trip; /* of a read, without its bytes */
    uint64_t memory;     /* what a read of memory takes beyond that */
    uint64_t cycle;
    uint64_t iommu_miss, interrupt_time;
    uint32_t mps, mrrs, tags;
    uint32_t cores;
    uint32_t cost[VB_INSIDE_COSTS]; /* cycles */
    uint32_t inline_most;           /* bytes of a message that is in its request */
    uint32_t cqe;                   /* bytes of a completion */
    uint32_t batch;                 /* requests that a flow posts by one doorbell */
    uint32_t iommu_entries, iommu_page, iommu_walks;
    uint32_t mtt_entries, mtt_page;
    uint32_t interrupt_packets; /* completions that end the wait of interrupt_time */
    uint64_t buffer;            /* bytes of memory that each connection's data go through */
    uint32_t slices;            /* the most that are recorded */
    bool blueflame;
    bool interrupts; /* completions raise them; else a core polls */
};

struct vb_inside_link {
    uint64_t free_at, busy, bytes;
    struct vb_inside_tlps {
        uint64_t count, bytes;
    } tlp[VB_INSIDE_TLPS];
};

/* Completions, in their order: host_inside.c says what is in an item. */
struct vb_inside_list {
    uint32_t count, room;
    uint64_t *item;
};

struct vb_inside_core {
    uint64_t free_at, busy;
    uint64_t spun, spins_from; /* polled without finding anything, while `flows` are under way */
    uint32_t flows;
    struct vb_inside_list waits; /* for an interrupt */
    struct vb_inside_list comes; /* on their way to memory, where the core finds them without one */
    uint32_t raised;      /* the first ones that wait, for which an interrupt is on its way */
    uint64_t timer_at;    /* of the pending interrupt; UINT64_MAX: none */
    uint64_t woken_until; /* its process has completions in hand until then */
};

struct vb_inside_slice {
    uint64_t at, end;
    uint32_t flow, bytes;
    uint8_t row, what; /* enum vb_inside_cost or vb_inside_tlp */
};

struct vb_inside_counters {
    uint64_t cost[VB_INSIDE_COSTS]; /* how often */
    uint64_t requests, doorbells, blueflames, inlined, fetched, placed, completions;
    uint64_t headers_fetched, headers_placed; /* of frames of TCP and sockets */
    uint64_t interrupts, merged;
};

struct vb_inside {
    struct vb_inside_config config;
    struct vb_inside_link up, down; /* to memory and processor; to the adapter */
    struct vb_inside_core *core;
    uint64_t window_free_at; /* when the next read has tags */
    uint64_t *walk_free_at;
    struct vb_inside_cache iotlb, mtt;
    struct vb_inside_counters counters;
    uint64_t wire_free_at;  /* when the packets that were made have left */
    uint64_t wire_recorded; /* the same of those that went to the port: in slices */
    uint64_t leave_at;      /* of the last of the packets that wait for their payload */
    uint64_t left_at;       /* of the packet that was sent last: when it leaves the adapter */
    uint64_t placed_at;     /* of the last of those that wait for their place in memory */
    uint32_t first, last;   /* packets that wait for their payload; host_inside.c */
    struct vb_inside_slice *slice;
    uint32_t sliced;
    uint32_t flow;              /* for whom the next calls are: recorded in slices */
    uint64_t woke_at;           /* when the host's program was woken last */
    uint32_t untaken, unposted; /* of it: completions, and receives among them, since then, without
                                   those that it has polled by itself */
};

/* What a connection has of its own. */
struct vb_inside_qp {
    uint64_t leave_at;       /* of its last packet that waits for its payload */
    uint64_t arrives_at;     /* its last requests, in the adapter */
    uint32_t rung;           /* the number of requests that doorbells have told of */
    uint32_t owed;           /* completed requests whose successors are not posted yet */
    struct vb_coming coming; /* of a flow: which packets are written to memory */
};

int vb_sim_inside_create(const struct vb_inside_config *config, struct vb_inside **inside);
void vb_sim_inside_destroy(struct vb_inside *inside);

/* Bytes of a request: of an opcode that names remote memory, of a datagram, or of neither. */
enum vb_inside_request { VB_INSIDE_SENDS, VB_INSIDE_NAMES_MEMORY, VB_INSIDE_ADDRESSES };
uint32_t vb_sim_inside_request_bytes(const struct vb_inside *inside, enum vb_inside_request kind,
                                     bool has_payload, uint64_t payload);

/* A core spends a cost so many times. Returns the time from now to the end. */
uint64_t vb_sim_inside_charge(struct vb_inside *inside, uint32_t core, uint64_t now,
                              enum vb_inside_cost cost, uint32_t times);
/* The same of work that took so many ps, and is `what` in slices. */
uint64_t vb_sim_inside_work(struct vb_inside *inside, uint32_t core, uint64_t now, uint8_t what,
                            uint64_t took);
/*
 * A core posts requests of so many bytes in all, by one doorbell. Returns the delay until the
 * adapter has them.
 */
uint64_t vb_sim_inside_charge_post(struct vb_inside *inside, uint32_t core, uint64_t now,
                                   uint32_t requests, uint64_t bytes);
/* What the adapter reads or writes for one packet: payload that is `at` in the memory of a
 * connection, and headers beside it, which are in memory that needs no translation. */
struct vb_inside_piece {
    uint32_t payload, headers;
    uint64_t space, at;
};
/* The delay until it is in the adapter, which knows of it after the delay `posted`. */
uint64_t vb_sim_inside_charge_fetch(struct vb_inside *inside, uint64_t now, uint64_t posted,
                                    const struct vb_inside_piece *piece);
/* The delay until the adapter has written it to memory, and is free of it. */
uint64_t vb_sim_inside_charge_place(struct vb_inside *inside, uint64_t now,
                                    const struct vb_inside_piece *piece);
/* The adapter reads a receive request. It has done so in advance, so nothing waits for it. */
void vb_sim_inside_charge_receive(struct vb_inside *inside, uint64_t now);
/*
 * The delay until a completion is in memory. It takes effect when the payload before it has left
 * the adapter, so it follows that, and not what came later and waits for the link.
 */
uint64_t vb_sim_inside_charge_completion(struct vb_inside *inside, uint64_t now);
/* The same without a charge. */
uint64_t vb_sim_inside_write_time(const struct vb_inside *inside);
/* The message of an interrupt: the delay until it is at the processor. `merged`: completions beyond
 * the first. `follows`: it goes behind a completion that is written now. */
uint64_t vb_sim_inside_charge_message(struct vb_inside *inside, uint64_t now, uint32_t merged,
                                      bool follows);
uint64_t vb_sim_inside_message_time(const struct vb_inside *inside); /* on the link */
/* A core has an interrupt. Returns the time until its process runs. */
uint64_t vb_sim_inside_charge_interrupt(struct vb_inside *inside, uint32_t core, uint64_t now);
/* The same of an idle core, without a charge. */
uint64_t vb_sim_inside_interrupt_time(const struct vb_inside *inside);
/* A flow of this core begins or ends: while there is one the core polls, if it does. */
void vb_sim_inside_begins_to_poll(struct vb_inside *inside, uint32_t core, uint64_t now);
void vb_sim_inside_ends_polling(struct vb_inside *inside, uint32_t core, uint64_t now);
/* As vb_inside_core.spun, with the time until now. */
uint64_t vb_sim_inside_spun(const struct vb_inside *inside, uint32_t core, uint64_t now);
void vb_sim_inside_record(struct vb_inside *inside, uint8_t row, uint8_t what, uint64_t at,
                          uint64_t end, uint32_t bytes);

#endif
