// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol between a program's HCA (hca.c) and the world whose packets it sends and receives
 * (attachment.c): messages of one size in a page of memory that both sides have. They share nothing
 * else. In one process the page is ordinary memory, and each side calls the other; in two processes
 * (crossing.c) it is in a shared segment, and each side wakes the other.
 *
 * TURNS. One side at a time has the turn and may read and write the page; the other waits.
 *
 * * The program has the turn while it runs. It gives the turn away (vb_sim_attachment.turn) with
 *   messages in `out`, and with a question if it needs an answer. The world takes the messages in
 *   their order, answers, appends what follows from them to `in` (HOLD, WINDOW, CNP), writes the
 *   state of the ports, and gives the turn back.
 * * The world has the turn while time passes. For an event of the program's adapter it appends
 *   ARRIVING, ARRIVE, READY, EXPIRE, LEFT or PUMP to `in` and gives the turn to the HCA
 *   (vb_sim_attachment.serve), which takes all of `in`; when it has the turn back it takes `out`.
 * * Turns nest. A question that lets time pass (STEP) contains such turns. A packet that the world
 *   takes may make a port ready at once, and the turn for that comes before the next message is
 *   taken. A turn for an event may contain questions, but no STEP. So each side takes a message off
 *   its list before it handles it.
 *
 * `out` and `in` are emptied by the side that reads them before it gives the turn back, so they are
 * lists that begin again at their first place, and no rings. A side that finds its list full gives
 * the turn away first. With `at_once` each call of the program ends with a turn; without, its
 * messages wait until it blocks.
 *
 * MIRRORS. `port_state`, `has_held` and the clock change only by what the world writes before a
 * turn, and by what the program itself sends: a packet makes a port busy that `is_plain`. After a
 * packet by another port the state is unknown until the next turn. The program keeps the time of
 * the pending EXPIRE in `expire_at`, so that it asks only for an earlier one.
 *
 * PACKETS. The program writes a packet into one of `spare` and names it in SEND; the world gives
 * other memory in its place. ARRIVE names a packet that is valid until the turn ends. Memory is
 * named by its distance from the page.
 *
 * VERSIONS AND ERRORS. Both sides have the same version, or the HCA does not open (-EPROTO). There
 * is no other negotiation, and neither side checks the other's messages: they are one program. A
 * turn returns -EPIPE, then and from then on, when the other process has ended.
 */
#ifndef VB_SIM_PROTOCOL_H
#define VB_SIM_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hca/layout.h"
#include "wire/headers.h"

enum {
    VB_SIM_PROTOCOL_VERSION = 13,
    VB_SIM_MESSAGES = 32,  /* room of a list */
    VB_SIM_SPARES = 4,     /* packets that the program can send before a turn */
    VB_SIM_READABLES = 15, /* descriptors of a program that can become readable before a turn */
};

/* The bytes and addresses of a packet. */
struct vb_sim_wire_packet {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint32_t length; /* bytes from the BTH to the last pad byte */
    uint32_t payload;
    uint16_t slid; /* of the sending InfiniBand port; 0: Ethernet */
    uint8_t traffic_class, hop_limit;
    uint8_t level;     /* service level */
    uint8_t path_bits; /* of the LID that it came to */
    bool global;       /* InfiniBand: the packet has a GRH */
    bool damaged;      /* the ICRC is wrong */
    bool traced;       /* it has HPCC's telemetry */
    uint64_t leave_at; /* ps: when the world sends it, even without its HCA; 0: at once */
    uint8_t bytes[];
};

