// SPDX-License-Identifier: Apache-2.0
/*
 * Directly nobody loses packets, so a request that is not answered has a reason that can be seen:
 * each is made here, and must be the one that the text names.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/slot.h"
#include "hca/sentences.h"
#include "loopback.h"

static struct loopback loop;

static void set_state(struct vb_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {
        .qp_state = state, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE;

    if (state == IBV_QPS_INIT)
        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    CHECK_EQ(vb_qp_modify(qp, &attr, mask), 0);
}

/* The WRITE ends without an answer, for this reason. */
static void expect(const char *fact, const char *advice)
{
    struct ibv_sge sge = {(uintptr_t)loop.memory[0], 8, loop.mr[0]->ibv.lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1}, *bad;
    char text[1024] = "";
    struct ibv_wc wc;

    wr.wr.rdma.remote_addr = (uintptr_t)loop.memory[1];
    wr.wr.rdma.rkey = loop.mr[1]->ibv.rkey;
    CHECK_EQ(vb_post_send(loop.qp[0], &wr, &bad), 0);
    while (loopback_poll(loop.cq[0], &wc))
        ;
    CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    CHECK(vb_evidence_text(&loop.direct->adapter->self, wc.vendor_err, text, sizeof(text)) > 0);
    printf("  %s\n", text);
    CHECK(strstr(text, "did not answer during"));
    CHECK(strstr(text, fact));
    CHECK(strstr(text, advice));
}

/* Connected to a QP of this number. */
static void connect_to(uint32_t number)
{
    struct vb_qp other = {.number = number};

    loopback_connect(loop.qp[0], &other, 1);
}

static void a_qp_that_is_in_reset(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    expect("has that QP in RESET, or destroyed it", "Connect it before");
    loopback_close(&loop);
}

static void a_qp_that_was_destroyed(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
    CHECK_EQ(vb_qp_destroy(loop.qp[1]), 0);
    expect("has that QP in RESET, or destroyed it", "Connect it before");
    loopback_close(&loop);
}

static void a_number_that_no_qp_ever_had(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    connect_to(loop.qp[1]->number + 100);
    expect("has that QP in RESET, or destroyed it", "Connect it before");
    loopback_close(&loop);
}

static void a_number_that_the_peer_never_told(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    connect_to(loop.qp[1]->number + 100);
    expect("has that QP in RESET", "There may be no QP of that number at all: compare it with");
    loopback_close(&loop);
}

static void a_qp_that_is_not_in_rtr_yet(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    set_state(loop.qp[1], IBV_QPS_INIT);
    expect(": it is in INIT.", "Bring it to RTR");
    loopback_close(&loop);
}

static void a_qp_that_has_failed(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
    set_state(loop.qp[1], IBV_QPS_ERR);
    expect(": it is in ERR.", "Its first failed completion");
    loopback_close(&loop);
}

static void a_qp_with_another_other_end(void)
{
    char fact[64];

    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    loopback_connect(loop.qp[1], loop.qp[1], 1);
    snprintf(fact, sizeof(fact), "it is connected to QP 0x%x.", loop.qp[1]->number);
    expect(fact, "Compare QP numbers");
    loopback_close(&loop);
}

static void a_qp_of_another_type(void)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_UC, .cap = {4, 4, 1, 1, 64}};
    struct vb_qp *uc;

    loopback_open(&loop, IBV_QPT_RC);
    attr.pd = &loop.pd->ibv;
    attr.send_cq = attr.recv_cq = &loop.cq[1]->ibv;
    CHECK_EQ(vb_qp_create(loop.context, &attr, &uc), 0);
    loopback_connect(loop.qp[0], uc, 1);
    loopback_connect(uc, loop.qp[0], 1);
    expect("its type is UC", "types that go together");
    CHECK_EQ(vb_qp_destroy(uc), 0);
    loopback_close(&loop);
}

