# SPDX-License-Identifier: Apache-2.0
"""The timeline of a message by TCP, whose processors are charged and run no code.

tcp_way.py fills it: costs one after the other on the core of each side, what crosses both links,
the wire, and an arrow from the sender's doorbell to the receiver's interrupt. A core is idle where
nothing was charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from verbena._trace_events import PS_PER_US, Event, named_process, named_row
from verbena.host.pcie import Slot, Tlp
from verbena.host.timeline_rows import Row

_INSTANT = 1000  # ps that something without a duration is long
_SIDES = ("here", "there")
_DOORBELL, _STORE = 1, 3  # places of the arrow when it is at the core, and at the adapter
_CATEGORIES = {
    "copy_l2": "copy", "copy_l3": "copy", "copy_memory": "copy", "hard_irq": "interrupt",
    "softirq_poll": "interrupt", "syscall": "system call", "wakeup": "system call",
}  # fmt: skip


class TcpRows:
    """Rows of both computers, by side: "here" sends and "there" receives."""

    def __init__(self, ghz: float) -> None:
        self._cycle_ps = 1000 / ghz
        self._rows: list[Row] = []
        self._hops: list[tuple[int, Row]] = []
        self.cores: dict[str, Row] = {}
        self._memory: dict[str, Row] = {}
        self._adapter: dict[str, Row] = {}
        self._links: dict[tuple[str, bool], Row] = {}
        for process, side in enumerate(_SIDES, 1):
            self.cores[side] = self._row(process, "core 0")
            self._memory[side] = self._row(process, "memory and interrupts")
            self._adapter[side] = self._row(process, "EthernetAdapter")
            self._links[side, False] = self._row(process, "EthernetAdapter: PCIe down")
            self._links[side, True] = self._row(process, "EthernetAdapter: PCIe up")
        self._wire = {side: self._row(len(_SIDES) + 1, f"from {side}") for side in _SIDES}

    def _row(self, process: int, name: str) -> Row:
        self._rows.append(Row(process, len(self._rows) + 1, name))
        return self._rows[-1]

    # ---- what happens ----

    def follow(self, side: str, slot: Slot) -> None:
        """Shows what crosses an adapter's link from now on."""
        slot.observers.append(partial(self._see, side, slot))

    def _see(self, side: str, slot: Slot, tlp: Tlp) -> None:
        row = self._links[side, tlp.up]
        start, took = tlp.begins, tlp.ends - tlp.begins
        row.add(tlp.kind, "PCIe", start, took, {"data": tlp.data, "bytes": tlp.bytes})
        arrives = tlp.ends + slot.half_ps
        if tlp.kind == "MSI":
            self._memory[side].add("interrupt", "interrupt", arrives, _INSTANT, {})
        elif tlp.up and tlp.kind == "MWr":
            self._memory[side].add("DMA write", "memory", arrives, _INSTANT, {"bytes": tlp.data})
        elif not tlp.up and tlp.kind == "MWr":
            self._adapter[side].add("store", "device", arrives, _INSTANT, {})
            if len(self._hops) == _DOORBELL:
                self._hops += [(start, row), (arrives, self._adapter[side])]

    def charge(self, side: str, at: int, costs: Mapping[str, float], kernel: str) -> int:
        """A core spends cycles by name, one cost after the other from ``at`` on; their end.

        ``kernel`` is the category of costs of the network stack.
        """
        row = self.cores[side]
        self.rest(side, at)
        for name, cycles in costs.items():
            took = round(cycles * self._cycle_ps)
            is_first = name == "doorbell" and not self._hops
            if is_first or (name == "hard_irq" and side == "there"):
                self._hops.append((at, row))
            if took:
                row.add(name, _CATEGORIES.get(name, kernel), at, took, {"cycles": cycles})
            at += took
        return at

    def rest(self, side: str, until: int) -> None:
        """A core is idle until a time."""
        row = self.cores[side]
        if until > row.free_at:
            row.add("idle", "idle", row.free_at, until - row.free_at, {})

    def send(self, side: str, at: int, took: int) -> None:
        """A side's next frame is on the wire for ``took`` ps from ``at`` on."""
        row = self._wire[side]
        row.add("TCP", "frame", at, took, {"frame": len(row.slices) + 1})
        if len(self._hops) == _STORE:
            self._hops.append((at, row))

    # ---- as a timeline ----

    def close(self) -> None:
        """Nothing: a slot that ends sees nothing more."""

    def events(self) -> Iterator[Event]:
        """Names first, then everything by time."""
        for number, name in enumerate((*_SIDES, "cables"), 1):
            yield named_process(number, name)
        for row in self._rows:
            yield from named_row(row.process, row.number, row.name)
        found = [event for row in self._rows for event in row.events()]
        yield from sorted([*found, *self._arrow(self._hops)], key=lambda event: event["ts"])

    @staticmethod
    def _arrow(hops: Iterable[tuple[int, Row]]) -> Iterator[Event]:
        ordered = sorted(hops, key=lambda hop: hop[0])
        for place, (at, row) in enumerate(ordered):
            phase = "s" if place == 0 else "f" if place == len(ordered) - 1 else "t"
            where = {"ts": at / PS_PER_US, "pid": row.process, "tid": row.number}
            made: Event = {"ph": phase, "name": "store", "cat": "store", "id": 1, **where}
            yield {**made, "bp": "e"} if phase == "f" else made
