# SPDX-License-Identifier: Apache-2.0
"""Debian's ibverbs-utils over Verbena: what they list, and every pingpong."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest

from tests.conftest import Run, Start
from tests.programs.pairs import (
    Pair,
    assert_good,
    complaints,
    exchange_with_many,
    finish,
    leaves_nothing,
    start_pair,
)
from tests.programs.results import assert_exchanged
from tests.support import device_mtu
from verbena import verbs

pytestmark = pytest.mark.debian

Find = Callable[[str], str]

GID = ("-g", "1")  # a RoCE port needs a GID for each address
PINGPONGS = ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong")
DEFAULT_SIZE = dict.fromkeys(PINGPONGS, 4096) | {"ibv_ud_pingpong": 1024}
CONNECTED = ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong")
# Of ibv_devinfo -v: the numbers that have these names as attributes of the device or the port too.
DEVICE_NUMBERS = """
    vendor_id vendor_part_id hw_ver phys_port_cnt max_mr_size page_size_cap max_qp max_qp_wr
    device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom
    max_res_rd_atom max_qp_init_rd_atom max_mw max_mcast_grp max_mcast_qp_attach
    max_total_mcast_qp_attach max_ah max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay
"""
PORT_NUMBERS = """
    sm_lid port_cap_flags port_cap_flags2 max_msg_sz bad_pkey_cntr qkey_viol_cntr sm_sl
    gid_tbl_len pkey_tbl_len subnet_timeout init_type_reply
"""


# ---- what the listing programs say -------------------------------------------------------------


def fields(text: str) -> dict[str, str]:
    """The `name: value` lines of ibv_devinfo."""
    pairs = (line.strip().split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def number(text: str) -> int:
    return int(text.split()[0], 0)


def test_devices(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_devices"))
    with verbs.open_device() as context:
        listed = [context.name, f"{context.device.guid:016x}"]
    assert done.returncode == 0
    assert [line.split() for line in done.stdout.splitlines()[2:]] == [listed]


def test_devinfo(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_devinfo"))
    said = fields(done.stdout)
    assert (done.returncode, complaints(done.stdout)) == (0, [])
    assert said["hca_id"] == "verbena0"
    assert said["transport"].startswith("InfiniBand")
    assert said["state"].startswith("PORT_ACTIVE")
    assert said["link_layer"] == "Ethernet"


def test_devinfo_tells_the_limits_of_query_device(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_devinfo"), "-v")
    said = fields(done.stdout)
    with verbs.open_device() as context:
        device, port, vectors = (
            context.query_device(),
            context.query_port(),
            context.num_comp_vectors,
        )
    assert done.returncode == 0
    assert {name: number(said[name]) for name in DEVICE_NUMBERS.split()} == {
        name: getattr(device, name) for name in DEVICE_NUMBERS.split()
    }
    assert {name: number(said[name]) for name in PORT_NUMBERS.split()} == {
        name: getattr(port, name) for name in PORT_NUMBERS.split()
    }
    assert said["fw_ver"] == device.fw_ver
    assert int(said["node_guid"].replace(":", ""), 16) == device.node_guid
    assert said["atomic_cap"] == "ATOMIC_HCA (1)"
    assert number(said["num_comp_vectors"]) == vectors


def test_devinfo_lists_every_gid(verbena_run: Run, debian_program: Find) -> None:
    text = verbena_run(debian_program("ibv_devinfo"), "-v").stdout
    types = re.findall(r"GID\[ *(\d+)\]:\s*\S+, (RoCE v[12])", text)
    with verbs.open_device() as context:
        table = context.query_gid_table()
    assert [int(index) for index, _ in types] == [entry.gid_index for entry in table]
    assert {kind for _, kind in types} == {"RoCE v2"}


def test_devinfo_names_the_device_only(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_devinfo"), "-l")
    assert done.returncode == 0
    assert done.stdout.split() == ["1", "HCA", "found:", "verbena0"]


@pytest.mark.parametrize("name", ["ibv_devinfo", *PINGPONGS])
def test_unknown_device(verbena_run: Run, debian_program: Find, name: str) -> None:
    done = verbena_run(debian_program(name), "-d", "mlx5_0")
    assert done.returncode > 0
    assert "mlx5_0" in done.stdout


def test_asyncwatch_waits_until_a_signal_ends_it(
    verbena_start: Start, debian_program: Find
) -> None:
    process = verbena_start(debian_program("ibv_asyncwatch"))
    assert process.stdout
    assert re.fullmatch(r"verbena0: async event FD \d+\n", process.stdout.readline())
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    watch = finish("ibv_asyncwatch", process, timeout=10)
    assert (watch.status, watch.output) == (-signal.SIGTERM, "")


# ---- pingpongs ---------------------------------------------------------------------------------


@pytest.fixture
def pingpong(verbena_start: Start, debian_program: Find) -> Callable[..., Pair]:
    """pingpong(program, *arguments): both sides' output, on GID 1."""

    def run(name: str, *arguments: str, options: tuple[str, ...] = ()) -> Pair:
        command = (debian_program(name), *GID, *arguments)
        return start_pair(verbena_start, *command, options=options).finish()

    return run


Pingpong = Callable[..., Pair]


@pytest.mark.parametrize("check", [(), ("-c",)], ids=["", "checked"])
@pytest.mark.parametrize("wait", [(), ("-e",)], ids=["poll", "events"])
@pytest.mark.parametrize("name", PINGPONGS)
def test_pingpong(
    pingpong: Pingpong, name: str, wait: tuple[str, ...], check: tuple[str, ...]
) -> None:
    assert_exchanged(pingpong(name, *wait, *check), DEFAULT_SIZE[name], 1000)


