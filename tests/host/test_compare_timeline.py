# SPDX-License-Identifier: Apache-2.0
"""The timeline of the comparison: it shows what the rows count, way by way, from time 0 on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.host.test_timeline import Events, checked
from verbena.cli.compare import main
from verbena.host import HostError
from verbena.host.comparison import WAYS, Recording, Row, compare_ways

SIZE = 8192


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Row], Events]:
    recording = Recording()
    rows = {row.way: row for row in compare_ways(SIZE, recording=recording)}
    path = tmp_path_factory.mktemp("timeline") / "ways.json"
    recording.write(path)
    return rows, checked(path)


def processes(events: Events, way: str) -> dict[int, str]:
    """Numbers of a way's processes, with their names behind its title."""
    title = WAYS[way].title
    return {
        event["pid"]: event["args"]["name"].removeprefix(f"{title}: ")
        for event in events
        if event["name"] == "process_name" and event["args"]["name"].startswith(title)
    }


def slices(events: Events, pid: int, row: str) -> Events:
    """Those of the rows of a process whose name ends so."""
    rows = {
        event["tid"]
        for event in events
        if event["name"] == "thread_name" and event["pid"] == pid
        and event["args"]["name"].endswith(row)
    }  # fmt: skip
    return [each for each in events if each["ph"] == "X" and each["pid"] == pid
            and each["tid"] in rows]  # fmt: skip


def lasting(some: Iterable[dict[str, object]], *categories: str) -> float:
    return sum(float(str(each["dur"])) for each in some if each["cat"] in categories)


@pytest.mark.parametrize("way", WAYS)
def test_rows_show_what_the_table_counts(way: str, made: tuple[dict[str, Row], Events]) -> None:
    rows, events = made
    row = rows[way]
    for pid, name in processes(events, way).items():
        if name == "cables":
            frames = slices(events, pid, "from here")
            if way in ("write", "send", "tcp"):
                assert len(frames) == {"tcp": 1, "write": 2, "send": 2}[way]
            continue
        side = row.here if name in ("here", "computer") else row.there
        assert side is not None
        core = slices(events, pid, "core 0")
        busy = sum(each["dur"] for each in core if each["cat"] not in ("idle", "store"))
        assert busy == pytest.approx(side.cycles / row.ghz / 1000, abs=0.002)
        assert busy + lasting(core, "idle") >= row.latency_ps / 1e6 - 0.002
        for end, crossed in (("PCIe up", side.to_memory), ("PCIe down", side.to_device)):
            assert sum(each["args"]["bytes"] for each in slices(events, pid, end)) == crossed.bytes
        interrupts = [each for each in slices(events, pid, "memory and interrupts")
                      if each["cat"] == "interrupt"]  # fmt: skip
        assert len(interrupts) == side.interrupts
        charged = lasting((one for one in core if one["name"] in side.charged), "user", "copy",
                          "interrupt", "system call")  # fmt: skip
        assert charged == pytest.approx(sum(side.charged.values()) / row.ghz / 1000, abs=0.002)


@pytest.mark.parametrize("way", WAYS)
def test_an_arrow_leads_from_a_store_to_its_completion(
    way: str, made: tuple[dict[str, Row], Events]
) -> None:
    rows, events = made
    own = processes(events, way)
    arrows: dict[int, Events] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf" and event["pid"] in own:
            arrows[event["id"]].append(event)
    assert arrows
    longest = max(arrows.values(), key=lambda hops: hops[-1]["ts"] - hops[0]["ts"])
    assert 0 <= longest[0]["ts"] < longest[-1]["ts"] < rows[way].latency_ps / 1e6 + 2
    if way in ("write", "read", "send", "tcp", "remote-disk"):
        assert "there" in {own[hop["pid"]] for hop in longest}


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    begin = max(one["ts"], other["ts"])
    return min(one["ts"] + one["dur"], other["ts"] + other["dur"]) > begin + 1e-9


def within(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        other["ts"] <= one["ts"] + 1e-9
        and one["ts"] + one["dur"] <= other["ts"] + other["dur"] + 1e-9
    )


@pytest.mark.parametrize("way", WAYS)
def test_no_core_is_idle_while_it_works(way: str, made: tuple[dict[str, Row], Events]) -> None:
    """Neither where it stores to a device."""
    _, events = made
    for pid, name in processes(events, way).items():
        if name == "cables":
            continue
        ordered = sorted(slices(events, pid, "core 0"), key=lambda one: float(one["ts"]))
        rests = [one for one in ordered if one["cat"] == "idle"]
        works = [one for one in ordered if one["cat"] not in ("idle", "store")]
        stores = [one for one in ordered if one["cat"] == "store"]
        assert rests
        assert not [(one["name"], rest["ts"]) for rest in rests for one in (*works, *stores)
                    if overlap(one, rest)]  # fmt: skip
        assert [store for store in stores if any(within(store, work) for work in works)] == stores


def test_ways_have_numbers_of_their_own(made: tuple[dict[str, Row], Events]) -> None:
    _, events = made
    numbers = [event["pid"] for event in events if event["name"] == "process_name"]
    assert len(numbers) == len({*numbers}) == sum(len(processes(events, way)) for way in WAYS)
    assert min(event["ts"] for event in events if "ts" in event) == 0


def test_the_command_writes_the_ways_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.json"
    assert main(["--size", "64B", "--write", "--tcp", "--timeline", str(path)]) == 0
    capsys.readouterr()
    events = json.loads(path.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert {name.partition(":")[0] for name in names} == {"memory, WRITE", "memory, TCP"}
    with pytest.raises(SystemExit):
        main(["--sizes", "64B..128B", "--timeline", str(path)])
    assert "--timeline is of one size" in capsys.readouterr().err
    assert main(["--size", "64B", "--write", "--timeline", str(path / "x.json")]) == 1
    assert f"{path}: the folder cannot be made: File exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--size", "3", "--sizes", "64B..128B"])
    assert "not allowed with argument" in capsys.readouterr().err
    with pytest.raises(HostError, match="at most 1 MiB"):
        compare_ways(2 << 20, ["dma"], recording=Recording())
