# SPDX-License-Identifier: Apache-2.0
"""The arbiter of a PCI bus: who has the bus when, and for how long.

``PciBus`` owns it. At any time at most one transaction is on the bus. Masters that wait are granted
the bus in the order in which they asked, one transaction each; whoever has more to move asks again
behind them, which is round robin while all of them have something to move.

A transaction of the processor gets its clocks when it is asked for, behind one transaction of each
master that waits then (``reserve``): the core knows at once how long it waits. What devices ask for
later uses the gaps. Transactions of devices begin and end with time (``advance``).

States of the bus, and what leads to the next one:

    idle       a master waits, and fits in before what is reserved   -> a device's transaction
    idle       the time of a reserved transaction has come           -> a reserved transaction
    either     its last data phase, the latency timer while another
               waits, Disconnect, Retry, or no DEVSEL#               -> idle, after a turnaround
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from verbena.host.clock import Cause, Event
from verbena.host.pci_timing import AFTER_RETRY, GRANT, PARKED, TURNAROUND, PciTiming


class PciEnd(StrEnum):
    """Why a transaction ended (3.3.3)."""

    COMPLETED = "completed"
    TIMER = "latency timer"
    DISCONNECT = "disconnect"
    RETRY = "retry"
    ABORT = "master abort"
    DROPPED = "its device has failed or was unmapped"


@dataclass
class PciTransfer:
    """What a device moves to or from memory, in one or more transactions."""

    is_read: bool
    address: int
    left: int  # bytes
    landed: Callable[[], None]
    cause: Cause | None  # the store that led to it, for a timeline
    ready_at: int | None = None  # when a delayed read has its data, since the first Retry
    # Called in place of ``landed`` with the bytes that had crossed the bus, if it is dropped.
    dropped: Callable[[int], None] | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.left


@dataclass
class PciMaster:
    """Who may ask for the bus, and what it has moved; times in ps.

    ``wait`` is the time from asking (REQ#) to the address phase (FRAME#), ``busy`` that of its
    transactions with their turnaround; ``cuts`` are bursts that the latency timer ended.
    """

    name: str
    transfers: deque[PciTransfer] = field(default_factory=deque)
    asked_at: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    transactions: int = 0  # which moved data
    busy: int = 0
    wait: int = 0
    retries: int = 0
    cuts: int = 0
    disconnects: int = 0
    aborts: int = 0


@dataclass
class PciTransaction:
    """A transaction on the bus, from its address phase at ``start`` to its last clock at ``end``.

    Times are in ps, ``first`` counts the clocks before the first data phase, and ``phases`` the
    data phases: 0 for Retry and master abort. ``size`` are the bytes that it moves. ``up``: towards
    memory and processor.
    """

    master: PciMaster
    target: str
    is_read: bool
    up: bool
    address: int
    size: int
    asked_at: int
    start: int
    first: int
    phases: int
    end: int
    ending: PciEnd
    cause: Cause | None = None
    transfer: PciTransfer | None = None

    @property
    def command(self) -> str:
        """The bus command, as the specification calls it (3.1.1)."""
        return "Memory Read" if self.is_read else "Memory Write"


class PciArbiter:
    """``schedule`` calls at a time in ps, ``claims`` says whether memory has an address and size.

    ``finished`` is called with each transaction when it is over: on time if ``watched`` says so,
    and otherwise one of the processor perhaps when the bus is used next.
    """

    def __init__(
        self,
        timing: PciTiming,
        schedule: Callable[[int, Callable[[], None]], Event],
        claims: Callable[[int, int], bool],
        finished: Callable[[PciTransaction], None],
        watched: Callable[[], bool],
    ) -> None:
        self.timing = timing
        self._schedule, self._claims = schedule, claims
        self._finished, self._watched = finished, watched
        self._now: PciTransaction | None = None  # on the bus
        self._free_at = 0  # when the last one's turnaround is over
        self._waiting: deque[PciMaster] = deque()
        self._reserved: deque[PciTransaction] = deque()
        self._busy_masters: list[PciMaster] = []  # with transfers
        self._tick: tuple[int, Event] | None = None
        self.busy = self.idle = 0  # ps, up to the end of the last transaction

    @property
    def accounted(self) -> int:
        """Up to when ``busy`` and ``idle`` count, in ps: the end of the last transaction."""
        return self._free_at

    # ---- what is asked for ----

    def ask(self, master: PciMaster, transfer: PciTransfer, at: int) -> None:
        """A device's transfer, which waits behind those that the device asked for before."""
        self.advance(at)
        master.transfers.append(transfer)
        if len(master.transfers) == 1:
            master.asked_at = at
            self._busy_masters.append(master)
            self._waiting.append(master)
            self._cut(at)
        self._arm()

    def drop(self, master: PciMaster, at: int) -> list[PciTransfer]:
        """A device drives nothing from now on: its transfers, which are under way no more. A burst
        ends with the data phase that is under way."""
        self.advance(at)
        transfers = list(master.transfers)
        if not transfers:
            return []
        one = self._now
        if one is not None and one.transfer is transfers[0]:
            clocks = -(-(at - one.start) // self.timing.clock_ps)
            phases = max(0, clocks - one.first)
            if phases < one.phases:
                one.phases, one.ending = phases, PciEnd.DROPPED
                one.size = self.timing.bytes_of(one.address, phases) if phases else 0
                one.end = one.start + (one.first + phases) * self.timing.clock_ps
            one.transfer = None
            transfers[0].left -= one.size
        master.transfers.clear()
        self._busy_masters.remove(master)
        if master in self._waiting:
            self._waiting.remove(master)
        self._arm()
        return transfers

    def reserve(self, made: PciTransaction, at: int) -> None:
        """Finds the time of a transaction of the processor. Its ``asked_at`` is when the bridge
        asks for the bus, after ``at``; ``start`` and ``end`` become those that it has."""
        self.advance(at)
        length, clock = made.end - made.start, self.timing.clock_ps
        start = self.timing.edge(made.asked_at) + PARKED * clock
        if self._reserved:
            start = max(start, self._over(self._reserved[-1]))
            ahead = self._busy_masters
        else:
            self._cut(made.asked_at)
            start = max(start, self._free_at if self._now is None else self._over(self._now))
            ahead = list(self._waiting)
        made.start = start + sum(self._contended(one) for one in ahead) * clock
        made.end = made.start + length
        self._reserved.append(made)
        self._arm()

    # ---- time ----

    def advance(self, to: int) -> None:
        """Begins and ends the transactions up to a time."""
        while True:
            one = self._now
            if one is not None:
                if one.end > to:
                    return
                self._finish(one)
            elif not self._begin(to):
                return

    def _run(self) -> None:
        at, self._tick = self._tick[0] if self._tick else 0, None
        self.advance(at)
        self._arm()

    def _arm(self) -> None:
        """Sets the event for the next end, or beginning, of a device's transaction."""
        due = None
        if self._now is not None:
            if self._now.transfer is not None or self._waiting or self._watched():
                due = self._now.end
        elif self._waiting or (self._reserved and self._watched()):
            following = self._next()
            due = None if following is None else following.start
        if self._tick is not None:
            if self._tick[0] == due:
                return
            self._tick[1].cancel()
            self._tick = None
        if due is not None:
            self._tick = due, self._schedule(due, self._run)

    def _over(self, one: PciTransaction) -> int:
        return one.end + TURNAROUND * self.timing.clock_ps

    def _start_of(self, master: PciMaster) -> int:
        """When a master that waits could begin."""
        granted = self.timing.edge(master.asked_at) + GRANT * self.timing.clock_ps
        return max(self._free_at, granted)

    def _next(self) -> PciTransaction | None:
        """The transaction that comes when the bus is idle; its ``start`` says when."""
        reserved = self._reserved[0] if self._reserved else None
        if self._waiting:
            master = min(self._waiting, key=self._start_of)  # of equals the first
            limit = None if reserved is None else reserved.start
            made = self._transaction(master, self._start_of(master), limit)
            if made is not None:
                return made
        return reserved

    def _begin(self, to: int) -> bool:
        """Puts the next transaction on the bus, if one begins by ``to``, or in the clock behind the
        last one's turnaround: it is decided by then who has the bus next."""
        one = self._next()
        if one is None or one.start > max(to, self._free_at):
            return False
        if one.transfer is None:
            self._reserved.popleft()
        else:
            self._waiting.remove(one.master)
        self._put(one)
        return True

    def _put(self, one: PciTransaction) -> None:
        self.idle += one.start - self._free_at
        self._now = one
        transfer = one.transfer
        if transfer is not None and one.ending is PciEnd.RETRY and transfer.ready_at is None:
            wait = self.timing.memory_read_wait
            transfer.ready_at = one.start + wait * self.timing.clock_ps

    def _finish(self, one: PciTransaction) -> None:
        self._now, self._free_at = None, self._over(one)
        self.busy += self._free_at - one.start
        one.master.busy += self._free_at - one.start
        self._count(one)
        if one.transfer is not None:
            self._go_on(one.master, one.transfer, one)
        self._finished(one)

    def _count(self, one: PciTransaction) -> None:
        master = one.master
        if one.is_read:
            master.read_bytes += one.size
        else:
            master.written_bytes += one.size
        master.transactions += one.phases > 0
        master.wait += one.start - one.asked_at
        master.retries += one.ending is PciEnd.RETRY
        master.cuts += one.ending is PciEnd.TIMER
        master.disconnects += one.ending is PciEnd.DISCONNECT
        master.aborts += one.ending is PciEnd.ABORT

    def _go_on(self, master: PciMaster, transfer: PciTransfer, one: PciTransaction) -> None:
        """Ends a device's transfer, or lets the device ask again for what is left."""
        transfer.address += one.size
        transfer.left -= one.size
        master.asked_at = one.end
        if one.ending is PciEnd.RETRY:
            master.asked_at = self._free_at + AFTER_RETRY * self.timing.clock_ps
        elif one.ending is not PciEnd.COMPLETED:
            transfer.ready_at = None
        if transfer.left == 0 or one.ending is PciEnd.ABORT:
            master.transfers.popleft()
            self._schedule(one.end, transfer.landed)
        if master.transfers:
            self._waiting.append(master)
        else:
            self._busy_masters.remove(master)

    # ---- how long ----

    def _first(self, transfer: PciTransfer, start: int) -> int | None:
        """Clocks before the first data phase of memory; None: memory says Retry."""
        timing, is_read = self.timing, transfer.is_read
        wait = timing.memory_read_wait if is_read else timing.memory_write_wait
        if timing.is_delayed(is_read, "medium", wait):
            if transfer.ready_at is None or start < transfer.ready_at:
                return None
            wait = 0
        return timing.first_phase(is_read, "medium", wait)

    def _transaction(
        self, master: PciMaster, start: int, limit: int | None
    ) -> PciTransaction | None:
        """The next transaction of a master, from ``start`` on; None: it does not fit in before
        ``limit``, at which a reserved one begins."""
        timing, transfer = self.timing, master.transfers[0]
        first, phases, ending, size = self._first(transfer, start), 0, PciEnd.RETRY, 0
        if not self._claims(transfer.address, transfer.left):
            first, ending = timing.abort(), PciEnd.ABORT
        elif first is None:
            first = timing.retry("medium")
        else:
            size = timing.to_boundary(transfer.address, transfer.left)
            phases = timing.phases(transfer.address, size)
            ending = PciEnd.COMPLETED if size == transfer.left else PciEnd.DISCONNECT
        most = phases
        if phases and (limit is not None or len(self._waiting) > 1):
            most = min(phases, timing.room(first))
        if limit is not None:
            room = (limit - start) // timing.clock_ps - TURNAROUND - first
            if room < min(1, phases):
                return None
            most = min(most, room)
        if most < phases:
            phases, ending = most, PciEnd.TIMER
            size = timing.bytes_of(transfer.address, phases)
        end = start + (first + phases) * timing.clock_ps
        return PciTransaction(
            master, "memory", transfer.is_read, not transfer.is_read, transfer.address, size,
            master.asked_at, start, first, phases, end, ending, transfer.cause, transfer,
        )  # fmt: skip

    def _contended(self, master: PciMaster) -> int:
        """Clocks of the next transaction of a master that others wait for, with turnaround."""
        timing, transfer = self.timing, master.transfers[0]
        wait = timing.memory_read_wait if transfer.is_read else timing.memory_write_wait
        if timing.is_delayed(transfer.is_read, "medium", wait):
            wait = 0
        first = timing.first_phase(transfer.is_read, "medium", wait)
        size = timing.to_boundary(transfer.address, transfer.left)
        phases = min(timing.phases(transfer.address, size), timing.room(first))
        return first + phases + TURNAROUND

    def _cut(self, at: int) -> None:
        """Another master asks: GNT# goes away, and the latency timer ends the burst, or has."""
        one, timing = self._now, self.timing
        if one is None or one.transfer is None or one.phases == 0:
            return
        gone = -(-(at - one.start) // timing.clock_ps) + 1  # clocks until the master sees it
        phases = max(1, max(timing.latency_timer, gone) - one.first)
        if phases < one.phases:
            one.phases, one.ending = phases, PciEnd.TIMER
            one.size = timing.bytes_of(one.address, phases)
            one.end = one.start + (one.first + phases) * timing.clock_ps
