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

/* Newton's method: the same result on every machine, unlike cbrt of C libraries. */
static double cube_root(double of)
{
    double root = of > 1 ? of : 1, next;

    if (of <= 0) /* the loop would converge without end */
        return 0;
    for (;; root = next) {
        next = (2 * root + of / (root * root)) / 3;
        if (!(next < root))
            return root;
    }
}

/* Begins an epoch; after slow start with K = 0 (4.10). */
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
    cubic->most = 0; /* W_max becomes the window at the begin of the next epoch, so K is 0 */
}
