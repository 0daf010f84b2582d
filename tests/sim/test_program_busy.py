# SPDX-License-Identifier: Apache-2.0
"""Programs that poll and never sleep: time passes for each of them, whatever else they do and
whoever polls beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.sim.fabrics import LINK, MICROSECOND
from verbena import sim, verbs

ALL = 15
TURNS = 20_000  # in which two million polls would have been nothing
Turn = Callable[[], Any]


class Loopback:
    """A QP that writes to its own host's memory, by way of the switch."""

    def __init__(self, ctx: verbs.Context) -> None:
        pd = ctx.alloc_pd()
        self.ctx = ctx
        self.channel = ctx.create_comp_channel()
        self.cq, self.idle = (ctx.create_cq(16, self.channel) for _ in range(2))
        self.qp, self.far = (pd.create_qp(send_cq=self.cq) for _ in range(2))
        self.quiet, quiet_far = (pd.create_qp(send_cq=self.idle) for _ in range(2))
        self.mr = pd.alloc(64, ALL)
        verbs.connect_pair(self.qp, self.far)
        verbs.connect_pair(self.quiet, quiet_far)

    def write(self) -> None:
        """From the first word of its memory to the second."""
        self.mr.store_u64(0, 1)
        self.qp.write(self.mr, self.mr.addr + 8, self.mr.rkey, 0, 8)


def world(hosts: int = 4) -> sim.World:
    """A star in which each cable is longer than the one before it.

    So writes that begin at once end in the order of the hosts, and not at one instant: a host that
    has its completion, and looks at something else first, lets time pass once more.
    """
    made = sim.World()
    center = made.add_switch(hosts)
    for port in range(hosts):
        link = {**LINK, "delay": LINK["delay"] + port * 1000}
        made.connect(made.add_host(), 0, center, port, **link)
    made.set_routes(center, list(range(hosts)))
    return made


@contextmanager
def on_hosts(made: sim.World, names: list[str]) -> Iterator[list[Loopback]]:
    """An adapter on each of these hosts, used by one program without a loop."""
    hosts, opened = sim.Hosts(made), []
    for name in names:
        with hosts[name].here():
            opened.append(Loopback(verbs.open_device()))
    yield opened
    for one in opened:
        one.ctx.close()


def polls_two(own: Loopback) -> bool:
    return bool(own.idle.poll() or own.cq.poll())


def polls_and_arms(own: Loopback) -> bool:
    own.cq.req_notify()
    return bool(own.cq.poll())


def polls_and_asks(own: Loopback) -> bool:
    own.qp.query()
    own.ctx.query_port(1)
    return bool(own.cq.poll())


def asks_for_events(own: Loopback) -> bool:
    return own.channel.get_cq_event(0) is not None


def asks_for_errors_and_polls(own: Loopback) -> bool:
    own.ctx.get_async_event(0)
    return bool(own.cq.wait(timeout=0))


def looks_at_memory(own: Loopback) -> bool:
    return own.mr.wait_u64(8, 1, 0)


SHAPES = [polls_two, polls_and_arms, polls_and_asks, asks_for_events, asks_for_errors_and_polls,
          looks_at_memory]  # fmt: skip


def blocked(host: str = "h0") -> int:
    """When the write is done, for who sleeps until then."""
    made = world()
    with on_hosts(made, [host]) as (own,):
        own.write()
        own.cq.wait()
        return made.now


def in_turn(made: sim.World, waiting: list[Turn]) -> list[int]:
    """All of them again and again until each has found something; when each did."""
    found = [0] * len(waiting)
    for _ in range(TURNS):
        for number, look in enumerate(waiting):
            if not found[number] and look():
                found[number] = made.now
        if all(found):
            break
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_to_be_busy_lets_time_pass(shape: Callable[[Loopback], bool]) -> None:
    made = world()
    with on_hosts(made, ["h0"]) as (own,):
        own.cq.req_notify()
        own.write()
        # Looking at memory, one sees the data before their acknowledgement.
        assert 2 * MICROSECOND < in_turn(made, [lambda: shape(own)])[0] <= blocked()


@pytest.mark.parametrize("hosts", [2, 3, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_hosts_that_are_busy_in_turn_let_time_pass(
    shape: Callable[[Loopback], bool], hosts: int
) -> None:
    made = world()
    with on_hosts(made, [f"h{n}" for n in range(hosts)]) as owns:
        for own in owns:
            own.cq.req_notify()
            own.write()
        times = in_turn(made, [lambda own=own: shape(own) for own in owns])
        assert 2 * MICROSECOND < min(times) <= max(times) <= blocked(f"h{hosts - 1}")


async def busy(politely: bool) -> int:
    """Polls two CQs in turn; when it has found something, or 0."""
    with verbs.open_device() as ctx:
        own = Loopback(ctx)
        own.write()
        for _ in range(TURNS):
            if polls_two(own):
                return round(asyncio.get_running_loop().time() * 1e12)
            if politely:
                await asyncio.sleep(0)
    return 0


@pytest.mark.parametrize("politely", [True, False])
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_programs_that_poll_beside_each_other_let_time_pass(hosts: int, politely: bool) -> None:
    """Each in a task of its own: those that do not let others run have the world for themselves."""
    programs = {f"h{n}": lambda: busy(politely) for n in range(hosts)}
    returned = sim.run(programs, world()).returned
    assert len(returned) == hosts
    assert all(returned.values())
    if politely:
        assert returned == {host: blocked(host) for host in programs}


def test_a_thread_runs_a_busy_program_as_any() -> None:
    async def notebook() -> sim.Result:
        programs = {name: lambda: busy(True) for name in ("h0", "h1")}
        return await asyncio.to_thread(sim.run, programs, world())

    returned = asyncio.run(notebook()).returned
    assert returned == {"h0": blocked("h0"), "h1": blocked("h1")}


def test_who_sleeps_after_arming_takes_no_time_for_it() -> None:
    """Many connections, each armed and polled once at one instant, are no busy loop."""
    made = world()
    with on_hosts(made, ["h0"]) as (own,):
        own.write()
        for _ in range(30):
            own.cq.req_notify()
            assert not own.cq.poll()
        assert made.now == 0
