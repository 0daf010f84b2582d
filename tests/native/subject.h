// SPDX-License-Identifier: Apache-2.0
/*
 * One side of a capture, played by the packet engine: queue pairs with the capture's numbers and
 * PSNs, regions with its keys at its addresses. What the engine sends is kept.
 */
#ifndef VB_TESTS_SUBJECT_H
#define VB_TESTS_SUBJECT_H

#include "captured.h"
#include "hand_port.h"
#include "hca/hca.h"
#include "transport/engine.h"

enum { SUBJECT_REGIONS = 64, SUBJECT_BYTES_MAX = VB_HEADERS_MAX + 4096 + 4 };

struct sent {
    int connection;
    uint32_t flags;
    uint32_t length;
    uint8_t bytes[SUBJECT_BYTES_MAX];
};

/* What a key of the capture stands for. */
struct region {
    uint32_t key;
    uint64_t low, high; /* addresses at the peer's end of the wire */
    uint8_t *memory;
    uint8_t *known; /* bytes that have been set or written */
};

struct subject {
    const struct captured *captured;
    int side;
    struct vb_heap *segment;
    struct hand_port port;
    struct vb_adapter adapter;
    struct vb_engine *engine;
    struct ibv_context ibv;
    struct vb_context *context;
    struct vb_pd *pd;
    struct vb_cq *send_cq, *recv_cq;
    struct vb_srq *srq;
    struct vb_mr *mr; /* of `scratch`, where messages come from and go to */
    uint8_t *scratch;
    uint32_t scratch_used;
    struct vb_qp *qp[CAPTURED_CONNECTIONS];
    struct vb_ah *ah[CAPTURED_CONNECTIONS];
    struct region regions[SUBJECT_REGIONS];
    int region_count;
    uint64_t now;
    struct sent *sent;
    uint32_t sent_count, sent_room;
};

void subject_open(struct subject *subject, const struct captured *captured, int side,
                  bool with_srq);
void subject_close(struct subject *subject);
/* Memory for a message. */
uint8_t *subject_scratch(struct subject *subject, uint32_t length);
/* The bytes behind a key; NULL if there are none. */
struct region *subject_region(struct subject *subject, uint32_t key, uint64_t addr,
                              uint32_t length);
void subject_arrival(struct subject *subject, const struct recorded *packet);
/* Takes what the engine has ready to send. */
void subject_drain(struct subject *subject);

#endif
