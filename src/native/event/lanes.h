// SPDX-License-Identifier: Apache-2.0
/*
 * A port with lanes: InfiniBand's virtual lanes or Ethernet's traffic classes. Each lane has its
 * own queue and its own flow control, so that lossy and lossless lanes share a link.
 *
 * Half of a lane's state is about sending: the queue, and whether the other end allows it to send.
 * The other half is about packets that came in by this port and are still in the node. Credits and
 * pauses arrive as control records with a time. The sender applies them when it serves its queues;
 * they cause an event only if the sender is blocked.
 *
 * Credits (IBA 7.9): the sender counts the blocks of 64 bytes that it has sent (FCTBS), and the
 * receiver says up to which count it has room (FCCL), at most 2048 beyond what it has received
 * (ABR). InfiniBand's counters are modulo 4096; these do not wrap. Pauses (IEEE 802.1Q,
 * priority-based flow control) expire.
 */
#ifndef VB_EVENT_LANES_H
#define VB_EVENT_LANES_H

#include "event/arbiter.h"
#include "event/partition.h"

enum {
    VB_WORLD_CREDIT_BLOCK = 64,
    VB_WORLD_CREDIT_WINDOW = 2048,
    VB_WORLD_LANE_FIRST = 15,  /* of 16 lanes: strict priority over all others, as VL15 */
    VB_WORLD_PAUSE_BYTES = 84, /* a frame of 64 bytes, its preamble and the gap after it */
    VB_WORLD_QUANTUM_BITS = 512,
    VB_WORLD_QUANTA_MAX = 65535,
};

enum vb_world_flow_control {
    VB_WORLD_LOSSY = 0,
    VB_WORLD_CREDITS,
    VB_WORLD_PAUSES,
    VB_WORLD_VL15, /* VL15: lossy, with a limit of its own beside the shared buffer */
};

/* The flow control of a lane at the receiving node. */
struct vb_world_lane_config {
    enum vb_world_flow_control flow_control;
    uint32_t room; /* credits: bytes of each port's input buffer */
};

/* watchdog.h. */
struct vb_world_watchdog_config {
    uint64_t detect;  /* ps of a pause after which the watchdog becomes active */
    uint64_t restore; /* ps without a pause after which it becomes inactive */
    bool forward;     /* true: packets are sent in spite of the pause; false: dropped */
};

/* The packets that came by one input and wait for one lane of one port. */
struct vb_world_input_queue {
    uint32_t first, last;
    uint32_t next; /* the input that is served after this one */
};

struct vb_world_lane {
    uint32_t bytes, packets;          /* in the queue */
    uint32_t first_input, last_input; /* the round robin of inputs that have packets */
    uint8_t flow_control; /* enum vb_world_flow_control of the direction in which this port sends */
    bool paused;
    uint64_t paused_until;
    uint64_t sent;              /* blocks (FCTBS) */
    uint64_t released, arrived; /* blocks that the receiver has reported as freed, as received */
    uint32_t peer_room;         /* blocks of the receiver's buffer */
    /* packets that came in by this port on this lane: */
    uint8_t input_flow_control;
    bool stopped;    /* the other end is paused by this port */
    bool refreshing; /* an event VB_WORLD_REFRESH is pending */
    uint32_t held;   /* bytes in the node; with credits blocks */
    union {
        uint32_t room;  /* credits: blocks of the buffer */
        uint32_t above; /* pauses: bytes of `held` that are in the headroom */
    };
    uint64_t head_since; /* when the first packet of the queue became the first */
};

enum vb_world_control_kind {
    VB_WORLD_CONTROL_RELEASED,
    VB_WORLD_CONTROL_ARRIVED,
    VB_WORLD_CONTROL_PAUSE
};

/* A control record from the other end of the link. */
struct vb_world_control {
    uint64_t at;    /* ps: when it arrives */
    uint32_t value; /* blocks, or quanta */
    uint16_t lane;
    uint16_t kind; /* enum vb_world_control_kind */
};

