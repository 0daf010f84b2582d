# SPDX-License-Identifier: Apache-2.0
"""Debian's programs over the RoCE port, Verbena on both of two hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.programs.pairs import Pair, assert_good
from tests.programs.results import assert_exchanged, assert_measured
from tests.roce.networks import Network

pytestmark = pytest.mark.debian

Perftest = Callable[..., Pair]

RC = ("send", "write", "read", "atomic")
UC = ("send", "write")
TRANSPORTS = [
    *[(f"ib_{verb}_{kind}", "RC") for verb in RC for kind in ("bw", "lat")],
    *[(f"ib_{verb}_{kind}", "UC") for verb in UC for kind in ("bw", "lat")],
    *[(f"ib_send_{kind}", "UD") for kind in ("bw", "lat")],
    *[(f"ib_{verb}_{kind}", "XRC") for verb in RC for kind in ("bw", "lat")],
]
PINGPONGS = ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong")
SIZE = dict.fromkeys(PINGPONGS, 4096) | {"ibv_ud_pingpong": 1024}
ITERATIONS = 200
VERSIONS = pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])


def size_of(name: str, transport: str) -> int:
    if "atomic" in name:
        return 8
    return 1024 if transport == "UD" else 65_536


@pytest.fixture
def perftest(fast_clock: dict[str, str]) -> Perftest:
    """perftest(network, program, *arguments, n=200): both sides, on the two hosts."""

    def run(network: Network, name: str, *arguments: str, n: int = ITERATIONS) -> Pair:
        return network.pair(name, "-F", "-n", str(n), *arguments, env=fast_clock)

    return run


# ---- pingpongs ---------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("wait", [("-c",), ("-c", "-e")], ids=["poll", "events"])
@pytest.mark.parametrize("name", PINGPONGS)
def test_pingpong(network: Network, name: str, wait: tuple[str, ...], ipv6: bool) -> None:
    pair = network.pair(name, *wait, "-n", "300", gid="-g", ipv6=ipv6)
    assert_exchanged(pair, SIZE[name], 300)


@pytest.mark.parametrize("size", [1, 65_537, 1 << 20])
@pytest.mark.parametrize("name", ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"])
def test_pingpong_sizes(network: Network, name: str, size: int) -> None:
    pair = network.pair(name, "-c", "-s", str(size), "-n", "20", gid="-g")
    assert_exchanged(pair, size, 20)


@pytest.mark.parametrize("mtu", [256, 512, 1024])
def test_path_mtu(network: Network, mtu: int) -> None:
    pair = network.pair("ibv_rc_pingpong", "-c", "-m", str(mtu), "-n", "100", gid="-g")
    assert_exchanged(pair, 4096, 100)


@pytest.mark.parametrize("mtu", [2048, 4096])
def test_path_mtu_of_a_jumbo_link(jumbo_network: Network, mtu: int) -> None:
    pair = jumbo_network.pair("ibv_rc_pingpong", "-c", "-m", str(mtu), "-n", "100", gid="-g")
    assert_exchanged(pair, 4096, 100)


@VERSIONS
@pytest.mark.parametrize("size", ["1", "4096", "100000"])
def test_xrc_pingpong(network: Network, size: str, ipv6: bool) -> None:
    name = "ibv_xsrq_pingpong"
    pair = network.pair(name, "-m", "1024", "-n", "100", "-s", size, gid="-g", ipv6=ipv6)
    assert_good(pair)
    assert all(side.output.endswith("success\n") for side in pair.sides), str(pair)


# ---- perftest ----------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize(("name", "transport"), TRANSPORTS)
def test_transport(network: Network, name: str, transport: str, ipv6: bool) -> None:
    size = size_of(name, transport)
    chosen = () if "atomic" in name else ("-s", str(size))
    words = (name, "-F", "-n", str(ITERATIONS), "-c", transport, *chosen)
    pair = network.pair(*words, ipv6=ipv6)  # with nothing of these tests in its process
    assert_measured(pair, [size], ITERATIONS)


@pytest.mark.parametrize("verb", ["send", "write"])
def test_all_sizes(perftest: Perftest, network: Network, verb: str) -> None:
    pair = perftest(network, f"ib_{verb}_bw", "-a", n=20)
    assert_measured(pair, [1 << n for n in range(1, 24)], 20)


@pytest.mark.parametrize("verb", ["send", "read"])
def test_all_sizes_of_a_jumbo_link(perftest: Perftest, jumbo_network: Network, verb: str) -> None:
    pair = perftest(jumbo_network, f"ib_{verb}_bw", "-a", n=20)
    assert_measured(pair, [1 << n for n in range(1, 24)], 20)
    assert "Mtu             : 4096[B]" in pair.client.output


@pytest.mark.parametrize("verb", RC)
def test_both_ways_by_eight(perftest: Perftest, network: Network, verb: str) -> None:
    name = f"ib_{verb}_bw"
    pair = perftest(network, name, "-b", "-q", "8", n=100)
    assert_measured(pair, [size_of(name, "RC")], 800)


@pytest.mark.parametrize("name", ["ib_send_bw", "ib_send_lat", "ib_read_bw", "ib_atomic_lat"])
def test_events(perftest: Perftest, network: Network, name: str) -> None:
    pair = perftest(network, name, "-e")
    size = 8 if "atomic" in name else 2 if "lat" in name else 65_536
    assert_measured(pair, [size], ITERATIONS)


def test_shared_receive_queue(perftest: Perftest, network: Network) -> None:
    pair = perftest(network, "ib_send_bw", "--use-srq", "-q", "8", n=100)
    assert_measured(pair, [65_536], 800)


def test_compare_and_swap(perftest: Perftest, network: Network) -> None:
    pair = perftest(network, "ib_atomic_bw", "-A", "CMP_AND_SWAP")
    assert_measured(pair, [8], ITERATIONS)
