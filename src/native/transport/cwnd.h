// SPDX-License-Identifier: Apache-2.0
/*
 * The congestion window of the way to one peer address: how many bytes all connections to it may
 * have under way together (RFC 3124). It starts small, doubles each round trip until something is
 * lost, is cut once per round trip then, and grows by a packet each (RFC 5681). Connections that
 * find it full wait in turn, so that a queue shorter than their number is shared as well.
 *
 * Only for endpoints that adapt (transport.h).
 */
#ifndef VB_TRANSPORT_CWND_H
#define VB_TRANSPORT_CWND_H

#include "transport/transport.h"

/* Bytes: more than any connections can have under way. */
#define VB_CWND_MOST (1ull << 40)

/* ns: no more than one notification of congestion goes to an address in it, and one cut follows
 * (DCQCN's N). */
enum { VB_CWND_NOTICE_INTERVAL = 50000 };

struct vb_cwnd {
    struct vb_cwnd *next;
    uint8_t dgid[16];
    uint32_t members;                      /* connections */
    uint64_t window, threshold, in_flight; /* bytes */
    uint64_t before;                       /* window before a silence; 0: there was none */
    uint64_t answered;                     /* bytes that no longer are in flight, ever */
    uint64_t acked;                        /* towards the next packet of growth */
    uint64_t round_trip, deviation;        /* ns, smoothed (RFC 6298); 0: not measured */
    uint64_t shortest;                     /* round trip */
    uint64_t least_timeout;                /* before a probe: more where probes were needless */
    uint64_t cut_until;                    /* losses until then are of the same round trip */
    uint64_t heard_at;                     /* the last progress of any connection */
    const struct vb_endpoint *served;      /* whose turn it is; NULL: nobody's */
    uint32_t turn;                         /* its packets in that */
    bool awake;                            /* it may send, and does not wait */
    /* the one packet whose acknowledgement tells the round trip; NULL: none */
    const struct vb_endpoint *timed;
    uint64_t timed_at;
    uint32_t timed_psn;
    bool timed_in_doubt; /* a probe was sent since */
    uint8_t doubtful;    /* so many answers in a row told no round trip, as probes were sent */
    uint32_t patience;   /* ns to wait for what is overtaken; 0: nothing ever was (gap.h) */
    uint8_t doubts;      /* whether what was asked for again was lost (gap.h) */
    uint64_t noticed_at; /* the last notification of congestion that was sent there */
    bool late;           /* the last answer came late against the local ACK timeout */
    uint8_t keeps;       /* the peer keeps what comes early: how sure that is */
    uint8_t wholes; /* so many READs are asked for again to their end: the peer does not answer… */
    uint8_t distrust;        /* …who asks for less, it seems */
    struct vb_ready waiting; /* by vb_endpoint.requesting */
};

/* To the window of that peer address, made for the first one, from another one. -ENOMEM. */
int vb_engine_cwnd_join(struct vb_endpoint *ep, const uint8_t dgid[16]);
void vb_engine_cwnd_leave(struct vb_endpoint *ep);

/* What the connection has under way has changed; who waits may have its turn. */
void vb_engine_cwnd_note(struct vb_endpoint *ep);
/* Something was answered, up to `psn` at most. Before vb_engine_cwnd_note. */
void vb_engine_cwnd_acknowledged(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/*
 * The packet at the requester's cursor asks for an answer, which will tell the round trip; too long
 * a one, if it has to be sent again: who probed too early learns to wait.
 */
void vb_engine_cwnd_time(struct vb_endpoint *ep, uint64_t now);
/* It is as if that had not been sent. */
void vb_engine_cwnd_untime(struct vb_endpoint *ep);
/* A probe is sent: who answers what is unknown from now on (Karn). */
void vb_engine_cwnd_doubt(struct vb_endpoint *ep);
/* Something was lost, or the network says that it will be. */
void vb_engine_cwnd_cut(struct vb_endpoint *ep, uint64_t now);
/* A local ACK timeout has expired. */
void vb_engine_cwnd_expired(struct vb_endpoint *ep, uint64_t timeout, uint64_t now);
/* A probe had no answer either. If nothing came from there for long, nothing arrives any more… */
void vb_engine_cwnd_silence(struct vb_endpoint *ep, uint64_t now);
/* …unless it turns out that all had arrived: the peer was only late. */
void vb_engine_cwnd_restore(struct vb_cwnd *cwnd);
/* The connection, which is in no list, may not send: it waits, or goes on first with its turn. */
void vb_engine_cwnd_wait(struct vb_endpoint *ep);
/* It has nothing to send. */
void vb_engine_cwnd_rest(struct vb_endpoint *ep);
/* A packet of the connection's left; when its turn is over, those who wait have theirs. */
void vb_engine_cwnd_take_turn(struct vb_endpoint *ep);
/* A probe was needless: the answer came after so long, and not to the probe (RFC 3522). */
void vb_engine_cwnd_late(struct vb_cwnd *cwnd, uint64_t waited);
/* What `answered` will be once all that is under way now is answered. */
static inline uint64_t vb_engine_cwnd_behind_all(const struct vb_cwnd *cwnd)
{
    return cwnd->answered + cwnd->in_flight;
}

/*
 * Is what was under way then still being answered? Who waits behind it has not had its turn: a
 * queue keeps the order, and asking again would make it longer.
 */
bool vb_engine_cwnd_is_draining(const struct vb_cwnd *cwnd, uint64_t behind, uint64_t now);
/* After so long without an answer it is time to ask. */
uint64_t vb_engine_cwnd_timeout(const struct vb_cwnd *cwnd);

static inline bool vb_engine_cwnd_was_cut(const struct vb_cwnd *cwnd)
{
    return cwnd->threshold != VB_CWND_MOST;
}

/* Is the window full, or another's turn? */
static inline bool vb_engine_cwnd_is_closed(const struct vb_endpoint *ep)
{
    const struct vb_cwnd *cwnd = ep->share->cwnd;

    return cwnd->in_flight >= cwnd->window ||
           (cwnd->served != ep && vb_engine_ready_first(&cwnd->waiting));
}

/*
 * Could what connections have under way without an acknowledgement that is asked for fill the
 * window? Then each has short turns that end with one, since whoever waits is woken by one.
 */
static inline bool vb_engine_cwnd_is_scarce(const struct vb_endpoint *ep)
{
    const struct vb_cwnd *cwnd = ep->share->cwnd;

    return cwnd->window < 2ull * cwnd->members * ep->engine->config.ack_bytes;
}

/* Packets of a connection's turn. */
static inline uint32_t vb_engine_cwnd_turn(const struct vb_endpoint *ep)
{
    uint32_t burst = ep->engine->config.burst;
    uint64_t share;

    if (!vb_engine_endpoint_adapts(ep) || !vb_engine_cwnd_is_scarce(ep))
        return burst;
    share = ep->share->cwnd->window / 16 / ep->path.mtu;
    return share < burst ? (uint32_t)share + 1 : burst;
}

/* Is the packet that is being made the last for now, where the window is scarce? */
static inline bool vb_engine_cwnd_ends_turn(const struct vb_endpoint *ep)
{
    const struct vb_cwnd *cwnd = ep->share->cwnd;

    return vb_engine_endpoint_adapts(ep) && vb_engine_cwnd_is_scarce(ep) &&
           ((cwnd->served == ep ? cwnd->turn : 0) + 1 >= vb_engine_cwnd_turn(ep) ||
            cwnd->in_flight + ep->path.mtu >= cwnd->window);
}

#endif
