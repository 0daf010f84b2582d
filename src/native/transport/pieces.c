// SPDX-License-Identifier: Apache-2.0
/*
 * Walks the elements of a request from a byte of the message on, finds each part's memory by its
 * lkey, and points a packet at it or copies a response there.
 */
#include "transport/pieces.h"

#include <errno.h>

#include "hca/refusal.h"

uint64_t vb_engine_elements_length(const struct ibv_send_wr *wr)
{
    uint64_t length = 0;

    for (int i = 0; i < wr->num_sge; ++i)
        length += wr->sg_list[i].length;
    return length;
}

/* Where a walk through the elements is. */
struct walk {
    const struct ibv_sge *sge, *end;
    uint64_t skip;
    uint32_t left;
};

static struct walk pieces_begin(const struct ibv_send_wr *wr, uint64_t offset, uint32_t length)
{
    return (struct walk){wr->sg_list, wr->sg_list + wr->num_sge, offset, length};
}

/* The next part, which lies in one element. Returns its length, 0 at the end. */
static uint32_t next(struct walk *walk, struct ibv_sge *part)
{
    while (walk->left && walk->sge != walk->end) {
        const struct ibv_sge *sge = walk->sge++;
        uint64_t here;

        if (walk->skip >= sge->length) {
            walk->skip -= sge->length;
            continue;
        }
        here = sge->length - walk->skip;
        part->addr = sge->addr + walk->skip;
        part->length = here < walk->left ? (uint32_t)here : walk->left;
        part->lkey = sge->lkey;
        walk->skip = 0;
        walk->left -= part->length;
        return part->length;
    }
    return 0;
}

static bool pieces_find(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct ibv_sge *part,
                        uint32_t need, uint8_t **at, struct vb_outcome *outcome)
{
    const struct vb_mr_shared *mr;
    enum vb_check check;

    if (wr->send_flags & IBV_SEND_INLINE) {
        *at = (uint8_t *)(uintptr_t)part->addr;
        return true;
    }
    check = vb_lkey_find(&qp->context->adapter->self, qp->pd->number, part->lkey, part->addr,
                         part->length, need, &mr, at);
    return VB_LIKELY(!check) || vb_refuse_element(qp, wr, part, check, need, mr, outcome);
}

bool vb_engine_elements_check(struct vb_qp *qp, const struct ibv_send_wr *wr, uint32_t need,
                              struct vb_packet *packet, struct vb_outcome *outcome)
{
    for (int i = 0; i < wr->num_sge; ++i) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        uint8_t *at;

        if (!sge->length)
            continue; /* its key is not looked at */
        if (VB_UNLIKELY(!pieces_find(qp, wr, sge, need, &at, outcome)))
            return false;
        if (packet)
            vb_engine_packet_add(packet, at, sge->length);
    }
    return true;
}

static VB_COLD bool pieces_refuse_gone(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                       const struct ibv_sge *part, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = VB_CHECK_LOCAL_MEMORY_GONE, .addr = part->addr, .length = part->length};

    vb_refuse(qp, wr, IBV_WC_LOC_PROT_ERR, &evidence, outcome);
    return false;
}

bool vb_engine_elements_gather(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t offset,
                               uint32_t length, struct vb_packet *packet,
                               struct vb_outcome *outcome)
{
    struct walk walk = pieces_begin(wr, offset, length);
    bool is_checked = packet->piece_count > 0;
    struct ibv_sge part;

    for (uint32_t i = 0; next(&walk, &part); ++i) {
        uint8_t *at = NULL;

        if (is_checked)
            at = (uint8_t *)(uintptr_t)packet->piece[i].bytes;
        else if (!pieces_find(qp, wr, &part, 0, &at, outcome))
            return false;
        if (VB_UNLIKELY(!vb_memory_is_mapped(at, part.length, false)))
            return pieces_refuse_gone(qp, wr, &part, outcome);
        if (!is_checked)
            vb_engine_packet_add(packet, at, part.length);
    }
    return true;
}

bool vb_engine_elements_scatter(struct vb_qp *qp, const struct ibv_send_wr *wr, uint64_t offset,
                                const uint8_t *bytes, uint32_t length, struct vb_outcome *outcome)
{
    struct walk walk = pieces_begin(wr, offset, length);
    struct ibv_sge part;

    while (next(&walk, &part)) {
        uint8_t *at = NULL;

        if (!pieces_find(qp, wr, &part, IBV_ACCESS_LOCAL_WRITE, &at, outcome))
            return false;
        if (!bytes)
            continue;
        if (VB_UNLIKELY(vb_memory_guarded_write(at, bytes, part.length)))
            return pieces_refuse_gone(qp, wr, &part, outcome);
        bytes += part.length;
    }
    return true;
}
