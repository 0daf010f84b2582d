# SPDX-License-Identifier: Apache-2.0
"""Programs charge their own processor time: it takes a core, which has one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.far_programs import charging
from tests.sim.inside_pair import pair
from tests.sim.programs import echo, ping
from tests.sim.test_inside_programs import world
from tests.sim.test_processes import far, left
from verbena import sim
from verbena.internet import Internet
from verbena.sim._world import inside_of

PORT = 7471


def run(program: Callable[[], Coroutine[Any, Any, Any]], **inside: Any) -> tuple[Any, sim.World]:
    made = pair(**inside)
    return sim.run({"h0": program}, made).returned["h0"], made


def now() -> int:
    return round(asyncio.get_running_loop().time() * 1e12)


async def computed(name: str, **how: Any) -> int:
    """Charges, and returns the time of the end in ps."""
    await sim.charge(name, **how)
    return now()


def test_a_charge_takes_its_time_and_is_named() -> None:
    async def program() -> list[int]:
        return [await computed("parse", us=3), await computed("hash", cycles=700)]

    ends, made = run(program, cpu={"ghz": 2.0}, slices=100)
    assert ends == [3_000_000, 3_350_000]
    inside = inside_of(made, 0)
    assert inside is not None
    seen = inside.counters()
    assert (seen.cycles["parse"], seen.cycles["hash"]) == (6000, 700)
    assert seen.busy == 3_350_000 == seen.elapsed
    assert inside.costs[-2:] == ("parse", "hash")
    slices = inside.slices()
    assert [inside.costs[what] for what in slices["what"]] == ["parse", "hash"]
    assert slices["end"].tolist() == ends
    lines = inside.printed_costs().splitlines()
    assert " ".join(lines[-2].split()) == "parse 6000 cycles of a program, charged 1 times"
    other = inside_of(made, 1)
    assert other is not None
    assert other.counters().busy == 0
    assert "parse" not in other.counters().cycles


def test_tasks_of_a_core_take_turns_and_cores_work_at_once() -> None:
    async def program() -> list[int]:
        work = [computed(f"task {core}", us=5, core=core) for core in (0, 0, 1, 1, 1)]
        return await asyncio.gather(*work)

    ends, _ = run(program, cpu={"cores": 2})
    assert ends == [5_000_000, 10_000_000, 5_000_000, 10_000_000, 15_000_000]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_a_core_is_a_queue(work: list[tuple[int, int]]) -> None:
    """Each charge ends when the work before it and its own are done (Lindley's recursion)."""

    async def one(after: int, us: int) -> int:
        await asyncio.sleep(after * 1e-6)
        return await computed("work", us=us)

    async def program() -> list[int]:
        return await asyncio.gather(*(one(*each) for each in work))

    ends, made = run(program)
    free, wanted = 0, [0] * len(work)
    for place, (after, us) in sorted(enumerate(work), key=lambda each: (each[1][0], each[0])):
        free = max(free, after * 1_000_000) + us * 1_000_000
        wanted[place] = free
    assert ends == pytest.approx(wanted, abs=2)
    inside = inside_of(made, 0)
    assert inside is not None
    assert inside.counters().busy == sum(us for _, us in work) * 1_000_000


def test_requests_and_interrupts_wait_for_what_a_program_computes() -> None:
    """A server that computes on its core while messages come answers them later."""
    took = []
    for busy in (0.0, 100.0):
        made, hosts = world({"cpu": {"cores": 2}})

        async def server(us: float = busy) -> Any:
            task = asyncio.ensure_future(sim.charge("other work", us=us))
            returned = await echo(PORT, 4, 64)
            await task
            return returned

        result = sim.run({"h0": server, "h1": ping("h0", PORT, 4, 64)}, made)
        took.append(result.finished["h1"])
        assert hosts[0].counters().cycles["other work"] == busy * 3000
    assert 50e-6 < took[1] - took[0] < 101e-6


def test_a_host_without_an_inside_computes_in_no_time() -> None:
    async def program() -> int:
        return await computed("parse", us=3)

    made, _ = world(None)
    assert sim.run({"h2": program}, made).returned["h2"] == 0
    net = Internet()
    net.link(net.host("a"), net.host("b"))
    assert sim.run({"a": program}, net).returned["a"] == 0
    assert inside_of(made, 2) is None


def test_processes_of_their_own_charge_the_same() -> None:
    one, here = world({})
    together = sim.run({"h0": charging("serve", "", 5), "h1": charging("ask", "h0", 3)}, one)
    other, there = world({})
    apart = sim.run_processes(
        {"h0": far("charging", "serve", "", 5), "h1": far("charging", "ask", "h0", 3)}, other
    )
    assert left(apart) == left(together)
    assert [host.counters() for host in there] == [host.counters() for host in here]
    assert there[0].counters().cycles["serve"] == 10 * 3000 + 3000


@pytest.mark.parametrize(
    ("name", "how", "error", "text"),
    [
        ("parse", {}, TypeError, "either us or cycles"),
        ("parse", {"us": 1, "cycles": 1}, TypeError, "either us or cycles"),
        ("parse", {"us": "3"}, TypeError, "no number of us"),
        ("parse", {"us": -1}, ValueError, "no time from 0"),
        ("parse", {"us": float("nan")}, ValueError, "no time from 0"),
        ("parse", {"us": 1, "core": 1}, ValueError, "cores 0 to 0"),
        ("poll", {"us": 1}, ValueError, "take another name"),
        ("", {"us": 1}, TypeError, "the name of a cost"),
    ],
)
def test_what_cannot_be_charged(
    name: str, how: dict[str, Any], error: type[Exception], text: str
) -> None:
    async def program() -> None:
        with pytest.raises(error, match=text):
            await sim.charge(name, **how)

    run(program)
    if "core" not in how:  # a host without an inside has no cores, and refuses the rest as well
        sim.run({"h2": program}, world(None)[0])


def test_a_charge_that_is_given_up_leaves_the_core_its_work() -> None:
    async def program() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sim.charge("long", us=10), 4e-6)
        return await computed("next", us=1)

    ends, _ = run(program)
    assert ends == 11_000_000


def test_names_have_an_end_and_other_code_no_host() -> None:
    async def program() -> None:
        for number in range(200):
            await sim.charge(f"cost {number}", us=0)
        with pytest.raises(ValueError, match="at most 200 names"):
            await sim.charge("one more", us=0)

    run(program)
    with pytest.raises(RuntimeError, match="no program on a simulated host"):
        asyncio.run(sim.charge("parse", us=1))
