// SPDX-License-Identifier: Apache-2.0
/*
 * CUBIC (RFC 9438), with its Reno-friendly region and fast convergence; without HyStart++.
 * control.c calls it. Times are in seconds here, as in the RFC.
 */
#include "tcp/control.h"

static const double SECOND = 1e12;
static const double C = 0.4, BETA = 0.7;
static const double RENO = 3 * (1 - 0.7) / (1 + 0.7); /* alpha_cubic (4.3) */

void vb_tcp_cubic_open(struct vb_tcp_cubic *cubic)
{
    *cubic = (struct vb_tcp_cubic){.began = VB_TCP_NEVER};
}

/* By Newton's method, from above: the same on every machine, which the library's is not. */
static double cube_root(double of)
{
    double root = of > 1 ? of : 1, next;

    if (of <= 0) /* to which the method would come closer for ever */
        return 0;
    for (;; root = next) {
        next = (2 * root + of / (root * root)) / 3;
        if (!(next < root))
            return root;
    }
}

/* Congestion avoidance begins: after slow start it does so at the top of the curve (4.10). */
static void cubic_begin(struct vb_tcp_cubic *cubic, double window, uint64_t now)
{
    cubic->began = now;
    cubic->from = cubic->estimate = window;
    if (cubic->most < window)
        cubic->most = window;
    cubic->period = cube_root((cubic->most - window) / C);
}

static double cubic_at(const struct vb_tcp_cubic *cubic, double seconds)
{
    double from_top = seconds - cubic->period;

    return C * from_top * from_top * from_top + cubic->most;
}

static void follow_reno(struct vb_tcp_cubic *cubic, const struct vb_tcp_growth *growth)
{
    double step = cubic->estimate >= cubic->prior ? 1 : RENO;

    cubic->estimate += step * growth->acked / growth->window;
}

/* 4.2 to 4.5. */
double vb_tcp_cubic_grown(struct vb_tcp_cubic *cubic, const struct vb_tcp_growth *growth)
{
    double seconds, target, window = growth->window;

    if (cubic->began == VB_TCP_NEVER)
        cubic_begin(cubic, window, growth->now);
    seconds = (double)(growth->now - cubic->began) / SECOND;
    follow_reno(cubic, growth);
    if (cubic_at(cubic, seconds) < cubic->estimate)
        return cubic->estimate > window ? cubic->estimate : window;
    target = cubic_at(cubic, seconds + (double)growth->round_trip / SECOND);
    if (target < window)
        target = window;
    if (target > 1.5 * window)
        target = 1.5 * window;
    return window + growth->acked * (target - window) / window;
}

/* 4.6, 4.7. */
double vb_tcp_cubic_reduced(struct vb_tcp_cubic *cubic, double window)
{
    cubic->prior = window;
    cubic->most = window < cubic->most ? window * (1 + BETA) / 2 : window;
    cubic->began = VB_TCP_NEVER;
    return window * BETA;
}

void vb_tcp_cubic_timed_out(struct vb_tcp_cubic *cubic)
{
    cubic->most = 0; /* W_max is the window with which congestion avoidance begins: K is 0 */
}
