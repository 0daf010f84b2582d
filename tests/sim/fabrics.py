# SPDX-License-Identifier: Apache-2.0
"""Small fabrics that the tests of the simulation are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from verbena.sim import World

GIGABIT = 10**9
MICROSECOND = 10**6
MIB = 1 << 20
LINK: dict[str, Any] = {"rate": 100 * GIGABIT, "delay": MICROSECOND}
DCQCN: dict[str, Any] = {"kind": "dcqcn", "set": "paper", "notice_interval": 4_000_000}
CCT: dict[str, Any] = {
    "kind": "cct",
    "gaps": [0.0, *np.geomspace(0.05, 30, 63)],
    "timer": 150_000_000,
    "notice_interval": 4_000_000,
}


class Watcher(Protocol):
    """Is told of all runs of checked worlds."""

    def before(self, world: World) -> None: ...
    def after(self, world: World, end: str) -> None: ...


class CheckedWorld(World):
    """A world whose packets and credits are counted after each run, whatever the run is about.

    ``may_overrun``: that a lossless lane's headroom is too small is what is being looked at.
    """

    may_overrun = False
    watcher: ClassVar[Watcher | None] = None

    def run(
        self, until: int | None = None, progress: Callable[[World], object] | None = None
    ) -> str:
        if self.watcher:
            self.watcher.before(self)
        end = super().run(until, progress)
        if self.watcher:
            self.watcher.after(self, end)
        wrong = self.check(at_rest=end in ("done", "stalled"))
        if wrong and not (self.may_overrun and "headroom" in wrong):
            raise AssertionError(wrong)
        return end


def finish(world: World, reason: str = "done") -> World:
    """Runs to the end; whatever the test is about, packets and credits must add up."""
    assert world.run() == reason
    assert world.check(at_rest=reason == "done") is None
    return world


def until(world: World, at: int) -> World:
    """Runs up to a time, when as much must add up as can."""
    world.run(until=at)
    assert world.check() is None
    return world


def star(world: World, hosts: int, link: dict[str, Any] | None = None, **switch: Any) -> int:
    """Hosts 0 to n - 1 on the ports of the same numbers of one switch, whose node this returns."""
    center = world.add_switch(hosts, **switch)
    for port in range(hosts):
        world.connect(world.add_host(), 0, center, port, **(link or LINK))
    world.set_routes(center, list(range(hosts)))
    return center


def chain(
    world: World, hosts: list[int], link: dict[str, Any] | None = None, **switch: Any
) -> None:
    """A row of switches with so many hosts each; port 0 leads back, port 1 on."""
    nodes = [world.add_switch(2 + max(hosts), **switch) for _ in hosts]
    owner = []
    for at, count in enumerate(hosts):
        for port in range(count):
            world.connect(world.add_host(), 0, nodes[at], 2 + port, **(link or LINK))
            owner.append((at, 2 + port))
    for at in range(len(hosts) - 1):
        world.connect(nodes[at], 1, nodes[at + 1], 0, **(link or LINK))
    for at, node in enumerate(nodes):
        world.set_routes(node, [port if there == at else int(there > at) for there, port in owner])


def credits(room: int, lanes: int = 1) -> dict[str, Any]:
    """Lanes with that many bytes of buffer for each input port."""
    return {"lanes": [{"flow": "credits", "room": room}] * lanes}


def ring_of_four(world: World, **switch: Any) -> None:
    """A host at each of four switches, whose routes go clockwise: flows of three links deadlock."""
    nodes = [world.add_switch(3, **switch) for _ in range(4)]
    for node in nodes:
        world.connect(world.add_host(), 0, node, 0, **LINK)
    for at, node in enumerate(nodes):
        world.connect(node, 1, nodes[(at + 1) % 4], 2, **LINK)
    for at, node in enumerate(nodes):
        world.set_routes(node, [0 if host == at else 1 for host in range(4)])
