# SPDX-License-Identifier: Apache-2.0
"""TCP in captures: tshark, which knows TCP, finds what the flows have counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.test_tshark import run_tshark
from tests.sim.fabrics import GIGABIT, MIB, MICROSECOND, finish, star
from verbena.sim import World

pytestmark = pytest.mark.debian

MSS = 1460
MILLISECOND = 1000 * MICROSECOND
TEN: dict[str, Any] = {"rate": 10 * GIGABIT, "delay": 10 * MICROSECOND}
ABSOLUTE = ("-o", "tcp.relative_sequence_numbers:FALSE")
TCP_CHECKS = ("-o", "tcp.check_checksum:TRUE")  # what is damaged is then not looked at further
FIELDS = {
    "seq": "tcp.seq",
    "ack": "tcp.ack",
    "length": "tcp.len",
    "frame": "frame.len",
    "source": "ip.src",
    "ports": "tcp.port",
    "window": "tcp.window_size_value",
    "ecn": "ip.dsfield.ecn",
    "dscp": "ip.dsfield.dscp",
    "hops": "ip.ttl",
    "ece": "tcp.flags.ece",
    "cwr": "tcp.flags.cwr",
    "push": "tcp.flags.push",
    "left": "tcp.options.sack_le",
    "right": "tcp.options.sack_re",
    "again": "tcp.analysis.retransmission",
    "late": "tcp.analysis.out_of_order",  # what tshark calls one within 3 ms of newer segments
    "unseen": "tcp.analysis.ack_lost_segment",
    "good": "tcp.checksum.status",
    "header": "ip.checksum.status",
    "comment": "frame.comment",
    "udp": "udp.dstport",
}
GOOD, BAD = "1", "0"
CAPABLE, CONGESTED = 2, 3

Row = dict[str, str]
Rows = Callable[..., list[Row]]


@pytest.fixture
def tshark(debian_program: Callable[[str], str]) -> Rows:
    program = debian_program("tshark")
    wanted = [word for name in FIELDS.values() for word in ("-e", name)]

    def read(file: Path, *checks: str) -> list[Row]:
        lines = run_tshark(program, file, *ABSOLUTE, *checks, "-T", "fields", *wanted)
        return [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in lines]

    return read


def segments(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["length"] != "0"]


def acks(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["length"] == "0"]


def set_in(rows: list[Row], name: str) -> int:
    """In how many of them the flag is set."""
    return sum(bool(row[name]) and row[name] not in ("0", "False") for row in rows)


def check_blocks(row: Row, size: int) -> None:
    """SACK blocks are whole segments, behind what is acknowledged, and apart."""
    left, right = ([int(n) for n in row[name].split(",")] for name in ("left", "right"))
    assert 1 <= len(left) == len(right) <= 3
    spans = sorted(zip(left, right, strict=True))
    edge = int(row["ack"])
    for begin, end in spans:
        assert edge < begin < end
        assert (begin - 1) % MSS == 0
        assert (end - 1) % MSS == 0 or end == size + 1
        edge = end


def test_losses_are_seen_as_the_flows_count_them(tmp_path: Path, tshark: Rows) -> None:
    """Two senders overflow a queue: each is captured where it sends, their target where it gets."""
    size = 3 * MIB + 17
    world = World(seed=3, tcp={"least_rto": MILLISECOND, "jitter": 0})
    center = star(world, 3, TEN, lanes=[{"flow": "lossy", "alpha": 1.0}], buffer=128 << 10)
    for port in range(3):
        world.capture(center, port, tmp_path / f"{port}.pcapng", size=2000)
    world.add_flows([0, 1], 2, size, transport="tcp")
    finish(world)
    flows, links = world.flows(), world.links()
    seen = [tshark(tmp_path / f"{port}.pcapng", *TCP_CHECKS) for port in range(3)]
    assert flows["resent"].min() > 50
    for host in (0, 1):
        rows = seen[host]
        sent, answers = segments(rows), acks(rows)
        assert len(sent) == links["packets"][2 * host] == -(-size // MSS) + flows["resent"][host]
        assert set_in(sent, "again") + set_in(sent, "late") == flows["resent"][host]
        assert sum(row["push"] in ("1", "True") for row in sent) >= 1
        assert {int(row["ack"]) for row in sent} == {int(row["seq"]) for row in answers} == {1}
        assert max(int(row["seq"]) + int(row["length"]) for row in sent) == size + 1
        assert int(answers[-1]["ack"]) == size + 1
        assert {row["source"] for row in sent} == {f"10.0.0.{host + 1}"}
        assert {row["source"] for row in answers} == {"10.0.0.3"}
        with_blocks = [row for row in answers if row["left"]]
        assert len(with_blocks) >= flows["resent"][host] // 3
        for row in with_blocks:
            check_blocks(row, size)
        assert set_in(rows, "unseen") == set_in(rows, "cwr") == 0
    both = [row for rows in seen for row in rows]
    assert {(row["good"], row["header"]) for row in both} == {(GOOD, GOOD)}
    assert {row["window"] for row in both} == {str((16 << 20) >> 9)}
    assert {row["hops"] for row in both} == {"64"}
    assert {int(row["ecn"], 0) for row in both} == {0}
    assert {int(row["frame"]) for row in segments(both)} == {54 + MSS, 54 + size % MSS}
    assert {int(row["frame"]) for row in acks(both)} <= {60, 54 + 12, 54 + 20, 54 + 28}
    lost = int(links["dropped_full"].sum())
    assert len(segments(seen[2])) == len(segments(seen[0] + seen[1])) - lost
    assert len({row["ports"] for row in segments(seen[2])}) == 2


def test_marks_are_seen_as_the_flows_count_them(tmp_path: Path, tshark: Rows) -> None:
    """DCTCP: CE where it comes, ECE where its sender gets it; CUBIC without ECN is marked too, and
    says nothing of it."""
    world = World(seed=1)
    lane = {"flow": "lossy", "mark": (30_000, 30_000, 1.0)}
    center = star(world, 3, TEN, lanes=[lane] * 2, buffer=4 << 20)
    for port in range(3):
        world.capture(center, port, tmp_path / f"{port}.pcapng")
    world.add_flows([0, 1], 2, MIB, level=[1, 0], transport="tcp", control=["dctcp", "cubic"])
    finish(world)
    flows = world.flows()
    seen = [tshark(tmp_path / f"{port}.pcapng", *TCP_CHECKS) for port in range(3)]
    assert flows["marked"].min() > 10
    for host, ecn in ((0, CAPABLE), (1, 0)):
        came = [row for row in segments(seen[2]) if row["source"] == f"10.0.0.{host + 1}"]
        codes = [int(row["ecn"], 0) for row in came]
        assert codes.count(CONGESTED) == flows["marked"][host]
        assert set(codes) == {ecn, CONGESTED}
        assert {int(row["ecn"], 0) for row in segments(seen[host])} == {ecn}
        assert {int(row["ecn"], 0) for row in acks(seen[host])} == {0}
        assert set_in(acks(seen[host]), "ece") == flows["notices"][host]
        assert (flows["notices"][host] > 0) == (host == 0)
        assert {int(row["dscp"]) for row in came} == {8 * (1 - host)}
    assert set_in(segments(seen[0]), "cwr") > 0 == set_in(segments(seen[1]), "cwr")
    assert set_in(segments(seen[0]), "ece") == set_in(acks(seen[0]), "cwr") == 0


def test_what_a_link_lost_has_a_comment_and_a_wrong_checksum(tmp_path: Path, tshark: Rows) -> None:
    """Short flows over a long, bad cable, both ways: each retransmission is one to tshark."""
    count, size = 60, 10 * MSS - 3
    world = World(seed=4, tcp={"least_rto": 20 * MILLISECOND})
    link = {"rate": 10 * GIGABIT, "delay": 5 * MILLISECOND, "bit_error_rate": 1e-5}
    world.connect(world.add_host(), 0, world.add_host(), 0, **link)
    world.capture(0, 0, tmp_path / "cable.pcapng", size=2000)
    starts = np.arange(count) * MILLISECOND
    world.add_flows(0, 1, size, starts, transport="tcp", control="reno")
    world.add_flows(0, 1, 8192, 100 * MILLISECOND)
    finish(world)
    flows, links = world.flows()[:count], world.links()
    every = tshark(tmp_path / "cable.pcapng")
    rows = [row for row in every if not row["udp"]]
    assert len(every) - len(rows) >= 4  # RoCE, beside it
    assert {row["udp"] for row in every} == {"", "4791"}
    damaged = [row for row in every if row["comment"]]
    assert len(damaged) == links["dropped_damaged"].sum()
    assert {row["comment"] for row in damaged} == {"lost here: bit errors"}
    assert len(acks([row for row in rows if row["comment"]])) > 0
    for row in tshark(tmp_path / "cable.pcapng", *TCP_CHECKS):
        if not row["udp"]:
            assert row["good"] == (BAD if row["comment"] else GOOD)
            assert row["header"] == GOOD
    assert flows["resent"].sum() > count
    assert set_in(segments(rows), "again") == flows["resent"].sum()
    assert set_in(rows, "late") == 0
    last = {row["ports"]: int(row["ack"]) for row in acks(rows)}
    assert list(last.values()) == [size + 1] * count
    assert max(int(row["ack"]) for row in acks(rows)) == size + 1


def test_what_comes_after_its_connection_ended_has_its_numbers(
    tmp_path: Path, tshark: Rows
) -> None:
    """The timer is too short: each segment goes several times, and is acknowledged as often."""
    size = 10 * MSS - 3
    world = World(tcp={"least_rto": MILLISECOND})
    link = {"rate": 10 * GIGABIT, "delay": 5 * MILLISECOND}
    world.connect(world.add_host(), 0, world.add_host(), 0, **link)
    world.capture(0, 0, tmp_path / "cable.pcapng")
    world.add_flows(0, 1, size, transport="tcp")
    finish(world)
    rows = tshark(tmp_path / "cable.pcapng")
    assert len(segments(rows)) == 10 + world.flows()["resent"][0]
    assert [int(row["ack"]) for row in acks(rows)].count(size + 1) > 2
    assert max(int(row["ack"]) for row in acks(rows)) == size + 1


@pytest.mark.parametrize(
    ("window", "shown"), [(1460, 1460), (65535, 65535), (65536, 32768), (200_000, 50_000)]
)
def test_a_window_is_shown_with_the_smallest_scale(
    tmp_path: Path, tshark: Rows, window: int, shown: int
) -> None:
    world = World(tcp={"window": window})
    world.connect(world.add_host(), 0, world.add_host(), 0, **TEN)
    world.capture(0, 0, tmp_path / "cable.pcapng")
    world.add_flows(0, 1, 10 * MSS, transport="tcp")
    finish(world)
    assert {row["window"] for row in tshark(tmp_path / "cable.pcapng")} == {str(shown)}


def test_a_capture_changes_nothing(tmp_path: Path) -> None:
    def flows(captured: bool) -> bytes:
        world = World(seed=5)
        center = star(world, 3, TEN, lanes=[{"flow": "lossy"}], buffer=64 << 10)
        if captured:
            world.capture(center, 2, tmp_path / "some.pcapng")
        world.add_flows([0, 1], 2, MIB, transport="tcp")
        finish(world)
        assert world.captures_lost == 0
        return bytes(world.flows().tobytes() + world.links().tobytes())

    assert flows(False) == flows(True)
