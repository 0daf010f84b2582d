# SPDX-License-Identifier: Apache-2.0
"""Sampled queues: what the rows say, that looking changes nothing, and that it ends."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import (
    GIGABIT,
    MIB,
    MICROSECOND,
    credits,
    finish,
    ring_of_four,
    star,
    until,
)
from verbena.sim import UNLIMITED, Deadlock, World, run

SER = 4096 * 80


def incast(sampled: bool, **switch: Any) -> tuple[World, Any]:
    world = World(seed=1, framing="bare", window=MIB)
    center = star(world, 4, **switch)
    world.add_flows([1, 2, 3], 0, MIB)
    samples = world.sample(MICROSECOND, [(center, 0)]) if sampled else None
    return finish(world), samples


@pytest.mark.parametrize("switch", [{}, credits(64 << 10)])
def test_looking_changes_nothing(switch: dict[str, Any]) -> None:
    plain, _ = incast(False, **switch)
    watched, samples = incast(True, **switch)
    assert plain.flows().tobytes() == watched.flows().tobytes()
    assert plain.links().tobytes() == watched.links().tobytes()
    assert len(samples) > 200


def test_a_queue_grows_and_drains_as_it_must() -> None:
    """Three hosts into one: the queue grows by twice the line's rate, and drains at the rate."""
    _, samples = incast(True)
    assert samples.queues["port"].tolist() == [0]
    assert (np.diff(samples.times.astype(np.int64)) == MICROSECOND).all()
    queue = samples.data["bytes"][:, 0].astype(float)
    grown = np.polyfit(samples.times[10:80], queue[10:80], 1)[0]
    # Of the senders' links nearly all is data.
    assert grown == pytest.approx(2 / 80, rel=0.02)
    falling = slice(int(queue.argmax()) + 5, len(queue) - 10)
    drained = np.polyfit(samples.times[falling], queue[falling], 1)[0]
    assert drained == pytest.approx(-1 / 80, rel=0.02)
    assert (samples.data["credits"] == UNLIMITED).all()


def test_credits_and_what_is_held_add_up_to_the_buffer() -> None:
    """What the sender may still send, what is held, and what is between the two: the room."""
    room, delay = 32 << 10, MICROSECOND
    world = World(framing="bare", window=MIB)
    center = star(world, 4, **credits(room))
    world.add_flows([1, 2, 3], 0, MIB)
    samples = world.sample(100_000, [(1 + host, 0, 0) for host in (1, 2, 3)])
    inputs = world.sample(100_000, [(center, port) for port in range(1, 4)])
    finish(world)
    sending, held = samples.data["credits"], inputs.data["held"]
    assert samples.queues["node"].tolist() != inputs.queues["node"].tolist()
    assert sending.max() <= room
    # Each packet that leaves is known of a delay later, and the next one is here after another.
    assert room - 2 * delay // (3 * SER) * 4096 <= held.max() <= room
    between = room - sending.astype(np.int64) - held.astype(np.int64)
    assert (between >= 0).all()
    assert between.max() <= 2 * delay // 80 + 2 * 4096
    assert sending.min() < 4096  # at times there is nothing left


def test_pauses_are_seen_at_both_ends() -> None:
    lane = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
    world = World(framing="bare", window=MIB)
    center = star(world, 4, lanes=[lane])
    world.add_flows([1, 2, 3], 0, MIB)
    tell = world.sample(100_000, [(center, port) for port in range(1, 4)])
    obey = world.sample(100_000, [(1 + host, 0) for host in (1, 2, 3)])
    finish(world)
    told, paused = tell.data["stopped"], obey.data["paused"]
    assert told.any(axis=0).all()
    assert paused.any()
    assert (tell.data["held"][told] > 32 << 10).all()
    assert not tell.data["stopped"][-1].any()


def test_the_rows_are_the_worlds_own_memory() -> None:
    world = World()
    center = star(world, 3)
    world.add_flows([0, 1], 2, MIB)
    samples = world.sample(MICROSECOND, [(center, 2)])
    until(world, 20 * MICROSECOND)
    early = samples.data
    address = early.__array_interface__["data"][0]
    kept = early.copy()
    until(world, 40 * MICROSECOND)
    assert samples.data.__array_interface__["data"][0] == address
    assert len(samples) == len(samples.times) == len(samples.data) == 41
    assert early.tobytes() == kept.tobytes() == samples.data[:21].tobytes()
    with pytest.raises(ValueError, match="read-only"):
        early["bytes"] = 0
    del world, samples
    gc.collect()
    assert early.tobytes() == kept.tobytes()  # the world stays while its memory is used


def test_sampling_ends() -> None:
    """With the world, at its limit, when it is told to; and it keeps nothing else alive."""
    world = World(timeout=0)
    center = star(world, 3)
    samples = world.sample(MICROSECOND)
    assert world.run() == "done"
    assert samples.data.shape == (0, 6)
    short = world.sample(MICROSECOND, [(center, 2)], limit=5)
    late = world.sample(MICROSECOND, [(center, 2)], start=30 * MICROSECOND)
    world.set_link(center, 2, up=False, at=10 * MICROSECOND)
    world.add_flows([0, 1], 2, MIB)  # what is lost is never sent again
    assert world.run() == "stalled"
    assert world.flows_left == 2
    assert (len(short), short.stopped) == (5, True)
    assert late.times[0] == 30 * MICROSECOND
    before = len(samples)
    samples.stop()
    world.run(until=world.now + 5 * MICROSECOND)
    assert (len(samples), samples.stopped) == (before, True)


def test_a_deadlock_is_seen_although_somebody_looks() -> None:
    world = World(framing="bare", window=MIB, timeout=0)
    ring_of_four(world, **credits(8 << 10))
    world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], 4 * MIB)
    world.sample(MICROSECOND)
    assert finish(world, "deadlock").check() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interval": 0}, "interval is 0"),
        ({"queues": []}, "no queues"),
        ({"queues": [(9, 0)]}, "there is no node 9"),
        ({"queues": [(0, 7)]}, "there is no port 7 of node 0"),
        ({"queues": [(0, 2)]}, "nothing is plugged into port 2 of node 0"),
        ({"queues": [(0, 0, 1)]}, "there is no lane 1 of port 0 of node 0: there is only 0"),
        ({"start": 5}, "start is 5 ps, which is in the past: it is 10 ps"),
        ({"limit": 0}, "limit is 0"),
    ],
)
def test_samples_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    world = World()
    center = world.add_switch(3)
    for port in range(2):
        world.connect(world.add_host(), 0, center, port, rate=GIGABIT, delay=0)
    world.run(until=10)
    with pytest.raises(ValueError, match=message):
        world.sample(**{"interval": 1, **arguments})


def test_programs_that_wait_for_ever_are_told_although_somebody_looks() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    world = World()
    star(world, 2)
    world.sample(MICROSECOND)
    with pytest.raises(Deadlock):
        run({"h0": forever}, world)
