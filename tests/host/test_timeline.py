# SPDX-License-Identifier: Apache-2.0
"""Timelines: events that Perfetto accepts, rows that add up to the run, and arrows that lead from
each doorbell to what it led to."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.host import Computer, Disk, HostError, Machines, Pcie, Program, Ram, Timer
from verbena.host.hca import connected
from verbena.host.timeline_rows import Row

Events = list[dict[str, Any]]

READ_BY_DMA = """
    mov  rsp, 0x80000
    lidt [table]
    mov  rbx, 0x100000
    mov  qword ptr [rbx+0x28], 1
    mov  qword ptr [rbx+0x10], 4
    mov  qword ptr [rbx+0x18], 0x40000
    mov  qword ptr [rbx], 2
    sti
    hlt
    cli
    hlt
handler:
    nop
    iretq
    align 16
idt:
    times 46 dq 0, 0
    dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table:
    dw 47 * 16 - 1
    dq idt
"""


def disk_computer() -> Computer:
    computer = Computer(ghz=2.0)
    computer.map(Ram(1 << 20), 0)
    computer.map(Disk(bytes(8192), latency_us=10), 0x100000, pcie=Pcie())
    computer.load(Program.assemble(READ_BY_DMA, 0x1000))
    return computer


def checked(path: Path) -> Events:
    """The events of a file, which are as the trace event format wants them."""
    content = json.loads(path.read_text())
    assert set(content) == {"displayTimeUnit", "traceEvents"}
    events: Events = content["traceEvents"]
    rows: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named, arrows = set(), defaultdict(list)
    for event in events:
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
            continue
        where, at = (event["pid"], event["tid"]), round(event["ts"] * 1e6)
        assert where in named
        assert at >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert all(event[key] for key in ("name", "cat"))
            rows[where].append((at, at + round(event["dur"] * 1e6)))
        else:
            assert event["cat"] == "store"
            assert (event.get("bp") == "e") == (event["ph"] == "f")
            arrows[event["id"]].append((at, event["ph"], where))
    for slices in rows.values():
        open_until: list[int] = []
        for start, end in slices:  # each ends before the one that it began in
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)
    for hops in arrows.values():
        assert [phase for _, phase, _ in hops] == ["s", *"t" * (len(hops) - 2), "f"]
        assert hops == sorted(hops, key=lambda hop: hop[0])
        for at, _, where in hops:
            assert any(start <= at < end for start, end in rows[where])
    return events


def spans(events: Events, row: str, name: str = "") -> list[tuple[str, float, float]]:
    places = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == row
    }
    return [
        (event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["ph"] == "X" and (event["pid"], event["tid"]) in places and name in event["name"]
    ]


def test_a_disk_read_by_dma(tmp_path: Path) -> None:
    computer = disk_computer()
    plain = disk_computer()
    plain.run()
    with_timeline = computer.timeline()
    computer.run()
    assert computer.now == plain.now
    assert computer.counters == plain.counters
    with_timeline.write(tmp_path / "disk.json")
    events = checked(tmp_path / "disk.json")

    core = [one for one in spans(events, "core 0") if not one[0].startswith("store")]
    assert [name for name, _, _ in core] == ["program", "idle", "interrupt 46", "program"]
    for (_, _, end), (_, start, _) in pairwise(core):
        assert start == pytest.approx(end)
    assert core[1][2] - core[1][1] == pytest.approx(computer.counters.idle_ps / 1e6, abs=0.001)
    assert core[2][2] - core[2][1] == pytest.approx(2 * 0.0005)  # two instructions at 2 GHz
    assert len(spans(events, "memory and interrupts", "DMA write")) == 1
    assert len(spans(events, "Disk: PCIe up", "MWr")) == 4 * 512 // 256  # bytes of a packet
    assert len(spans(events, "Disk: PCIe down", "MWr")) == computer.counters.stores == 4

    arrows = [event for event in events if event["ph"] in "sf"]
    assert [event["ph"] for event in arrows] == ["s", "f"]  # only the command leads to something
    at = arrows[1]["ts"]
    (interrupt,) = spans(events, "memory and interrupts", "interrupt 46")
    assert at == interrupt[1]


def test_an_rdma_write_and_both_computers(tmp_path: Path) -> None:
    left, right = connected()
    source, target = left.register(0x100000, 65536), right.register(0x100000, 65536)
    timeline = left.machines.timeline()
    for _ in range(3):
        left.qp.write(source, target)
    left.run()
    timeline.write(tmp_path / "rdma.json")
    events = checked(tmp_path / "rdma.json")
    assert len(spans(events, "from left", "WRITE")) == 3 * 65536 // 4096
    assert len(spans(events, "from right", "ACK")) >= 3
    assert len(spans(events, "core 0", "store to Hca")) == 3
    processes = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    assert list(processes.values()) == ["left", "right", "cables"]
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    (end,) = [event for event in events if event["ph"] == "f"][-1:]
    assert processes[begun[end["id"]]["pid"]] == processes[end["pid"]] == "left"
    passed = [processes[event["pid"]] for event in events if event["ph"] == "t"]
    assert {"right", "cables"} <= set(passed)
    completions = [hop for hop in events if hop["ph"] == "X" and hop["name"] == "DMA write"]
    last = [one for one in completions if processes[one["pid"]] == "left"][-1]
    assert end["ts"] == last["ts"]  # of the last completion: a CQE of 64 bytes or less
    assert last["args"]["bytes"] <= 64


def test_rings_and_system_calls_are_split(tmp_path: Path) -> None:
    """Ring 0 begins a process by SYSRET, which calls the kernel twice."""
    text = """
        mov   rsp, 0x80000
        mov   ecx, 0xc0000080
        mov   eax, 1
        xor   edx, edx
        wrmsr
        mov   ecx, 0xc0000082
        mov   eax, kernel
        wrmsr
        mov   rcx, process
        mov   r11, 2
        sysretq
    process:
        syscall
        nop
        syscall
    kernel:
        inc   rbx
        cmp   rbx, 2
        je    stop
        sysretq
    stop:
        hlt
    """
    computer = Computer(ghz=1.0)
    computer.map(Ram(1 << 20), 0)
    computer.load(Program.assemble(text, 0x1000))
    timeline = computer.timeline()
    computer.run()
    timeline.write(tmp_path / "rings.json")
    names = [name for name, _, _ in spans(checked(tmp_path / "rings.json"), "core 0")]
    assert names == ["program", "user", "system call", "user", "system call"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_slices_of_a_row_nest(slices: list[tuple[int, int]]) -> None:
    row = Row(1, 1, "row")
    for start, duration in slices:
        row.add("slice", "test", start, duration, {"start": start})
    found = [
        (round(event["ts"] * 1e6), round((event["ts"] + event["dur"]) * 1e6))
        for event in row.events()
    ]
    assert sorted(start for start, _ in found) == sorted(start for start, _ in slices)
    for number, (start, end) in enumerate(found):
        assert start < end
        for later, latest in found[number + 1 :]:
            assert later >= end or latest <= end


def test_what_a_timeline_refuses_and_close() -> None:
    computer = disk_computer()
    timeline = computer.timeline()
    with pytest.raises(HostError, match="a timeline of that computer already"):
        computer.timeline()
    with pytest.raises(HostError, match="of one computer, or of those of one Machines"):
        Machines().timeline()
    timeline.close()
    computer.run()
    assert not [event for event in timeline.events() if event["ph"] != "M"]
    computer.timeline().close()


def test_interrupts_of_a_device_without_a_link(tmp_path: Path) -> None:
    computer = Computer(ghz=1.0)
    computer.map(Ram(1 << 20), 0)
    computer.map(Timer(), 0x100000)
    timeline = computer.timeline()
    computer.store(0x100000, (500).to_bytes(8, "little"))
    computer.store(0x100008, (1).to_bytes(8, "little"))
    computer.run(until=10**9)
    timeline.write(tmp_path / "timer.json")
    events = checked(tmp_path / "timer.json")
    assert [name for name, _, _ in spans(events, "Timer")] == ["store", "store"]
    assert spans(events, "memory and interrupts") == [("interrupt 32", 0.5, 0.501)]
    assert [event["ts"] for event in events if event["ph"] in "stf"] == [0, 0, 0.5]
