# SPDX-License-Identifier: Apache-2.0
"""Fault rules on simulated hosts: as on live devices, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.fabrics import star
from tests.sim.programs import End, called, calling
from verbena import aio, fault, sim, verbs

PORT = 7471
SIZE = 64 << 10
PIECE = 4096
DATA = random.Random(5).randbytes(SIZE)
Rules = list[fault.Rule | str]


def world() -> sim.World:
    made = sim.World()
    star(made, 2)
    return made


async def write_all(end: End, addr: int, rkey: int) -> None:
    memoryview(end.mr)[:] = DATA
    pieces = [end.qp.write(end.mr, addr + at, rkey, at, PIECE) for at in range(0, SIZE, PIECE)]
    for piece in pieces:
        await piece


def transfer(client: Rules, server: Rules = []) -> dict[str, Any]:  # noqa: B006
    """SIZE bytes are written by h1 into the memory of h0, under these rules at the two."""
    found: dict[str, Any] = {}

    async def take() -> bytes:
        async with called(PORT, SIZE, timeout=12) as end:
            fault.set_rules(end.ctx, *server)
            await end.tell_region()
            await end.wait_for_peer()
            found["server"] = end.ctx.counters()
            return bytes(memoryview(end.mr))

    async def give() -> float:
        async with calling("h0", PORT, SIZE, timeout=12) as end:
            addr, rkey = await end.region()
            fault.set_rules(end.ctx, *client)
            begin = asyncio.get_running_loop().time()
            await write_all(end, addr, rkey)
            took = asyncio.get_running_loop().time() - begin
            found["client"] = end.ctx.counters()
            found["acted"] = [one.acted for one in fault.counters(end.ctx)]
            await end.wait_for_peer()
            return took

    result = sim.run({"h0": take, "h1": give}, world())
    assert result.returned["h0"] == DATA
    assert result.world.check() is None
    found["took"] = result.returned["h1"]
    return found


@pytest.mark.parametrize(
    "rule",
    [
        fault.Drop(nth=3),
        fault.Drop(chance=0.2),
        fault.Duplicate(2, every=3),
        fault.Reorder(by=2, chance=0.3),
        fault.Delay(5e-5, 2e-4, chance=0.5),
        fault.Corrupt(every=7),
        fault.Truncate(every=5),
        fault.Drop(direction="in", every=2),
        fault.Delay(1e-4, direction="in"),
    ],
    ids=str,
)
def test_nothing_is_lost_under_any_rule(rule: fault.Rule) -> None:
    found = transfer([rule])
    assert found["acted"][0] > 0
    assert transfer([rule]) == found  # the same seed, the same run


def test_a_delay_is_exact() -> None:
    plain = transfer([])["took"]
    for seconds in (1e-6, 2.5e-4):
        late = transfer([fault.Delay(seconds)])["took"]
        assert late == pytest.approx(plain + seconds, abs=2e-9)
        answers = transfer([], [fault.Delay(seconds)])["took"]
        assert answers == pytest.approx(plain + seconds, abs=2e-9)


def test_a_lost_packet_costs_a_timeout_or_a_nak() -> None:
    plain = transfer([])["took"]
    middle, last = (transfer([fault.Drop(nth=n)]) for n in (3, SIZE // PIECE))
    assert middle["server"]["engine"]["nak_sequence_sent"] == 1
    assert plain < middle["took"] < plain + 20e-6
    assert last["server"]["engine"]["nak_sequence_sent"] == 0
    assert last["took"] > plain + 4.096e-6 * 2**12


def test_a_wrong_icrc_is_counted_by_who_gets_it() -> None:
    found = transfer([fault.Corrupt(nth=2), fault.Truncate(nth=9, good_icrc=False)])
    assert found["server"]["port"] == {"drop_icrc": 2}
    assert found["client"]["port"] == {"drop_icrc": 0}
    good = transfer([fault.Corrupt(at=5, good_icrc=True, nth=2)])
    assert good["server"]["port"] == {"drop_icrc": 0}
    assert good["server"]["engine"]["drop_no_qp"] == 1


def test_rules_are_taken_back_and_a_wrong_one_is_named() -> None:
    async def program() -> None:
        with verbs.open_device() as ctx:
            assert fault.counters(ctx) == []
            fault.set_rules(ctx, fault.Drop(nth=2))
            assert fault.counters(ctx) == [fault.Counter("drop nth=2", 0, 0)]
            fault.set_rules(ctx)
            assert fault.counters(ctx) == []
            with pytest.raises(ValueError, match="dorp"):
                fault.set_rules(ctx, "dorp")

    sim.run({"h0": program}, world())


def test_packets_that_are_held_go_when_the_rules_do() -> None:
    async def take() -> float:
        async with called(PORT) as end:
            received = end.qp.recv(end.mr)
            await end.wait_for_peer()
            await received
            now = asyncio.get_running_loop().time()
            await end.wait_for_peer()
            return now

    async def give() -> float:
        async with calling("h0", PORT) as end:
            await end.wait_for_peer()
            fault.set_rules(end.ctx, fault.Delay(1.0, opcode="send"))
            sent = end.qp.send(end.mr, length=100)
            await asyncio.sleep(1e-3)
            now = asyncio.get_running_loop().time()
            fault.set_rules(end.ctx)
            await sent
            await end.wait_for_peer()
            return now

    returned = sim.run({"h0": take, "h1": give}, world()).returned
    assert 0 < returned["h0"] - returned["h1"] < 1e-5


def test_packets_that_are_held_go_when_the_device_is_closed() -> None:
    async def take() -> float:
        async with called(PORT) as end:
            received = end.qp.recv(end.mr)
            await end.wait_for_peer()
            await received
            return asyncio.get_running_loop().time()

    async def give() -> float:
        async with calling("h0", PORT) as end:
            await end.wait_for_peer()
            fault.set_rules(end.ctx, fault.Delay(1e-3))
            end.qp.send(end.mr, length=100)
            return asyncio.get_running_loop().time()

    result = sim.run({"h0": take, "h1": give}, world())
    assert result.returned["h0"] - result.returned["h1"] == pytest.approx(1e-3, rel=0.01)
    assert result.world.check() is None


def test_datagrams_meet_the_rules_too() -> None:
    async def receiver() -> list[int]:
        with verbs.open_device() as ctx:
            pd = ctx.alloc_pd()
            with aio.AsyncCQ(ctx.create_cq(64, ctx.create_comp_channel())) as acq:
                qp = pd.create_qp(send_cq=acq.cq, qp_type=verbs.QPType.UD)
                mr = pd.alloc(4096, 1)
                verbs.bring_up_ud(qp)
                for _ in range(20):
                    qp.recv(mr)
                number.set_result(qp.qp_num)
                return [(await anext(acq)).imm_data for _ in range(10)]

    async def sender() -> None:
        with verbs.open_device() as ctx:
            fault.set_rules(
                ctx, fault.Drop(nth=2), fault.Duplicate(nth=3), fault.Delay(1e-3, nth=5)
            )
            pd = ctx.alloc_pd()
            qp = pd.create_qp(send_cq=ctx.create_cq(64), qp_type=verbs.QPType.UD)
            mr = pd.alloc(64, 1)
            verbs.bring_up_ud(qp)
            ah = pd.create_ah(dgid=b"\0" * 10 + b"\xff\xff\x0a\0\0\1", sgid_index=2, is_global=True)
            remote = {"ah": ah, "remote_qpn": await number, "remote_qkey": 0x11111111}
            for count in range(10):
                qp.send(mr, imm_data=count, **remote)
                await asyncio.sleep(1e-6)
            await asyncio.sleep(1)

    async def prepare(program: Callable[[], Any]) -> Any:
        nonlocal number
        number = asyncio.get_running_loop().create_future()
        return await program()

    number: asyncio.Future[int]
    result = sim.run({"h0": prepare(receiver), "h1": sender}, world())
    assert result.returned["h0"] == [0, 2, 3, 3, 4, 6, 7, 8, 9, 5]
