# SPDX-License-Identifier: Apache-2.0
"""What crosses a PCIe link in which order: an answer begins when its request has arrived, packets
of a direction do not overlap, and none passes a posted write that came to the link before it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host.test_timeline import Events
from verbena.host import Computer, Disk, Iommu, Pcie, Program, Ram, Tlp
from verbena.host.comparison import WAYS, Recording, compare_ways
from verbena.host.lessons import LESSONS
from verbena.host.pcie import Slot

HALF_PS = 450_000
ANSWERS = ("CplD", "Cpl")


def check_order(seen: list[Tlp], half_ps: int = HALF_PS) -> None:
    """Each completion begins when the request of its address has been on the way long enough."""
    assert seen
    for up in (False, True):
        requests = [one for one in seen if one.kind == "MRd" and one.up is not up]
        for answer in (one for one in seen if one.kind in ANSWERS and one.up is up):
            asked = [one for one in requests if one.address <= answer.address < one.address
                     + one.data and one.ends + half_ps <= answer.begins]  # fmt: skip
            assert asked, answer
            assert answer.at <= answer.begins
        crossing = sorted((one for one in seen if one.up is up), key=lambda one: one.begins)
        for before, after in pairwise(crossing):
            assert before.ends <= after.begins
        posted = [one for one in seen if one.up is up and one.kind in ("MWr", "MSI")]
        assert posted == sorted(posted, key=lambda one: one.begins)


CALLS = st.tuples(
    st.sampled_from(["load", "store", "write_to_memory", "read_from_memory", "message"]),
    st.integers(0, 600_000),  # ps since the call before
    st.integers(1, 5000),  # bytes of DMA
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CALLS, max_size=40), st.sampled_from([1, 2, 64]))
def test_any_calls_keep_the_order_of_a_link(calls: list[tuple[str, int, int]], tags: int) -> None:
    slot = Slot(Pcie(tags=tags))
    seen: list[Tlp] = []
    slot.observers.append(seen.append)
    plain = Slot(Pcie(tags=tags))  # which nobody watches
    now = moved = 0
    for number, (name, later, size) in enumerate(calls):
        now += later
        word, block = (now, 8, number << 16), (now, size, number << 16)
        arguments = {"message": (now,), "load": word, "store": word}.get(name, block)
        end = getattr(slot, name)(*arguments)
        assert end == getattr(plain, name)(*arguments)
        assert end - HALF_PS >= max((one.ends for one in seen[-1:]), default=0)
        moved += {"message": 4, "load": 8, "store": 8}.get(name, size)
    if seen:
        check_order(seen)
    assert sum(one.data for one in seen if one.kind != "MRd") == moved
    for up, direction in ((True, slot.up), (False, slot.down)):
        crossed = [one for one in seen if one.up is up]
        assert direction.bytes == sum(one.bytes for one in crossed)
        assert direction.transactions == len(crossed)
        assert abs(direction.busy - sum(one.ends - one.begins for one in crossed)) <= len(crossed)


@pytest.mark.parametrize("tags", [1, 2, 64])
@pytest.mark.parametrize("iommu", [False, True])
def test_dma_reads_of_a_device_are_answered_after_they_were_asked(tags: int, iommu: bool) -> None:
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    disk = Disk(bytes(1 << 16))
    table = Iommu()
    table.map(0, 0, 1 << 20)
    computer.map(disk, 0x100000, pcie=Pcie(tags=tags), iommu=table if iommu else None)
    seen: list[Tlp] = []
    assert disk.slot is not None
    disk.slot.observers.append(seen.append)
    for address, size in ((0x8000, 5000), (0x20000, 64), (0x30000, 2000)):
        disk.dma_read(address, size, lambda _: None)
        disk.dma_write(0x40000, bytes(300))
    computer.run()
    assert sum(one.kind == "MRd" for one in seen) == 10 + 1 + 4
    check_order(seen)


def test_a_load_of_a_core_is_answered_after_it_was_asked() -> None:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    disk = Disk(bytes(512))
    computer.map(disk, 0x100000, pcie=Pcie())
    seen: list[Tlp] = []
    assert disk.slot is not None
    disk.slot.observers.append(seen.append)
    loads = "mov rax, [rbx+8]\n" * 3
    computer.load(Program.assemble(f"mov rbx, 0x100000\nmov [rbx+0x18], rbx\n{loads}hlt", 0x1000))
    computer.run()
    assert [one.kind for one in seen] == ["MWr", *["MRd", "CplD"] * 3]
    for asked, answer in zip(seen[1::2], seen[2::2], strict=True):
        assert asked.ends + HALF_PS == answer.at == answer.begins
    check_order(seen)


def test_what_is_given_to_the_link_before_an_answer_crosses_it_before() -> None:
    slot = Slot(Pcie())
    seen: list[Tlp] = []
    slot.observers.append(seen.append)
    answered = slot.load(0, 8, 0x1000)
    landed = slot.write_to_memory(1000, 8, 0x2000)
    assert landed == 1000 + slot.link.time_ps(32) + HALF_PS < answered
    check_order(seen)


@pytest.mark.parametrize("name", LESSONS)
def test_the_answers_of_a_lesson_come_after_their_requests(name: str) -> None:
    scene = LESSONS[name].build()
    for _ in scene.computer.steps():
        pass
    by_link: dict[tuple[str, str], list[Tlp]] = {}
    for _, where, what in scene.seen:
        if isinstance(what, Tlp):
            by_link.setdefault((where, what.who), []).append(what)
    for seen in by_link.values():
        check_order(seen)


def test_each_answer_of_a_timeline_begins_after_its_request_has_ended() -> None:
    """Whatever was answered up to a time was asked for, and had arrived, before."""
    recording = Recording()
    compare_ways(8192, recording=recording)
    rows: dict[tuple[int, int], Events] = {}
    names: dict[tuple[int, int], str] = {}
    for event in recording.events():
        place = event["pid"], event.get("tid", 0)
        if event["name"] == "thread_name":
            names[place] = event["args"]["name"]
        elif event.get("cat") == "PCIe":
            rows.setdefault(place, []).append(event)
    answers = 0
    for (process, row), slices in rows.items():
        _, colon, end = names[process, row].partition(": PCIe ")
        other = f"{_}{colon}{'down' if end == 'up' else 'up'}"
        opposite = [one for place, found in rows.items() if place[0] == process
                    and names[place] == other for one in found]  # fmt: skip
        answered = 0
        for one in (one for one in slices if one["name"] == "CplD"):
            answered += one["args"]["data"]
            assert answered <= asked_before(opposite, one["ts"])
            answers += 1
    assert len(WAYS) < answers


def asked_before(events: Events, at: float) -> int:
    """The bytes of requests that had crossed the link, and its other parts, at a time in us."""
    asked: list[Any] = [one["args"]["data"] for one in events if one["name"] == "MRd"
                        and one["ts"] + one["dur"] + HALF_PS / 1e6 <= at + 2e-6]  # fmt: skip
    return sum(asked)