enum vb_sim_message_kind {
    /* From the program; `qp` is the number that CONNECT returned, or VB_SIM_NO_QP. */
    VB_SIM_SEND,       /* port, spare, address, flags; qp: gets telemetry, and is PACED */
    VB_SIM_UNSENT,     /* qp, level: a packet of it was lost or is held by a fault rule */
    VB_SIM_RECEIVED,   /* qp, level, flags, bth, length, traffic_class: the engine has handled a
                          packet with a mark or telemetry, or a notification */
    VB_SIM_RING,       /* qp: it was idle and has new requests; the program holds it until PUMP */
    VB_SIM_POSTED,     /* qp, requests, at: new ones of so many bytes, where the port `counts`:
                          the adapter has them at PUMP */
    VB_SIM_RELEASE,    /* asks for HOLD of the connections whose lane and port are free by now */
    VB_SIM_PUMPED,     /* flags: asks for READY when a port is free, if there is MORE to send */
    VB_SIM_EXPIRE_AT,  /* at: asks for EXPIRE then */
    VB_SIM_DISCONNECT, /* qp */
    /* From the world, what follows from the program's messages; `token` is CONNECT's. */
    VB_SIM_HOLD, /* token, flags: HELD: it sends no requests and READ responses; or it may again */
    VB_SIM_WINDOW, /* token, window: the limit of the bytes in flight */
    VB_SIM_CNP,    /* token, psn: send a CNP (vb_sim_congestion_write_cnp) */
    /* From the world: events. Those of one turn end with one of these. */
    VB_SIM_ARRIVING, /* at: a packet of a reliable connection, where the port `counts`: it comes by
                        ARRIVE later, and `will_take` is to say whether its payload is of use */
    VB_SIM_ARRIVE,   /* port, at: a packet; then as READY */
    VB_SIM_READY,    /* send what may be sent */
    VB_SIM_EXPIRE,   /* the time of EXPIRE_AT has come */
    VB_SIM_LEFT,     /* token: a packet that TELLS has left the adapter; then as READY */
    VB_SIM_PUMP,     /* token, flags: its rate allows a packet, or the doorbell was seen unless
                        RINGING; then as READY */
};

enum vb_sim_message_flag {
    VB_SIM_PACED = 1 << 0,    /* SEND: the packet counts for the rate of its connection */
    VB_SIM_TO_GROUP = 1 << 1, /* SEND: to the group of the packet's DGID */
    VB_SIM_TRACED = 1 << 2,   /* RECEIVED: the packet in hand has telemetry */
    VB_SIM_NOTICE = 1 << 3,   /* RECEIVED: it was a CNP, and accepted */
    VB_SIM_MORE = 1 << 4,
    VB_SIM_HELD = 1 << 5,
    VB_SIM_RINGING = 1 << 6,
    VB_SIM_TELLS = 1 << 5, /* SEND: of UD, or the last packet of a UC request, where the port
                              `counts`: LEFT comes, at which the request is complete */
    VB_SIM_TOLD = 1 << 7,  /* PUMP: the requests of one POSTED are in the adapter */
};

/* A queue pair as the world knows it: `slot` and `generation` of struct vb_nic_qp. */
struct vb_sim_qp_number {
    uint32_t slot, generation;
};

struct vb_sim_message {
    uint8_t kind; /* enum vb_sim_message_kind */
    uint8_t port; /* an index from 0 */
    uint8_t level;
    uint8_t flags;
    uint8_t spare, traffic_class;
    struct vb_sim_qp_number qp;
    union {
        uint32_t address; /* event/packet.h */
        uint32_t psn;
        uint32_t length;
        uint32_t requests;
    };
    union {
        struct {
            uint64_t token;
            double window;
        };
        uint64_t at; /* ps; or where the packet is */
        uint8_t bth[12];
    };
};

enum vb_sim_question_kind {
    VB_SIM_NOTHING = 0,
    /*
     * port, address or host: completes the two, and checks the routes from the port to the host and
     * back. 0; -ENETUNREACH: no host has the address; -EHOSTUNREACH; -ELOOP; -EPROTONOSUPPORT: one
     * is Ethernet and the other is InfiniBand.
     */
    VB_SIM_ROUTE,
    /* port, token, reliable: connects a queue pair to the port's adapter, and answers its number.
       -ENOMEM. */
    VB_SIM_CONNECT,
    /* port, gid: makes the port a member, in the switches' tables, too. -EHOSTUNREACH: the port
       cannot reach another member; -ENOMEM: also, there are too many groups. */
    VB_SIM_JOIN,
    VB_SIM_LEAVE, /* gid: removes all ports from the group */
    /* until: handles the next event, if it is not after that time, and answers 1. 0: the time is
       `until` now. -EDEADLK: no event is left, or packets are in a deadlock; -ENOMEM. */
    VB_SIM_STEP,
};

struct vb_sim_question {
    uint8_t kind; /* enum vb_sim_question_kind */
    uint8_t port;
    bool reliable;
    int32_t answer;
    uint32_t host, address;
    struct vb_sim_qp_number qp;
    union {
        uint64_t token, until;
        uint8_t gid[16];
    };
};

