# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs with wrong settings: VERBENA_LOG=errors prints the reasons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, Start
from tests.programs.pairs import start_pair
from verbena import launch

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
TOLD = ("--log", "errors")


def told(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("verbena:")]


def test_a_queue_that_is_too_deep(verbena_run: Run, debian_program: Find) -> None:
    program = debian_program("ibv_rc_pingpong")
    done = verbena_run(program, "-g", "1", "-r", "40000", options=TOLD)
    assert done.returncode != 0
    (line,) = told(done.stdout)
    assert "ibv_create_qp failed: Invalid argument; max_recv_wr is 40000" in line


def test_without_the_option_a_program_that_fails_is_told_of_it(
    verbena_run: Run, debian_program: Find
) -> None:
    done = verbena_run(debian_program("ibv_rc_pingpong"), "-g", "1", "-r", "40000")
    assert done.returncode != 0
    (line,) = told(done.stdout)
    assert "verbena run --log errors" in line


def test_too_few_threads_are_told_by_their_limit(debian_program: Find) -> None:
    """As of a container with --pids-limit."""
    if os.geteuid():
        pytest.skip("this process cannot become another user; run the tests as root")
    other_user = ("setpriv", "--reuid=54322", "--clear-groups", "prlimit", "--nproc=2")
    done = subprocess.run(
        [*other_user, debian_program("ibv_devinfo")],
        env=launch.environment(log=launch.LogLevel.ERRORS),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode != 0
    (line,) = told(done.stdout)
    assert "cannot open verbena0: its threads cannot be started" in line
    assert "ulimit -u" in line


FAILING_REQUEST = """
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {2, 2, 1, 1, 0}, .sq_sig_all = 1};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    char buffer[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 64, 0);
    struct ibv_sge sge = {(uintptr_t)buffer, 64, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_wc wc;

    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                     IBV_QP_ACCESS_FLAGS))
        return 90;
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num ^ 1; /* nobody */
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 1;
    ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid);
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                     IBV_QP_MIN_RNR_TIMER))
        return 91;
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
        return 92;
    if (ibv_post_send(qp, &wr, &bad))
        return 93;
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    return wc.status == IBV_WC_RETRY_EXC_ERR ? atoi(argv[1]) : 94;
}
"""


@pytest.mark.parametrize("carrier", ["direct", "roce"])
def test_a_program_whose_request_failed_is_told_of_it(
    verbena_run: Run, tmp_path: Path, carrier: str
) -> None:
    source, program = tmp_path / "failing.c", str(tmp_path / "failing")
    source.write_text(FAILING_REQUEST)
    subprocess.run(["gcc", "-o", program, str(source), "-libverbs"], check=True)
    env = {} if carrier == "direct" else {"VERBENA_CARRIER": carrier}
    done = verbena_run(program, "7", env=env)
    assert done.returncode == 7, done.stdout
    (line,) = told(done.stdout)
    assert "verbena run --log errors" in line
    assert told(verbena_run(program, "0", env=env).stdout) == []


OPEN = """
import ctypes, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
device = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])))
entry = ctypes.create_string_buffer(32)
"""
FAIL = f"""{OPEN}
for _ in range(30):
    assert verbs.ibv_query_pkey(device, 1, 99, entry) == -1
sys.exit(int(sys.argv[1]))
"""


def test_one_line_for_all_that_failed(verbena_run: Run) -> None:
    """Who ends well, or reads the reasons, hears nothing."""
    assert len(told(verbena_run(sys.executable, "-c", FAIL, "1").stdout)) == 1
    assert told(verbena_run(sys.executable, "-c", FAIL, "0").stdout) == []
    read = "from verbena import verbs; verbs.open_device().query_port(9)"
    done = verbena_run(sys.executable, "-c", read)
    assert done.returncode == 1
    assert "ports count from 1" in done.stdout
    assert told(done.stdout) == []


def test_a_program_without_an_agent_is_told(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("rping"), "-s", env={"VERBENA_AGENT": "off"})
    assert done.returncode != 0
    (line,) = told(done.stdout)
    assert "no connection to the agent, which manages connections: VERBENA_AGENT is off" in line


TWO = f"""{OPEN}
import os
child = os.fork()
if not child:
    listed = ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])
    device = ctypes.c_void_p(verbs.ibv_open_device(listed))
assert verbs.ibv_query_pkey(device, 1, 99, entry) == -1
if child:
    os.waitpid(child, 0)
    print("pids", os.getpid(), child)
"""


def test_each_line_says_whose_it_is(verbena_run: Run, tmp_path: Path) -> None:
    """By the program's name, however long, and its number, a forked child's too."""
    program = tmp_path / "a-program-with-a-long-name"
    program.symlink_to(sys.executable)
    done = verbena_run(
        program, "-c", TWO, options=TOLD, env={"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == 0, done.stdout
    pids = re.findall(r"^pids (\d+) (\d+)$", done.stdout, re.MULTILINE)[0]
    begins = {line.partition(": ibv_query_pkey failed: ")[0] for line in told(done.stdout)}
    assert begins == {f"verbena: a-program-with-[{pid}]" for pid in pids}


SCAN = f"""{OPEN}
failed = [verbs._ibv_query_gid_ex(device, 1, i, entry, 0, ctypes.c_size_t(32)) for i in range(256)]
print(failed.count(61), failed.index(61))
assert verbs._ibv_query_gid_ex(device, 1, 256, entry, 0, ctypes.c_size_t(32)) == 22
"""


# Beyond the one GID of an InfiniBand port, and into a table that is too small.
BEYOND = f"""{OPEN}
gid = ctypes.create_string_buffer(16)
print([verbs.ibv_query_gid(device, 1, i, gid) for i in (0, 1)])
print(verbs._ibv_query_gid_ex(device, 1, 1, entry, 0, ctypes.c_size_t(32)))
verbs._ibv_query_gid_table.restype = ctypes.c_ssize_t
print(verbs._ibv_query_gid_table(device, entry, ctypes.c_size_t(0), 0, ctypes.c_size_t(32)))
"""


def test_an_infiniband_port_has_no_second_gid(verbena_run: Run) -> None:
    options = (*TOLD, "--link-layer", "infiniband")
    done = verbena_run(sys.executable, "-c", BEYOND, options=options)
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if line[0] in "[-0123456789"] == [
        "[0, -1]", "22", "-22"
    ]  # fmt: skip
    beyond, again, table = told(done.stdout)
    assert "port 1 has no GID index 1: it has 1 entries" in beyond
    assert "port 1 has no GID index 1: it has 1 entries" in again
    assert "ibv_query_gid_table failed" in table
    assert "max_entries is 0, and more entries are in use" in table


def test_a_scan_of_the_gid_table_is_one_line(verbena_run: Run) -> None:
    done = verbena_run(sys.executable, "-c", SCAN, options=TOLD)
    assert done.returncode == 0, done.stdout
    empty, beyond = told(done.stdout)
    count, first = next(line for line in done.stdout.splitlines() if line[0].isdigit()).split()
    assert int(count) > 200
    assert f"note: ibv_query_gid_ex: GID index {first} is empty" in empty
    assert "fail" not in empty
    assert "no GID index 256" in beyond


def test_a_program_that_looks_for_a_limit_is_brief(verbena_run: Run, debian_program: Find) -> None:
    """libfabric bisects max_inline_data by ibv_create_qp: about twenty calls that fail."""
    done = verbena_run(debian_program("fi_info"), "-p", "verbs", options=TOLD)
    assert done.returncode == 0, done.stdout
    lines = told(done.stdout)
    assert 0 < len(lines) < 6, done.stdout
    assert all("max_inline_data" in line or "not shown" in line for line in lines)


def test_a_pingpong_without_a_gid(verbena_start: Start, debian_program: Find) -> None:
    running = start_pair(verbena_start, debian_program("ibv_rc_pingpong"), options=TOLD)
    done = running.finish(10)
    assert all(side.status != 0 for side in done.sides)
    lines = [line for side in done.sides for line in told(side.output)]
    assert lines, str(done)
    assert all("RoCE needs a GID" in line and "-g 1" in line for line in lines)


def test_a_program_that_works_hears_nothing(verbena_start: Start, debian_program: Find) -> None:
    program = debian_program("ibv_rc_pingpong")
    done = start_pair(verbena_start, program, "-g", "1", "-n", "20", options=TOLD).finish()
    assert [side.status for side in done.sides] == [0, 0], str(done)
    assert [told(side.output) for side in done.sides] == [[], []]
