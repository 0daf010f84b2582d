# SPDX-License-Identifier: Apache-2.0
"""Hosts with an inside where packets are lost: what is sent again is written to memory once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import finish, star
from tests.sim.inside_pair import InsideWorld
from tests.sim.programs import called, calling
from verbena import fault, sim
from verbena.sim.inside import Inside, InsideCounters

PORT = 7471
EACH = 1 << 18
SIZE = 1 << 17
DATA = bytes(range(256)) * (SIZE // 256)
MTU = 4096
HEADERS, MPS = 24, 256  # of a write over PCIe, and its most bytes


def short_queue(**settings: Any) -> InsideWorld:
    """Two hosts whose packets overfill the queue to a third, where packets wait for PCIe."""
    world = InsideWorld(**settings)
    star(world, 3, buffer=64 << 10)
    for host in range(3):
        world.inside(
            host, pcie={"generation": 3 if host == 2 else 4, "lanes": 16 - 8 * (host == 2)}
        )
    return world


def flows_that_lose(operation: str, message: int) -> tuple[InsideWorld, list[InsideCounters]]:
    """Return the world and the counters of its hosts at the end."""
    world = short_queue()
    world.add_flows([0, 1], [2, 2], EACH, message=message, depth=64, operation=operation)
    finish(world)
    assert (world.flows()["resent"] > 0).any()
    return world, [world.insides[host].counters() for host in range(3)]


@pytest.mark.parametrize("message", [MTU, 65536, 5000])
@pytest.mark.parametrize("operation", ["write", "send"])
def test_what_flows_send_again_is_placed_once(operation: str, message: int) -> None:
    _, (*senders, receiver) = flows_that_lose(operation, message)
    assert receiver.placed == 2 * EACH
    assert sum(sender.fetched for sender in senders) > 2 * EACH  # these are sent again
    writes, written = receiver.up.tlps["write"]
    entries = receiver.completions
    assert written == 2 * EACH + HEADERS * writes + 64 * entries
    if operation == "send":
        messages = 2 * -(-EACH // message)
        assert receiver.down.tlps["data"] == (messages, messages * 36)  # receive requests


def test_answers_that_come_again_are_placed_once() -> None:
    world = short_queue()
    world.add_flows([2, 2], [0, 1], EACH, message=32768, depth=8, operation="read")
    finish(world)
    seen = [world.insides[host].counters() for host in range(3)]
    assert seen[0].fetched + seen[1].fetched > 2 * EACH
    assert seen[2].placed == 2 * EACH


def test_a_message_that_begins_anew_is_placed_anew() -> None:
    """With go-back-0 a message is written from its beginning again."""
    world = short_queue(recovery="go-back-0")
    world.add_flows([0, 1], [2, 2], EACH, message=16384, depth=64)
    finish(world)
    assert world.insides[2].counters().placed >= 2 * EACH


def lossy(framing: str = "ethernet") -> tuple[sim.World, list[Inside]]:
    made = sim.World(3, timeout=8, framing=framing)
    star(made, 2)
    return made, [made.inside(host, interrupts={}) for host in ("h0", "h1")]


async def offers(port: int, rules: list[fault.Rule]) -> bytes:
    async with called(port, SIZE, timeout=12) as end:
        memoryview(end.mr)[:] = DATA
        await end.tell_region()
        await end.wait_for_peer()
        fault.set_rules(end.ctx, *rules)
        await end.wait_for_peer()
        return bytes(memoryview(end.mr))


async def uses(operation: str, port: int, rules: list[fault.Rule]) -> bytes:
    """WRITE or READ the peer's memory, in pieces of 8 KiB."""
    async with calling("h0", port, SIZE, timeout=12) as end:
        memoryview(end.mr)[:] = DATA if operation == "write" else bytes(SIZE)
        addr, rkey = await end.region()
        await end.wait_for_peer()
        fault.set_rules(end.ctx, *rules)
        for each in [
            getattr(end.qp, operation)(end.mr, addr + at, rkey, at, 8192)
            for at in range(0, SIZE, 8192)
        ]:
            await each
        fault.set_rules(end.ctx)
        await end.wait_for_peer()
        return bytes(memoryview(end.mr))


@pytest.mark.parametrize(
    "rule",
    [
        fault.Drop(nth=3),
        fault.Drop(chance=0.2),
        fault.Duplicate(2, every=3),
        fault.Reorder(by=2, chance=0.3),
        fault.Corrupt(every=7),
    ],
    ids=str,
)
@pytest.mark.parametrize("operation", ["write", "read"])
def test_what_programs_send_again_is_placed_once(operation: str, rule: fault.Rule) -> None:
    world, insides = lossy()
    receiver = 0 if operation == "write" else 1
    rules = [[rule] if host != receiver else [] for host in (0, 1)]
    result = sim.run(
        {"h0": lambda: offers(PORT, rules[0]), "h1": lambda: uses(operation, PORT, rules[1])},
        world,
    )
    assert result.returned == {"h0": DATA, "h1": DATA}
    seen = insides[receiver].counters()
    assert insides[1 - receiver].counters().fetched >= SIZE
    assert seen.placed == SIZE
    writes, written = seen.up.tlps["write"]
    assert written == SIZE + HEADERS * writes + 64 * seen.completions
