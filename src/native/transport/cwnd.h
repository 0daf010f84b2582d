// SPDX-License-Identifier: Apache-2.0
/*
 * The congestion window of the way to one peer address: the number of bytes that all connections to
 * that address may have in flight together (RFC 3124). It starts small, doubles with each round
 * trip until a packet is lost, is then cut at most once in a round trip, and grows by a packet in
 * each (RFC 5681). Connections that find it full wait and send in turns, so that a bottleneck's
 * queue may be shorter than their number.
 *
 * Only connections that adapt have one (vb_engine_config.adapts). All calls are made under the
 * engine's lock and the QP's sq_lock.
 */
#ifndef VB_TRANSPORT_CWND_H
#define VB_TRANSPORT_CWND_H

#include "transport/transport.h"

/* In bytes: more than all connections can have in flight. */
#define VB_CWND_MOST (1ull << 40)

/*
 * In ns: in this time at most one congestion notification packet is sent to an address, and at most
 * one cut follows from those that come (the interval N of DCQCN).
 */
enum { VB_CWND_NOTICE_INTERVAL = 50000 };

struct vb_cwnd {
    struct vb_cwnd *next;
    uint8_t dgid[16];
    uint32_t members;                      /* connections */
    uint64_t window, threshold, in_flight; /* bytes; below `threshold` it is slow start */
    uint64_t before;                /* the window before a silence; 0: there was no silence */
    uint64_t answered;              /* sum of all bytes that have left the flight */
    uint64_t acked;                 /* bytes acknowledged since the window last grew by a packet */
    uint64_t round_trip, deviation; /* ns, smoothed (RFC 6298); 0: not measured */
    uint64_t shortest;              /* the shortest round trip */
    uint64_t least_timeout;         /* until a probe; longer after needless probes */
    uint64_t cut_until;             /* losses before it belong to the same round trip */
    uint64_t heard_at;              /* when anything last came from the address */
    const struct vb_endpoint *served; /* whose turn it is; NULL: nobody's */
    uint32_t turn;                    /* the number of its packets in that turn */
    bool awake;                       /* `served` may send and does not wait */
    /* the connection of the packet that the round trip is measured with; NULL: none */
    const struct vb_endpoint *timed;
    uint64_t timed_at;
    uint32_t timed_psn;
    bool timed_in_doubt; /* a probe was sent since then */
    uint8_t doubtful;    /* answers in a row that told no round trip, because of probes */
    uint32_t patience;   /* ns to wait for an overtaken packet; 0: none ever was (gap.h) */
    uint8_t doubts;      /* about whether packets that were asked for were lost (gap.h) */
    uint64_t noticed_at; /* when a congestion notification packet was last sent */
    bool late;           /* the last round trip was long compared with the local ACK timeout */
    uint8_t keeps;       /* how sure it is that the peer keeps early packets */
    uint8_t wholes;      /* so many further READs are asked for again to their end (mend.h) */
    uint8_t distrust; /* what `wholes` is set to next: the peer did not answer a shorter request */
    struct vb_ready waiting; /* by vb_endpoint.requesting */
};

/*
 * The connection joins the window of this peer address, which the first one makes, and leaves the
 * one that it has. -ENOMEM.
 */
int vb_engine_cwnd_join(struct vb_endpoint *ep, const uint8_t dgid[16]);
void vb_engine_cwnd_leave(struct vb_endpoint *ep);

