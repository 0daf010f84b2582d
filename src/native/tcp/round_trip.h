// SPDX-License-Identifier: Apache-2.0
/* The retransmission timeout (RFC 6298), for sender.c. The clock's granularity G is 0. */
#ifndef VB_TCP_ROUND_TRIP_H
#define VB_TCP_ROUND_TRIP_H

#include "tcp/config.h"

struct vb_tcp_round_trip {
    uint64_t smoothed, variation; /* ps (SRTT, RTTVAR); 0: not measured yet */
    uint64_t timeout;             /* ps (RTO) */
};

void vb_tcp_round_trip_open(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config);
void vb_tcp_round_trip_add(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config,
                           uint64_t measured);
/* The timer has expired: doubles the timeout. */
void vb_tcp_round_trip_back_off(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config);

#endif
