// SPDX-License-Identifier: Apache-2.0
/*
 * The extended queue pair's ibv_wr_* calls: between wr_start and wr_complete they put a list of
 * requests together, which wr_complete posts as a whole or not at all. The list belongs to one
 * thread from wr_start to wr_complete or wr_abort.
 */
#include "dropin/qp_ex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "hca/biased_lock.h"

/* The list of a QP, in one block of memory, which the core frees with the QP. */
struct vb_staging {
    struct vb_biased_lock lock;
    uint32_t holder;
    uint32_t opcodes; /* a bit for each opcode that a QP of this type sends */
    uint32_t max_sge, max_inline;
    uint32_t room;
    uint32_t count;
    bool flushes;                /* the list has a FLUSH */
    int error;                   /* of the first request that was wrong */
    struct ibv_send_wr *current; /* the request that the setters write to */
    struct ibv_sge *sge;
    uint8_t *inline_data;
    struct ibv_send_wr wr[]; /* one more than the queue holds; the last takes what does not fit */
};

static inline struct vb_staging *qp_ex_of(struct ibv_qp_ex *ex)
{
    return vb_verbs_qp_of(vb_qp_of(&ex->qp_base))->staging;
}

/* Makes ibv_wr_complete fail with this error and reason, unless it has to fail already. */
static VB_COLD void refuse_list(struct ibv_qp_ex *ex, int error, const char *because,
                                uint64_t number, uint64_t limit)
{
    const struct vb_qp *qp = vb_qp_of(&ex->qp_base);

    if (qp_ex_of(ex)->error)
        return;
    qp_ex_of(ex)->error = error;
    vb_decline(qp->context, -error, because, number, limit, qp->number, qp->type);
}

/* ---- start, complete, abort ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
    struct vb_staging *staging = qp_ex_of(ex);

    vb_lock_order_check(VB_RANK_QP_EX);
    vb_biased_enter(&staging->lock, staging->holder, true, NULL);
    staging->count = 0;
    staging->error = 0;
    staging->flushes = false;
    staging->current = &staging->wr[staging->room];
}

static bool qp_ex_fits(const struct vb_qp *qp, uint32_t count)
{
    uint32_t used = qp->sq_posted - atomic_load_explicit(&qp->sq_retired, memory_order_acquire);

    return count <= qp->cap.max_send_wr - used;
}

static VB_COLD int decline_room(const struct vb_qp *qp, const struct vb_staging *staging)
{
    return vb_decline(
        qp->context, -ENOMEM,
        "the send queue is full: the list has {0} requests, QP {1x} was created for "
        "{2}, and completions are not polled yet; poll the CQ, or create it with more "
        "room",
        staging->count, qp->number, qp->cap.max_send_wr);
}

static int qp_ex_post(struct vb_qp *qp, struct vb_staging *staging)
{
    struct ibv_send_wr *bad;

    if (VB_UNLIKELY(!vb_dropin_core(vb_verbs_qp_of(qp)->ibv.context)))
        return vb_dropin_failed(vb_verbs_qp_of(qp)->ibv.context, "ibv_wr_complete",
                                -VB_ERROR_FORKED);
    if (VB_UNLIKELY(staging->error))
        return vb_dropin_failed(vb_verbs_qp_of(qp)->ibv.context, "ibv_wr_complete",
                                -staging->error);
    if (VB_UNLIKELY(!staging->count))
        return 0;
    if (VB_UNLIKELY(!qp_ex_fits(qp, staging->count)))
        return vb_dropin_failed(vb_verbs_qp_of(qp)->ibv.context, "ibv_wr_complete",
                                decline_room(qp, staging));
    if (VB_UNLIKELY(staging->flushes))
        return vb_dropin_result(vb_verbs_qp_of(qp)->ibv.context, "ibv_wr_complete",
                                vb_post_staged(qp, staging->wr, &bad));
    return vb_dropin_result(vb_verbs_qp_of(qp)->ibv.context, "ibv_wr_complete",
                            vb_post_send(qp, staging->wr, &bad));
}

static int wr_complete(struct ibv_qp_ex *ex)
{
    struct vb_staging *staging = qp_ex_of(ex);
    int error = qp_ex_post(vb_qp_of(&ex->qp_base), staging);

    vb_biased_leave(&staging->lock);
    return error;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
    vb_biased_leave(&qp_ex_of(ex)->lock);
}

/* ---- requests ---- */

