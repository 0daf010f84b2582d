// SPDX-License-Identifier: Apache-2.0
/*
 * A transport packet on its way out of the engine, and one on its way in: from BTH to pad. The
 * engine makes and reads them; carriers (roce, sim) send and receive them, and wrap stands between
 * to drop, delay or record them.
 */
#ifndef VB_HCA_PACKET_H
#define VB_HCA_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/layout.h"
#include "wire/headers.h"

/* Where the packets of a connection, or of an address handle, go. */
struct vb_path {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label : 24;
    uint32_t port : 8; /* the number of the RDMA port that sends */
    union {
        uint16_t source_port; /* the UDP source port: one per flow, so that networks spread flows */
        uint16_t dlid;        /* InfiniBand */
    };
    uint16_t mtu; /* path MTU in bytes: 256 to 4096 */
    union {
        uint8_t sgid_index;
        uint8_t path_bits; /* InfiniBand: which of its LIDs the port sends from */
    };
    uint8_t traffic_class;
    uint8_t hop_limit;
    uint8_t sl;
};

/* Why a packet is sent, for captures and traces. */
enum vb_packet_reason {
    VB_PACKET_NEW = 0,
    VB_PACKET_AFTER_TIMEOUT,       /* the local ACK timeout expired */
    VB_PACKET_AFTER_SEQUENCE_NAK,  /* the responder missed a packet */
    VB_PACKET_AFTER_RNR,           /* the responder had no receive request */
    VB_PACKET_AFTER_LOST_RESPONSE, /* a response of READ or atomic is missing (implied NAK) */
    VB_PACKET_REPLAYED_RESPONSE,   /* the requester asked again */
    VB_PACKET_PROBE,               /* no answer for a few round trips, before that timeout */
};

struct vb_piece {
    const uint8_t *bytes; /* NULL: a virtual payload, which has a length alone */
    uint32_t length;
};

enum { VB_PIECES = VB_MAX_SGE };

struct vb_packet {
    const struct vb_path *path; /* vb_engine_next says how long this and the pieces are valid */
    uint32_t qp_num;            /* of the sender */
    uint16_t header_length;
    uint8_t pad;
    uint8_t reason;          /* enum vb_packet_reason */
    uint32_t missing_psn;    /* of a request that is sent again: the first unanswered PSN */
    uint32_t unanswered_us;  /* of a probe: the time since the last acknowledgement */
    uint32_t payload_length; /* the sum over the pieces */
    uint32_t piece_count;
    uint8_t header[VB_HEADERS_MAX]; /* BTH and extended headers, complete but for ECN marks */
    struct vb_piece piece[VB_PIECES];
};

struct vb_arrival {
    const uint8_t *bytes; /* from the BTH to the last pad byte, without the ICRC */
    uint32_t length;      /* of `bytes`; the headers alone where the payload is virtual */
    uint32_t virtual_payload;
    uint8_t sgid[16], dgid[16]; /* as in the packet's IP header or GRH */
    uint8_t traffic_class;      /* with the ECN bits */
    uint8_t hop_limit;
    uint32_t flow_label;
    const uint8_t *grh; /* the 40 bytes for a datagram's buffer (IPv4: in the last 20); NULL: they
                           are made from the fields above */
    uint16_t slid;      /* InfiniBand: the LID that it came from; 0: Ethernet */
    uint8_t sl, path_bits; /* InfiniBand: the service level; of the LID that it came to */
    bool has_grh;          /* of such a packet; one of Ethernet always has addresses in its place */
    uint8_t port;          /* the number of the port that it came to; 0: each port may take it */
    bool doubted;          /* it may be damaged: a connection only asks for it again */
};

#endif
