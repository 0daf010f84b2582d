# SPDX-License-Identifier: Apache-2.0
"""Races of a correct program with four threads, as the checker that the page names sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, own_network, plain_environment, program_or_skip, verbena_command

# Each thread has queue pairs of its own, and one receives what it sends.
SOURCE = r"""
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, HALF = 4096 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static int gid_index, counter, races;
static pthread_barrier_t all_are_there;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void join(struct ibv_qp *qp, unsigned to)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = to, .min_rnr_timer = 12, .timeout = 18,
                               .retry_cnt = 7, .rnr_retry = 7};

    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = gid_index;
    require(!ibv_query_gid(context, 1, gid_index, &attr.ah_attr.grh.dgid));
    require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                          IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    require(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                          IBV_QP_MAX_QP_RD_ATOMIC));
}

static void send_once(struct ibv_qp *const qp[2], struct ibv_cq *cq, struct ibv_mr *mr, int round)
{
    char *memory = mr->addr;
    struct ibv_sge from = {(uintptr_t)memory, round % 2 ? 16 : 2000, mr->lkey};
    struct ibv_sge to = {(uintptr_t)memory + HALF, HALF, mr->lkey};
    struct ibv_recv_wr *no, receive = {.sg_list = &to, .num_sge = 1};
    struct ibv_send_wr *bad, send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED};
    struct ibv_wc wc;

    memset(memory, round, HALF);
    require(!ibv_post_recv(qp[1], &receive, &no) && !ibv_post_send(qp[0], &send, &bad));
    for (int done = 0; done < 2;)
        if (ibv_poll_cq(cq, 1, &wc) > 0) {
            require(!wc.status);
            ++done;
        }
    require(memory[HALF] == (char)round);
}

static void *run(void *unused)
{
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {2, 2, 1, 1, 0},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp[2] = {ibv_create_qp(pd, &attr), ibv_create_qp(pd, &attr)};
    struct ibv_mr *mr = ibv_reg_mr(pd, malloc(2 * HALF), 2 * HALF, IBV_ACCESS_LOCAL_WRITE);

    join(qp[0], qp[1]->qp_num);
    join(qp[1], qp[0]->qp_num);
    pthread_barrier_wait(&all_are_there);
    for (int round = 0; round < ROUNDS; ++round) {
        send_once(qp, cq, mr, round);
        if (races)
            ++counter;
    }
    require(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]) && !ibv_destroy_cq(cq));
    free(mr->addr);
    require(!ibv_dereg_mr(mr));
    return unused;
}

int main(int words, char **word)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    pthread_t thread[4];

    gid_index = atoi(word[1]);
    races = words > 2;
    pthread_barrier_init(&all_are_there, NULL, 4);
    context = ibv_open_device(list[0]);
    pd = ibv_alloc_pd(context);
    for (int i = 0; i < 4; ++i)
        require(!pthread_create(&thread[i], NULL, run, NULL));
    for (int i = 0; i < 4; ++i)
        require(!pthread_join(thread[i], NULL));
    require(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    ibv_free_device_list(list);
    return puts("done") < 0;
}
"""


def build(folder: Path) -> str:
    compiler = program_or_skip("gcc")
    source, program = folder / "threads.c", folder / "threads"
    source.write_text(SOURCE)
    command = [compiler, "-g", "-fsanitize=thread", source, "-o", program, "-libverbs", "-pthread"]
    subprocess.run(command, env=plain_environment(), check=True, timeout=120)
    return str(program)


@pytest.mark.not_sanitized(
    "a process has the runtime of one sanitizer, and here that is another one"
)
@pytest.mark.parametrize(("carrier", "gid_index"), [("direct", "1"), ("roce", "2")])
def test_thread_sanitizer_finds_the_programs_races_alone(
    tmp_path: Path, carrier: str, gid_index: str
) -> None:
    program = build(tmp_path)
    hidden = tmp_path / "verbena.tsan"
    hidden.write_text("race:libibverbs.so.1\n")  # as the page says; the history, too
    environment = plain_environment() | {
        "VERBENA_CARRIER": carrier,
        "TSAN_OPTIONS": f"suppressions={hidden} history_size=7",
    }

    def told(*words: str) -> tuple[int, str]:
        command = [*own_network(), *verbena_command("run", "--", program, gid_index, *words)]
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        return done.returncode, done.stdout

    assert told() == (0, "done\n")
    status, report = told("races")
    assert status
    assert "data race" in report
    assert "threads.c" in report


def test_the_page_names_no_checker_that_reports_correct_programs() -> None:
    page = (ROOT / "docs" / "debugging.md").read_text()
    assert "--tool=drd" not in page
    assert "--tool=helgrind" not in page
