// SPDX-License-Identifier: Apache-2.0
/* The default settings of TCP. */
#include "tcp/config.h"

static const uint64_t MILLISECOND = 1000000000;

struct vb_tcp_config vb_tcp_defaults(void)
{
    return (struct vb_tcp_config){
        .mss = 1460,
        .initial_window = 10,
        .window = 16 << 20,
        .least_rto = 200 * MILLISECOND, /* as Linux; RFC 6298 has 1 s */
        .most_rto = 60000 * MILLISECOND,
        .retries = 15,
        .dctcp_gain = 1.0 / 16,
    };
}
