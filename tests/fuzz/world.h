// SPDX-License-Identifier: Apache-2.0
/*
 * What the engine's fuzzing target plays in: two adapters (tests/native/fabric.h), connections
 * that are attacked, and one between the same adapters that is not.
 *
 * An attacked connection has its own protection domain and, on each side, an arena:
 *
 *     canary | open: all access | canary | fixed: remote READ only | canary
 */
#ifndef VB_TESTS_FUZZ_WORLD_H
#define VB_TESTS_FUZZ_WORLD_H

#include "fabric.h"

enum { ZONE = 4096, ARENA = 5 * ZONE, OPEN_AT = ZONE, FIXED_AT = 3 * ZONE };
enum { WORLD_MTU = 256, WORLD_REQUESTS = 1 << 12 };

enum victim { VICTIM_RC, VICTIM_SRQ, VICTIM_UC, VICTIM_UD, VICTIM_XRC, VICTIMS };

struct arena {
    uint8_t *bytes;
    struct vb_pd *pd;
    struct vb_mr *open, *fixed;
    struct vb_cq *cq;
    struct vb_srq *srq;
};

struct world {
    struct fabric fabric;
    struct arena arena[2];
    struct vb_qp *honest[2];
    struct vb_qp *victim[VICTIMS][2]; /* XRC: the initiator is on side 0, the target on side 1 */
    struct vb_xrcd *xrcd, *other_xrcd;
    struct vb_srq *xrc_srq, *other_srq; /* of the target's domain, and of another one */
    struct vb_ah *ah[2][2];             /* of each side: to the other, and to the group */
    uint8_t outcome[WORLD_REQUESTS];    /* by wr_id: is it posted, and has it ended? */
    uint32_t posted;
};

void world_open(struct world *world);
/* New victims, for one input. */
void world_begin(struct world *world);
/* The victims end, every request of theirs with them; then the honest connection's turn. */
void world_end(struct world *world);

/* Requests of victims, in their open region; false: there is no room. */
bool world_send(struct world *world, struct vb_qp *qp, struct ibv_send_wr *wr, uint32_t offset,
                uint32_t length);
bool world_receive(struct world *world, struct vb_qp *qp, uint32_t offset, uint32_t length);

/* The program's QP itself: of an XRC target it has a handle. */
static inline struct vb_qp *world_real(struct vb_qp *qp)
{
    return qp->verbs->real ? qp->verbs->real : qp;
}

/* The group that the datagram victims are in. */
extern const uint8_t world_group[16];

/* What must be so after each step: nothing but the open zones has changed. */
void world_check(const struct world *world);

#endif
