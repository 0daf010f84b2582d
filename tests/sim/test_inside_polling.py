# SPDX-License-Identifier: Apache-2.0
"""A program that polls on a host with an inside finds a completion when it is in memory, as a flow
does; and no event is lost by that, whenever the program looks at its channel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import finish
from tests.sim.inside_pair import FREE, pair
from tests.sim.polled_programs import (
    change_meanwhile,
    look_early,
    send_many,
    serve,
    take_many,
    use,
)
from tests.sim.test_processes import far, left
from verbena import sim

PORT = 7471
NS = 1000  # ps
INSIDE: dict[str, Any] = {"cpu": FREE, "hca": {"inline": 64}}


def exchange(nbytes: int, operation: str, found_by: str = "nothing", **inside: Any) -> list[int]:
    """ps from the post until the requester has its completion, and until the target found it."""
    result = sim.run(
        {
            "h0": lambda: serve(PORT, nbytes, found_by),
            "h1": lambda: use("h0", PORT, nbytes, operation),
        },
        pair(**inside),
    )
    begin, done = result.returned["h1"]
    return [done - begin, result.returned["h0"] - begin]


SIZES = [64, 4096, 100_000]


@pytest.mark.parametrize("operation", ["write", "send", "read"])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_polled_completion_comes_when_a_flows_does(operation: str, nbytes: int) -> None:
    world = pair(**INSIDE)
    world.add_flows(1, 0, nbytes, operation=operation)
    finish(world)
    flow = world.flows()[0]
    took = exchange(nbytes, operation, **INSIDE)[0]
    assert 0 <= took - (flow["finish"] - flow["start"]) <= NS


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_polled_message_comes_when_a_flows_does(nbytes: int) -> None:
    """A flow that follows another one begins when the target has taken its last completion."""
    world = pair(**INSIDE)
    world.add_flows([1, 0], [0, 1], nbytes, operation="send", after=[[0, 1]])
    finish(world)
    first, second = world.flows()
    took = exchange(nbytes, "send", "completion", **INSIDE)[1]
    assert 0 <= took - (second["start"] - first["start"]) <= NS


@pytest.mark.parametrize("found_by", ["memory", "memory in short waits"])
@pytest.mark.parametrize("nbytes", SIZES)
def test_data_that_a_program_waits_for_come_just_before_their_completion(
    nbytes: int, found_by: str
) -> None:
    seen = exchange(nbytes, "write", found_by, **INSIDE)[1]
    completed = exchange(nbytes, "write_imm", "completion", **INSIDE)[1]
    assert 0 <= completed - seen <= 5 * NS


@pytest.mark.parametrize("found_by", ["call", "event"])
def test_a_call_that_waits_returns_when_the_completion_is_in_memory(found_by: str) -> None:
    polled = exchange(4096, "send", "completion", **INSIDE)[1]
    assert -NS < exchange(4096, "send", found_by, **INSIDE)[1] - polled <= 5 * NS


def test_on_the_fastest_link_an_interrupt_finds_its_completion() -> None:
    """The interrupt's message takes less than the nanosecond to which a completion is kept."""
    fast = {**INSIDE, "pcie": {"generation": 5, "lanes": 16}}
    result = sim.run(
        {
            "h0": lambda: look_early(PORT, "drain arm poll", False, 100 * NS),
            "h1": lambda: use("h0", PORT, 64, "send", 1e-7),
        },
        pair(**fast),
    )
    woken = result.returned["h0"] - result.returned["h1"][0]
    polled = exchange(64, "send", "completion", **fast)[1]
    assert 0 <= woken - polled <= 2 * NS


@pytest.mark.parametrize("operation", ["write_imm", "send"])
def test_processes_of_their_own_find_the_same_at_the_same_time(operation: str) -> None:
    arguments = ("h0", PORT, 4096, operation)
    together = sim.run(
        {"h0": lambda: serve(PORT, 4096, "completion"), "h1": lambda: use(*arguments)},
        pair(**INSIDE),
    )
    apart = sim.run_processes(
        {"h0": far("serve", PORT, 4096, "completion"), "h1": far("use", *arguments)},
        pair(**INSIDE),
    )
    assert left(apart) == left(together)


def woken_after(polls: int) -> tuple[list[int], list[dict[str, int]]]:
    """ps from the last post to both wake-ups, and the cycles of both hosts."""
    world = pair(interrupts={})
    result = sim.run(
        {"h0": lambda: take_many(PORT, polls), "h1": lambda: send_many("h0", PORT, polls)}, world
    )
    begin, done = result.returned["h1"]
    cycles = [inside.counters().cycles for inside in world.insides.values()]
    return [done - begin, result.returned["h0"] - begin], cycles


def test_what_a_program_has_polled_for_is_not_paid_for_when_it_is_woken() -> None:
    alone, paid = woken_after(0)
    after, cycles = woken_after(300)
    assert after == pytest.approx(alone, abs=NS)
    for cost in ("poll", "interrupt", "wakeup"):
        assert [each[cost] for each in cycles] == [each[cost] for each in paid]


ORDERS = ("drain poll arm", "drain arm poll", "poll drain arm", "poll arm", "arm poll")


@pytest.mark.parametrize("solicited", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_no_event_is_lost_whenever_a_program_looks(order: str, solicited: bool) -> None:
    """The message is on its way to memory from 1.51 to 1.96 us after the post.

    A program that never takes its events keeps the channel readable, and the loop busy."""
    in_memory, woken = 1_964 * NS, 1_968 * NS
    for lag in range(1_400 * NS, 2_100 * NS, (10 if "drain" in order else 90) * NS):
        result = sim.run(
            {
                "h0": lambda lag=lag: look_early(PORT, order, solicited, lag),
                "h1": lambda: use("h0", PORT, 64, "send", 1e-7),
            },
            pair(**INSIDE),
        )
        took = result.returned["h0"] - result.returned["h1"][0]
        assert took == pytest.approx(woken if lag < in_memory else lag, abs=NS)


@pytest.mark.parametrize("change", ["resize", "destroy"])
def test_what_is_on_its_way_goes_with_its_queue(change: str) -> None:
    """A larger CQ has it when it would have come; a destroyed QP takes it along."""
    result = sim.run(
        {
            "h0": lambda: change_meanwhile(PORT, 1_700 * NS, change),
            "h1": lambda: use("h0", PORT, 64, "send", 1e-7),
        },
        pair(**INSIDE),
    )
    took = result.returned["h0"] - result.returned["h1"][0]
    assert change == "destroy" or took == pytest.approx(1_964 * NS, abs=NS)
