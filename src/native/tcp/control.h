// SPDX-License-Identifier: Apache-2.0
/*
 * Congestion control: how a window grows and by how much it is reduced. Windows are in segments.
 * sender.c calls control.c, which calls cubic.c; sender.c also calls dctcp.c.
 */
#ifndef VB_TCP_CONTROL_H
#define VB_TCP_CONTROL_H

#include "tcp/config.h"

struct vb_tcp_cubic {
    double most;     /* W_max */
    double estimate; /* W_est: Reno's window */
    double prior;    /* the window before the last reduction */
    double period;   /* K, in seconds */
    double from;     /* cwnd_epoch: the window at the begin of the epoch */
    uint64_t began;  /* ps; VB_TCP_NEVER: no epoch */
};

struct vb_tcp_dctcp {
    double alpha;
    uint64_t acked, marked; /* segments of this observation window */
    uint64_t ends;          /* the segment at which it ends */
};

struct vb_tcp_control {
    uint8_t kind; /* enum vb_tcp_kind */
    union {
        struct vb_tcp_cubic cubic;
        struct vb_tcp_dctcp dctcp;
    };
};

/* An acknowledgement of new data in congestion avoidance. */
struct vb_tcp_growth {
    double window, acked; /* segments */
    uint64_t round_trip;  /* ps; 0: not measured yet */
    uint64_t now;
};

void vb_tcp_control_open(struct vb_tcp_control *control, enum vb_tcp_kind kind);
/* The window after an acknowledgement. */
double vb_tcp_control_grown(struct vb_tcp_control *control, const struct vb_tcp_growth *growth);
/* The window, and ssthresh, after a loss, the expiry of the timer, or an ECN echo. */
double vb_tcp_control_lost(struct vb_tcp_control *control, double window);
double vb_tcp_control_timed_out(struct vb_tcp_control *control, double window);
double vb_tcp_control_marked(struct vb_tcp_control *control, double window);

/* cubic.c (RFC 9438) */
void vb_tcp_cubic_open(struct vb_tcp_cubic *cubic);
double vb_tcp_cubic_grown(struct vb_tcp_cubic *cubic, const struct vb_tcp_growth *growth);
double vb_tcp_cubic_reduced(struct vb_tcp_cubic *cubic, double window);
/* Section 4.8: after a timeout the next epoch begins with K = 0. */
void vb_tcp_cubic_timed_out(struct vb_tcp_cubic *cubic);

/* dctcp.c (RFC 8257, 3.3). `first` and `next` are SND.UNA and SND.NXT, in segments. */
void vb_tcp_dctcp_open(struct vb_tcp_dctcp *dctcp);
void vb_tcp_dctcp_acked(struct vb_tcp_dctcp *dctcp, double gain, uint32_t acked, bool marked,
                        uint64_t first, uint64_t next);

#endif
