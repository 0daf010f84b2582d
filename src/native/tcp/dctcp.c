// SPDX-License-Identifier: Apache-2.0
/*
 * DCTCP's estimate of the fraction of marked segments (RFC 8257, 3.3). sender.c calls it for each
 * acknowledgement, and control.c reduces the window by it.
 */
#include "tcp/control.h"

void vb_tcp_dctcp_open(struct vb_tcp_dctcp *dctcp)
{
    *dctcp = (struct vb_tcp_dctcp){.alpha = 1};
}

void vb_tcp_dctcp_acked(struct vb_tcp_dctcp *dctcp, double gain, uint32_t acked, bool marked,
                        uint64_t first, uint64_t next)
{
    double part;

    dctcp->acked += acked;
    dctcp->marked += marked ? acked : 0;
    if (first <= dctcp->ends || !dctcp->acked)
        return;
    part = (double)dctcp->marked / (double)dctcp->acked;
    dctcp->alpha += gain * (part - dctcp->alpha);
    dctcp->acked = dctcp->marked = 0;
    dctcp->ends = next;
}
