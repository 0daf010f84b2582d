# SPDX-License-Identifier: Apache-2.0
"""Worlds with many random choices, and a hash of the results of a run.

python -m tests.sim.same SEED: the digests of all of them, for a comparison between processes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import LINK, MIB, MICROSECOND, CheckedWorld, credits, star

PAUSES = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
STEP = 1_000_003  # ps between two looks


def course(world: CheckedWorld) -> Iterator[bytes]:
    """Of the whole run: the order of events shows in what each look finds."""
    while world.flows_left and world.now < 3000 * MICROSECOND:
        world.run(until=world.now + STEP)
        yield f"{world.now} {world.events} {world.packets}".encode()
        yield world.flows().tobytes()
        yield world.links().tobytes()
    for host in range(world.hosts):
        yield json.dumps(world.counters(host)).encode()


def digest(world: CheckedWorld) -> str:
    return hashlib.sha256(b"".join(course(world))).hexdigest()


def incast(world: CheckedWorld, link: dict[str, Any] | None = None, **switch: Any) -> CheckedWorld:
    center = star(world, 9, link, **switch)
    starts = np.arange(8) * 1000
    world.add_flows(np.arange(1, 9), 0, MIB // 4, starts, level=np.arange(8) % 2)
    world.set_link(center, 3, up=False, at=7 * MICROSECOND)
    world.set_link(center, 3, up=True, at=9 * MICROSECOND)
    return world


def lossy(seed: int) -> CheckedWorld:
    world = CheckedWorld(seed, congestion={"kind": "dcqcn"}, timeout=4)
    link = {**LINK, "bit_error_rate": 1e-7}
    return incast(world, link, buffer=64 << 10, mark=(8 << 10, 32 << 10, 0.5))


def lanes(seed: int) -> CheckedWorld:
    cct = {"kind": "cct", "gaps": [0.0, 1.0, 2.0], "notice_interval": 0}
    world = CheckedWorld(seed, framing="infiniband", congestion=cct, timeout=4)
    link = {**LINK, "bit_error_rate": 1e-7}
    return incast(world, link, fecn=1 << 14, **credits(32 << 10, 2))


def pauses(seed: int) -> CheckedWorld:
    world = CheckedWorld(seed, congestion={"kind": "dcqcn", "set": "adapter"}, timeout=4)
    lane = {**PAUSES, "mark": (8 << 10, 32 << 10, 0.5)}
    return incast(world, lanes=[lane, {"flow": "lossy", "alpha": 0.5}], buffer=MIB)


def spread(seed: int) -> CheckedWorld:
    """Two switches and four ways between them, taken by hash and by packet."""
    world = CheckedWorld(seed, timeout=4)
    nodes = [world.add_switch(8, balance=balance) for balance in ("flow", "packet")]
    for node in nodes:
        for port in range(4):
            world.connect(world.add_host(), 0, node, port, **LINK)
    for port in range(4, 8):
        world.connect(nodes[0], port, nodes[1], port, **LINK)
    own, others = [[port, -1, -1, -1] for port in range(4)], [[4, 5, 6, 7]] * 4
    world.set_routes(nodes[0], own + others)
    world.set_routes(nodes[1], others + own)
    world.add_flows(np.arange(8), (np.arange(8) + 4) % 8, MIB // 4)
    return world


def tcp(seed: int) -> CheckedWorld:
    world = CheckedWorld(seed, tcp={"least_rto": 200 * MICROSECOND})
    link = {**LINK, "bit_error_rate": 1e-7}
    star(world, 9, link, buffer=64 << 10, mark=(8 << 10, 32 << 10, 0.5))
    control = ["reno", "cubic", "dctcp", "cubic"] * 2
    world.add_flows(np.arange(1, 9), 0, MIB // 4, transport="tcp", control=control)
    return world


WORLDS: dict[str, Callable[[int], CheckedWorld]] = {
    make.__name__: make for make in (lossy, lanes, pauses, spread, tcp)
}


def digests(seed: int) -> dict[str, str]:
    return {name: digest(make(seed)) for name, make in WORLDS.items()}


if __name__ == "__main__":
    print(json.dumps(digests(int(sys.argv[1]))))
