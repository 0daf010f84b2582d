// SPDX-License-Identifier: Apache-2.0
/*
 * A port with lanes: InfiniBand's virtual lanes or Ethernet's traffic classes. Each lane has its
 * own queue and its own flow control, so that lossy and lossless lanes share a wire.
 *
 * Of a port's lane one half is about sending: what waits, and whether the other end lets it go.
 * The other half is about what came in by this port and is still in the node. Credits and pauses
 * travel as records with a time, which the sender takes in when it looks at its queues; only one
 * that is blocked is woken by them.
 *
 * Credits (IBA 7.9): a sender has sent so many blocks of 64 bytes; the receiver says up to which
 * count it has room. The link's flow-control packets carry both modulo 4096 (FCTBS, FCCL), and
 * FCCL is never more than 2048 beyond what has been received (ABR); here they are counted on, and
 * compared as they are. Pauses (IEEE 802.1Q, priority-based flow control) end by themselves.
 */
#ifndef VB_EVENT_LANES_H
#define VB_EVENT_LANES_H

#include "event/arbiter.h"
#include "event/world.h"

enum {
    VB_WORLD_CREDIT_BLOCK = 64,
    VB_WORLD_CREDIT_WINDOW = 2048,
    VB_WORLD_LANE_FIRST = 15,  /* goes before all others, where there are 16 */
    VB_WORLD_PAUSE_BYTES = 84, /* a frame of 64 bytes, its preamble and the gap after it */
    VB_WORLD_QUANTUM_BITS = 512,
    VB_WORLD_QUANTA_MAX = 65535,
};

enum vb_world_flow_control {
    VB_WORLD_LOSSY = 0,
    VB_WORLD_CREDITS,
    VB_WORLD_PAUSES,
    VB_WORLD_VL15, /* VL15: lossy, with a limit of its own and no part in what others share */
};

/* How the receiving node controls the flow of a lane. */
struct vb_world_lane_config {
    enum vb_world_flow_control flow_control;
    uint32_t room; /* credits: bytes of each port's input buffer */
};

/* watchdog.h: ps of a pause after which it acts, and without one after which it stops acting. */
struct vb_world_watchdog_config {
    uint64_t detect, restore;
    bool forward; /* sends in spite of the pause; otherwise drops */
};

/* Packets of one input that wait for one lane of one port. */
struct vb_world_input_queue {
    uint32_t first, last;
    uint32_t next; /* the input whose turn is after this one's */
};

struct vb_world_lane {
    uint32_t bytes, packets; /* that wait */
    uint32_t first_input, last_input;
    uint8_t
        flow_control; /* enum vb_world_flow_control, of the direction in which this port sends */
    bool paused;
    uint64_t paused_until;
    uint64_t sent;              /* FCTBS: blocks */
    uint64_t released, arrived; /* what the receiver says: blocks that left it, that reached it */
    uint32_t peer_room;         /* blocks */
    /* what came in by this port on this lane */
    uint8_t input_flow_control;
    bool stopped;    /* the other end was told to pause, and not yet to go on */
    bool refreshing; /* an event to say so again is pending */
    uint32_t held;   /* bytes of it in the node; with credits in blocks */
    union {
        uint32_t room;  /* credits: blocks */
        uint32_t above; /* pauses: bytes of `held` that are in the headroom */
    };
    uint64_t head_since; /* when the packet that is first became so */
};

enum vb_world_control_kind {
    VB_WORLD_CONTROL_RELEASED,
    VB_WORLD_CONTROL_ARRIVED,
    VB_WORLD_CONTROL_PAUSE
};

/* From the other end; in the order of time. */
struct vb_world_control {
    uint64_t at;
    uint32_t value; /* blocks, or quanta */
    uint16_t lane;
    uint16_t kind; /* enum vb_world_control_kind */
};

