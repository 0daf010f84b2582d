# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in files: Parquet, a timeline, pictures, packets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.native.test_tshark import FLAWS, run_tshark
from tests.sim.fabrics import star
from tests.sim.programs import echo, ping
from verbena import sim
from verbena.sim import Scenario, ScenarioResult, World
from verbena.sim._world import STATES
from verbena.sim.timeline import events
from verbena.version import full_version

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
    queue = result.queue(result.link("s0-h2"))
    assert len(queue) == len(result.times) > 100
    assert (np.diff(result.times.astype(np.int64)) == 10**6).all()
    assert queue.max() <= result.links["queue_max"][result.link("s0-h2")] + 5000
    assert queue.max() > 50 << 10
    with pytest.raises(ValueError, match="was not sampled"):
        result.queue(0, class_=3)


def test_parquet_gives_back_what_it_got(result: ScenarioResult, tmp_path: Path) -> None:
    result.to_parquet(tmp_path / "new")
    again = ScenarioResult.from_parquet(tmp_path / "new")
    for name in ("flows", "links", "queues", "times", "queued", "paused", "delivered_at",
                 "delivered"):  # fmt: skip
        one, other = getattr(result, name), getattr(again, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    assert _without_wall(again) == _without_wall(result)
    assert again.link_events == result.link_events
    with pytest.raises(OSError):
        ScenarioResult.from_parquet(tmp_path)


def _without_wall(result: ScenarioResult) -> str:
    """The summary without the real time, which files do not have."""
    summary = replace(result, wall=math.nan).summary()
    assert "simulated in" not in summary
    assert "simulated in" in replace(result, wall=1.0).summary()
    return summary


def test_files_of_two_runs_are_equal_to_the_byte(tmp_path: Path) -> None:
    scenario = Scenario.parse(TEXT)
    for name in ("one", "other"):
        scenario.run().to_parquet(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["flows.parquet", "links.parquet", "queues.parquet", "throughput.parquet"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_table_says_what_made_it_and_it_can_be_made_again(tmp_path: Path) -> None:
    import pyarrow.parquet

    text = TEXT + '[variants.small]\n"traffic.bulk.size" = "512 KiB"\n'
    scenario = Scenario.parse(text, name="net.toml").variant("small", {"adapter.timeout": 6})
    scenario.run(seed=7).to_parquet(tmp_path)
    for file in tmp_path.iterdir():
        about = json.loads(pyarrow.parquet.read_schema(file).metadata[b"verbena"])
        assert (about["variant"], about["seed"]) == ("small", 7)
        assert about["changes"] == {"adapter.timeout": 6, "seed": 7}
        assert about["settings"]["traffic"][0]["size"] == "512 KiB"
        assert about["version"] == full_version()
        assert "wall" not in about
    kept = ScenarioResult.from_parquet(tmp_path)
    again = Scenario.make(kept.settings).run()
    assert again.flows.tobytes() == kept.flows.tobytes()
    assert again.links.tobytes() == kept.links.tobytes()
    assert (again.name, again.seed) == (kept.name, kept.seed) == ("net, small", 7)


def test_parquet_is_read_by_others(tmp_path: Path) -> None:
    """Plain columns, in a file for each kind of row."""
    import pyarrow.parquet

    result = Scenario.parse(TEXT).changed({"duration": "160 us"}).run()
    result.to_parquet(tmp_path)
    flows = pyarrow.parquet.read_table(tmp_path / "flows.parquet")
    assert flows["bytes"].to_pylist() == [1 << 20, 1 << 20, 100, 100, 100]
    assert flows["source"].to_pylist() == ["h0", "h1", "h2", "h2", "h2"]
    assert flows["target"].to_pylist() == ["h2", "h2", "h0", "h0", "h0"]
    assert flows["traffic"].to_pylist() == ["bulk"] * 2 + ["late"] * 3
    assert flows["state"].to_pylist() == [STATES[state] for state in result.flows["state"]]
    assert {"running", "waiting"} & set(flows["state"].to_pylist())
    for state, finish in zip(*(flows[key].to_pylist() for key in ("state", "finish")), strict=True):
        assert (finish is None) == (state in ("running", "waiting"))
    units = {field.name: (field.metadata or {}).get(b"unit") for field in flows.schema}
    assert (units["start"], units["bytes"], units["source"]) == (b"ps", b"B", None)
    links = pyarrow.parquet.read_table(tmp_path / "links.parquet")
    assert links["link"].to_pylist()[:3] == ["h0-s0", "s0-h0", "h1-s0"]
    assert links.schema.field("rate").metadata == {b"unit": b"bit/s"}
    queues = pyarrow.parquet.read_table(tmp_path / "queues.parquet")
    assert queues.num_rows == len(result.times) * len(result.queues)
    assert queues.column_names == ["time", "link", "class", "bytes", "paused"]
    assert queues["link"].to_pylist()[: len(result.queues)] == list(result.link_names)


def test_failures_groups_classes_and_names_that_are_there_twice_are_kept(tmp_path: Path) -> None:
    import pyarrow.parquet

    table = '[[traffic]]\npattern = "flows"\nfrom = "h0"\nsize = "64 KiB"\n'
    text = (
        'duration = "1 ms"\n[adapter]\ntimeout = 1\n[fabric]\ntopology = "one_switch"\nhosts = 4\n'
        '[[switch.class]]\nname = "gold"\nflow = "lossy"\n[[switch.class]]\nflow = "lossy"\n'
        '[[group]]\nname = "news"\nmembers = ["h1", "h2"]\n'
        '[[event]]\nlink = "s0-h3"\nat = 0\nup = false\n'
        + table + 'to = "h3"\n' + table + 'to = "h1"\nclass = 1\n'
        + table + 'group = "news"\ntransport = "ud"\n[samples]\nevery = "100 us"\n'
    )  # fmt: skip
    result = Scenario.parse(text).run()
    result.to_parquet(tmp_path)
    flows = pyarrow.parquet.read_table(tmp_path / "flows.parquet").to_pydict()
    assert flows["traffic"] == ["flows", "flows-2", "flows-3"]
    assert flows["target"] == ["h3", "h1", "news"]
    assert flows["status"] == ["RETRY_EXC_ERR", None, None]
    assert flows["class"] == ["gold", "1", "gold"]
    again = ScenarioResult.from_parquet(tmp_path)
    assert _without_wall(again) == _without_wall(result)
    assert again.flows.tobytes() == result.flows.tobytes()
    assert again.queues.tobytes() == result.queues.tobytes()
    assert "flows-3 to news" in [event["name"] for event in events(result)]
    replace(result, traffic=("a", "a", "a")).to_parquet(tmp_path)
    other = pyarrow.parquet.read_table(tmp_path / "flows.parquet")
    assert other["traffic"].to_pylist() == ["a", "a (2)", "a (3)"]
    assert ScenarioResult.from_parquet(tmp_path).flows.tobytes() == result.flows.tobytes()
    other = other.replace_schema_metadata({})
    pyarrow.parquet.write_table(other, tmp_path / "flows.parquet")
    with pytest.raises(ValueError, match="no result that this version of Verbena reads"):
        ScenarioResult.from_parquet(tmp_path)


def test_a_result_without_samples_is_kept_too(tmp_path: Path) -> None:
    plain = Scenario.parse(TEXT[: TEXT.index("[samples]")]).run()
    plain.to_parquet(tmp_path)
    assert ScenarioResult.from_parquet(tmp_path).queued.size == 0


def test_the_timeline_has_flows_queues_and_events(result: ScenarioResult, tmp_path: Path) -> None:
    result.timeline(tmp_path / "net.json")
    made = json.loads((tmp_path / "net.json").read_text())["traceEvents"]
    processes = [event for event in made if event["name"] == "process_name"]
    names = {event["args"]["name"]: event["pid"] for event in processes}
    assert list(names) == ["fabric", "h0", "h1", "h2", "s0"]
    slices = [event for event in made if event["ph"] == "X"]
    rows = [event for event in made if event["name"] == "thread_name"]
    assert {(event["pid"], event["tid"]) for event in slices} == {
        (event["pid"], event["tid"]) for event in rows if event["args"]["name"].startswith("flows ")
    }
    assert [event["name"] for event in slices] == ["bulk to h2"] * 2 + ["late to h0"] * 3
    assert {event["pid"] for event in slices} == {names["h0"], names["h1"], names["h2"]}
    for event, flow in zip(slices, result.flows, strict=True):
        assert event["ts"] == flow["start"] / 1e6
        if flow["state"] == 2:
            assert event["dur"] == pytest.approx((int(flow["finish"]) - int(flow["start"])) / 1e6)
    counters = [event for event in made if event["ph"] == "C" and event["pid"]]
    assert max(event["args"]["bytes"] for event in counters) == result.queued.max()
    rates = [event["args"]["Gb/s"] for event in made if event["name"] == "throughput of bulk"]
    assert 60 < max(rates) < 100
    instants = [event["name"] for event in made if event["ph"] == "i"]
    assert [name.rsplit(" ")[-1] for name in instants] == ["down", "up"]


def test_flows_that_overlap_have_rows_of_their_own() -> None:
    text = TEXT.replace('from = ["h0", "h1"]', 'from = ["h0", "h0"]')
    slices = [event for event in events(Scenario.parse(text).run()) if event["ph"] == "X"]
    assert sorted(event["tid"] for event in slices if event["pid"] == 1) == [1, 2]
    assert {event["tid"] for event in slices if event["pid"] == 3} <= {1, 2}


def test_pictures_are_drawn(result: ScenarioResult, tmp_path: Path) -> None:
    made = result.plot(tmp_path / "new")
    assert [path.name for path in made] == [
        "throughput.png",
        "queues.png",
        "completion.png",
        "links.png",
    ]
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 5000


# ---- packets ------------------------------------------------------------------------------------

FIELDS = {
    "opcode": "infiniband.bth.opcode",
    "direction": "frame.packet_flags_direction",
    "source": "ip.src",
    "target": "ip.dst",
    "length": "frame.len",
    "kept": "frame.cap_len",
    "comment": "frame.comment",
    "ecn": "ip.dsfield.ecn",
    "time": "frame.time_epoch",
    "info": "_ws.col.Info",
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
        lines = run_tshark(program, file, "-Y", kept, "-T", "fields", *wanted)
        return [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in lines]

    return read


@pytest.mark.debian
def test_any_link_is_captured_and_tshark_finds_no_fault(tmp_path: Path, tshark: Rows) -> None:
    files = {link: tmp_path / f"{link}.pcapng" for link in ("s0-h2", "h0-s0")}
    result = Scenario.parse(TEXT).run(captures=files)
    seen = {link: tshark(path, "frame") for link, path in files.items()}
    for link, path in files.items():
        # The receiver of a damaged packet sees a wrong ICRC; nothing else may be wrong.
        assert tshark(path, f"({FLAWS}) && !frame.comment") == []
        at, back = result.link(link), result.link("-".join(link.split("-")[::-1]))
        out = [row for row in seen[link] if int(row["direction"], 0) == OUTBOUND]
        for count, sent in (
            (len(out), int(result.links["packets"][at])),
            (len(seen[link]) - len(out), int(result.links["packets"][back])),
        ):
            assert sent - result.packets["under_way"] <= count <= sent
        # tshark says so of packets that are cut short only there.
        assert not [row for row in seen[link] if "Malformed" in row["info"]]
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
    assert all(row["kept"] == row["length"] for row in seen["s0-h2"])
    assert max(int(row["length"]) for row in seen["s0-h2"]) == 14 + 20 + 8 + 28 + 4096 + 4
    assert {row["source"] for row in seen["h0-s0"]} == {"10.0.0.1", "10.0.0.3"}


@pytest.mark.debian
@pytest.mark.parametrize("transport", ["rc", "uc", "ud", "tcp"])
def test_the_frames_of_a_capture_are_what_the_link_counts(
    tmp_path: Path, tshark: Rows, transport: str
) -> None:
    """A link counts preamble, FCS and gap as well, 24 bytes for each packet."""
    text = (
        '[fabric]\ntopology = "one_switch"\nhosts = 3\nrate = "100GbE"\ndelay = "1 us"\n'
        "[adapter]\nmtu = 256\n[[traffic]]\n"
        'pattern = "flows"\nfrom = ["h0", "h1"]\nto = "h2"\nsize = 100001\n'
        f'transport = "{transport}"\n'
    )
    result = Scenario.parse(text).run(captures={"s0-h2": tmp_path / "x.pcapng"})
    seen = tshark(tmp_path / "x.pcapng", "frame")
    links = result.links[[result.link("s0-h2"), result.link("h2-s0")]]
    assert len(seen) == links["packets"].sum()
    assert sum(int(row["length"]) + 24 for row in seen) == links["bytes"].sum()
    span = max(float(row["time"]) for row in seen) - min(float(row["time"]) for row in seen)
    out = [row for row in seen if int(row["direction"], 0) == OUTBOUND]
    assert 8 * sum(int(row["length"]) + 24 for row in out[1:]) / span < 100.5e9


@pytest.mark.debian
@pytest.mark.parametrize("kept", [96, 128, 4352])
def test_a_capture_keeps_as_much_of_each_packet_as_is_asked(
    tmp_path: Path, tshark: Rows, kept: int
) -> None:
    Scenario.parse(TEXT).run(captures={"s0-h2": tmp_path / "x.pcapng"}, capture_bytes=kept)
    seen = tshark(tmp_path / "x.pcapng", "frame")
    assert all(int(row["kept"]) == min(kept, int(row["length"])) for row in seen)
    assert {WRITE_FIRST, ACK} <= {int(row["opcode"], 0) for row in seen}
    assert any("Malformed" in row["info"] for row in seen) == (kept < 4352)


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
    assert all(row["target"] == "239.0.0.1" for row in seen)
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
    with pytest.raises(ValueError, match=r"no such link .*there are"):
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
