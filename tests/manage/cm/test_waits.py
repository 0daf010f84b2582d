# SPDX-License-Identifier: Apache-2.0
"""Waits of machines end when they are due, in the order of their ends and then of their beginnings,
however often a machine begins another wait or ends one early. A list of all waits says the same."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from verbena.manage.cm import CmDevice, InfinibandCm
from verbena.manage.cm.machine import CmMachine

MACHINES = 4
steps = st.lists(
    st.tuples(
        st.sampled_from(["wait", "wait", "stop", "pass", "look"]),
        st.integers(0, MACHINES - 1),
        st.integers(0, 6),
    ),
    max_size=60,
)


class Waiting(CmMachine):
    """A machine that only waits. ``over`` gets its number when its wait is over."""

    def __init__(self, keeper: InfinibandCm, number: int, over: list[int]) -> None:
        super().__init__(keeper, number)
        self.over = over

    def expire(self) -> None:
        self.deadline = None
        self.over.append(self.local_id)


def new_manager() -> InfinibandCm:
    return InfinibandCm(CmDevice(1, ()), random.Random(1).getrandbits)


@given(steps)
def test_waits_end_in_order(actions: list[tuple[str, int, int]]) -> None:
    cm, over = new_manager(), list[int]()
    machines = [Waiting(cm, number, over) for number in range(MACHINES)]
    waits: dict[int, tuple[float, int]] = {}  # until when, and as which of all waits it began
    now = 0.0
    for count, (what, number, time) in enumerate(actions):
        if what == "wait":
            machines[number].arm(now + time)
            waits[number] = now + time, count
        elif what == "stop":
            machines[number].deadline = None
            waits.pop(number, None)
        elif what == "look":
            assert cm.next_deadline() == min((end for end, _ in waits.values()), default=None)
        else:
            now += time
            cm.tick(now)
            due = sorted((wait, each) for each, wait in waits.items() if wait[0] <= now)
            assert over == [each for _, each in due]
            over.clear()
            for _, each in due:
                del waits[each]


def test_a_wait_that_begins_anew_with_the_same_end_is_behind_the_others() -> None:
    cm, over = new_manager(), list[int]()
    first, second = (Waiting(cm, number, over) for number in (1, 2))
    for machine in (first, second, first):
        machine.arm(1.0)
    cm.tick(1.0)
    assert over == [2, 1]


def test_a_wait_that_is_put_off_takes_no_place_of_its_own() -> None:
    cm, over = new_manager(), list[int]()
    machine = Waiting(cm, 7, over)
    for count in range(1000):
        machine.arm(1.0 + count / 1000)
    assert len(cm._deadlines) == 1
    assert cm.next_deadline() == 1.999
    cm.tick(1.998)
    assert over == []
    cm.tick(1.999)
    assert over == [7]
    assert cm.next_deadline() is None
