// SPDX-License-Identifier: Apache-2.0
/*
 * Calls the algorithm that the adapter was made with: DCQCN, InfiniBand's table or HPCC. nic.c
 * calls it. It also writes the packets that carry notifications and telemetry back.
 */
#include "sim/congestion.h"

#include <string.h>

#include "wire/opcode.h"

double vb_sim_congestion_sent(const struct vb_congestion *congestion, struct vb_rate *rate,
                              uint32_t level, double line, uint32_t bytes, uint64_t now)
{
    if (congestion->kind == VB_CONGESTION_HPCC)
        return rate->hpcc ? vb_sim_hpcc_rate(rate->hpcc, &congestion->hpcc) : line;
    if (congestion->kind != VB_CONGESTION_DCQCN)
        return line * vb_sim_cct_rate(&rate->cct, &congestion->cct, level, now);
    vb_sim_dcqcn_sent(&rate->dcqcn, &congestion->dcqcn, line, bytes, now);
    return vb_sim_dcqcn_rate(&rate->dcqcn, &congestion->dcqcn, line, now);
}

bool vb_sim_congestion_notice(const struct vb_congestion *congestion, struct vb_rate *rate,
                              uint32_t level, double line, uint64_t now)
{
    if (congestion->kind == VB_CONGESTION_CCT)
        return vb_sim_cct_notice(&rate->cct, &congestion->cct, level, now);
    if (congestion->kind == VB_CONGESTION_DCQCN)
        vb_sim_dcqcn_notice(&rate->dcqcn, &congestion->dcqcn, line, now);
    return false;
}

bool vb_sim_congestion_is_notice_due(const struct vb_congestion *congestion, uint64_t *noticed_at,
                                     uint64_t now)
{
    if (!congestion->kind || congestion->kind == VB_CONGESTION_HPCC ||
        (*noticed_at && now < *noticed_at + congestion->notice_interval))
        return false;
    *noticed_at = now ? now : 1;
    return true;
}

void vb_sim_congestion_write_cnp(uint8_t bytes[VB_CNP], uint16_t pkey, uint32_t dest_qp,
                                 uint32_t psn)
{
    const bool is_notice = psn == VB_CONGESTION_NOTICE;
    const struct vb_bth bth = {.opcode = VB_TRANSPORT_CNP | 1,
                               .becn = is_notice,
                               .migrated = true,
                               .pkey = pkey,
                               .dest_qp = dest_qp,
                               .psn = is_notice ? 0 : psn};

    memset(bytes, 0, VB_CNP);
    vb_wire_bth_write(bytes, &bth);
}

static bool congestion_is_reliable(uint8_t opcode)
{
    uint8_t transport = opcode & VB_TRANSPORT_MASK;

    return transport == VB_TRANSPORT_RC || transport == VB_TRANSPORT_XRC;
}

bool vb_sim_congestion_is_read_data(uint8_t opcode)
{
    uint8_t operation = opcode & (uint8_t)~VB_TRANSPORT_MASK;

    return congestion_is_reliable(opcode) && operation >= VB_OP_READ_RESPONSE_FIRST &&
           operation <= VB_OP_READ_RESPONSE_ONLY;
}

bool vb_sim_congestion_brings_telemetry(uint8_t opcode)
{
    if ((opcode & VB_TRANSPORT_MASK) == VB_TRANSPORT_CNP)
        return true;
    return congestion_is_reliable(opcode) &&
           (opcode & (uint8_t)~VB_TRANSPORT_MASK) == VB_OP_ACKNOWLEDGE;
}
