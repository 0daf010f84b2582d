// SPDX-License-Identifier: Apache-2.0
/* The smoothed round trip and the retransmission timeout of RFC 6298. sender.c calls it. */
#include "tcp/round_trip.h"

#include <stdlib.h>

static void round_trip_set(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config,
                           uint64_t to)
{
    if (to < config->least_rto)
        to = config->least_rto;
    trip->timeout = to > config->most_rto ? config->most_rto : to;
}

void vb_tcp_round_trip_open(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config)
{
    *trip = (struct vb_tcp_round_trip){0};
    round_trip_set(trip, config, config->first_rto);
}

/* RFC 6298, 2.2 and 2.3: alpha 1/8, beta 1/4, K 4. */
void vb_tcp_round_trip_add(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config,
                           uint64_t measured)
{
    if (!trip->smoothed) {
        trip->smoothed = measured;
        trip->variation = measured / 2;
    } else {
        uint64_t off = (uint64_t)llabs((int64_t)(trip->smoothed - measured));

        trip->variation = trip->variation - trip->variation / 4 + off / 4;
        trip->smoothed = trip->smoothed - trip->smoothed / 8 + measured / 8;
    }
    round_trip_set(trip, config, trip->smoothed + 4 * trip->variation);
}

void vb_tcp_round_trip_back_off(struct vb_tcp_round_trip *trip, const struct vb_tcp_config *config)
{
    round_trip_set(trip, config, 2 * trip->timeout);
}
