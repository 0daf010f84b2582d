# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in files: Parquet, a timeline, pictures, packets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.native.test_tshark import CHECKS, FLAWS, NO_GUESSES
from tests.sim.fabrics import star
from tests.sim.programs import echo, ping
from tests.support import plain_environment
from verbena import sim
from verbena.sim import Scenario, ScenarioResult, World
from verbena.sim.timeline import events

TEXT = """\
duration = "300 us"

[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"
delay = "1 us"

[[link]]
between = "h0-s0"
bit_error_rate = 5e-7

[[event]]
link = "s0-h2"
at = "40 us"
up = false

[[event]]
link = "s0-h2"
at = "50 us"
up = true

[switch]
mark = { low = "5 KiB", high = "50 KiB", most = 0.5 }

[adapter]
timeout = 5

[congestion]
kind = "dcqcn"

[[traffic]]
name = "bulk"
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "1 MiB"

[[traffic]]
name = "late"
pattern = "flows"
from = "h2"
to = "h0"
size = 100
start = "100 us"
repeat = 3
every = "30 us"
operation = "read"

[samples]
every = "1 us"
"""


@pytest.fixture(scope="module")
def result() -> ScenarioResult:
    return Scenario.parse(TEXT, name="net.toml").run()


def test_queues_are_sampled(result: ScenarioResult) -> None:
    queue = result.queue(result.link("s0", "h2"))
    assert len(queue) == len(result.times) > 100
    assert (np.diff(result.times.astype(np.int64)) == 10**6).all()
    assert queue.max() <= result.links["queue_max"][result.link("s0", "h2")] + 5000
    assert queue.max() > 50 << 10
    with pytest.raises(ValueError, match="was not sampled"):
        result.queue(0, class_=3)