static inline struct ibv_send_wr *qp_ex_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
    struct vb_staging *staging = qp_ex_of(ex);
    uint32_t at = staging->count;
    struct ibv_send_wr *wr = &staging->wr[at];

    if (VB_UNLIKELY(!(staging->opcodes >> opcode & 1)))
        refuse_list(ex, EOPNOTSUPP, "QP {2x} of type {3t} does not send opcode {0} ({0o})", opcode,
                    0);
    if (VB_UNLIKELY(at == staging->room))
        refuse_list(ex, ENOMEM, "the list has more requests than the send queue's {1} of QP {2x}",
                    at, staging->room);
    else
        ++staging->count;
    if (at)
        wr[-1].next = wr;
    wr->wr_id = ex->wr_id;
    wr->next = NULL;
    wr->sg_list = staging->sge + (size_t)at * staging->max_sge;
    wr->num_sge = 0;
    wr->opcode = opcode;
    wr->send_flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE;
    staging->current = wr;
    return wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
    qp_ex_begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
    qp_ex_begin(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm_data;
}

static inline struct ibv_send_wr *one_sided(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
                                            uint32_t rkey, uint64_t remote_addr)
{
    struct ibv_send_wr *wr = qp_ex_begin(ex, opcode);

    wr->wr.rdma.remote_addr = remote_addr;
    wr->wr.rdma.rkey = rkey;
    return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    one_sided(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                              __be32 imm_data)
{
    one_sided(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr)->imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
    one_sided(ex, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void stage_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
                         uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
    struct ibv_send_wr *wr = qp_ex_begin(ex, opcode);

    wr->wr.atomic.remote_addr = remote_addr;
    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.compare_add = compare_add;
    wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                              uint64_t compare, uint64_t swap)
{
    stage_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                                uint64_t add)
{
    stage_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *bind_info)
{
    struct ibv_send_wr *wr = qp_ex_begin(ex, IBV_WR_BIND_MW);

    wr->bind_mw.mw = mw;
    wr->bind_mw.rkey = rkey;
    wr->bind_mw.bind_info = *bind_info;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
    qp_ex_begin(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = invalidate_rkey;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
    qp_ex_begin(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = invalidate_rkey;
}

#define UNKNOWN_FLUSH                                                                              \
    "a FLUSH of placement type {0x} and selectivity {1x}: the type is IBV_FLUSH_GLOBAL, "          \
    "IBV_FLUSH_PERSISTENT or both, the selectivity IBV_FLUSH_RANGE or IBV_FLUSH_MR"

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t len,
                     uint8_t type, uint8_t level)
{
    struct ibv_send_wr *wr = qp_ex_begin(ex, IBV_WR_FLUSH);

    qp_ex_of(ex)->flushes = true;
    vb_fill_flush(wr, rkey, remote_addr, len, type, level);
    if (VB_UNLIKELY(!vb_flush_is_known(type, level)))
        refuse_list(ex, EINVAL, UNKNOWN_FLUSH, type, level);
}

/* Posts a FLUSH of a QP without ibv_wr_* calls. The other fields are as for ibv_post_send. */
VB_EXPORT int verbena_post_flush(struct ibv_qp *qp, const struct ibv_send_wr *wr, size_t length,
                                 uint8_t type, uint8_t level)
{
    struct vb_qp *own = vb_qp_of(qp);
    struct ibv_send_wr staged = *wr, *bad;
    int error = 0;

    if (!vb_dropin_core(qp->context))
        return vb_dropin_failed(qp->context, "ibv_post_send", -VB_ERROR_FORKED);
    if (!vb_flush_is_known(type, level))
        error = vb_decline(own->context, -EINVAL, UNKNOWN_FLUSH, type, level);
    staged.next = NULL;
    vb_fill_flush(&staged, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length, type, level);
    if (!error)
        error = vb_post_staged(own, &staged, &bad);
    return vb_dropin_result(qp->context, "ibv_post_send", error);
}

/* ---- requests that ibv_create_qp_ex refuses, if a program calls them nevertheless ---- */

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
    (void)hdr, (void)hdr_sz, (void)mss;
    qp_ex_begin(ex, IBV_WR_TSO);
}

/* ---- setters: a request's destination and payload ---- */

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
    qp_ex_of(ex)->current->qp_type.xrc.remote_srqn = remote_srqn;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
                           uint32_t remote_qkey)
{
    struct ibv_send_wr *wr = qp_ex_of(ex)->current;

    wr->wr.ud.ah = ah;
    wr->wr.ud.remote_qpn = remote_qpn;
    wr->wr.ud.remote_qkey = remote_qkey;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
    struct ibv_send_wr *wr = qp_ex_of(ex)->current;

    wr->sg_list[0] = (struct ibv_sge){.addr = addr, .length = length, .lkey = lkey};
    wr->num_sge = length != 0;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
    struct vb_staging *staging = qp_ex_of(ex);
    struct ibv_send_wr *wr = staging->current;

    if (VB_UNLIKELY(num_sge > staging->max_sge)) {
        refuse_list(ex, EINVAL, "there are too many SGEs: {0}, and QP {2x} takes {1}", num_sge,
                    staging->max_sge);
        return;
    }
    memcpy(wr->sg_list, sg_list, num_sge * sizeof(*sg_list));
    wr->num_sge = (int)num_sge;
}

/* The program may change its buffer after the call, so inline data is copied here. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
                                    const struct ibv_data_buf *buf_list)
{
    struct vb_staging *staging = qp_ex_of(ex);
    struct ibv_send_wr *wr = staging->current;
    uint8_t *to = staging->inline_data + (size_t)(wr - staging->wr) * staging->max_inline;
    size_t length = 0;

    for (size_t i = 0; i < num_buf; ++i) {
        if (VB_UNLIKELY(buf_list[i].length > staging->max_inline - length)) {
            refuse_list(ex, EINVAL, "inline data: more than the {1} bytes that QP {2x} takes", 0,
                        staging->max_inline);
            return;
        }
        memcpy(to + length, buf_list[i].addr, buf_list[i].length);
        length += buf_list[i].length;
    }
    wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)to, .length = (uint32_t)length};
    wr->num_sge = length != 0;
    wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
    struct ibv_data_buf one = {.addr = addr, .length = length};

    wr_set_inline_data_list(ex, 1, &one);
}

/* The eight bytes are copied as inline data, for which every send queue has room. */
static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
                            const void *atomic_wr)
{
    struct ibv_data_buf value = {.addr = (void *)(uintptr_t)atomic_wr, .length = sizeof(uint64_t)};

    one_sided(ex, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);
    wr_set_inline_data_list(ex, 1, &value);
}