/* The connection's bytes in flight have changed; a waiting connection may have its turn now. */
void vb_engine_cwnd_note(struct vb_endpoint *ep);
/* Packets up to `psn` at most were acknowledged. To be called before vb_engine_cwnd_note. */
void vb_engine_cwnd_acknowledged(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/*
 * The packet of that PSN, which is sent for the first time, asks for an acknowledgement, with which
 * the round trip will be measured. If the packet has to be sent again, the measured time is too
 * long, so that later probes wait longer.
 */
void vb_engine_cwnd_time(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/* The round trip is not measured with that packet. */
void vb_engine_cwnd_untime(struct vb_endpoint *ep);
/* A probe is sent: an answer may be to the probe or to the packet (Karn's algorithm). */
void vb_engine_cwnd_doubt(struct vb_endpoint *ep);
/* A packet was lost, or the network has signalled congestion: the window is cut. */
void vb_engine_cwnd_cut(struct vb_endpoint *ep, uint64_t now);
/* A local ACK timeout has expired: the window is cut at most once in that time. */
void vb_engine_cwnd_expired(struct vb_endpoint *ep, uint64_t timeout, uint64_t now);
/* A probe was not answered. If nothing came for long, the window becomes as small as it can be. */
void vb_engine_cwnd_silence(struct vb_endpoint *ep, uint64_t now);
/* After such a silence all had arrived, and the peer was only late: the window is as before. */
void vb_engine_cwnd_restore(struct vb_cwnd *cwnd);
/*
 * The connection, which is in no list, may not send. It waits: as the first, if its turn is not
 * over, or as the last.
 */
void vb_engine_cwnd_wait(struct vb_endpoint *ep);
/* The connection has nothing to send: its turn is over. */
void vb_engine_cwnd_rest(struct vb_endpoint *ep);
/* A packet of the connection has left. At the end of its turn the next waiting connection follows.
 */
void vb_engine_cwnd_take_turn(struct vb_endpoint *ep);
/* A probe was needless: after `waited` an answer came that is not to the probe (RFC 3522). */
void vb_engine_cwnd_late(struct vb_cwnd *cwnd, uint64_t waited);
/* The value of `answered` once all that is in flight now is answered. */
static inline uint64_t vb_engine_cwnd_behind_all(const struct vb_cwnd *cwnd)
{
    return cwnd->answered + cwnd->in_flight;
}

/*
 * Are the bytes still being answered that were in flight when vb_engine_cwnd_behind_all returned
 * `behind`? A packet sent after them waits in the same queue, and asking again makes that longer.
 */
bool vb_engine_cwnd_is_draining(const struct vb_cwnd *cwnd, uint64_t behind, uint64_t now);
/*
 * How long an answer may take on this way, by the shortest round trip and the queues that the
 * window is allowed to fill; 0: nothing is known. If nothing was measured but answers came, all
 * were in doubt: they may come after the local ACK timeout, so then it is long.
 */
uint64_t vb_engine_cwnd_answer_time(const struct vb_cwnd *cwnd);
/* The time without an answer after which a probe is sent. */
uint64_t vb_engine_cwnd_timeout(const struct vb_cwnd *cwnd);

static inline bool vb_engine_cwnd_was_cut(const struct vb_cwnd *cwnd)
{
    return cwnd->threshold != VB_CWND_MOST;
}

/* Is the window full, or is it another connection's turn? */
static inline bool vb_engine_cwnd_is_closed(const struct vb_endpoint *ep)
{
    const struct vb_cwnd *cwnd = ep->share->cwnd;

    return cwnd->in_flight >= cwnd->window ||
           (cwnd->served != ep && vb_engine_ready_first(&cwnd->waiting));
}

/*
 * Could packets that ask for no acknowledgement fill the window? Then turns are short, and each
 * ends with a packet that asks for one, since acknowledgements wake the connections that wait.
 */
static inline bool vb_engine_cwnd_is_scarce(const struct vb_endpoint *ep)
{
    const struct vb_cwnd *cwnd = ep->share->cwnd;

    return cwnd->window < 2ull * cwnd->members * ep->engine->config.ack_bytes;
}

/* The number of packets in a connection's turn. */
static inline uint32_t vb_engine_cwnd_turn(const struct vb_endpoint *ep)
{
    uint32_t burst = ep->engine->config.burst;
    uint64_t share;

    if (!vb_engine_endpoint_adapts(ep) || !vb_engine_cwnd_is_scarce(ep))
        return burst;
    share = ep->share->cwnd->window / 16 / ep->path.mtu;
    return share < burst ? (uint32_t)share + 1 : burst;
}

/* With a scarce window: is the packet that is being made the last one of the turn? */
static inline bool vb_engine_cwnd_ends_turn(const struct vb_endpoint *ep)
{
    const struct vb_cwnd *cwnd;

    if (!vb_engine_endpoint_adapts(ep) || !vb_engine_cwnd_is_scarce(ep))
        return false; /* a simulated flow has no `share` */
    cwnd = ep->share->cwnd;
    return (cwnd->served == ep ? cwnd->turn : 0) + 1 >= vb_engine_cwnd_turn(ep) ||
           cwnd->in_flight + ep->path.mtu >= cwnd->window;
}

#endif