def test_parquet_gives_back_what_it_got(result: ScenarioResult, tmp_path: Path) -> None:
    result.to_parquet(tmp_path / "new")
    again = ScenarioResult.from_parquet(tmp_path / "new")
    for name in ("flows", "links", "queues", "times", "queued", "paused"):
        one, other = getattr(result, name), getattr(again, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    assert again.summary() == result.summary()
    assert again.link_events == result.link_events
    with pytest.raises(OSError):
        ScenarioResult.from_parquet(tmp_path)


def test_parquet_is_read_by_others(result: ScenarioResult, tmp_path: Path) -> None:
    """Plain columns, in a file for each kind of row."""
    import pyarrow.parquet

    result.to_parquet(tmp_path)
    flows = pyarrow.parquet.read_table(tmp_path / "flows.parquet")
    assert flows["bytes"].to_pylist() == [1 << 20, 1 << 20, 100, 100, 100]
    queues = pyarrow.parquet.read_table(tmp_path / "queues.parquet")
    assert queues.num_rows == len(result.times) * len(result.queues)
    assert queues.column_names == ["time", "link", "class", "bytes", "paused"]


def test_a_result_without_samples_is_kept_too(tmp_path: Path) -> None:
    plain = Scenario.parse(TEXT[: TEXT.index("[samples]")]).run()
    plain.to_parquet(tmp_path)
    assert ScenarioResult.from_parquet(tmp_path).queued.size == 0


def test_the_timeline_has_flows_queues_and_events(result: ScenarioResult, tmp_path: Path) -> None:
    result.timeline(tmp_path / "net.json")
    made = json.loads((tmp_path / "net.json").read_text())["traceEvents"]
    names = {event["args"]["name"]: event["pid"] for event in made if event["ph"] == "M"}
    assert list(names) == ["h0", "h1", "h2", "s0"]
    slices = [event for event in made if event["ph"] == "X"]
    assert [event["name"] for event in slices] == ["bulk to h2"] * 2 + ["late to h0"] * 3
    assert {event["pid"] for event in slices} == {names["h0"], names["h1"], names["h2"]}
    for event, flow in zip(slices, result.flows, strict=True):
        assert event["ts"] == flow["start"] / 1e6
        if flow["state"] == 2:
            assert event["dur"] == pytest.approx((int(flow["finish"]) - int(flow["start"])) / 1e6)
    counters = [event for event in made if event["ph"] == "C"]
    assert max(event["args"]["bytes"] for event in counters) == result.queued.max()
    instants = [event["name"] for event in made if event["ph"] == "i"]
    assert [name.rsplit(" ")[-1] for name in instants] == ["down", "up"]


def test_flows_that_overlap_have_rows_of_their_own() -> None:
    text = TEXT.replace('from = ["h0", "h1"]', 'from = ["h0", "h0"]')
    slices = [event for event in events(Scenario.parse(text).run()) if event["ph"] == "X"]
    assert sorted(event["tid"] for event in slices if event["pid"] == 1) == [1, 2]
    assert {event["tid"] for event in slices if event["pid"] == 3} <= {1, 2}


def test_pictures_are_drawn(result: ScenarioResult, tmp_path: Path) -> None:
    made = result.plot(tmp_path / "new")
    assert [path.name for path in made] == ["queues.png", "completion.png", "links.png"]
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


# ---- packets ------------------------------------------------------------------------------------

FIELDS = {
    "opcode": "infiniband.bth.opcode",
    "direction": "frame.packet_flags_direction",
    "source": "ipv6.src",
    "target": "ipv6.dst",
    "length": "frame.len",
    "kept": "frame.cap_len",
    "comment": "frame.comment",
    "ecn": "ipv6.tclass.ecn",
    "time": "frame.time_epoch",
}
SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, READ_REQUEST, ACK, CNP = 4, 6, 7, 12, 17, 0x81
OUTBOUND, CONGESTED = 2, 3


Rows = Callable[[Path, str], list[dict[str, str]]]


@pytest.fixture
def tshark(debian_program: Callable[[str], str]) -> Rows:
    """The packets that a filter leaves, by the names of FIELDS."""
    program = debian_program("tshark")
    wanted = [word for name in FIELDS.values() for word in ("-e", name)]

    def read(file: Path, kept: str) -> list[dict[str, str]]:
        done = subprocess.run(
            [program, "-r", str(file), *NO_GUESSES, *CHECKS, "-Y", kept, "-T", "fields", *wanted],
            env=plain_environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "cut short" not in done.stderr
        return [
            dict(zip(FIELDS, line.split("\t"), strict=True)) for line in done.stdout.splitlines()
        ]

    return read


@pytest.mark.debian
def test_any_link_is_captured_and_tshark_finds_no_fault(tmp_path: Path, tshark: Rows) -> None:
    files = {link: tmp_path / f"{link}.pcapng" for link in ("s0-h2", "h0-s0")}
    result = Scenario.parse(TEXT).run(captures=files)
    seen = {link: tshark(path, "frame") for link, path in files.items()}
    for link, path in files.items():
        # The receiver of a damaged packet sees a wrong ICRC; nothing else may be wrong.
        assert tshark(path, f"({FLAWS}) && !frame.comment") == []
        at, back = result.link(*link.split("-")), result.link(*link.split("-")[::-1])
        out = [row for row in seen[link] if int(row["direction"], 0) == OUTBOUND]
        for count, sent in (
            (len(out), int(result.links["packets"][at])),
            (len(seen[link]) - len(out), int(result.links["packets"][back])),
        ):
            assert sent - result.packets["under_way"] <= count <= sent
        times = [float(row["time"]) for row in seen[link]]
        assert times == sorted(times)
        assert times[-1] <= 300e-6
    down = [row for row in seen["s0-h2"] if "the link was down" in row["comment"]]
    damaged = [row for row in seen["h0-s0"] if "bit errors" in row["comment"]]
    assert len(down) == result.dropped["down"]
    assert len(damaged) == result.dropped["damaged"] > 0
    codes = {int(row["opcode"], 0) for row in seen["s0-h2"]}
    assert {WRITE_FIRST, WRITE_MIDDLE, READ_REQUEST, ACK, CNP} <= codes
    assert any(int(row["ecn"], 0) == CONGESTED for row in seen["s0-h2"])
    assert all(int(row["kept"]) <= 128 for row in seen["s0-h2"])
    assert max(int(row["length"]) for row in seen["s0-h2"]) == 14 + 40 + 8 + 28 + 4096 + 4


@pytest.mark.debian
def test_datagrams_to_a_group_are_captured_as_such(tmp_path: Path, tshark: Rows) -> None:
    world = World()
    center = star(world, 3)
    group = world.add_group([1, 2], {center: [1, 2]})
    world.capture(center, 1, tmp_path / "group.pcapng")
    world.add_flows(0, group, 8 * 4096, transport="ud", multicast=True)
    assert world.run() == "done"
    seen = tshark(tmp_path / "group.pcapng", "frame")
    assert len(seen) == 8
    assert all(row["target"].startswith("ff") for row in seen)
    assert tshark(tmp_path / "group.pcapng", FLAWS) == []
    assert world.captures_lost == 0


@pytest.mark.debian
def test_packets_of_programs_are_captured_with_their_payload(tmp_path: Path, tshark: Rows) -> None:
    world = World()
    center = star(world, 2)
    world.capture(center, 1, tmp_path / "programs.pcapng", size=1000)
    sim.run({"h0": echo(7471, 3), "h1": ping("h0", 7471, 3)}, world)
    seen = tshark(tmp_path / "programs.pcapng", "frame")
    assert len(seen) == int(world.links()["packets"][:4].reshape(2, 2)[1].sum())
    assert [int(row["opcode"], 0) for row in seen].count(SEND_ONLY) == 6
    assert {row["length"] for row in seen} == {row["kept"] for row in seen}
    assert tshark(tmp_path / "programs.pcapng", FLAWS) == []


def test_looking_at_a_link_changes_nothing(tmp_path: Path) -> None:
    scenario = Scenario.parse(TEXT)
    plain, looked = scenario.run(), scenario.run(captures={"h0-s0": tmp_path / "x.pcapng"})
    assert plain.flows.tobytes() == looked.flows.tobytes()
    assert plain.links.tobytes() == looked.links.tobytes()


def test_captures_that_cannot_be_are_refused(tmp_path: Path) -> None:
    scenario = Scenario.parse(TEXT)
    with pytest.raises(ValueError, match="no such link: there are"):
        scenario.run(captures={"h0-h1": tmp_path / "x"})
    with pytest.raises(OSError):
        scenario.run(captures={"h0-s0": tmp_path / "no" / "x"})
    (tmp_path / "mine").write_text("no capture")
    with pytest.raises(OSError, match="not a capture"):
        scenario.run(captures={"h0-s0": tmp_path / "mine"})
    assert (tmp_path / "mine").read_text() == "no capture"
    world = World()
    a, b = world.add_host(), world.add_host()
    with pytest.raises(ValueError, match="nothing is plugged into"):
        world.capture(a, 0, tmp_path / "y")
    world.connect(a, 0, b, 0, rate=10**9, delay=0)
    world.capture(a, 0, tmp_path / "y")
    with pytest.raises(ValueError, match="captured already"):
        world.capture(b, 0, tmp_path / "z")
    with pytest.raises(ValueError, match="from 64"):
        world.capture(a, 0, tmp_path / "z", size=10)
    with pytest.raises(ValueError, match="s0-h0 is captured already: h0-s0 has both directions"):
        scenario.run(captures={"h0-s0": tmp_path / "a", "s0-h0": tmp_path / "b"})
    twice = {"h0-s0": tmp_path / "a", "h1-s0": tmp_path / "." / "a"}
    with pytest.raises(ValueError, match="a is the file of h0-s0 already"):
        scenario.run(captures=twice)
    assert not (tmp_path / "a").exists()
