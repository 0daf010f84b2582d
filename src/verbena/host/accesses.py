# SPDX-License-Identifier: Apache-2.0
"""A core's loads from devices, and its stores to them: over the device's bus, or at once.

``Computer`` has one of these, and gives the processor the functions of ``window`` for each device's
range. A load waits for its value and does not pass stores that are on their way; a store is posted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, cast

from verbena.host.clock import Cause
from verbena.host.combining import LINE, WHILE_PS, CombiningLine
from verbena.host.computer_records import Transaction
from verbena.host.device_bus import DeviceBus, DeviceFault
from verbena.host.devices import Device, read_from, write_to
from verbena.host.errors import HostError, UnansweredError
from verbena.host.posted import PostedStore

if TYPE_CHECKING:
    from verbena.host.computer import Computer

_Load = Callable[[int, int], int]  # of offset and size; the value
_Store = Callable[[int, int, int], None]  # offset, size, value


def _number_of(device: Device, offset: int, size: int, value: object) -> int:
    """What a device has answered, also as a NumPy integer; HostError if it is no number."""
    try:
        value = index(cast(SupportsIndex, value))
    except TypeError:
        raise HostError(
            f"{device!r} answered a load of {size} bytes at offset {offset} with {value!r}: its "
            "read() returns a number"
        ) from None
    if not -1 << 8 * size - 1 <= value < 1 << 8 * size:
        raise HostError(
            f"{device!r} answered a load of {size} bytes at offset {offset} with {value:#x}, which "
            f"has more than {size} bytes: its read() returns the bytes that are asked for, as "
            "value & (1 << 8 * size) - 1"
        )
    return value


def _following(before: Cause | None) -> Cause:
    """The store of a program in Python, because of the one ``before`` if there is one."""
    return Cause() if before is None else Cause(before.computer, before.core, before.address)


class Accesses:
    """The accesses of one computer's cores."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._agenda = computer.clock
        self._line = CombiningLine()
        self._combining: tuple[Device, int] | None = None  # whose line it is, and its base
        self._combined_by: Cause | None = None  # the last store to the line

    def window(self, device: Device, base: int) -> tuple[_Load, _Store]:
        """What the core's loads from a device, and stores to it, call.

        An access that has no bus, no observer and no line of combined stores to wait for goes to
        the device at once: 2 million a second in place of half a million.
        """
        combines = type(device).combines is not Device.combines
        computer, agenda = self._computer, self._agenda
        counters, observers, make_cause = computer.counters, computer.observers, self._cause

        def load(offset: int, size: int) -> int:
            if device.bus is not None or observers or self._combining is not None:
                return self._load(device, base, offset, size)
            value = read_from(device, offset, size)
            counters.loads += 1
            if type(value) is int and not value >> 8 * size:
                return value
            return _number_of(device, offset, size, value)

        def store(offset: int, size: int, value: int) -> None:
            if combines or device.bus is not None or observers or self._combining is not None:
                self.store(device, base, offset, size, value, self._cause())
                return
            counters.stores += 1
            agenda.storing = make_cause
            try:
                write_to(device, offset, size, value)
            finally:
                agenda.storing = None
            computer.stop_for(agenda.next_at)

        return load, store

    # ---- loads ----

    def _load(self, device: Device, base: int, offset: int, size: int) -> int:
        if self._combining is not None:
            self._close_line()
        computer, bus = self._computer, device.bus
        start = computer.now
        if bus is not None and device.bus_fault is not None:
            value = self._load_unanswered(device, bus, device.bus_fault, start, base + offset, size)
        else:
            if bus is not None:
                until = bus.load(start, size, base + offset)
                if bus.posted:
                    self._deliver_posted(bus)
                computer.hold_core(until)
            value = read_from(device, offset, size)
            if type(value) is not int or value >> 8 * size:
                value = _number_of(device, offset, size, value)
        computer.stop_for(self._agenda.next_at)
        computer.counters.loads += 1
        for observe in computer.observers:
            observe(Transaction(start, base + offset, size, value, False, device))
        return value

    def _deliver_posted(self, bus: DeviceBus) -> None:
        """What the core has stored is at the device before its load is; each at its time."""
        while bus.posted:
            one = bus.posted.popleft()
            one.event.cancel()
            self._computer.hold_core(one.at)
            with self._because_of(one.event.cause):
                one.deliver()

    @contextmanager
    def _because_of(self, cause: Cause | None) -> Iterator[None]:
        """What is done now is done because of a store, which errors name."""
        before, self._agenda.cause = self._agenda.cause, cause
        try:
            yield
        except HostError as error:
            if cause is not None:
                cause.name_in(error)
            raise
        finally:
            self._agenda.cause = before

    def _load_unanswered(
        self, device: Device, bus: DeviceBus, fault: DeviceFault, start: int, address: int,
        size: int,
    ) -> int:  # fmt: skip
        """A load that nobody answers: all ones after a while, or the end of the core."""
        self._computer.hold_core(bus.load_unanswered(start, size, address, fault))
        if bus.unanswered_stops:
            self._computer.shut_down_core()
            raise UnansweredError(
                f"no answer to a load of {size} bytes at {address:#x}, since {device!r} "
                f"{fault.value} ({bus.give_up_text(fault)})",
                address,
            )
        return (1 << 8 * size) - 1

    # ---- stores ----

    def _cause(self) -> Cause:
        """The store that the core which runs makes now."""
        core = self._computer.running_core
        return Cause(self._computer, core, core.state.rip)

    def store(
        self, device: Device, base: int, offset: int, size: int, value: int,
        cause: Cause | None = None,
    ) -> None:  # fmt: skip
        """A store to a device now, which may become part of a line of combined stores. ``cause`` is
        that of a core; None: a program in Python makes it."""
        if device.combines(offset):
            self._combine(device, base, offset, size, value, cause)
            return
        if self._combining is not None:
            self._close_line()
        self._send(device, base, offset, size, value, cause)

    def _send(
        self, device: Device, base: int, offset: int, size: int, value: int, cause: Cause | None
    ) -> None:
        """A store, or a line of combined stores, on its way to the device."""
        computer, bus = self._computer, device.bus
        start, before = computer.now, self._agenda.cause
        if bus is not None and bus.posts_at > start:
            computer.hold_core(bus.posts_at)
            start = bus.posts_at
        computer.counters.stores += 1
        # What Python stores because of a core's store, as a driver that is written in it, goes on.
        self._agenda.cause = cause or _following(self._agenda.current_cause())
        try:
            for observe in computer.observers:
                observe(Transaction(start, base + offset, size, value, True, device))
            if bus is None:
                write_to(device, offset, size, value)
            elif device.bus_fault is not None:
                bus.store_unanswered(start, size, base + offset, device.bus_fault)
            else:
                arrives = bus.store(start, size, base + offset)
                one = PostedStore(bus.posted, device, offset, size, value)
                one.event = self._agenda.add(arrives, one.arrive)
                one.at = arrives
                bus.posted.append(one)
        finally:
            self._agenda.cause = before
        computer.stop_for(self._agenda.next_at)

    # ---- combined stores ----

    def _combine(
        self, device: Device, base: int, offset: int, size: int, value: int, cause: Cause | None
    ) -> None:
        line, room = self._line, LINE - offset % LINE
        if size > room:  # a store across the end of a line is in two
            self._combine(device, base, offset, room, value & (1 << 8 * room) - 1, cause)
            self._combine(device, base, offset + room, size - room, value >> 8 * room, cause)
            return
        if self._combining != (device, base) or not line.fits(offset, size):
            self._close_line()
        self._combining = device, base
        self._combined_by = cause or _following(self._agenda.current_cause())
        if line.add(offset, size, value):
            self._close_line()
        elif line.written.bit_count() == size:  # the line was opened now
            number = line.opened
            computer = self._computer
            computer.at(computer.now + WHILE_PS, lambda: self._close_line(number))

    def _close_line(self, number: int | None = None) -> None:
        """Writes out the line of combined stores; only the one of that number, if given."""
        if self._combining is None or number not in (None, self._line.opened):
            return
        (device, base), self._combining = self._combining, None
        with self._because_of(self._combined_by):
            for offset, size, value in self._line.take():
                self._send(device, base, offset, size, value, self._combined_by)