struct vb_world_lanes {
    uint32_t count;
    uint32_t data;  /* those before VL15, if that is there */
    uint32_t first; /* set of the lanes that go before all others */
    uint32_t inputs;
    uint32_t waiting; /* bit: a lane with packets */
    bool wanted;      /* by a host: to be asked when the port is free */
    bool is_guarded;  /* there is a lifetime, or a watchdog */
    uint64_t wake_at; /* VB_WORLD_NEVER: no event is pending */
    uint64_t stalled_since;
    uint64_t lifetime;                  /* ps at the head of a queue; 0: no limit (IBA: HOQLife) */
    struct vb_world_watchdog *watchdog; /* NULL: none */
    struct vb_world_arbiter arbiter;
    struct vb_world_control *control;
    uint64_t control_next, control_last; /* times of the first and the last, if there are any */
    uint32_t control_first, control_count, control_room; /* a power of two */
    struct vb_world_input_queue *input_queue;            /* lane * inputs + input */
    struct vb_world_lane lane[];
};

/* Makes `data` lanes and, with `management`, VL15 behind them. NULL: no memory. */
struct vb_world_lanes *vb_world_lanes_create(uint32_t data, bool management, uint32_t inputs,
                                             const struct vb_world_arbiter_tables *tables);
void vb_world_lanes_destroy(struct vb_world_lanes *lanes);

static inline uint32_t vb_world_credit_blocks(uint32_t bytes)
{
    return (bytes + VB_WORLD_CREDIT_BLOCK - 1) / VB_WORLD_CREDIT_BLOCK;
}

/* The lane of a packet that a host sends. */
static inline uint32_t vb_world_lanes_of(const struct vb_world_lanes *lanes, uint8_t level_marks)
{
    if (__builtin_expect(level_marks & VB_WORLD_MANAGEMENT, 0) && lanes->data < lanes->count)
        return lanes->data;
    return (level_marks >> 4) % lanes->data;
}

/* A packet that came by `input` (hosts: 0) waits for this lane, or leaves at once. */
void vb_world_lanes_put(struct vb_world *world, uint32_t port, uint32_t lane, uint32_t input,
                        uint32_t packet);
/* The event VB_WORLD_WAKE. */
void vb_world_lanes_wake(struct vb_world *world, uint32_t port);
/* The host at this port has more to send. */
void vb_world_lanes_want(struct vb_world *world, uint32_t port);
/* The first packet of this lane goes nowhere. */
void vb_world_lanes_drop(struct vb_world *world, uint32_t port, uint32_t lane,
                         enum vb_world_drop_reason reason);
/* Could the first packet of this lane leave, if the port were free? */
bool vb_world_lane_is_open(const struct vb_world *world, const struct vb_world_lane *lane,
                           uint32_t bytes);

/* control.c: what a receiver tells the sender at the other end of this port. */
void vb_world_lanes_arrived(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                            uint32_t bytes);
void vb_world_lanes_released(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                             uint32_t bytes, uint64_t at);
void vb_world_lanes_pause(struct vb_world *world, struct vb_world_port *port, uint32_t lane,
                          uint32_t quanta);
/* The event VB_WORLD_REFRESH. */
void vb_world_lanes_refresh(struct vb_world *world, uint32_t port, uint32_t lane);
/* Takes in what has come by now. */
void vb_world_lanes_absorb(struct vb_world *world, struct vb_world_port *port);
/* The n-th word that was not taken in yet, and what it says about its lane. */
const struct vb_world_control *vb_world_lanes_control(const struct vb_world_lanes *lanes,
                                                      uint32_t n);
void vb_world_lane_take_in(struct vb_world_lane *lane, const struct vb_world_control *word,
                           uint64_t rate);
/* Blocks up to which the receiver lets this lane send, since the beginning (IBA 7.9.4.4). */
uint64_t vb_world_lane_limit(const struct vb_world_lane *lane);

/* An event VB_WORLD_WAKE at that time, unless an earlier one is pending; see vb_world.idle. */
void vb_world_lanes_plan(struct vb_world *world, uint32_t port, uint64_t at, bool idle);

#endif
