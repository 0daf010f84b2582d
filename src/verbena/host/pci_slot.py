# SPDX-License-Identifier: Apache-2.0
"""A device's place on a PCI bus: what the computer asks of the bus for this device.

``PciBus.slot`` makes it. The host bridge's side of loads and stores is here: it tries again after
Retry, gives up at the bus's limit, and holds posted stores. DMA goes to the arbiter as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.host.device_bus import DeviceFault, Schedule
from verbena.host.errors import HostTypeError
from verbena.host.pci_arbiter import PciEnd, PciMaster, PciTransaction, PciTransfer
from verbena.host.pci_timing import INITIAL_LIMIT
from verbena.host.pci_wires import PciWire
from verbena.host.posted import PostedStore

if TYPE_CHECKING:
    from verbena.host.devices import Device
    from verbena.host.pci import PciBus


@dataclass
class PciFlow:
    """What has crossed the bus in one direction; ``busy`` is the time of it, in ps."""

    bytes: int = 0
    transactions: int = 0
    busy: int = 0


@checked_class(
    HostTypeError,
    but=(
        "carry_to_device", "carry_to_memory", "drop", "give_up_text", "let_go", "load",
        "load_unanswered", "pull", "refuse_read", "store", "store_unanswered", "tally",
    ),
)  # fmt: skip
@dataclass
class PciSlot:
    """A device's place on a bus, which ``PciBus.slot`` makes. ``up`` and ``down`` have what it
    moved, towards memory and processor and away from them; ``master`` has its own transactions."""

    bus: PciBus
    wire: PciWire
    decoding: str
    wait: int
    master: PciMaster
    device: Device | None = None
    up: PciFlow = field(default_factory=PciFlow)
    down: PciFlow = field(default_factory=PciFlow)
    posted: deque[PostedStore] = field(default_factory=deque)

    @property
    def who(self) -> str:
        """The device's name on the bus."""
        return self.master.name

    @property
    def unanswered_stops(self) -> bool:
        """Whether an access without an answer stops the core."""
        return self.bus.unanswered_stops

    def tally(self, one: PciTransaction) -> None:
        """A transaction from or to the device is over."""
        flow = self.up if one.up else self.down
        flow.bytes += one.size
        flow.transactions += one.phases > 0
        flow.busy += one.end + self.bus.timing.clock_ps - one.start

    def disconnect(self) -> None:
        """The device was taken out; the slot may have another one."""
        self.let_go()
        self.device = None

    # ---- accesses of the processor ----

    @property
    def posts_at(self) -> int:
        """From when on the bridge has room for another store to this device."""
        held = self.bus.held
        return held[0] if len(held) >= self.bus.posted_stores else 0

    def load(self, at: int, size: int, address: int = 0) -> int:
        """A load of the processor: when its value is there. It waits for it."""
        return self._access(at, True, size, address) + self.bus.bridge_ps

    def store(self, at: int, size: int, address: int = 0) -> int:
        """A posted store: when it is at the device. The processor goes on if the bridge has room,
        which ``posts_at`` says."""
        end = self._access(at, False, size, address)
        self._hold(end)
        return end

    def _access(self, at: int, is_read: bool, size: int, address: int) -> int:
        """The end of a transaction that moves data, after those to which the device says Retry."""
        timing, wait = self.bus.timing, self.wait
        asks = at + self.bus.bridge_ps
        if timing.is_delayed(is_read, self.decoding, wait):
            one = self._try(at, asks, is_read, address, PciEnd.RETRY)
            ready, wait, asks = one.start + wait * timing.clock_ps, 0, self._after_retry(one)
            while asks < ready:
                asks = self._after_retry(self._try(at, asks, is_read, address, PciEnd.RETRY))
        first = timing.first_phase(is_read, self.decoding, wait)
        return self._reserve(at, asks, is_read, address, size, first, PciEnd.COMPLETED).end

    def load_unanswered(self, at: int, size: int, address: int, fault: DeviceFault) -> int:
        """A load that the device does not answer: when the bridge gives up."""
        return self._give_up(at, True, address, fault) + self.bus.bridge_ps

    def store_unanswered(self, at: int, size: int, address: int, fault: DeviceFault) -> None:
        """A posted store that nobody takes: the bridge drops it."""
        self._hold(self._give_up(at, False, address, fault))

    def give_up_text(self, fault: DeviceFault) -> str:
        """How the bridge gives up a load."""
        if fault is DeviceFault.GONE:
            return "master abort: no DEVSEL#"
        return f"the device answered {self.bus.retry_limit} times with Retry"

    def _give_up(self, at: int, is_read: bool, address: int, fault: DeviceFault) -> int:
        asks = at + self.bus.bridge_ps
        if fault is DeviceFault.GONE:
            return self._try(at, asks, is_read, address, PciEnd.ABORT).end
        for _ in range(self.bus.retry_limit):
            one = self._try(at, asks, is_read, address, PciEnd.RETRY)
            asks = self._after_retry(one)
        return one.end

    def _after_retry(self, one: PciTransaction) -> int:
        """When the bridge tries again: others have time for a burst of theirs, or at least for the
        first data phase of one."""
        timing = self.bus.timing
        return one.end + (max(timing.latency_timer, INITIAL_LIMIT) + 3) * timing.clock_ps

    def _hold(self, until: int) -> None:
        """The bridge's buffer has a store up to a time."""
        held = self.bus.held
        held.append(until)
        while len(held) > self.bus.posted_stores:
            held.popleft()

    def _try(
        self, at: int, asks: int, is_read: bool, address: int, ending: PciEnd
    ) -> PciTransaction:
        """A transaction that moves nothing."""
        timing = self.bus.timing
        first = timing.abort() if ending is PciEnd.ABORT else timing.retry(self.decoding)
        return self._reserve(at, asks, is_read, address, 0, first, ending)

    def _reserve(
        self, at: int, asks: int, is_read: bool, address: int, size: int, first: int,
        ending: PciEnd,
    ) -> PciTransaction:  # fmt: skip
        """A transaction for which the bridge asks at a time; the one with its times."""
        phases = self.bus.timing.phases(address, size) if size else 0
        end = asks + (first + phases) * self.bus.timing.clock_ps
        one = PciTransaction(
            self.bus.host, self.who, is_read, is_read, address, size, asks, asks, first, phases,
            end, ending, self.bus.cause,
        )  # fmt: skip
        self.bus.arbiter.reserve(one, at)
        return one

    # ---- DMA ----

    def drop(self, at: int) -> None:
        """Ends the device's DMA: what has crossed the bus is in memory, and nothing follows."""
        for transfer in self.bus.arbiter.drop(self.master, at):
            if transfer.dropped is not None:
                transfer.dropped(transfer.size - transfer.left)

    def carry_to_memory(
        self, at: int, size: int, address: int, schedule: Schedule, landed: Callable[[], None],
        dropped: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """DMA from the device: ``landed`` is called when the bridge has passed the bytes on."""
        bridge = self.bus.bridge_ps
        self._carry(
            at, False, size, address, schedule, lambda now: schedule(now + bridge, landed), dropped
        )

    def carry_to_device(
        self, at: int, size: int, address: int, schedule: Schedule, landed: Callable[[], None]
    ) -> None:
        """DMA to the device: ``landed`` is called when the device has the bytes, or its transfer
        was dropped."""
        self._carry(
            at, True, size, address, schedule, lambda now: landed(), lambda arrived: landed()
        )

    def refuse_read(
        self, at: int, size: int, address: int, schedule: Schedule, refused: Callable[[], None]
    ) -> None:
        """DMA to the device from where no memory is: nobody claims it, and the device aborts."""
        self._carry(
            at, True, size, address, schedule, lambda now: refused(), lambda arrived: refused()
        )

    def _carry(
        self, at: int, is_read: bool, size: int, address: int, schedule: Schedule,
        done: Callable[[int], object], dropped: Callable[[int], None] | None,
    ) -> None:  # fmt: skip
        assert self.device is not None
        computer = self.device.computer
        assert computer is not None
        clock, cause = computer.clock, computer.clock.cause

        def landed() -> None:
            clock.cause = cause  # the store that led to the DMA, for a timeline
            done(computer.now)

        if size == 0:
            schedule(at, landed)
        else:
            transfer = PciTransfer(is_read, address, size, landed, cause, dropped=dropped)
            self.bus.arbiter.ask(self.master, transfer, at)

    # ---- interrupts ----

    def pull(self, vector: int, core: int) -> None:
        """The device has something to report: it pulls its wire, and holds it if it can say when
        its cause is gone."""
        device = self.device
        assert device is not None
        computer = device.computer
        assert computer is not None
        self.wire.pull(id(device), lambda: computer.interrupt_from(device, vector, core))
        if not device.holds_line:
            self.let_go()

    def let_go(self) -> None:
        """The driver knows of all that the device had to report."""
        self.wire.let_go(id(self.device))
