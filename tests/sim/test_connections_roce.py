# SPDX-License-Identifier: Apache-2.0
"""verbena.cm on simulated hosts of RoCE while a link is dead, and after routes were made anew."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.sim.test_connections import WRITE, call, now, serve
from verbena import cm, fabrics, sim, verbs
from verbena.fabrics import Cable
from verbena.sim import World, build
from verbena.sim.reroute import reroute

MILLI = 10**9
REROUTED = 5 * MILLI  # after the death


def clos() -> fabrics.Fabric:
    """Four spines, of which packets one way and the other use at most two."""
    return fabrics.clos2(8, rate="100GbE", length_m=5)


def way(fabric: fabrics.Fabric) -> list[Cable]:
    """Return the cables between switches that h5 and h0 use in both directions."""
    world = World()
    build(world, fabrics.route(fabric))
    sim.run({"h0": serve, "h5": call}, world)
    packets = world.links()["packets"].reshape(-1, 2).sum(axis=1)
    cables = [cable for cable, some in zip(fabric.cables(), packets, strict=True) if some]
    return [cable for cable in cables if not {cable.a, cable.b} & set(fabric.hosts)]


def dying(at: int, rerouted: bool) -> tuple[World, fabrics.Fabric]:
    """Return a world in which the way between h0 and h5 dies, and routes are made anew or not."""
    fabric = clos()
    world = World()
    build(world, fabrics.route(fabric))
    dead = way(fabric)
    assert len(dead) in (2, 4)
    first = len(fabric.hosts)
    number = {name: first + index for index, name in enumerate(fabric.switches)}
    for cable in dead:
        world.set_link(number[cable.a], cable.a_port, False, at)
    if rerouted:
        world.call_at(at + REROUTED, lambda world: reroute(world, fabric, dead))
    return world, fabric


async def late_call() -> float:
    await asyncio.sleep(0.001)
    return await call()


def test_a_request_that_a_dead_link_loses_takes_the_new_route() -> None:
    """The REQ is sent 0.5 ms after the death, and again after 250 ms by the new route."""
    world, _ = dying(MILLI // 2, rerouted=True)
    result = sim.run({"h0": serve, "h5": late_call}, world)
    assert result.returned["h0"] == [b"hello"]
    assert result.returned["h5"] == pytest.approx(0.25, abs=0.001)


def test_without_a_new_route_the_server_is_not_reached() -> None:
    world, _ = dying(MILLI // 2, rerouted=False)

    async def client() -> str:
        await asyncio.sleep(0.001)
        try:
            await cm.connect("h0", 7174, timeout=2)
        except cm.ConnectTimeout as error:
            return type(error).__name__
        return "connected"

    async def server() -> None:
        async with cm.listen(7174):
            await asyncio.sleep(3)

    result = sim.run({"h0": server, "h5": client}, world)
    assert result.returned["h5"] == "ConnectTimeout"


def test_a_connection_lives_on_by_the_new_route_and_ends_in_order() -> None:
    world, _ = dying(MILLI, rerouted=True)
    sizes = 40

    async def server() -> tuple[int, str]:
        async with cm.listen(7174) as listener:
            request = await listener.get_request()
            async with await request.accept() as conn:
                assert conn.aqp is not None
                memory = [conn.pd.alloc(4096, WRITE) for _ in range(sizes)]
                posted = [conn.aqp.recv(each) for each in memory]
                found = [(await each).byte_len for each in posted]
                return len(found), (await conn.wait_closed()).name

    async def client() -> list[float]:
        async with cm.connect("h0", 7174, ack_timeout=8) as conn:  # 1 ms
            assert conn.aqp is not None
            memory = conn.pd.alloc(4096, WRITE)
            done = []
            for _ in range(sizes):
                await asyncio.sleep(50e-6)
                await conn.aqp.send(memory)
                done.append(now())
            return done

    result = sim.run({"h0": server, "h5": client}, world)
    assert result.returned["h0"] == (sizes, "PEER")
    done = result.returned["h5"]
    gaps = [later - before for before, later in pairwise(done)]
    assert 0.005 < max(gaps) < 0.007  # until the first timeout after the new routes
    assert sum(gap > 0.001 for gap in gaps) == 1


def test_without_a_new_route_the_sender_gives_up_and_nobody_tells_the_other_end() -> None:
    world, _ = dying(MILLI, rerouted=False)

    async def server() -> str:
        async with cm.listen(7174) as listener:
            request = await listener.get_request()
            async with await request.accept() as conn:
                try:
                    await conn.wait_closed(timeout=30)
                except cm.ConnectTimeout:
                    return "it heard nothing"
        return "it was told"

    async def client() -> str:
        async with cm.connect("h0", 7174, ack_timeout=8) as conn:
            assert conn.aqp is not None
            await asyncio.sleep(0.002)
            with pytest.raises(verbs.CompletionError) as error:
                await conn.aqp.send(conn.pd.alloc(64, WRITE))
            with pytest.raises(cm.ConnectTimeout, match="has not answered the disconnect request"):
                await conn.disconnect(timeout=1e-3)
            await conn.wait_closed()
            return f"{conn.closed}, {error.value}"

    result = sim.run({"h0": server, "h5": client}, world)
    assert result.returned["h0"] == "it heard nothing"
    closed, _, why = result.returned["h5"].partition(", ")
    assert closed == cm.Closed.SILENT
    assert "transport retry count exceeded" in why
