# SPDX-License-Identifier: Apache-2.0
"""Debian's perftest over Verbena: each of its programs, transports and options that apply."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.conftest import Start
from tests.programs import results
from tests.programs.pairs import Pair, assert_good, leaves_nothing, start_pair
from tests.programs.results import rows
from tests.support import device_mtu

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
Perftest = Callable[..., Pair]

# -F: nothing about the CPU's frequency. -x: RoCE needs a GID index.
COMMON = ("-F", "-x", "1")
ITERATIONS = 200
ALL_SIZES = [1 << n for n in range(1, 24)]

RC = ("send", "write", "read", "atomic")
UC = ("send", "write")
BW = [f"ib_{verb}_bw" for verb in RC]
LAT = [f"ib_{verb}_lat" for verb in RC]
TRANSPORTS = [
    *[(f"ib_{verb}_{kind}", "RC") for verb in RC for kind in ("bw", "lat")],
    *[(f"ib_{verb}_{kind}", "UC") for verb in UC for kind in ("bw", "lat")],
    *[(f"ib_send_{kind}", "UD") for kind in ("bw", "lat")],
    *[(f"ib_{verb}_{kind}", "XRC") for verb in RC for kind in ("bw", "lat")],
]


def assert_measured(pair: Pair, sizes: list[int], iterations: int = ITERATIONS) -> None:
    results.assert_measured(pair, sizes, iterations)


def default_size(program: str) -> int:
    if "atomic" in program:
        return 8
    return 65_536 if program.endswith("_bw") else 2


@pytest.fixture
def perftest(verbena_start: Start, debian_program: Find, fast_clock: dict[str, str]) -> Perftest:
    """perftest(program, *arguments, options=(), env={}): both sides of 200 iterations."""

    def run(
        name: str,
        *arguments: str,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Pair:
        command = (debian_program(name), *COMMON, "-n", str(ITERATIONS), *arguments)
        given = fast_clock | (env or {})
        return start_pair(verbena_start, *command, options=options, env=given).finish()

    return run


# ---- transports and sizes ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "transport"), TRANSPORTS)
def test_transport(verbena_start: Start, debian_program: Find, name: str, transport: str) -> None:
    """With nothing of these tests in its process."""
    size = 1024 if transport == "UD" else default_size(name)
    chosen = () if "atomic" in name else ("-s", str(size))
    command = (debian_program(name), *COMMON, "-n", str(ITERATIONS), "-c", transport, *chosen)
    pair = start_pair(verbena_start, *command).finish()
    assert_measured(pair, [size])
    assert f"Connection type : {transport}" in pair.client.output
    assert "Device         : verbena0" in pair.client.output


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        *[(f"ib_{verb}_{kind}", "RC") for verb in RC[:3] for kind in ("bw", "lat")],
        ("ib_write_bw", "UC"),
        *[(f"ib_send_{kind}", "UD") for kind in ("bw", "lat")],
    ],
)
def test_all_sizes(perftest: Perftest, name: str, transport: str) -> None:
    largest = device_mtu() if transport == "UD" else ALL_SIZES[-1]
    sizes = [size for size in ALL_SIZES if size <= largest]
    assert_measured(perftest(name, "-c", transport, "-a", "-n", "20"), sizes, 20)


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_odd_size(perftest: Perftest, name: str) -> None:
    assert_measured(perftest(name, "-s", "1000003", "-n", "50"), [1_000_003], 50)


# ---- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "transport"),
    [(name, kind) for name, kind in TRANSPORTS if "write" not in name],  # WRITE has none there
)
def test_events(perftest: Perftest, name: str, transport: str) -> None:
    size = 8 if "atomic" in name else 1024
    chosen = () if "atomic" in name else ("-s", str(size))
    pair = perftest(name, "-c", transport, "-e", *chosen)
    assert_measured(pair, [size])
    assert "Test with events" in pair.client.output


@pytest.mark.parametrize(
    ("name", "transport"), [(name, kind) for name, kind in TRANSPORTS if name.endswith("_bw")]
)
def test_both_directions(perftest: Perftest, name: str, transport: str) -> None:
    size = 8 if "atomic" in name else 1024
    chosen = () if "atomic" in name else ("-s", str(size))
    pair = perftest(name, "-c", transport, "-b", *chosen)
    assert_measured(pair, [size])
    assert "Bidirectional BW Test" in pair.client.output
    assert rows(pair.server.output) == rows(pair.client.output) or "send" in name


@pytest.mark.parametrize("extra", [(), ("-b",)], ids=["one way", "both ways"])
@pytest.mark.parametrize("name", BW)
def test_eight_queue_pairs(perftest: Perftest, name: str, extra: tuple[str, ...]) -> None:
    pair = perftest(name, "-q", "8", *extra)
    assert_measured(pair, [default_size(name)], 8 * ITERATIONS)
    assert "Number of qps   : 8" in pair.client.output


@pytest.mark.parametrize(
    ("arguments", "size", "iterations"),
    [
        ((), 1024, ITERATIONS),
        (("-q", "8"), 1024, 8 * ITERATIONS),
        (("-b",), 1024, ITERATIONS),
        (("-e",), 1024, ITERATIONS),
        (("-c", "UC"), 1024, ITERATIONS),
        (("-c", "UD"), 1024, ITERATIONS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_shared_receive_queue(
    perftest: Perftest, arguments: tuple[str, ...], size: int, iterations: int
) -> None:
    pair = perftest("ib_send_bw", "--use-srq", "-s", str(size), *arguments)
    assert_measured(pair, [size], iterations)
    assert re.search(r"Using SRQ\s+: ON", pair.client.output)


def test_shared_receive_queue_latency(perftest: Perftest) -> None:
    assert_measured(perftest("ib_send_lat", "--use-srq"), [2])


@pytest.mark.parametrize("kind", ["CMP_AND_SWAP", "FETCH_AND_ADD"])
@pytest.mark.parametrize("name", ["ib_atomic_bw", "ib_atomic_lat"])
def test_atomic(perftest: Perftest, name: str, kind: str) -> None:
    pair = perftest(name, "-A", kind)
    assert_measured(pair, [8])
    assert f"Atomic {kind}" in pair.client.output


@pytest.mark.parametrize("name", ["ib_send_bw", "ib_write_bw", "ib_read_bw"])
def test_list_of_requests(perftest: Perftest, name: str) -> None:
    assert_measured(perftest(name, "-l", "16", "-s", "512", "-n", "320"), [512], 320)


def test_region_per_queue_pair(perftest: Perftest) -> None:
    assert_measured(perftest("ib_write_bw", "-q", "4", "--mr_per_qp"), [65_536], 4 * ITERATIONS)


# ---- inline data and the extended calls --------------------------------------------------------


@pytest.fixture
def known(perftest: Perftest) -> Perftest:
    """As perftest(...), over a device that reports a part number which perftest knows."""

    def run(name: str, *arguments: str) -> Pair:
        return perftest(name, *arguments, options=("--part-id", "4119"))

    return run


def inline_limit(pair: Pair) -> int:
    found = re.search(r"Max inline data : (\d+)\[B\]", pair.client.output)
    assert found, str(pair)
    return int(found[1])


@pytest.mark.parametrize(
    ("name", "transport"),
    [(name, kind) for name, kind in TRANSPORTS if "send" in name or "write" in name],
)
def test_inline(known: Perftest, name: str, transport: str) -> None:
    pair = known(name, "-c", transport, "-I", "64", "-s", "64")
    assert_measured(pair, [64])
    assert inline_limit(pair) >= 64


@pytest.mark.parametrize("name", ["ib_send_lat", "ib_write_bw"])
def test_inline_by_the_old_calls(known: Perftest, name: str) -> None:
    pair = known(name, "-I", "64", "-s", "64", "--use_old_post_send")
    assert_measured(pair, [64])
    assert inline_limit(pair) >= 64


@pytest.mark.parametrize(("name", "transport"), TRANSPORTS)
def test_extended_send_calls(known: Perftest, name: str, transport: str) -> None:
    size = 8 if "atomic" in name else device_mtu() if transport == "UD" else 4096
    chosen = () if "atomic" in name else ("-s", str(size))
    pair = known(name, "-c", transport, *chosen)
    assert_measured(pair, [size])
    assert "ibv_wr* API     : ON" in pair.client.output


@pytest.mark.parametrize("name", [*BW, *LAT])
def test_old_post_send(known: Perftest, name: str) -> None:
    pair = known(name, "--use_old_post_send")
    assert_measured(pair, [default_size(name)])
    assert "ibv_wr* API     : OFF" in pair.client.output


@pytest.mark.parametrize("name", BW)
def test_extended_send_calls_both_ways_by_eight(known: Perftest, name: str) -> None:
    pair = known(name, "-b", "-q", "8")
    assert_measured(pair, [default_size(name)], 8 * ITERATIONS)
    assert "ibv_wr* API     : ON" in pair.client.output


# ---- how memory is reached ---------------------------------------------------------------------


@pytest.mark.not_sanitized("AddressSanitizer brings a malloc of its own")
@pytest.mark.parametrize("name", [*BW, *LAT])
def test_shared_heap(perftest: Perftest, name: str) -> None:
    pair = perftest(name, options=("--shared-heap",))
    assert_measured(pair, [default_size(name)])


@pytest.mark.not_sanitized("AddressSanitizer brings a malloc of its own")
def test_shared_heap_all_sizes(perftest: Perftest) -> None:
    pair = perftest("ib_write_bw", "-a", "-b", "-n", "20", options=("--shared-heap",))
    assert_measured(pair, ALL_SIZES, 20)


@pytest.mark.not_sanitized("AddressSanitizer brings a malloc of its own")
@pytest.mark.parametrize("name", BW[:3])
def test_shared_heap_large(perftest: Perftest, name: str) -> None:
    pair = perftest(name, "-b", "-s", "8388608", "-n", "20", options=("--shared-heap",))
    assert_measured(pair, [8_388_608], 20)


@pytest.mark.parametrize("name", [*BW, *LAT])
def test_bounce_ring(perftest: Perftest, name: str) -> None:
    pair = perftest(name, env={"VERBENA_COPY": "bounce"})
    assert_measured(pair, [default_size(name)])


def test_bounce_ring_all_sizes(perftest: Perftest) -> None:
    pair = perftest("ib_read_bw", "-a", "-b", "-n", "20", env={"VERBENA_COPY": "bounce"})
    assert_measured(pair, ALL_SIZES, 20)


@pytest.mark.parametrize("name", BW[:3])
def test_bounce_ring_large(perftest: Perftest, name: str) -> None:
    pair = perftest(name, "-b", "-s", "8388608", "-n", "20", env={"VERBENA_COPY": "bounce"})
    assert_measured(pair, [8_388_608], 20)


# ---- a peer that is gone -----------------------------------------------------------------------


def wait_for_line(process: subprocess.Popen[str], beginning: str) -> None:
    """Until a program has printed a line that begins so."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith(beginning):
            return
    pytest.fail(f"{process.args!r} ended without a line {beginning!r}")


@pytest.mark.parametrize("name", BW)
def test_killed_server(verbena_start: Start, debian_program: Find, name: str) -> None:
    """In the midst of traffic: the client gets an error completion, says so and ends."""
    with leaves_nothing() as env:
        command = ("stdbuf", "-oL", debian_program(name), *COMMON, "-D", "30")
        running = start_pair(verbena_start, *command, env=env)
        wait_for_line(running.client, " #bytes")
        with pytest.raises(subprocess.TimeoutExpired):
            running.client.wait(timeout=0.3)
        running.server.kill()
        pair = running.finish(timeout=15)
    assert pair.server.status == -signal.SIGKILL
    assert pair.client.status > 0, str(pair)
    assert "Failed status 12:" in pair.client.output, str(pair)  # retry exceeded


def test_leaves_nothing(verbena_start: Start, debian_program: Find) -> None:
    with leaves_nothing() as env:
        for name in BW:
            command = (debian_program(name), *COMMON, "-n", "50")
            assert_good(start_pair(verbena_start, *command, env=env).finish())
