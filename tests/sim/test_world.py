# SPDX-License-Identifier: Apache-2.0
"""What must hold of every run: bookkeeping, determinism, faults, deadlock, refusals."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import (
    GIGABIT,
    LINK,
    MIB,
    MICROSECOND,
    chain,
    credits,
    finish,
    ring_of_four,
    star,
    until,
)
from verbena.sim import World

LOSSY: dict[str, Any] = {"buffer": 64 << 10, "mark": (8 << 10, 32 << 10, 0.5)}


def busy_world(seed: int) -> World:
    """Losses, marks, retries, rates: everything that is drawn by lot."""
    world = World(seed, congestion={"kind": "dcqcn"}, timeout=8)
    link = {**LINK, "bit_error_rate": 1e-9}
    star(world, 9, link, **LOSSY)
    world.add_flows(np.arange(1, 9), 0, MIB, start=np.arange(8) * 1000)
    return finish(world)


def test_two_runs_with_one_seed_are_equal_to_the_byte() -> None:
    one, other, another = busy_world(3), busy_world(3), busy_world(4)
    assert one.flows().tobytes() == other.flows().tobytes()
    assert one.links().tobytes() == other.links().tobytes()
    assert one.events == other.events
    assert one.links().tobytes() != another.links().tobytes()


def test_what_is_lost_is_sent_again_and_counted() -> None:
    world = busy_world(3)
    flows, links = world.flows(), world.links()
    assert (flows["state"] == 2).all()
    assert (flows["done"] == MIB).all()
    assert flows["resent"].sum() >= links["dropped_full"].sum() > 0
    packets = world.packets
    assert packets["sent"] == packets["delivered"] + packets["dropped"]
    counters = [world.counters(host) for host in range(world.hosts)]
    assert sum(c["packets_resent"] for c in counters) == flows["resent"].sum()
    assert sum(c["payload_received"] for c in counters) == 8 * MIB


def test_strict_connections_end_at_the_first_loss() -> None:
    world = World(timeout=8, retry_count=0)
    star(world, 3, buffer=16 << 10)
    world.add_flows([0, 1], 2, MIB)
    finish(world)
    flows = world.flows()
    assert (flows["state"] == 3).any()
    assert (flows["status"][flows["state"] == 3] == 12).all()  # IBV_WC_RETRY_EXC_ERR


def test_a_link_that_is_down_loses_what_is_on_it() -> None:
    world = World(timeout=8)
    center = star(world, 2)
    world.set_link(center, 1, up=False, at=20 * MICROSECOND)
    world.set_link(center, 1, up=True, at=40 * MICROSECOND)
    world.add_flows(0, 1, 4 * MIB)
    finish(world)
    flow = world.flows()[0]
    assert flow["state"] == 2
    # 20 us of data and acknowledgements that begin, and the delay of what was on its way before.
    links = world.links()
    assert links["dropped_down"].sum() > 60
    assert links["dropped_down"][links["node"] == center].sum() > 0
    assert flow["finish"] > 4 * MIB * 80 + 20 * MICROSECOND


def test_losses_cost_no_credits() -> None:
    world = World(seed=2, timeout=8)
    star(world, 3, {**LINK, "bit_error_rate": 1e-7}, **credits(32 << 10))
    world.add_flows([0, 1], 2, 4 * MIB)
    finish(world)
    assert world.links()["dropped_damaged"].sum() > 10
    assert (world.flows()["state"] == 2).all()


def ring(room: int, window: int, lanes: int = 1, lane: dict[str, Any] | None = None) -> World:
    """Four switches; all flows go three links clockwise, on one lane."""
    world = World(framing="bare", window=window, timeout=0)
    switch = {"lanes": [lane] * lanes} if lane else credits(room, lanes)
    ring_of_four(world, **switch)
    return world


@pytest.mark.parametrize("room", [8 << 10, 32 << 10, 128 << 10])
def test_a_cycle_of_buffers_deadlocks_and_is_named(room: int) -> None:
    """V22: the buffers of four switches in a ring wait for each other."""
    world = ring(room, window=MIB)
    world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], 4 * MIB)
    assert world.run() == "deadlock"
    assert world.check() is None
    assert (world.flows()["state"] == 1).any()
    blocked = world.blocked()
    assert len(blocked) == 4
    assert {port for _, port in blocked} == {1}


def test_pauses_deadlock_as_well() -> None:
    """They are said again and again, and nothing moves."""
    world = ring(0, window=MIB, lane={"flow": "pauses", "stop": 64 << 10, "spare": 64 << 10})
    world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], 4 * MIB)
    assert world.run() == "deadlock"
    assert {port for _, port in world.blocked()} == {1}
    assert world.links()["dropped_headroom"].sum() == 0


def test_buffers_larger_than_what_is_under_way_do_not_deadlock() -> None:
    world = ring(MIB, window=256 << 10)
    world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], 4 * MIB)
    finish(world)


def test_two_lanes_without_a_cycle_do_not_deadlock() -> None:
    """On each of them the ways of its flows make no ring; together, on one lane, they do."""
    for levels, end in (([0, 0, 0, 0], "deadlock"), ([0, 0, 1, 1], "done")):
        world = ring(8 << 10, window=MIB, lanes=2)
        world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], MIB, level=levels)
        finish(world, end)


@pytest.mark.parametrize("switch", [{}, {"lanes": [{"flow": "lossy"}]}])
@pytest.mark.parametrize("rate", [100 * GIGABIT, 96_969_697_000])  # ps for a byte: whole, and not
def test_a_link_has_sent_what_has_left_and_not_what_waits(
    switch: dict[str, Any], rate: int
) -> None:
    world, now = World(), 1000 * MICROSECOND
    center = star(world, 3, {"rate": rate, "delay": MICROSECOND}, **switch)
    world.add_flows([0, 1], 2, 100 * MIB, depth=8)
    until(world, now)
    links = world.links()
    sent = links[(links["node"] == center) & (links["port"] == 2)][0]
    came = links["packets"][links["to_node"] == center].sum()
    assert came - sent["packets"] > 100  # there is a queue
    assert 0.99 * now < sent["busy"] <= now
    assert 0 <= sent["bytes"] - float(sent["busy"]) * rate / 8e12 < 4200  # one is on its way out
    assert (links["busy"] <= now).all()


def test_a_stall_counts_while_it_lasts() -> None:
    world, now = World(), 2000 * MICROSECOND
    lane = {"flow": "pauses", "stop": 1 << 20, "go": 1 << 19, "spare": 1 << 20}
    center = star(world, 2, lanes=[lane])
    world.pause_storm(2, 0, 2 * now)
    world.add_flows(0, 1, MIB)
    until(world, now)
    links = world.links()
    stalled = links["stalled"][(links["node"] == center) & (links["port"] == 1)][0]
    assert now - 10 * MICROSECOND < stalled < now


def test_a_stall_ends_when_nothing_waits_any_more() -> None:
    world = World(timeout=0)
    lane = {"flow": "pauses", "stop": 1 << 20, "go": 1 << 19, "spare": 1 << 20}
    center = star(world, 2, lanes=[lane], lifetime=100 * MICROSECOND)
    world.pause_storm(2, 0, 500 * MICROSECOND)
    world.add_flows(0, 1, 4096, transport="uc")  # what waits is dropped after its lifetime
    world.add_flows(0, 1, 4096, transport="uc", start=5000 * MICROSECOND)
    assert world.run() == "done"
    links = world.links()
    stalled = links["stalled"][(links["node"] == center) & (links["port"] == 1)][0]
    assert 99 * MICROSECOND < stalled < 101 * MICROSECOND


def test_flows_over_equal_paths_spread_by_hash_or_by_packet() -> None:
    def uplinks(balance: str) -> np.ndarray:
        world = World(framing="bare", timeout=0)
        left, right = (world.add_switch(8, balance=balance) for _ in range(2))
        for port in range(4):
            world.connect(world.add_host(), 0, left, port, **LINK)
        for port in range(4):
            world.connect(world.add_host(), 0, right, port, **LINK)
        for port in range(4, 8):
            world.connect(left, port, right, port, **LINK)
        up = [[4, 5, 6, 7]] * 4
        own = [[port, -1, -1, -1] for port in range(4)]
        world.set_routes(left, own + up)
        world.set_routes(right, up + own)
        world.add_flows(np.arange(4), np.arange(4, 8), MIB)
        finish(world)
        links = world.links()
        chosen = (links["node"] == left) & (links["port"] >= 4)
        return links["bytes"][chosen]

    by_flow, by_packet = uplinks("flow"), uplinks("packet")
    assert (by_flow % MIB == 0).all()  # whole flows, without a packet out of order
    assert by_flow.sum() == 4 * MIB
    assert by_packet.max() < 1.1 * by_packet.min()


def test_a_run_stops_and_goes_on() -> None:
    whole, parts = World(), World()
    for world in (whole, parts):
        star(world, 3)
        world.add_flows([0, 1], 2, MIB)
    finish(whole)
    ends = [parts.run(until=at) for at in range(0, 150 * MICROSECOND, 7 * MICROSECOND)]
    assert set(ends) == {"time"}
    assert parts.now == 147 * MICROSECOND
    finish(parts)
    assert whole.flows().tobytes() == parts.flows().tobytes()


def test_progress_is_told_and_may_stop_the_run() -> None:
    class Stop(Exception):
        pass

    def stop(world: World) -> None:
        seen.append(world.now)
        if len(seen) == 2:
            raise Stop

    seen: list[int] = []
    world = World()
    star(world, 17)
    world.add_flows(np.arange(1, 17), 0, 32 * MIB)
    with pytest.raises(Stop):
        world.run(progress=stop)
    assert 0 < seen[0] < seen[1] == world.now
    assert world.check() is None
    assert world.links()["bytes"].sum() > 0


def test_a_world_has_one_thread_at_a_time() -> None:
    world = World()
    star(world, 65)
    world.add_flows(np.arange(1, 65), 0, 64 * MIB)
    refused = []

    def disturb() -> None:
        while not refused and world.flows_left:
            try:
                world.add_host()
            except RuntimeError as error:
                refused.append(str(error))

    thread = threading.Thread(target=disturb)
    thread.start()
    world.run(until=100_000 * MICROSECOND)
    thread.join(timeout=30)
    assert world.check() is None
    assert refused == ["the world is running in another thread"]


def test_memory_of_hosts_and_queue_pairs_is_small() -> None:
    assert World().bytes_each["host"] <= 32 << 10


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ({"source": 5}, "flow 0: there is no such source host"),
        ({"target": 3}, "flow 0: there is no such target host"),
        ({"target": 0}, "flow 0: a host sends to itself"),
        ({"size": 0}, "flow 0: it has no bytes"),
        ({"size": -1}, "flow 0: size is -1"),
        ({"size": 1.5}, "size is 1.5, and not a whole number"),
        ({"start": 5}, "flow 0: it starts in the past: it is 10 ps"),
        ({"depth": 65}, "flow 0: its depth is not from 1 to 64"),
        ({"target": 2}, "flow 0: no way leads from host 0 to host 2"),
    ],
)
def test_flows_that_cannot_be_are_refused(flow: dict[str, Any], message: str) -> None:
    world = World()
    center = star(world, 3)
    world.set_routes(center, [0, 1, -1])
    world.run(until=10)
    given = {"source": 0, "target": 1, "size": 1, "start": 10, **flow}
    with pytest.raises(ValueError, match=message):
        world.add_flows(**given)
    assert len(world.flows()) == 0


def test_routes_that_go_round_are_refused() -> None:
    world = World()
    chain(world, [1, 1])
    world.set_routes(0, [1, 1])
    world.set_routes(1, [0, 0])
    with pytest.raises(ValueError, match="flow 0: the routes go round from host 0 to host 1"):
        world.add_flows(0, 1, 1)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ({"rate": 0}, "rate is 0"),
        ({"rate": -1}, "rate is -1"),
        ({"delay": -1}, "delay is -1"),
        ({"delay": 0.5}, "delay is 0.5"),
        ({"bit_error_rate": 1.0}, "bit_error_rate is 1.0"),
        ({"a_port": 1}, "there is no port 1 of node 0"),
        ({"b": 7}, "there is no node 7"),
        ({"b": 1.0}, "there is no node 1.0"),
        ({"b": 0}, "do not go together"),
    ],
)
def test_links_that_cannot_be_are_refused(link: dict[str, Any], message: str) -> None:
    world = World()
    a, b = world.add_host(), world.add_host()
    given = {"a": a, "a_port": 0, "b": b, "b_port": 0, "rate": GIGABIT, "delay": 0, **link}
    with pytest.raises(ValueError, match=message):
        world.connect(
            given.pop("a"), given.pop("a_port"), given.pop("b"), given.pop("b_port"), **given
        )
    world.connect(a, 0, b, 0, rate=GIGABIT, delay=0)
    with pytest.raises(ValueError, match="in use"):
        world.connect(a, 0, b, 0, rate=GIGABIT, delay=0)


@pytest.mark.parametrize(
    "switch",
    [
        {"ports": 0},
        {"ports": 2, "lanes": [{}] * 17},
        {"ports": 2, "lanes": [{"flow": "tokens"}]},
        {"ports": 2, "lanes": [{"room": -1}]},
        {"ports": 2, "lanes": [{"flow": "credits", "room": 4096}]},
        {"ports": 2, "lanes": [{"flow": "pauses", "stop": 1000, "go": 2000}]},
        {"ports": 2, "lanes": [{"unknown": 1}]},
        {"ports": 2, "lanes": [{"alpha": math.nan}]},
        {"ports": 2, "lanes": [{}, {}], "low": [(0, 1)]},
        {"ports": 2, "lanes": [{}], "low": [(1, 1)]},
        {"ports": 2, "mark": (5, 1, 0.5)},
        {"ports": 2, "mark": (1, 5, 2.0)},
        {"ports": 2, "balance": "luck"},
    ],
)
def test_switches_that_cannot_be_are_refused(switch: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        World().add_switch(**switch)


def test_an_event_in_the_past_is_refused() -> None:
    world = World()
    center = star(world, 2)
    world.run(until=100)
    with pytest.raises(ValueError, match="99 ps, which is in the past"):
        world.run(until=99)
    with pytest.raises(ValueError, match="99 ps, which is in the past"):
        world.set_link(center, 0, up=False, at=99)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": "one"}, "seed is 'one', and not a whole number"),
        ({"congestion": "dcqcn"}, "congestion is 'dcqcn', and not a dictionary"),
        ({"congestion": {"kind": "bcn"}}, "kind is 'bcn', and not one of dcqcn, cct, hpcc"),
        ({"congestion": {"kind": "cct"}}, "congestion needs gaps"),
        (
            {"congestion": {"kind": "cct", "gaps": [0.0, math.nan]}},
            "gaps.1 is nan, and not a number",
        ),
        ({"congestion": {"kind": "dcqcn", "gain": 2}}, "gain is 2, and not a number above 0 to 1"),
        (
            {"congestion": {"kind": "dcqcn", "raise_interval": 1}},
            "raise_interval is 1, and not .* from 1000",
        ),
        ({"congestion": {"kind": "dcqcn", "add_rate": 0}}, "add_rate is 0, and not .* above 0"),
        (
            {"congestion": {"kind": "dcqcn", "fast_add_rate": math.nan}},
            "fast_add_rate is nan, .* above 0",
        ),
        ({"tcp": 1460}, "tcp is 1460, and not a dictionary"),
    ],
)
def test_worlds_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(**given)


def test_an_infiniband_subnet_ends_with_its_lids():
    world = World(framing="infiniband")
    for _ in range(0xBFFF):
        world.add_host()
    with pytest.raises(ValueError, match=r"host 49151 .* would need LID 49152"):
        world.add_host()
    assert world.add_host(framing="ethernet") == 0xBFFF
    assert world.hosts == 0xC000
