// SPDX-License-Identifier: Apache-2.0
/* A packet of the engine's as bytes, for ports that carry bytes. */
#ifndef VB_PORT_PACKET_H
#define VB_PORT_PACKET_H

#include <errno.h>
#include <string.h>

#include "hca/packet.h"
#include "memory/guard.h"

/* From BTH to pad; the length, or -EFAULT: the payload's memory has gone since the engine looked.
 */
static inline int vb_port_packet_write(const struct vb_packet *packet, uint8_t *bytes)
{
    uint8_t *to = bytes;

    memcpy(to, packet->header, packet->header_length);
    to += packet->header_length;
    for (uint32_t i = 0; i < packet->piece_count; ++i) {
        if (vb_memory_guarded_read(to, packet->piece[i].bytes, packet->piece[i].length))
            return -EFAULT;
        to += packet->piece[i].length;
    }
    memset(to, 0, packet->pad);
    return (int)(to + packet->pad - bytes);
}

#endif
