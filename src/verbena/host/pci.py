# SPDX-License-Identifier: Apache-2.0
"""A conventional PCI bus: one set of wires that devices and the processor's accesses share.

    bus = PciBus(bits=32, mhz=33)
    computer.map(disk, 0x100000, pci=bus)
    computer.map(adapter, 0x200000, pci=bus.slot(wire="INTB#"))

``Computer.map`` connects it. At any time one master has the bus: a device for its DMA, or the host
bridge for loads and stores of the cores. Clocks are counted after the PCI Local Bus Specification
2.2; pci_timing.py has the rules, pci_arbiter.py says who is next, and pci_slot.py has what is done
for one device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.host.device_bus import DeviceFault, checked_unanswered
from verbena.host.devices import Device
from verbena.host.errors import HostError, HostTypeError
from verbena.host.interrupt_message import is_message
from verbena.host.pci_arbiter import PciArbiter, PciMaster, PciTransaction
from verbena.host.pci_slot import PciFlow, PciSlot
from verbena.host.pci_timing import DECODINGS, PciTiming
from verbena.host.pci_wires import WIRES, PciWire, checked_wire

if TYPE_CHECKING:
    from verbena.host.clock import Cause
    from verbena.host.computer import Computer

POSTED_STORES = 4  # the host bridge holds so many, if the caller names no other number
RETRY_LIMIT = 256


class EmptySlot(Device):
    """Addresses on a bus at which no device is: ``computer.map(EmptySlot(4096), base, pci=bus)``.

    A load reads all ones when the bus has given up, and a store is lost.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.bus_fault = DeviceFault.GONE