static void a_qp_in_its_next_life(void)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    loopback_open(&loop, IBV_QPT_RC);
    loopback_connect(loop.qp[0], loop.qp[1], 1);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
    CHECK_EQ(vb_post_send(loop.qp[0], &wr, &bad), 0);
    CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    set_state(loop.qp[1], IBV_QPS_RESET);
    loopback_connect(loop.qp[1], loop.qp[0], 1);
    expect("reset and connected again", "Reset this QP too");
    loopback_close(&loop);
}

static void a_number_that_no_process_has(void)
{
    uint32_t slot;
    int listener = vb_direct_slot_claim(77, &slot);

    CHECK(listener >= 0);
    close(listener);
    loopback_open(&loop, IBV_QPT_RC);
    connect_to(slot * VB_QPS_PER_SLOT);
    expect("no process of this host has that number", "Has the peer ended");
    loopback_close(&loop);
}

static void a_gid_of_another_host(void)
{
    loopback_open(&loop, IBV_QPT_RC);
    connect_to(loop.qp[1]->number);
    loop.qp[0]->verbs->attr.ah_attr.grh.dgid.raw[0] ^=
        0x55; /* as a port without packets keeps it */
    vb_direct_disconnect(loop.qp[0]);
    expect("its GID is no address of this host", "VERBENA_CARRIER");
    loopback_close(&loop);
}

/* ---- processes that are there and do not shake hands ---- */

/* A process of another user, if `uid` is one, that claims a slot; it hangs up, or says nothing. */
static pid_t strange_process(uid_t uid, bool hangs_up, uint32_t *slot)
{
    int ends[2];
    pid_t child;

    CHECK_EQ(pipe(ends), 0);
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        int listener;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (uid && setresuid(uid, uid, uid))
            _exit(1);
        listener = vb_direct_slot_claim((uint32_t)getpid(), slot);
        if (listener < 0 || write(ends[1], slot, sizeof(*slot)) != sizeof(*slot))
            _exit(1);
        for (;;) {
            int fd = accept(listener, NULL, NULL);

            if (hangs_up && fd >= 0)
                close(fd);
            if (fd < 0)
                usleep(1000);
        }
    }
    CHECK_EQ(read(ends[0], slot, sizeof(*slot)), sizeof(*slot));
    close(ends[0]);
    close(ends[1]);
    return child;
}

static void a_strange_process(uid_t uid, bool hangs_up, const char *fact, const char *advice)
{
    uint32_t slot;
    pid_t child = strange_process(uid, hangs_up, &slot);

    loopback_open(&loop, IBV_QPT_RC);
    connect_to(slot * VB_QPS_PER_SLOT);
    expect(fact, advice);
    loopback_close(&loop);
    kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, NULL, 0), child);
}

static void a_process_that_hangs_up(void)
{
    a_strange_process(0, true, "ended the handshake", "older build of Verbena");
}

static void a_process_that_says_nothing(void)
{
    a_strange_process(0, false, "does not answer the handshake", "stopped");
}

static void a_process_of_another_user(void)
{
    if (geteuid() == 0)
        a_strange_process(65534, false, "another user's", "VERBENA_CARRIER=roce");
}

/* Packets are no way out: the other user's process has UDP port 4791, or this one. */
static void a_process_of_another_user_is_reached_in_another_network(void)
{
    if (geteuid() == 0)
        a_strange_process(65534, false, "another user's",
                          "Run both as one user, or each in a network namespace of its own");
}

int main(void)
{
    RUN(a_qp_that_is_in_reset);
    RUN(a_qp_that_was_destroyed);
    RUN(a_number_that_no_qp_ever_had);
    RUN(a_number_that_the_peer_never_told);
    RUN(a_qp_that_is_not_in_rtr_yet);
    RUN(a_qp_that_has_failed);
    RUN(a_qp_with_another_other_end);
    RUN(a_qp_of_another_type);
    RUN(a_qp_in_its_next_life);
    RUN(a_number_that_no_process_has);
    RUN(a_gid_of_another_host);
    RUN(a_process_that_hangs_up);
    RUN(a_process_that_says_nothing);
    RUN(a_process_of_another_user);
    RUN(a_process_of_another_user_is_reached_in_another_network);
    return 0;
}