/* A port of the HCA is a host of the world. The world writes this once, before the HCA opens. */
struct vb_sim_page_port {
    uint32_t host;                /* the number of the host in the world */
    bool infiniband;              /* the link layer; false: Ethernet */
    bool rings;                   /* the adapter sees new requests later (RING) */
    bool counts;                  /* the host has an inside, which is told of requests (POSTED) */
    uint16_t inline_most;         /* of it: bytes of a message that is in its request */
    uint8_t lmc;                  /* of `lid`: there are 2^lmc */
    uint8_t notice_level;         /* of congestion notifications; VB_NIC_OWN_LEVEL: the QP's */
    uint16_t lid;                 /* the first LID; 0: Ethernet */
    uint64_t written;             /* ps that a completion needs to memory, where it `counts` */
    uint16_t frame;               /* bytes on the wire of a packet of an MTU, with telemetry */
    uint16_t pkeys[VB_MAX_PKEYS]; /* as vb_adapter_port.pkeys */
    uint64_t rate;                /* bits per second; 0: the port has no link */
};

/* The world writes this before each turn of the program. */
struct vb_sim_port_state {
    bool may_send;    /* the port and the bus are free */
    bool is_plain;    /* a packet makes the port busy */
    uint16_t blocked; /* the service levels whose packets wait at the port */
};

struct vb_sim_page {
    uint32_t version;
    uint32_t ports;
    struct vb_sim_page_port port[VB_MAX_PORTS];
    uint64_t seed; /* of the HCA's keys */
    uint16_t mtu;
    bool reacts;                  /* one of its ports has congestion control */
    bool traces;                  /* which is HPCC */
    bool at_once;                 /* each call of the program ends with a turn */
    bool is_open;                 /* the program writes it: there is an HCA */
    int64_t clock;                /* where the time in ps is */
    int64_t arrived;              /* in two processes: where the packet of ARRIVE is */
    int64_t spare[VB_SIM_SPARES]; /* where memory for packets is */
    struct vb_sim_port_state port_state[VB_MAX_PORTS];
    bool has_held;        /* a connection waits for its lane or port */
    uint32_t patience;    /* empty polls at one time until each further one is a STEP */
    uint64_t expire_at;   /* of the pending EXPIRE: lowered by the program, and ended by the
                             world; UINT64_MAX: none */
    uint32_t outs, ins;   /* messages in the lists */
    uint32_t taken;       /* of `in` */
    uint32_t spares;      /* of `spare` that `out` has used */
    uint32_t completions; /* that the adapter has written since the last turn, where one `counts` */
    uint32_t polled, polled_receives; /* that the program has taken since then; messages of these */
    uint32_t readables;               /* in `readable`; more than its room: any descriptor */
    int32_t readable[VB_SIM_READABLES]; /* descriptors of the program that became readable */
    bool woken;     /* of a port that `counts`: the world has put them there, by an interrupt */
    bool will_take; /* the HCA's answer to ARRIVING */
    struct vb_sim_question question;
    struct vb_sim_message out[VB_SIM_MESSAGES], in[VB_SIM_MESSAGES];
};

#define VB_SIM_NO_QP ((struct vb_sim_qp_number){UINT32_MAX, UINT32_MAX})

/* What one process has of a page: how it gives the turn away. */
struct vb_sim_attachment {
    struct vb_sim_page *page;
    int (*turn)(struct vb_sim_attachment *attachment);
    void (*serve)(void *argument); /* NULL: no HCA is open */
    void *argument;
    struct vb_sim_crossing *crossing; /* of `turn`, in two processes */
};

static inline void *vb_sim_page_at(const struct vb_sim_page *page, int64_t distance)
{
    return (char *)(uintptr_t)page + distance;
}

/* The memory of a packet with this MTU. */
static inline size_t vb_sim_wire_packet_size(uint32_t mtu)
{
    return sizeof(struct vb_sim_wire_packet) + VB_HEADERS_MAX + 4 + mtu;
}

static inline uint64_t vb_sim_page_now(const struct vb_sim_page *page)
{
    return *(const uint64_t *)vb_sim_page_at(page, page->clock);
}

#endif