struct vb_world_lanes {
    uint32_t count;
    uint32_t data;  /* lanes without VL15 */
    uint32_t first; /* set of the lanes with strict priority */
    uint32_t inputs;
    uint32_t waiting; /* set of the lanes with packets */
    bool wants_ready; /* the host at this port is to be called when the port is free */
    bool is_guarded;  /* it has a lifetime or a watchdog */
    uint64_t wake_at; /* of the pending event VB_WORLD_WAKE; or VB_WORLD_NEVER */
    uint64_t stalled_since;
    uint64_t lifetime;                  /* ps at the head of a queue; 0: no limit (IBA: HOQLife) */
    struct vb_world_watchdog *watchdog; /* NULL: none */
    struct vb_world_arbiter arbiter;
    struct vb_world_arbiter_tables *own; /* a subnet manager's; NULL: those of the switch */
    struct vb_world_control *control;
    uint64_t control_next, control_last; /* times of the first and the last record */
    uint32_t control_first, control_count, control_room; /* a power of two */
    struct vb_world_input_queue *input_queue;            /* lane * inputs + input */
    uint8_t lane_of[16]; /* of a host: the lane of each service level */
    struct vb_world_lane lane[];
};

/* Makes `data` lanes and, with `management`, VL15 after them. NULL: no memory. */
struct vb_world_lanes *vb_world_lanes_create(uint32_t data, bool management, uint32_t inputs,
                                             const struct vb_world_arbiter_tables *tables);
void vb_world_lanes_destroy(struct vb_world_lanes *lanes);
/* Copies these tables, which replace those before. -ENOMEM. */
int vb_world_lanes_arbitrate(struct vb_world_lanes *lanes,
                             const struct vb_world_arbiter_tables *tables);

static inline uint32_t vb_world_credit_blocks(uint32_t bytes)
{
    return (bytes + VB_WORLD_CREDIT_BLOCK - 1) / VB_WORLD_CREDIT_BLOCK;
}

/* The lane on which a host sends a packet. */
static inline uint32_t vb_world_lanes_of(const struct vb_world_lanes *lanes, uint8_t level_marks)
{
    if (__builtin_expect(level_marks & VB_WORLD_MANAGEMENT, 0) && lanes->data < lanes->count)
        return lanes->data;
    return lanes->lane_of[level_marks >> 4];
}

/* Queues a packet that came by `input` (0 at a host), or sends it at once. */
void vb_world_lanes_put(struct vb_world_partition *part, uint32_t port, uint32_t lane,
                        uint32_t input, uint32_t packet);
/* Handles the event VB_WORLD_WAKE. */
void vb_world_lanes_wake(struct vb_world_partition *part, uint32_t port);
/* The host at this port is to be called when the port is free. */
void vb_world_lanes_want_ready(struct vb_world_partition *part, uint32_t port);
/* Drops the first packet of this lane. */
void vb_world_lanes_drop(struct vb_world_partition *part, uint32_t port, uint32_t lane,
                         enum vb_world_drop_reason reason);
/* Does flow control allow this lane to send so many bytes? */
bool vb_world_lane_is_open(const struct vb_world_partition *part, const struct vb_world_lane *lane,
                           uint32_t bytes);

/* control.c: the receiver at this port sends a control record to the other end. */
void vb_world_lanes_arrived(struct vb_world_partition *part, struct vb_world_port *port,
                            uint32_t lane, uint32_t bytes);
void vb_world_lanes_released(struct vb_world_partition *part, struct vb_world_port *port,
                             uint32_t lane, uint32_t bytes, uint64_t at);
void vb_world_lanes_pause(struct vb_world_partition *part, struct vb_world_port *port,
                          uint32_t lane, uint32_t quanta);
/* A control record for this port, which sends, from the other end of its link. */
void vb_world_lanes_control_came(struct vb_world_partition *part, uint32_t sender,
                                 const struct vb_world_control *record);
/* Handles the event VB_WORLD_REFRESH. */
void vb_world_lanes_refresh(struct vb_world_partition *part, uint32_t port, uint32_t lane);
/* Applies the control records that have arrived. */
void vb_world_lanes_apply_control(struct vb_world_partition *part, struct vb_world_port *port);
/* The n-th record that was not applied yet. */
const struct vb_world_control *vb_world_lanes_control(const struct vb_world_lanes *lanes,
                                                      uint32_t n);
void vb_world_lane_apply(struct vb_world_lane *lane, const struct vb_world_control *record,
                         uint64_t rate);
/* The count of blocks up to which this lane may send (IBA 7.9.4.4). */
uint64_t vb_world_lane_limit(const struct vb_world_lane *lane);

/* Schedules an event VB_WORLD_WAKE, unless an earlier one is pending. `idle`: vb_world.idle. */
void vb_world_lanes_plan(struct vb_world_partition *part, uint32_t port, uint64_t at, bool idle);

#endif
