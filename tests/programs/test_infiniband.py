# SPDX-License-Identifier: Apache-2.0
"""Programs that address by LID alone, on a port that looks like InfiniBand's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, Start
from tests.programs.pairs import assert_good, start_pair
from tests.suite import programs
from tests.suite.programs import INFINIBAND

pytestmark = pytest.mark.debian

Find = Callable[[str], str]

CHILD = Path(__file__).with_name("lid_child.py")


def test_the_port_has_a_lid(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_devinfo"), "-v", options=INFINIBAND)
    said = {
        line.split(":")[0].strip(): line.split()[-1] for line in done.stdout.splitlines() if line
    }
    assert (said["link_layer"], said["port_lid"], said["sm_lid"]) == ("InfiniBand", "1", "1")
    assert said["gid_tbl_len"] == "1"
    files = "/sys/class/infiniband/verbena0/ports/1/{link_layer,lid,sm_lid,gids/0,gids/1}"
    text = verbena_run("bash", "-c", f"cat {files}", options=INFINIBAND).stdout
    assert text.startswith("InfiniBand\n0x1\n0x1\nfe80:")
    assert "gids/1: No such file" in text
    links = json.loads(verbena_run("rdma", "-j", "link", options=INFINIBAND).stdout)
    assert links[0]["lid"] == 1
    assert "netdev" not in links[0]


@pytest.mark.parametrize("name", ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"])
@pytest.mark.parametrize("arguments", [("-c",), ("-e",)], ids=" ".join)
def test_pingpong_without_a_gid(
    verbena_start: Start, debian_program: Find, name: str, arguments: tuple[str, ...]
) -> None:
    command = (debian_program(name), "-n", "100", *arguments)
    pair = start_pair(verbena_start, *command, options=INFINIBAND).finish()
    assert_good(pair)
    assert "LID 0x0001" in pair.client.output


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_send_lat", "ib_atomic_bw"])
def test_perftest_without_a_gid(verbena_start: Start, debian_program: Find, name: str) -> None:
    command = (debian_program(name), "-F", "-n", "100")
    pair = start_pair(verbena_start, *command, options=INFINIBAND).finish()
    assert_good(pair)
    assert "LID 0x01" in pair.client.output.replace("0x0001", "0x01")


@pytest.mark.parametrize("test", ["rc_lat", "ud_bw", "rc_rdma_write_poll_lat", "ver_rc_fetch_add"])
def test_qperf(test: str) -> None:
    outcome = programs.qperf(test)()
    assert outcome.status == "passed", str(outcome)


def child(verbena_run: Run, *lids: int, succeeds: bool = True) -> str:
    """What a child says that sends itself a datagram by each of these LIDs."""
    done = verbena_run(sys.executable, str(CHILD), *map(str, lids), options=INFINIBAND)
    assert (done.returncode == 0) == succeeds, done.stdout
    return done.stdout


def test_a_datagram_by_lid_has_no_grh(verbena_run: Run) -> None:
    assert child(verbena_run, 1) == "received 56 from LID 1\n"


def test_a_datagram_to_another_lid_leads_nowhere(verbena_run: Run) -> None:
    assert child(verbena_run, 2, 1) == "received 56 from LID 1\n"


def test_an_address_needs_a_lid_or_a_gid(verbena_run: Run) -> None:
    assert "the port's LID is 1" in child(verbena_run, 0, succeeds=False)


def test_packets_that_are_asked_for_are_not_left_out_in_silence(verbena_run: Run) -> None:
    done = verbena_run("ibv_devinfo", options=INFINIBAND, env={"VERBENA_CARRIER": "roce"})
    assert "VERBENA_CARRIER=roce has no effect" in done.stdout
