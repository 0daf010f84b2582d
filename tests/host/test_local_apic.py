# SPDX-License-Identifier: Apache-2.0
"""Priorities of a local APIC beside a plain model of them, and the count of a timer."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from verbena.host._cpu import CoreState, PhysicalMemory
from verbena.host.apic_timer import PERIODIC, ApicTimer, divisor
from verbena.host.clock import Agenda, Event
from verbena.host.local_apic import Acceptance, LocalApic


class Pins:
    """A core that takes the highest vector that is pending, when the test says so."""

    def __init__(self) -> None:
        self.pending: set[int] = set()

    def interrupt(self, vector: int) -> bool:
        is_new = vector not in self.pending
        self.pending.add(vector)
        return is_new

    def withdraw(self, vector: int) -> bool:
        was_pending = vector in self.pending
        self.pending.discard(vector)
        return was_pending

    def take(self) -> int | None:
        vector = max(self.pending, default=None)
        self.pending.discard(-1 if vector is None else vector)
        return vector


class Model:
    """Sets of vectors, and the rule of SDM volume 3, 11.8.3.1, word for word."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.handled: list[int] = []
        self.tpr = 0
        self.is_on = True

    def arrive(self, vector: int) -> Acceptance:
        if not self.is_on:
            return Acceptance.REFUSED
        if vector in self.waiting:
            return Acceptance.MERGED
        self.waiting.add(vector)
        return Acceptance.KEPT

    def take(self) -> int | None:
        class_ = max([self.tpr // 16, *(one // 16 for one in self.handled)])
        ready = [one for one in self.waiting if one // 16 > class_]
        if not ready:
            return None
        self.waiting.remove(max(ready))
        self.handled.append(max(ready))
        return max(ready)

    def end(self) -> None:
        if self.handled:
            self.handled.remove(max(self.handled))


VECTORS = st.one_of(st.integers(32, 255), st.sampled_from([0x31, 0x32, 0x41, 0x4F, 0x50]))
ACTIONS = st.one_of(
    st.tuples(st.just("raise"), VECTORS),
    st.tuples(st.just("take"), st.just(0)),
    st.tuples(st.just("end"), st.just(0)),
    st.tuples(st.just("tpr"), st.sampled_from([0, 0x0F, 0x2F, 0x30, 0x40, 0x45, 0xFF])),
    st.tuples(st.just("switch"), st.integers(0, 1)),
    st.tuples(st.just("look"), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=60))
def test_every_interrupt_is_seen_or_merged_and_the_order_is_that_of_the_model(
    actions: list[tuple[str, int]],
) -> None:
    pins, model = Pins(), Model()
    apic = LocalApic(pins)
    apic.spurious = 0x1FF
    outcomes = dict.fromkeys(Acceptance, 0)
    raised = taken = 0
    for name, value in actions:
        if name == "raise":
            raised += 1
            outcome = apic.accept(value)
            assert outcome is model.arrive(value)
            outcomes[outcome] += 1
        elif name == "take":
            vector = pins.take()
            assert vector == model.take()
            taken += vector is not None
        elif name == "end":
            apic.end()
            model.end()
        elif name == "tpr":
            apic.tpr = model.tpr = value
        elif name == "switch":
            model.is_on = bool(value)
            apic.spurious = 0xFF | value << 8
        else:
            assert apic.irr == sum(1 << one for one in model.waiting)
            assert apic.isr == sum(1 << one for one in model.handled)
    assert apic.taken == taken
    assert raised == (
        apic.taken
        + apic.irr.bit_count()
        + outcomes[Acceptance.MERGED]
        + outcomes[Acceptance.REFUSED]
    )


def test_the_priority_of_the_processor_is_the_higher_of_task_and_interrupt() -> None:
    pins = Pins()
    apic = LocalApic(pins)
    apic.spurious = 0x1FF
    apic.accept(0x52)
    pins.take()
    apic.tpr = 0x35
    assert apic.ppr == 0x50
    apic.tpr = 0x63
    assert apic.ppr == 0x63


def test_the_end_is_told_if_the_vector_was_level_triggered_when_it_came_last() -> None:
    pins = Pins()
    apic = LocalApic(pins)
    apic.spurious = 0x1FF
    for level in (True, False, True):
        apic.accept(0x52, level=level)
        pins.take()
        assert apic.tmr == level << 0x52
        assert apic.end() == (0x52 if level else None)
    assert apic.end() is None  # nothing is in service


def test_a_core_s_pending_interrupt_is_taken_back_while_it_is_not_taken() -> None:
    memory = PhysicalMemory()
    memory.add_ram(0, bytearray(4096))
    state = CoreState(memory)
    assert not state.withdraw(40)
    state.interrupt(40)
    state.flags = 0x202
    assert state.is_woken
    assert state.withdraw(40)
    assert not state.is_woken
    assert not state.withdraw(40)


# ---- the timer ----


class Clock:
    """An agenda, and the times at which a timer has expired."""

    def __init__(self, tick_ps: Fraction) -> None:
        self.agenda = Agenda()
        self.ends: list[int] = []
        self.timer = ApicTimer(tick_ps, lambda: self.agenda.now, self._at, self._end)

    def _at(self, time: int, call: Callable[[], None]) -> Event:
        return self.agenda.add(time, call)

    def _end(self) -> None:
        self.ends.append(self.agenda.now)


def test_the_divisors_are_those_of_the_manual() -> None:
    codes = {0: 2, 1: 4, 2: 8, 3: 16, 8: 32, 9: 64, 10: 128, 11: 1}
    assert {code: divisor(code) for code in codes} == codes


@given(st.integers(1, 1000), st.integers(1, 3000), st.sampled_from([0, 1, 11]))
def test_a_periodic_timer_does_not_drift(mhz: int, count: int, code: int) -> None:
    tick = Fraction(10**6, mhz)
    clock = Clock(tick)
    clock.timer.mode = PERIODIC
    clock.timer.divide(code)
    clock.timer.start(count)
    period = tick * divisor(code) * count
    clock.agenda.run_due(int(period * 20) + 1)
    assert clock.ends == [-int(-period * n // 1) for n in range(1, 21)]


def test_the_count_goes_down_with_time_and_stops_once() -> None:
    clock = Clock(Fraction(10_000))
    clock.timer.divide(0b1011)
    clock.timer.start(100)
    clock.agenda.run_due(250_000)
    assert clock.timer.current == 75
    clock.timer.divide(0b0000)  # by 2: 75 ticks more are 1.5 us
    assert clock.timer.current == 75
    clock.agenda.run_due(10**9)
    assert clock.ends == [1_750_000]
    assert clock.timer.current == 0
    clock.timer.start(5)
    clock.timer.start(0)
    clock.agenda.run_due(2 * 10**9)
    assert len(clock.ends) == 1
