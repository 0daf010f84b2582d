// SPDX-License-Identifier: Apache-2.0
/*
 * The tables of calls in an open context: how programs post, poll and use the extended verbs.
 * device.c fills and frees contexts with this. A context has one of three sets of calls: the usual
 * ones, those that log failures (VERBENA_LOG is set), and those of a context that is not open any
 * more.
 */
#include "dropin/context.h"

#include <stdlib.h>
#include <unistd.h>

#include "abi/calls.h"
#include "dropin/settings.h"

struct vb_contexts *vb_dropin_contexts(void)
{
    static struct vb_contexts contexts = {.mutex = VB_MUTEX_INITIALIZER(VB_RANK_DEVICES)};

    return &contexts;
}

/* ---- verbs through ibv_context.ops ---- */

static int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
    return vb_cq_poll((struct vb_cq *)cq, num_entries, wc);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    vb_cq_arm((struct vb_cq *)cq, solicited_only != 0);
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    return -vb_post_send(vb_qp_of(qp), wr, bad_wr);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    return -vb_post_recv(vb_qp_of(qp), wr, bad_wr);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    return -vb_srq_post_recv((struct vb_srq *)srq, wr, bad_wr);
}

/* ---- with VERBENA_LOG: each failure is logged, and errno stays ---- */

static int context_log(struct ibv_context *context, const char *call, int error)
{
    int before = errno;

    if (error)
        vb_dropin_failed(context, call, error);
    errno = before;
    return -error;
}

static int logging_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
    int got = vb_cq_poll((struct vb_cq *)cq, num_entries, wc);

    if (got < 0)
        context_log(cq->context, "ibv_poll_cq", got);
    for (int i = 0; i < got; ++i)
        if (wc[i].status != IBV_WC_SUCCESS)
            vb_dropin_completion_failed(cq->context, &wc[i]);
    return got;
}

static int logging_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    return context_log(qp->context, "ibv_post_send", vb_post_send(vb_qp_of(qp), wr, bad_wr));
}

static int logging_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    return context_log(qp->context, "ibv_post_recv", vb_post_recv(vb_qp_of(qp), wr, bad_wr));
}

static int logging_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                                 struct ibv_recv_wr **bad_wr)
{
    return context_log(srq->context, "ibv_post_srq_recv",
                       vb_srq_post_recv((struct vb_srq *)srq, wr, bad_wr));
}

static void log_failures(struct ibv_context_ops *ops)
{
    ops->poll_cq = logging_poll_cq;
    ops->post_send = logging_post_send;
    ops->post_recv = logging_post_recv;
    ops->post_srq_recv = logging_post_srq_recv;
}

/* ---- not offered, but called without a check for NULL ---- */

static void *no_compat(void)
{
    return vb_dropin_null(-EOPNOTSUPP);
}

/* ---- the context is closed, or was opened before a fork ---- */

static int closed_call(struct ibv_context *context, const char *call)
{
    if (vb_dropin_settings()->explain)
        context_log(context, call, -VB_ERROR_FORKED);
    return VB_ERROR_FORKED;
}

static int closed_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
    (void)num_entries, (void)wc;
    return -closed_call(cq->context, "ibv_poll_cq");
}

static int closed_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    (void)solicited_only;
    return closed_call(cq->context, "ibv_req_notify_cq");
}

static int closed_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
    *bad_wr = wr;
    return closed_call(qp->context, "ibv_post_send");
}

static int closed_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    *bad_wr = wr;
    return closed_call(qp->context, "ibv_post_recv");
}

static int closed_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                                struct ibv_recv_wr **bad_wr)
{
    *bad_wr = wr;
    return closed_call(srq->context, "ibv_post_srq_recv");
}

