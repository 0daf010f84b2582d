# SPDX-License-Identifier: Apache-2.0
"""What happened in computers as trace events, which Perfetto and chrome://tracing show.

``Computer.timeline`` and ``Machines.timeline`` make it, and it sees what happens from then on. A
computer is a process with a row for each core, its memory, each PCI bus, and each device with the
two directions of its link; cables are a process of their own. An arrow leads from a store to a
device to what happened because of it: the agenda gives each event the store during which it was
added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verbena._arguments import checked_class
from verbena._trace_events import PS_PER_US, Event, named_process, named_row, write_events
from verbena.host.errors import HostError, HostTypeError
from verbena.host.pcie import Tlp
from verbena.host.timeline_pci import PciRow
from verbena.host.timeline_rows import CoreRow, Row

if TYPE_CHECKING:
    from verbena.host.clock import Cause
    from verbena.host.computer import Computer
    from verbena.host.computer_records import Transaction
    from verbena.host.devices import Device
    from verbena.host.pci import PciBus

_INSTANT = 1000  # ps that the slice of something without a duration is long


@dataclass
class _Arrow:
    """The slices that a store led to: when, in which row, and whether it may end there.

    It passes each row once, at the first of them. It ends at the last write to memory, or
    interrupt, in the computer of the store: the completion, where the device makes one.
    """

    hops: list[tuple[int, Row, bool]] = field(default_factory=list)

    def events(self, number: int) -> Iterator[Event]:
        hops = sorted(self.hops, key=lambda hop: hop[0])
        ends = [hop for hop in hops if hop[2] and hop[1].process == self.hops[0][1].process]
        if not ends:
            return
        end = ends[-1]
        passed: dict[int, tuple[int, Row, bool]] = {}
        for hop in hops[: hops.index(end)]:
            if hop[1] is not end[1]:
                passed.setdefault(hop[1].number, hop)
        for place, (at, row, _) in enumerate([*passed.values(), end]):
            phase = "s" if place == 0 else "f" if place == len(passed) else "t"
            where = {"ts": at / PS_PER_US, "pid": row.process, "tid": row.number}
            made: Event = {"ph": phase, "name": "store", "cat": "store", "id": number, **where}
            yield {**made, "bp": "e"} if phase == "f" else made


@checked_class(HostTypeError, but=("hop",))
class Timeline:
    """``computers`` share a clock. HostError if one has a timeline already, or none is given."""

    def __init__(self, computers: Sequence[Computer]) -> None:
        if not computers or any(one.clock is not computers[0].clock for one in computers):
            raise HostError("a timeline is of one computer, or of those of one Machines")
        if any(one.has_timeline for one in computers):
            raise HostError("there is a timeline of that computer already: close it first")
        self._clock = computers[0].clock
        self._arrows: dict[Cause, _Arrow] = {}
        self._rows: list[Row] = []
        self._processes: dict[int, str] = {}
        self._undo: list[Callable[[], None]] = []
        self._cables: dict[int, dict[Device, Row]] = {}
        self._buses: list[PciBus] = []
        self._pci_rows: list[PciRow] = []  # of the buses
        for number, computer in enumerate(computers, 1):
            self._processes[number] = computer.name
            self._follow(computer, number)
        self._processes[len(computers) + 1] = "cables"
        for computer in computers:
            for device in computer.devices:
                self._follow_cable(device, len(computers) + 1)

    def close(self) -> None:
        """Sees nothing more; what it has seen stays."""
        for bus in self._buses:
            bus.settle()
        while self._undo:
            self._undo.pop()()

    def events(self) -> Iterator[Event]:
        """The trace events; names come first, then everything by time."""
        for bus in self._buses:
            bus.settle()
        for number, name in self._processes.items():
            yield named_process(number, name)
        for row in self._rows:
            yield from named_row(row.process, row.number, row.name)
        found = [event for row in self._rows for event in row.events()]
        for number, arrow in enumerate(self._arrows.values(), 1):
            found += arrow.events(number)
        yield from sorted(found, key=lambda event: event["ts"])

    def write(self, path: Path | str) -> None:
        """Writes a file for https://ui.perfetto.dev or chrome://tracing. Raises OSError."""
        write_events(Path(path), self.events())

    # ---- what is followed ----

    def _row(self, process: int, name: str) -> Row:
        row = Row(process, len(self._rows) + 1, name)
        self._rows.append(row)
        return row

    def _observe(self, observers: list[Any], call: Any) -> None:
        observers.append(call)
        self._undo.append(lambda: observers.remove(call))

    def _follow(self, computer: Computer, process: int) -> None:
        computer.has_timeline = True
        self._undo.append(lambda: setattr(computer, "has_timeline", False))
        cores = []
        for core in computer.cores:
            one = CoreRow(process, len(self._rows) + 1, f"core {core.number}", computer.time_at)
            self._rows.append(one)
            cores.append(one)
            self._observe(core.observers, one.show)
            core.state.follow(one.change)
            self._undo.append(partial(core.state.follow, None))
        memory = self._row(process, "memory and interrupts")
        self._observe(computer.memory_observers, partial(self._see_memory, computer, memory))
        rows: dict[Device, Row] = {}
        for device in computer.devices:
            name = type(device).__name__
            row = rows[device] = self._row(process, name)
            if device.slot is not None:
                down = self._row(process, f"{name}: PCIe down")
                up = self._row(process, f"{name}: PCIe up")
                see = partial(_Link(self, row, down, up, device.slot.half_ps).see, device.slot)
                self._observe(device.slot.observers, see)
            if device.pci is not None:
                self._follow_bus(device.pci.bus, process).devices[device.pci.who] = row
        self._observe(computer.observers, partial(self._see_store, computer, cores, rows))

    def _follow_bus(self, bus: PciBus, process: int) -> PciRow:
        """The row of a PCI bus, which is met with each device on it."""
        if bus not in self._buses:
            self._buses.append(bus)
            row = self._row(
                process, "PCI bus" if len(self._buses) == 1 else f"PCI bus {len(self._buses)}"
            )
            self._pci_rows.append(PciRow(row, {}, self._hop_of, _INSTANT))
            self._observe(bus.observers, self._pci_rows[-1].see)
        return self._pci_rows[self._buses.index(bus)]

    def _follow_cable(self, device: Device, process: int) -> None:
        """A cable has two ends, so it is met twice; each end is a row."""
        cable = getattr(device, "wire", None) or getattr(device, "cable", None)
        if cable is None:
            return
        rows = self._cables.setdefault(id(cable), {})
        home = device.computer
        assert home is not None
        rows[device] = self._row(process, f"from {home.name}")
        if len(rows) == 1:
            self._observe(cable.observers, partial(self._see_frame, rows))

    # ---- what is seen ----

    def hop(self, row: Row, at: int, *, ends: bool = False) -> None:
        """The arrow of the store that led here passes a slice of ``row``, or may end there."""
        if self._clock.cause is not None and self._clock.cause in self._arrows:
            self._arrows[self._clock.cause].hops.append((at, row, ends))

    def _hop_of(self, row: Row, at: int, cause: Cause | None) -> None:
        if cause is not None and cause in self._arrows:
            self._arrows[cause].hops.append((at, row, False))

    def _see_store(
        self,
        computer: Computer,
        cores: list[CoreRow],
        rows: dict[Device, Row],
        seen: Transaction,
    ) -> None:
        if not seen.write or seen.device not in rows:
            return
        if self._clock.cause is not None:
            self._arrows[self._clock.cause] = _Arrow()
        core, name = cores[computer.running], type(seen.device).__name__
        details = {"address": hex(seen.address), "bytes": seen.size, "value": hex(seen.value)}
        by_python = self._clock.cause is not None and self._clock.cause.core is None
        at = core.store(name, seen.at, max(1, int(computer.cycle_ps)), details, by_python)
        self.hop(core, at)
        if seen.device.bus is None:
            rows[seen.device].add("store", "device", seen.at, _INSTANT, details)
            self.hop(rows[seen.device], seen.at)

    def _see_memory(self, computer: Computer, row: Row, kind: str, address: int, size: int) -> None:
        at = computer.now
        if kind not in ("read", "write"):
            details = {"core": size} if kind == "MSI" else {"core": size, "by": kind}
            row.add(f"interrupt {address}", "interrupt", at, _INSTANT, details)
        else:
            details = {"address": hex(address), "bytes": size}
            row.add(f"DMA {kind}", "memory", at, _INSTANT, details)
        self.hop(row, at, ends=kind != "read")

    def _see_frame(
        self, rows: dict[Device, Row], sender: Device, text: str, size: int, start: int, end: int
    ) -> None:
        row = rows.get(sender)
        if row is not None:
            row.add(text, "frame", start, end - start, {"bytes": size})
            self.hop(row, start)


@dataclass
class _Link:
    """The rows of a device and of both directions of its link."""

    timeline: Timeline
    device: Row
    down: Row
    up: Row
    half_ps: int

    def see(self, slot: Any, tlp: Tlp) -> None:
        """A packet that has been given to the link."""
        row = self.up if tlp.up else self.down
        details = {"address": hex(tlp.address), "data": tlp.data, "bytes": tlp.bytes}
        row.add(tlp.kind, "PCIe", tlp.begins, tlp.ends - tlp.begins, details)
        if tlp.kind == "MWr" and not tlp.up:
            self.timeline.hop(row, tlp.begins)
            arrives = tlp.ends + self.half_ps
            self.device.add("store", "device", arrives, _INSTANT, details)
            self.timeline.hop(self.device, arrives)
