# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated hosts under congestion: marks, notifications, and rates, as flows have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sim.fabrics import CCT, DCQCN, star
from tests.sim.programs import take_writes, write
from verbena import sim, verbs

PORT = 7471
SENDERS = 6
SIZE = 2 << 20
PAUSES = {"flow": "pauses", "stop": 48 << 10, "go": 24 << 10, "spare": 96 << 10}
ECN = {"lanes": [{**PAUSES, "mark": (5_000, 200_000, 0.01)}]}
FECN = {"lanes": [{"flow": "credits", "room": 32 << 10}], "fecn": 30_000}
LINK = {"rate": 40 * 10**9, "delay": 500_000}


def world(congestion: dict[str, Any] | None, switch: dict[str, Any], framing: str) -> sim.World:
    made = sim.World(seed=1, congestion=congestion, framing=framing)
    star(made, 1 + SENDERS, LINK, **switch)
    return made


def incast(
    congestion: dict[str, Any] | None, switch: dict[str, Any], framing: str = "ethernet"
) -> tuple[sim.World, dict[str, int], list[float]]:
    """Everybody writes to h0; the world, what all adapters counted, and the seconds of each."""
    counted: dict[str, int] = {}

    async def server() -> None:
        await asyncio.gather(*(take_writes(PORT + n, SIZE) for n in range(SENDERS)))

    async def sender(number: int) -> float:
        with verbs.open_device() as ctx:
            took = await write("h0", PORT + number, bytes(SIZE), 32)
            for name, count in ctx.counters()["engine"].items():
                counted[name] = counted.get(name, 0) + count
            return took

    made = world(congestion, switch, framing)
    programs = {f"h{n + 1}": sender(n) for n in range(SENDERS)}
    result = sim.run({"h0": server} | programs, made)
    assert made.check(at_rest=True) is None
    return made, counted, [result.returned[f"h{n + 1}"] for n in range(SENDERS)]


def pauses(made: sim.World) -> int:
    return int(made.links()["pauses"].sum())


def test_dcqcn_takes_the_place_of_pauses_and_shares_are_fair() -> None:
    alone, without, _ = incast(None, ECN)
    made, counted, took = incast(DCQCN, ECN)
    assert without["cnp_received"] == 0 < counted["cnp_received"]
    assert pauses(made) < pauses(alone) / 4
    assert made.links()["marked"].sum() > 0
    assert max(took) < 1.5 * min(took)


def test_the_table_of_infiniband_slows_programs() -> None:
    alone, without, _ = incast(None, FECN, "infiniband")
    made, counted, took = incast(CCT, FECN, "infiniband")
    assert without["cnp_received"] == 0 < counted["becn_received"]
    stalled = [int(each.links()["stalled"].sum()) for each in (alone, made)]
    assert stalled[1] < stalled[0] / 2
    assert max(took) < 1.5 * min(took)


@pytest.mark.parametrize("size", [256 << 10, SIZE])
def test_a_program_is_paced_as_a_flow_is(size: int) -> None:
    """One sender beside flows takes as long as a flow in its place would."""
    end = []
    for as_program in (True, False):
        made = world(DCQCN, ECN, "ethernet")
        made.add_flows(range(2, 7), 0, SIZE, 20_000_000, message=SIZE // 32, depth=32)
        if as_program:
            programs = {"h0": take_writes(PORT, size), "h1": write("h0", PORT, bytes(size), 32)}
            end.append(sim.run(programs, made).returned["h1"])
        else:
            made.add_flows(1, 0, size, 40_000_000, message=size // 32, depth=32)
            made.run()
            flow = made.flows()[-1]
            end.append(float(flow["finish"] - flow["start"]) / 1e12)
    assert end[0] == pytest.approx(end[1], abs=1e-11)
