# SPDX-License-Identifier: Apache-2.0
"""Each way of `verbena compare` alone through the command line, and a READ by numbers of hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.test_compare import run
from verbena.host.comparison import WAYS, compare_ways

SIZE = 4096


@pytest.fixture(scope="module")
def all_rows() -> dict[str, dict[str, Any]]:
    done = run("--size", str(SIZE), "--json")
    assert done.returncode == 0, done.stderr
    return {row["way"]: row for row in json.loads(done.stdout)}


def test_there_are_these_seven_ways() -> None:
    assert [*WAYS] == ["pio", "dma", "remote-disk", "tcp", "send", "write", "read"]


@pytest.mark.parametrize("way", ["pio", "dma", "send", "write", "read", "tcp", "remote-disk"])
def test_a_way_alone_has_the_row_of_the_full_run(
    way: str, all_rows: dict[str, dict[str, Any]]
) -> None:
    done = run("--size", str(SIZE), f"--{way}", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [all_rows[way]]


@pytest.mark.parametrize("way", ["pio", "dma", "send", "write", "read", "tcp", "remote-disk"])
def test_a_way_alone_is_one_row_of_the_table(way: str) -> None:
    done = run("--size", str(SIZE), f"--{way}")
    assert (done.returncode, done.stderr) == (0, "")
    speeds = done.stdout.split("\n\n")[0].splitlines()
    assert speeds[0] == "4 KiB"
    assert speeds[1].split()[:2] == ["way", "latency"]
    assert [line.startswith(WAYS[way].title) for line in speeds[2:]] == [True]


# The requester's bytes to its adapter: a doorbell of 8 with a header of 24, and the request of 64
# with one of 20. To memory: a read of the request of 24; the data in writes of up to 256 with 24
# each; the completion of 64 with 24. The responder's: a read of 24 for each 512, and the data in
# completions of up to 256 with 20 each.
@pytest.mark.parametrize(
    ("size", "writes", "reads"),
    [(64, 1, 1), (256, 1, 1), (512, 2, 1), (4096, 16, 8), (8192, 32, 16)],
)
def test_a_read_crosses_the_buses_as_the_formulas_say(size: int, writes: int, reads: int) -> None:
    (row,) = compare_ways(size, ["read"])
    here, there = row.here, row.there
    assert there is not None
    assert (here.to_device.transactions, here.to_device.bytes) == (2, (8 + 24) + (64 + 20))
    assert here.to_memory.transactions == 1 + writes + 1
    assert here.to_memory.bytes == 24 + (size + writes * 24) + (64 + 24)
    assert (there.to_memory.transactions, there.to_memory.bytes) == (reads, reads * 24)
    assert (there.to_device.transactions, there.to_device.bytes) == (writes, size + writes * 20)


def test_a_read_takes_a_post_a_doorbell_and_one_completion_here() -> None:
    """80 cycles, 100 and 60. The processor there does nothing, and its adapter completes nothing:
    to memory it has only read."""
    (row,) = compare_ways(SIZE, ["read"])
    assert row.there is not None
    assert row.here.charged == {"verbs_post": 80, "doorbell": 100, "cq_poll": 60}
    assert row.here.cycles == 80 + 100 + 60
    assert (row.there.cycles, row.there.charged) == (0, {})
    for side in row.sides.values():
        assert (side.copied, side.interrupts, side.system_calls) == (0, 0, 0)
        assert side.instructions == 0


def test_a_read_s_frames_are_the_request_and_the_answer() -> None:
    """At 100 Gb/s a byte takes 80 ps. A frame has 20 bytes before and behind it, 14 and 4 of
    Ethernet, 28 of IP and UDP, 12 of BTH, 4 of ICRC; a request 16 of RETH, an answer 4 of AETH."""
    (row,) = compare_ways(SIZE, ["read"])
    frame = 20 + 14 + 4 + 28 + 12 + 4
    assert row.demands == {
        "the wire from here": (frame + 16) * 80,
        "the wire from there": (frame + 4 + SIZE) * 80,
    }
