// SPDX-License-Identifier: Apache-2.0
/* Congestion control of Reno, and the choice between it, CUBIC and DCTCP. sender.c calls it. */
#include "tcp/control.h"

static const double LEAST = 2; /* RFC 5681, equation 4 */

void vb_tcp_control_open(struct vb_tcp_control *control, enum vb_tcp_kind kind)
{
    control->kind = (uint8_t)kind;
    if (kind == VB_TCP_CUBIC)
        vb_tcp_cubic_open(&control->cubic);
    else if (kind == VB_TCP_DCTCP)
        vb_tcp_dctcp_open(&control->dctcp);
}

/* Reno and DCTCP grow by a segment for each round trip (RFC 5681, 3.1). */
double vb_tcp_control_grown(struct vb_tcp_control *control, const struct vb_tcp_growth *growth)
{
    if (control->kind == VB_TCP_CUBIC)
        return vb_tcp_cubic_grown(&control->cubic, growth);
    return growth->window + growth->acked / growth->window;
}

static double at_least(double window)
{
    return window < LEAST ? LEAST : window;
}

double vb_tcp_control_lost(struct vb_tcp_control *control, double window)
{
    if (control->kind == VB_TCP_CUBIC)
        return at_least(vb_tcp_cubic_reduced(&control->cubic, window));
    return at_least(window / 2); /* DCTCP too (RFC 8257, 3.5) */
}

double vb_tcp_control_timed_out(struct vb_tcp_control *control, double window)
{
    double threshold = vb_tcp_control_lost(control, window);

    if (control->kind == VB_TCP_CUBIC)
        vb_tcp_cubic_timed_out(&control->cubic);
    return threshold;
}

double vb_tcp_control_marked(struct vb_tcp_control *control, double window)
{
    if (control->kind == VB_TCP_DCTCP)
        return at_least(window * (1 - control->dctcp.alpha / 2));
    return vb_tcp_control_lost(control, window);
}