@pytest.mark.parametrize(
    ("size", "iterations"), [(1, 3000), (100, 1), (65_537, 300), (1 << 20, 40)]
)
@pytest.mark.parametrize("name", CONNECTED)
def test_sizes(pingpong: Pingpong, name: str, size: int, iterations: int) -> None:
    pair = pingpong(name, "-c", "-s", str(size), "-n", str(iterations))
    assert_exchanged(pair, size, iterations)


@pytest.mark.parametrize(("largest", "iterations"), [(False, 3000), (True, 300)])
def test_datagram_sizes(pingpong: Pingpong, largest: bool, iterations: int) -> None:
    size = device_mtu() if largest else 1
    pair = pingpong("ibv_ud_pingpong", "-c", "-s", str(size), "-n", str(iterations))
    assert_exchanged(pair, size, iterations)


def test_datagram_larger_than_the_mtu(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_ud_pingpong"), *GID, "-s", str(device_mtu() + 1))
    assert done.returncode > 0
    assert "larger than port MTU" in done.stdout


def test_many_pingpongs_at_once(verbena_start: Start, debian_program: Find) -> None:
    running = [
        start_pair(verbena_start, debian_program(name), *GID, "-e", "-c", "-n", "300")
        for name in PINGPONGS
    ]
    for name, pair in zip(PINGPONGS, running, strict=True):
        assert_exchanged(pair.finish(), DEFAULT_SIZE[name], 300)


@pytest.mark.parametrize("extra", [(), ("-e",), ("-c",), ("-s", "1048576", "-n", "20")], ids=str)
def test_extended_send_calls(pingpong: Pingpong, extra: tuple[str, ...]) -> None:
    size, iterations = (1 << 20, 20) if "-s" in extra else (4096, 1000)
    assert_exchanged(pingpong("ibv_rc_pingpong", "-N", *extra), size, iterations)


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_path_mtu(pingpong: Pingpong, mtu: int) -> None:
    assert_exchanged(pingpong("ibv_rc_pingpong", "-c", "-m", str(mtu), "-n", "100"), 4096, 100)


@pytest.mark.parametrize("depth", [1, 4000])
def test_receive_depth(pingpong: Pingpong, depth: int) -> None:
    pair = pingpong("ibv_rc_pingpong", "-c", "-r", str(depth), "-n", "200")
    assert_exchanged(pair, 4096, 200)


@pytest.mark.parametrize("number", [1, 16, 100])
def test_shared_receive_queue_of_many_qps(pingpong: Pingpong, number: int) -> None:
    pair = pingpong("ibv_srq_pingpong", "-c", "-q", str(number), "-n", "1000")
    assert_exchanged(pair, 4096, 1000)


@pytest.mark.parametrize("kind", [("-o",), ("-o", "-P"), ("-O",), ("-j",)], ids="".join)
def test_memory_of_other_kinds(pingpong: Pingpong, kind: tuple[str, ...]) -> None:
    """On demand, prefetched, an implicit region, device memory."""
    assert_exchanged(pingpong("ibv_rc_pingpong", *kind, "-c", "-n", "100"), 4096, 100)


@pytest.mark.parametrize(
    "arguments", [(), ("-e",), ("-s", "1"), ("-s", "1048576")], ids=lambda given: " ".join(given)
)
def test_xrc_pingpong(pingpong: Pingpong, arguments: tuple[str, ...]) -> None:
    pair = pingpong("ibv_xsrq_pingpong", "-n", "300", *arguments)
    assert_good(pair)
    assert all(side.output.endswith("success\n") for side in pair.sides), str(pair)


@pytest.mark.parametrize("events", [(), ("-e",)], ids=["polling", "events"])
@pytest.mark.parametrize("clients", [2, 5])
def test_xrc_pingpong_with_many(
    verbena_start: Start, debian_program: Find, clients: int, events: tuple[str, ...]
) -> None:
    """The server answers each client through the target QPs of all in turn."""
    sides = exchange_with_many(
        verbena_start, clients, debian_program("ibv_xsrq_pingpong"), *GID, "-n", "200", *events
    )
    for side in sides:
        assert side.status == 0, str(side)
        assert side.output.endswith("success\n"), str(side)


def test_times_of_completions(pingpong: Pingpong) -> None:
    pair = pingpong("ibv_rc_pingpong", "-t", "-n", "200")
    assert_exchanged(pair, 4096, 200)
    for side in pair.sides:
        average = re.search(r"^Average receive completion clock cycles = (\d+)", side.output, re.M)
        assert average, str(pair)
        assert 0 < int(average[1]) < 10**10


@pytest.mark.parametrize("name", ["ibv_rc_pingpong", "ibv_uc_pingpong"])
def test_without_a_gid(verbena_start: Start, debian_program: Find, name: str) -> None:
    """As on each RoCE port: an address without a GID leads nowhere.

    (ibv_srq_pingpong's client would read for ever from the connection that its server closed.)
    """
    pair = start_pair(verbena_start, debian_program(name)).finish()
    assert all(side.status == 1 for side in pair.sides), str(pair)
    assert "Failed to modify QP to RTR" in str(pair)


def test_leaves_nothing(verbena_start: Start, debian_program: Find) -> None:
    with leaves_nothing() as env:
        for name in PINGPONGS:
            running = start_pair(verbena_start, debian_program(name), *GID, "-n", "50", env=env)
            assert_good(running.finish())