/* ---- creation ---- */

static uint64_t offered(enum ibv_qp_type type)
{
    const uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    const uint64_t window = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

    switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
        return send | write | window | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
               IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
               IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE;
    case IBV_QPT_UC:
        return send | write | window;
    case IBV_QPT_UD:
        return send;
    default:
        return 0;
    }
}

int vb_dropin_send_ops_check(enum ibv_qp_type type, uint64_t send_ops_flags)
{
    return send_ops_flags & ~offered(type) ? -EOPNOTSUPP : 0;
}

/* Returns the bits of `opcodes`; those of send_ops_flags have another order. */
static uint32_t opcodes(enum ibv_qp_type type)
{
    static const struct {
        uint32_t flag, opcode;
    } map[] = {
        {IBV_QP_EX_WITH_SEND, IBV_WR_SEND},
        {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM},
        {IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE},
        {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
        {IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ},
        {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP},
        {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
        {IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV},
        {IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW},
        {IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV},
        {IBV_QP_EX_WITH_FLUSH, IBV_WR_FLUSH},
        {IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE},
    };
    uint32_t bits = 0;

    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); ++i)
        if (offered(type) & map[i].flag)
            bits |= 1u << map[i].opcode;
    return bits;
}

static struct vb_staging *new_staging(const struct vb_qp *qp)
{
    size_t slots = (size_t)qp->cap.max_send_wr + 1;
    size_t sges = qp->cap.max_send_sge ? qp->cap.max_send_sge : 1;
    struct vb_staging *made;
    size_t head = sizeof(*made) + slots * sizeof(made->wr[0]);
    size_t elements = slots * sges * sizeof(*made->sge);

    made = calloc(1, head + elements + slots * qp->cap.max_inline_data);
    if (!made)
        return NULL;
    made->holder = qp->context->adapter->instance;
    made->opcodes = opcodes(qp->type);
    made->max_sge = (uint32_t)sges;
    made->max_inline = qp->cap.max_inline_data;
    made->room = qp->cap.max_send_wr;
    made->sge = (struct ibv_sge *)((char *)made + head);
    made->inline_data = (uint8_t *)made + head + elements;
    if (!qp->context->adapter->barriers)
        vb_biased_forbid(&made->lock, made->holder);
    return made;
}

static void fill_calls(struct ibv_qp_ex *ex)
{
    ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
    ex->wr_bind_mw = wr_bind_mw;
    ex->wr_local_inv = wr_local_inv;
    ex->wr_rdma_read = wr_rdma_read;
    ex->wr_rdma_write = wr_rdma_write;
    ex->wr_rdma_write_imm = wr_rdma_write_imm;
    ex->wr_send = wr_send;
    ex->wr_send_imm = wr_send_imm;
    ex->wr_send_inv = wr_send_inv;
    ex->wr_send_tso = wr_send_tso;
    ex->wr_set_ud_addr = wr_set_ud_addr;
    ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    ex->wr_atomic_write = wr_atomic_write;
    ex->wr_flush = wr_flush;
}

int vb_dropin_send_ops_init(struct vb_qp *qp)
{
    qp->verbs->staging = new_staging(qp);
    if (!qp->verbs->staging)
        return -ENOMEM;
    fill_calls(&qp->verbs->ex);
    return 0;
}

VB_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct vb_qp *own = vb_qp_of(qp);

    return own->verbs->staging ? &own->verbs->ex : NULL;
}