@checked_class(HostTypeError, but=("connect",))
class PciBus:
    """A bus of 32 or 64 ``bits`` and 33 or 66 ``mhz``; counts in clocks unless the name says so.

    ``latency_timer`` is that of each master: when it is over, a burst ends if another master waits.
    ``memory_read_wait`` and ``memory_write_wait`` are the wait states before the first data of
    memory, where DMA has data of its own; above 12 or so memory says Retry instead and fetches.
    ``burst_bytes``: at its multiples the host bridge ends bursts. ``bridge_ns`` is the way through
    the bridge, which holds ``posted_stores`` of the cores, and gives an access up after
    ``retry_limit`` answers of Retry. ``unanswered`` is "ones", what a load reads that nobody
    answers, or "stop": the core is shut down, and the run raises ``UnansweredError``.

    ``raise_line`` and ``lower_line`` get the name of an interrupt wire whose level changes; without
    them devices deliver their vectors.
    """

    def __init__(
        self,
        *,
        bits: int = 32,
        mhz: int = 33,
        latency_timer: int = 32,
        memory_read_wait: int = 8,
        memory_write_wait: int = 0,
        burst_bytes: int = 4096,
        bridge_ns: float = 60.0,
        posted_stores: int = POSTED_STORES,
        retry_limit: int = RETRY_LIMIT,
        unanswered: str = "ones",
        raise_line: Callable[[str], None] | None = None,
        lower_line: Callable[[str], None] | None = None,
    ) -> None:
        self.timing = PciTiming(
            bits, mhz, latency_timer, memory_read_wait, memory_write_wait, burst_bytes
        )
        if bridge_ns < 0:
            raise HostError(f"bridge_ns is at least 0, not {bridge_ns:g}")
        for name, value, most in (
            ("posted_stores", posted_stores, 1024), ("retry_limit", retry_limit, 1 << 16),
        ):  # fmt: skip
            if not 1 <= value <= most:
                raise HostError(f"{name} of a host bridge is 1 to {most}, not {value}")
        if (raise_line is None) != (lower_line is None):
            raise HostError("raise_line and lower_line come together: levels change both ways")
        self.unanswered_stops = checked_unanswered(unanswered)
        self.bridge_ps = round(bridge_ns * 1000)
        self.posted_stores, self.retry_limit = posted_stores, retry_limit
        self.wires = {name: PciWire(name, raise_line, lower_line) for name in WIRES}
        self.host = PciMaster("processor")
        self.up, self.down = PciFlow(), PciFlow()
        self.held: deque[int] = deque()  # until when the bridge has each of its last stores
        # Each is called with every transaction when it is over; also with one that moved nothing.
        self.observers: list[Callable[[PciTransaction], None]] = []
        self._slots: list[PciSlot] = []
        self._computer: Computer | None = None
        self._arbiter: PciArbiter | None = None

    def slot(
        self, *, wire: str = "INTA#", decoding: str = "medium", wait: int = 2, name: str = ""
    ) -> PciSlot:
        """A place for one device, for ``Computer.map``: its interrupt ``wire``, how fast it claims
        an address ("fast", "medium", "slow", "subtractive"), and its wait states before the first
        data of a load or store. With more than the 16 clocks that a target has it says Retry."""
        if decoding not in DECODINGS or not 0 <= wait <= 100_000:
            raise HostError(
                f"a target's decoding is one of {', '.join(DECODINGS)}, and its wait 0 to 100,000 "
                f"clocks, not {decoding!r} and {wait}"
            )
        if wait > self.retry_limit * self.timing.latency_timer:
            raise HostError(
                f"a target that waits {wait} clocks gets no data through before the bridge gives "
                f"up: make a PciBus with more than retry_limit={self.retry_limit}"
            )
        return PciSlot(self, self.wires[checked_wire(wire)], decoding, wait, PciMaster(name))

    # ---- what it has done ----

    @property
    def masters(self) -> list[PciMaster]:
        """The host bridge, and the devices in the order in which they were mapped: the counters of
        what each has moved as a master."""
        self.settle()
        return [self.host, *(one.master for one in self._slots)]

    @property
    def busy(self) -> int:
        """The ps of all transactions that are over, with their turnaround."""
        self.settle()
        return 0 if self._arbiter is None else self._arbiter.busy

    @property
    def idle(self) -> int:
        """The ps before and between those: together with ``busy`` all up to ``accounted``."""
        self.settle()
        return 0 if self._arbiter is None else self._arbiter.idle

    @property
    def accounted(self) -> int:
        """The end of the last transaction, in ps."""
        self.settle()
        return 0 if self._arbiter is None else self._arbiter.accounted

    @property
    def cause(self) -> Cause | None:
        """The store that led to what happens now, for a timeline."""
        return None if self._computer is None else self._computer.clock.cause

    @property
    def arbiter(self) -> PciArbiter:
        """Who has the bus. HostError before the bus is in a computer."""
        if self._arbiter is None:
            raise HostError("the bus is in no computer yet: map a device with pci=bus first")
        return self._arbiter

    def settle(self) -> None:
        """Counts, and tells the observers of, all that is over by now."""
        computer = self._computer
        if self._arbiter is None or computer is None:
            return
        self._arbiter.advance(computer.now)

    def _finished(self, one: PciTransaction) -> None:
        flow = self.up if one.up else self.down
        flow.bytes += one.size
        flow.transactions += one.phases > 0
        flow.busy += one.end + self.timing.clock_ps - one.start
        for slot in self._slots:
            if slot.who in (one.master.name, one.target):
                slot.tally(one)
        for observe in self.observers:
            observe(one)

    def connect(self, computer: Computer, device: Device, slot: PciSlot) -> None:
        """Puts a device into a slot. HostError if the bus is another computer's."""
        if self._computer is not None and self._computer is not computer:
            raise HostError(f"this PCI bus is in computer {self._computer.name!r} already")
        if slot.device is not None:
            raise HostError(f"that slot has {slot.device!r} already: make another, bus.slot(...)")
        if self._arbiter is None:
            self._computer = computer
            memory = computer.memory
            self._arbiter = PciArbiter(
                self.timing,
                computer.at,
                lambda place, size: is_message(place) or memory.find(place, size) is not None,
                self._finished,
                lambda: bool(self.observers),
            )
        slot.device = device
        if any(one is slot for one in self._slots):
            return
        taken = {"memory", *(one.name for one in self.masters)}
        kind = slot.master.name or type(device).__name__
        names = (kind if number == 1 else f"{kind} {number}" for number in count(1))
        slot.master.name = next(one for one in names if one not in taken)
        self._slots.append(slot)
