// SPDX-License-Identifier: Apache-2.0
/* The RoCE packets of a capture between two hosts, and the connections that they belong to. */
#ifndef VB_TESTS_CAPTURED_H
#define VB_TESTS_CAPTURED_H

#include "wire/dissect.h"
#include "wire/opcode.h"

enum { CAPTURED_CONNECTIONS = 20 };

struct recorded {
    int from; /* side: 0 sent the first packet */
    int connection;
    const uint8_t *bytes; /* from the BTH to the pad */
    uint32_t length;
    uint32_t flags; /* of the opcode */
    struct vb_dissection fields;
};

/* Packets that share a UDP source port: soft-RoCE takes one for each queue pair, on both sides. */
struct connection {
    uint16_t source_port;
    uint8_t transport;     /* enum vb_transport */
    uint32_t qp_num[2];    /* of either side */
    uint32_t first_psn[2]; /* of its requests; 0: it sent none */
    uint8_t gid[2][16];
    uint32_t mtu;
};

struct captured {
    uint8_t *data;
    struct recorded *packets; /* without those of the connection manager */
    uint32_t count;
    struct connection connections[CAPTURED_CONNECTIONS];
    int connection_count;
};

/* A classic pcap file of this machine's byte order, with Ethernet frames. */
void captured_open(struct captured *captured, const char *path);
void captured_close(struct captured *captured);

static inline bool recorded_is_request(const struct recorded *packet)
{
    return !(packet->flags & VB_OPCODE_RESPONSE);
}

/* The next packet of the same side, connection and direction (requests or responses), or NULL. */
const struct recorded *captured_next(const struct captured *captured,
                                     const struct recorded *packet);

#endif
