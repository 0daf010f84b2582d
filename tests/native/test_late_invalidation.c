// SPDX-License-Identifier: Apache-2.0
/*
 * A LOCAL_INV has withdrawn its key while the peer was at work, and the QP is in the error state
 * before the peer is out: it ends as what it is, an invalidation, and not before. What was posted
 * after it is flushed after it.
 */
#include "check.h"
#include "end.h"

enum { PATIENCE = 5 };

struct scene {
    struct end end;
    struct vb_qp *owner, *writer;
    struct vb_mw *window;
    struct vb_mr *region;
};

static void post(struct vb_qp *qp, struct ibv_send_wr wr)
{
    struct ibv_send_wr *bad;

    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK_EQ(vb_post_send(qp, &wr, &bad), 0);
}

static uint32_t bind_window(struct scene *scene)
{
    struct end *end = &scene->end;
    uint32_t key = (scene->window->ibv.rkey & ~0xffu) | ((scene->window->ibv.rkey + 1) & 0xff);
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = &scene->window->ibv,
                    .rkey = key,
                    .bind_info = {.mr = &scene->region->ibv,
                                  .addr = (uintptr_t)end->memory,
                                  .length = END_BYTES,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};

    post(scene->owner, wr);
    CHECK_EQ(end_wait(end->cq, PATIENCE).status, IBV_WC_SUCCESS);
    return key;
}

static void open_scene(struct scene *scene)
{
    struct end *end = &scene->end;

    end_open(end, (struct end_options){.in_heap = true});
    scene->owner = end_add_qp(end);
    scene->writer = end_add_qp(end);
    end_ready(scene->owner, scene->writer);
    end_ready(scene->writer, scene->owner);
    CHECK_EQ(vb_mr_reg(end->pd, end->memory, END_BYTES, (uintptr_t)end->memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &scene->region),
             0);
    CHECK_EQ(vb_mw_alloc(end->pd, IBV_MW_TYPE_2, &scene->window), 0);
    CHECK_EQ(end_post(end, scene->owner, IBV_WR_SEND, 0), 0); /* it has its peer now */
    end_post_recv(end, scene->writer, 1);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(end_wait(end->cq, PATIENCE).status, IBV_WC_SUCCESS);
}

static void close_scene(struct scene *scene)
{
    CHECK_EQ(vb_mw_dealloc(scene->window), 0);
    CHECK_EQ(vb_mr_dereg(scene->region), 0);
    end_close(&scene->end);
}

/* As a peer does whose request is refused. */
static void into_error(struct vb_qp *qp)
{
    atomic_store(&qp->shared->state, IBV_QPS_ERR);
}

static void expect(struct scene *scene, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = end_wait(scene->end.cq, PATIENCE);

    CHECK_EQ(wc.wr_id, id);
    CHECK_EQ(wc.status, status);
}

/* Its send lock, as the thread of another process would hold it. */
static void begin_write(struct vb_qp *writer)
{
    uint32_t instance = writer->context->adapter->instance;

    CHECK(vb_biased_enter(&writer->shared->sq_lock, instance, false, NULL));
}

static void end_write(struct vb_qp *writer)
{
    vb_biased_leave(&writer->shared->sq_lock);
}

/* The writer is as a process that lost its processor in the middle of a WRITE. */
static void it_ends_when_the_peer_is_out(bool queued)
{
    struct scene scene = {0};
    struct ibv_wc wc;
    uint32_t key;

    open_scene(&scene);
    key = bind_window(&scene);
    begin_write(scene.writer);
    post(scene.owner,
         (struct ibv_send_wr){.wr_id = 10, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
    if (queued)
        post(scene.owner, (struct ibv_send_wr){.wr_id = 11, .opcode = IBV_WR_SEND});
    into_error(scene.owner);
    if (!queued) /* in the error state, and after it nevertheless */
        post(scene.owner, (struct ibv_send_wr){.wr_id = 11, .opcode = IBV_WR_SEND});
    CHECK_EQ(vb_cq_poll(scene.end.cq, 1, &wc), 0);
    end_write(scene.writer);
    expect(&scene, 10, IBV_WC_SUCCESS);
    expect(&scene, 11, IBV_WC_WR_FLUSH_ERR);
    close_scene(&scene);
}

/* The same without a word of the peer's: RESET forgets it, as everything. */
static void a_reset_forgets_it(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    struct scene scene = {0};
    struct ibv_wc wc;
    uint32_t key;

    open_scene(&scene);
    key = bind_window(&scene);
    begin_write(scene.writer);
    post(scene.owner, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
    into_error(scene.owner);
    end_write(scene.writer);
    CHECK_EQ(vb_qp_modify(scene.owner, &attr, IBV_QP_STATE), 0);
    end_ready(scene.owner, scene.writer);
    post(scene.owner, (struct ibv_send_wr){.wr_id = 12, .opcode = IBV_WR_SEND});
    end_post_recv(&scene.end, scene.writer, 1);
    while (vb_cq_poll(scene.end.cq, 1, &wc) != 1 || wc.wr_id != 12)
        ;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    close_scene(&scene);
}

int main(void)
{
    it_ends_when_the_peer_is_out(true);
    it_ends_when_the_peer_is_out(false);
    a_reset_forgets_it();
    return 0;
}
