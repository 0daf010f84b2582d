# SPDX-License-Identifier: Apache-2.0
"""V26: what holds in every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import MIB, CheckedWorld, chain, credits, finish, star
from tests.validation.queues import PACKET, SERVICE, funnel
from tests.validation.row import Figure, Row, Scope, equal, near

PAUSES = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
STEP = 10_000_019  # ps between two looks: no multiple of anything


def little(load: float, packets: int, seed: int) -> tuple[float, float]:
    """Packets on their way, by looking at random moments; and λ W, from the flows' own times."""
    random = np.random.default_rng(seed)
    start = np.cumsum(random.exponential(SERVICE / load, packets)).astype(np.int64)
    world = funnel(64, 1)
    world.add_flows(np.arange(packets) % 64, 64, PACKET, start)
    end, seen = int(start[-1]), []
    for at in np.sort(random.integers(0, end, packets // 4)).tolist():
        world.run(until=at)
        packet = world.packets
        seen.append(packet["sent"] - packet["delivered"] - packet["dropped"])
    finish(world)
    flows = world.flows()
    took = flows["finish"].astype(np.int64) - flows["start"].astype(np.int64)
    return float(np.mean(seen)), float(took.mean()) * packets / end


def lossless(name: str) -> CheckedWorld:
    """A parking lot or an incast that is looked at again and again on its way."""
    world = CheckedWorld(framing="ethernet", timeout=0, window=MIB)
    switch: dict[str, Any] = {"lanes": [PAUSES] * 2} if name == "pauses" else credits(32 << 10, 2)
    if name == "parking lot":
        chain(world, [3, 2, 2], **switch)
        world.add_flows(np.arange(6), 6, MIB, level=[0, 1, 0, 1, 0, 1])
    else:
        star(world, 9, **switch)
        world.add_flows(np.arange(1, 9), 0, MIB, level=np.arange(8) % 2)
    while world.flows_left:
        world.run(until=world.now + STEP)  # which checks packets and credits
    return finish(world)


def measure(scope: Scope) -> Iterator[Figure]:
    for load in (0.5, 0.8):
        seen, law = little(load, scope.pick(8_000, 200_000), scope.seed)
        yield near(f"Little's law, ρ = {load}: packets on their way", seen, law, 0.05)
    for name in ("credits", "pauses", "parking lot"):
        world = lossless(name)
        counters = [world.counters(host) for host in range(world.hosts)]
        packets = world.packets
        yield equal(f"{name}: sent − delivered", packets["sent"] - packets["delivered"], 0)
        disorder = sum(c["nak_sequence_sent"] + c["duplicate_requests"] for c in counters)
        yield equal(f"{name}: packets out of order or twice", disorder, 0)
        received = sum(c["payload_received"] for c in counters)
        sent = int(world.flows()["bytes"].sum())
        yield equal(f"{name}: bytes sent − bytes placed", sent - received, 0)


ROW = Row(
    number="V26",
    title="What holds in every run",
    setup="Random packets before one port, looked at at random moments; an incast with credits and "
    "with pauses and a parking lot, checked every 10 µs.",
    expected="Little's law, L = λ W; packets and credits add up at every look; nothing is lost "
    "with credits or pauses; packets of a flow on a lane stay in order.",
    fails="a packet is counted twice or not at all, a credit is negative or is not given back, or "
    "a lane overtakes itself.",
    meaning="Nothing appears or disappears, in these runs and in all others: each run of this page "
    "and of `tests/sim` is checked for it.",
    measure=measure,
    quick=True,
    tested="`tests/sim/conftest.py`, for every run of those tests",
)
