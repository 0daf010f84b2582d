// SPDX-License-Identifier: Apache-2.0
/*
 * The extended completion queue: start_poll takes a completion from the queue, the readers give
 * its fields, next_poll takes the next one. The CQ belongs to one thread from start_poll to
 * end_poll.
 */
#include "dropin/cq_ex.h"

#include <time.h>

#include "dropin/context.h"
#include "hca/biased_lock.h"

static inline struct vb_cq *cq_ex_of(struct ibv_cq_ex *ex)
{
    return (struct vb_cq *)ex;
}

/* Returns 0, ENOENT if the queue is empty, or another error. */
static int cq_ex_take(struct vb_cq *cq)
{
    int got = vb_cq_poll(cq, 1, &cq->current);

    if (got != 1)
        return got ? -got : ENOENT;
    cq->ex.status = cq->current.status;
    cq->ex.wr_id = cq->current.wr_id;
    if (VB_UNLIKELY(cq->current.status != IBV_WC_SUCCESS))
        vb_dropin_completion_failed(cq->ibv.context, &cq->current);
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct vb_context *core = vb_dropin_core(ex->context);
    int error;

    if (VB_UNLIKELY(!core))
        return vb_dropin_failed(ex->context, "ibv_start_poll", -VB_ERROR_FORKED);
    if (VB_UNLIKELY(attr && attr->comp_mask))
        return EINVAL;
    vb_lock_order_check(VB_RANK_CQ_EX);
    vb_biased_enter(&cq_ex_of(ex)->ex_lock, core->adapter->instance, true, NULL);
    error = cq_ex_take(cq_ex_of(ex));
    if (error) /* no end_poll follows */
        vb_biased_leave(&cq_ex_of(ex)->ex_lock);
    return error;
}

static int next_poll(struct ibv_cq_ex *ex)
{
    return cq_ex_take(cq_ex_of(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
    vb_biased_leave(&cq_ex_of(ex)->ex_lock);
}

#define READER(type, field)                                                                        \
    static type read_##field(struct ibv_cq_ex *ex)                                                 \
    {                                                                                              \
        return cq_ex_of(ex)->current.field;                                                        \
    }

READER(enum ibv_wc_opcode, opcode)
READER(uint32_t, vendor_err)
READER(uint32_t, byte_len)
READER(__be32, imm_data)
READER(uint32_t, qp_num)
READER(uint32_t, src_qp)
READER(unsigned int, wc_flags)
READER(uint32_t, slid)
READER(uint8_t, sl)
READER(uint8_t, dlid_path_bits)

/* In the device's clock: ibv_query_device_ex gives its rate, ibv_query_rt_values_ex its time. */
static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
    return vb_cq_last_stamp(cq_ex_of(ex));
}

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/*
 * The wall clock's time now, less the completion's age, so that it is right after the clock was
 * set. In a simulated world the wall clock begins with the world, at 0.
 */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
    const struct vb_adapter *adapter = cq_ex_of(ex)->context->adapter;
    uint64_t stamp = vb_cq_last_stamp(cq_ex_of(ex));

    if (vb_dropin_open_of(cq_ex_of(ex)->ibv.context)->simulated)
        return stamp;
    return (uint64_t)nanoseconds(CLOCK_REALTIME) - (adapter->calls->now(adapter) - stamp);
}

/* Readers that programs do not call, because ibv_create_cq_ex refuses the flags that ask for them.
 */
static uint64_t no_number(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint16_t no_cvlan(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint32_t no_flow_tag(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static void no_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
    (void)ex;
    *info = (struct ibv_wc_tm_info){0};
}

static void fill_readers(struct ibv_cq_ex *ex, bool stamped)
{
    ex->start_poll = start_poll;
    ex->next_poll = next_poll;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_sl;
    ex->read_dlid_path_bits = read_dlid_path_bits;
    ex->read_completion_ts = stamped ? read_completion_ts : no_number;
    ex->read_completion_wallclock_ns = stamped ? read_completion_wallclock_ns : no_number;
    ex->read_cvlan = no_cvlan;
    ex->read_flow_tag = no_flow_tag;
    ex->read_tm_info = no_tm_info;
}

static const uint64_t STAMPS =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

static int cq_ex_check_offered(struct vb_context *core, const struct ibv_cq_init_attr_ex *attr)
{
    if (attr->wc_flags & ~(IBV_WC_STANDARD_FLAGS | STAMPS))
        return vb_decline(core, -EOPNOTSUPP, "the wc_flags {0x} are not offered",
                          attr->wc_flags & ~(IBV_WC_STANDARD_FLAGS | STAMPS));
    if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
        return vb_decline(core, -EOPNOTSUPP, "the parts {0x} of comp_mask are not offered",
                          attr->comp_mask &
                              ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD));
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
        (!attr->parent_domain || !((struct vb_pd *)attr->parent_domain)->real))
        return vb_decline(core, -EINVAL, "parent_domain is not a parent domain: NULL, or a PD");
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
        attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
        return -EOPNOTSUPP;
    return 0;
}

struct ibv_cq_ex *vb_dropin_create_cq_ex(struct ibv_context *context,
                                         struct ibv_cq_init_attr_ex *attr)
{
    struct vb_context *core = vb_dropin_core(context);
    int error = core ? cq_ex_check_offered(core, attr) : -VB_ERROR_FORKED;
    struct vb_cq *cq;

    if (!error)
        error = vb_dropin_new_cq(context, (int)attr->cqe, attr->cq_context, attr->channel,
                                 (int)attr->comp_vector, &cq);
    if (!error && attr->wc_flags & STAMPS) {
        error = vb_cq_keep_stamps(cq);
        if (error)
            vb_cq_destroy(cq);
    }
    if (error)
        return vb_dropin_failed_null(context, "ibv_create_cq_ex", error);
    if (!cq->context->adapter->barriers)
        vb_biased_forbid(&cq->ex_lock, cq->context->adapter->instance);
    fill_readers(&cq->ex, attr->wc_flags & STAMPS);
    if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
        cq->parent = (struct vb_pd *)attr->parent_domain;
        vb_pd_use(cq->parent);
    }
    return &cq->ex;
}