static const struct ibv_context_ops live_ops = {
    ._compat_query_device = ibv_query_device,
    ._compat_query_port = ibv_query_port,
    ._compat_alloc_pd = no_compat,
    ._compat_dealloc_pd = no_compat,
    ._compat_reg_mr = no_compat,
    ._compat_rereg_mr = no_compat,
    ._compat_dereg_mr = no_compat,
    .alloc_mw = vb_dropin_alloc_mw,
    .bind_mw = vb_dropin_bind_mw,
    .dealloc_mw = vb_dropin_dealloc_mw,
    ._compat_create_cq = no_compat,
    .poll_cq = poll_cq,
    .req_notify_cq = req_notify_cq,
    ._compat_cq_event = no_compat,
    ._compat_resize_cq = no_compat,
    ._compat_destroy_cq = no_compat,
    ._compat_create_srq = no_compat,
    ._compat_modify_srq = no_compat,
    ._compat_query_srq = no_compat,
    ._compat_destroy_srq = no_compat,
    .post_srq_recv = post_srq_recv,
    ._compat_create_qp = no_compat,
    ._compat_query_qp = no_compat,
    ._compat_modify_qp = no_compat,
    ._compat_destroy_qp = no_compat,
    .post_send = post_send,
    .post_recv = post_recv,
    ._compat_create_ah = no_compat,
    ._compat_destroy_ah = no_compat,
    ._compat_attach_mcast = no_compat,
    ._compat_detach_mcast = no_compat,
    ._compat_async_event = no_compat,
};

/* Where a call is NULL, <infiniband/verbs.h> returns EOPNOTSUPP. */
static void fill_extended(struct verbs_context *verbs)
{
    verbs->sz = sizeof(*verbs);
    verbs->query_port = vb_dropin_query_port;
    verbs->query_device_ex = vb_dropin_query_device_ex;
    verbs->query_rt_values = vb_dropin_query_rt_values;
    verbs->create_cq_ex = vb_dropin_create_cq_ex;
    verbs->modify_cq = vb_dropin_modify_cq;
    verbs->create_qp_ex = vb_dropin_create_qp_ex;
    verbs->modify_qp_rate_limit = vb_dropin_modify_qp_rate_limit;
    verbs->create_srq_ex = vb_dropin_create_srq_ex;
    verbs->reg_mr_ex = ibv_reg_mr_ex;
    verbs->alloc_null_mr = vb_dropin_alloc_null_mr;
    verbs->advise_mr = vb_dropin_advise_mr;
    verbs->alloc_dm = vb_dropin_alloc_dm;
    verbs->free_dm = vb_dropin_free_dm;
    verbs->reg_dm_mr = vb_dropin_reg_dm_mr;
    verbs->alloc_td = vb_dropin_alloc_td;
    verbs->dealloc_td = vb_dropin_dealloc_td;
    verbs->alloc_parent_domain = vb_dropin_alloc_parent_domain;
    verbs->alloc_buf = ibv_alloc_buf;
    verbs->free_buf = ibv_free_buf;
    verbs->open_xrcd = vb_dropin_open_xrcd;
    verbs->close_xrcd = vb_dropin_close_xrcd;
    verbs->open_qp = vb_dropin_open_qp;
    verbs->get_srq_num = vb_dropin_get_srq_num;
}

static int vectors(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    return cpus > 0 ? (int)cpus : 1;
}

void vb_dropin_open_init(struct vb_open *opened, struct ibv_device *device, int cmd_fd)
{
    struct ibv_context *context = &opened->verbs.context;

    context->cmd_fd = cmd_fd;
    context->device = device;
    context->ops = live_ops;
    if (vb_dropin_settings()->explain)
        log_failures(&context->ops);
    context->async_fd = -1;
    context->num_comp_vectors = vectors();
    context->abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&context->mutex, NULL);
    vb_dropin_lines_init(&opened->lines);
    fill_extended(&opened->verbs);
}

void vb_dropin_open_fini(struct vb_open *opened)
{
    vb_dropin_lines_fini(&opened->lines);
    pthread_mutex_destroy(&opened->verbs.context.mutex);
}

void vb_dropin_open_release(struct vb_open *opened)
{
    if (atomic_fetch_sub(&opened->held, 1) != 1)
        return;
    vb_context_free(opened->ended);
    vb_dropin_open_fini(opened);
    free(opened);
}

int vb_dropin_destroy_closed(struct ibv_context *context, void *object)
{
    struct vb_open *opened = vb_dropin_open_of(context);

    if (opened->ended) {
        free(object);
        vb_dropin_open_release(opened);
    }
    return 0;
}

void vb_dropin_open_disable(struct vb_open *opened)
{
    struct ibv_context_ops *ops = &opened->verbs.context.ops;

    ops->poll_cq = closed_poll_cq;
    ops->req_notify_cq = closed_req_notify_cq;
    ops->post_send = closed_post_send;
    ops->post_recv = closed_post_recv;
    ops->post_srq_recv = closed_post_srq_recv;
    vb_dropin_close_xrcd_files(opened);
    opened->core = NULL;
    opened->host = NULL;
    opened->simulated = NULL;
}
