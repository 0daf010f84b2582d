# SPDX-License-Identifier: Apache-2.0
"""Calls while packets are lost, duplicated and late: each runs once, and has its result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.carriers import OVER_ROCE
from tests.rpc.conftest import Sample, live, on_hosts, quiet, target_of
from verbena import fault, rpc

RULES = "drop 4% dir=both; duplicate 3%; delay 1ms-3ms 2%; seed 5"


@pytest.mark.parametrize("way", ["auto", "inline", "ring", "rendezvous", "datagram"])
@pytest.mark.parametrize("carrier", ["simulated", pytest.param("roce", marks=OVER_ROCE)])
def test_each_call_runs_once(carrier: str, way: str) -> None:
    plan = rpc.Strategies(way)

    async def side(client: rpc.Client) -> int:
        server = client.__dict__["server"]
        contexts = {link.pd.context for link in (client._link, *(each for each in server._guests))}
        for context in contexts:
            fault.set_rules(context, RULES)
        target = target_of(client)
        sums = await asyncio.gather(*(client.add(number, 1) for number in range(150)))
        assert sums == [number + 1 for number in range(150)]
        assert sorted(target.ran) == [(number, 1) for number in range(150)]
        for size in (100, 5000, 60_000):
            data = bytes([size % 251]) * size
            assert await client.late(data) == data
        assert [item async for item in client.times(2, range(40))] == list(range(0, 80, 2))
        for context in contexts:
            fault.set_rules(context, "")
        await quiet(client)
        datagrams = client._calls.datagrams
        return 0 if datagrams is None else datagrams.repeated  # type: ignore[attr-defined]

    options: Any = {"via": "socket", "strategies": plan}
    if carrier == "simulated":
        repeated = on_hosts(Sample, side, {"via": "socket"}, options)
    else:
        repeated = asyncio.run(live(Sample(), side, {"via": "socket"}, options))
    assert (repeated > 0) == (way == "datagram")


def test_a_call_is_cancelled_whose_datagrams_are_all_lost() -> None:
    """The server hears of the cancellation alone; it answers that, and runs nothing."""

    async def side(client: rpc.Client) -> list[Any]:
        fault.set_rules(client._link.pd.context, "drop opcode=ud-send-only")
        task = asyncio.create_task(client.add(1, 2))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await quiet(client)
        fault.set_rules(client._link.pd.context, "")
        assert await client.add(3, 4) == 7
        return target_of(client).ran

    options: Any = {"via": "socket", "strategies": rpc.Strategies("datagram")}
    assert on_hosts(Sample, side, {"via": "socket"}, options) == [(3, 4)]


@pytest.mark.parametrize("rules", ["delay 60ms", "drop nth=1"])
@pytest.mark.parametrize("carrier", ["simulated", pytest.param("roce", marks=OVER_ROCE)])
def test_a_goodbye_comes_later_than_the_end_of_the_socket(carrier: str, rules: str) -> None:
    """The client still knows that the server closed the connection."""

    async def side(client: rpc.Client) -> str:
        server = client.__dict__["server"]
        assert await client.add(1, 2) == 3
        await quiet(client)
        for link in server._guests:
            fault.set_rules(link.pd.context, rules)
        await server.close()
        while client.is_connected:
            await asyncio.sleep(0.001)
        with pytest.raises(rpc.ServerGone) as caught:
            await client.add(1, 2)
        return str(caught.value)

    options: Any = {"via": "socket"}
    if carrier == "simulated":
        said = on_hosts(Sample, side, options, options)
    else:
        said = asyncio.run(live(Sample(), side, options, options))
    assert "the peer closed it" in said
