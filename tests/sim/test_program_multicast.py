# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated hosts in multicast groups: the switches' tables follow who is there."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sim.fabrics import chain, credits
from verbena import aio, fabrics, sim, verbs

QKEY = 0x11111111
GRH = 40
GROUP = ipaddress.IPv4Address("239.7.7.1")
FLOW_CONTROL: dict[str, dict[str, Any]] = {
    "one lossy queue": {},
    "credits": credits(16 << 10),
    "pauses": {"lanes": [{"flow": "pauses", "stop": 8192, "go": 4096, "spare": 64 << 10}]},
}


def gid(group: ipaddress.IPv4Address) -> bytes:
    return b"\0" * 10 + b"\xff\xff" + group.packed


@dataclass
class Station:
    """A UD QP on the caller's host, with receives posted."""

    ctx: verbs.Context
    acq: aio.AsyncCQ
    qp: verbs.QP
    mr: verbs.MR

    def send(self, number: int, group: ipaddress.IPv4Address = GROUP, length: int = 1000) -> None:
        ah = self.qp.pd.create_ah(dgid=gid(group), sgid_index=2, is_global=True)
        words = {"remote_qpn": verbs.MULTICAST_QPN, "remote_qkey": QKEY}
        self.qp.send(self.mr, 0, length, ah=ah, imm_data=number, **words)

    async def numbers(self, count: int) -> list[int]:
        """The immediate data of that many datagrams; of what is sent nothing completes here."""
        found = []
        while len(found) < count:
            wc = await anext(self.acq)
            wc.raise_for_status()
            if wc.opcode == verbs.WCOpcode.RECV:
                found.append(wc.imm_data)
        return found


@asynccontextmanager
async def station(receives: int = 64) -> AsyncIterator[Station]:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        with aio.AsyncCQ(ctx.create_cq(256, ctx.create_comp_channel())) as acq:
            qp = pd.create_qp(send_cq=acq.cq, qp_type=verbs.QPType.UD, max_recv_wr=receives)
            mr = pd.alloc(8192, verbs.AccessFlags.LOCAL_WRITE)
            verbs.bring_up_ud(qp)
            for _ in range(receives):
                qp.recv(mr, 4096, 4096)
            yield Station(ctx, acq, qp, mr)


def row(**switch: Any) -> sim.World:
    """h0, h1 - switch - h2 - switch - h3, h4."""
    world = sim.World()
    chain(world, [2, 1, 2], **switch)
    return world


@pytest.mark.parametrize("name", FLOW_CONTROL)
def test_members_everywhere_receive_in_order(name: str) -> None:
    count = 20

    async def member() -> list[int]:
        async with station() as here:
            here.qp.attach_mcast(gid(GROUP))
            return await here.numbers(count)

    async def sender() -> None:
        async with station() as here:
            await asyncio.sleep(1e-3)
            for number in range(count):
                here.send(number, length=4000)
            await asyncio.sleep(1e-3)

    programs = {"h0": member, "h1": member, "h2": sender, "h4": member}
    result = sim.run(programs, row(**FLOW_CONTROL[name]))
    expected = {host: list(range(count)) for host in ("h0", "h1", "h4")}
    assert {host: result.returned[host] for host in expected} == expected
    assert result.world.links()["dropped_route"].sum() == 0
    assert result.world.check(at_rest=True) is None


def test_links_without_members_carry_nothing() -> None:
    async def member() -> None:
        async with station() as here:
            here.qp.attach_mcast(gid(GROUP))
            await here.numbers(1)

    async def sender() -> None:
        async with station() as here:
            await asyncio.sleep(1e-3)
            here.send(0)

    world = sim.run({"h0": sender, "h1": member, "h2": member}, row()).world
    links = world.links()
    used = {(int(link["node"]), int(link["port"])) for link in links if link["packets"]}
    assert used == {(3, 0), (0, 3), (0, 1), (1, 2)}  # nodes 0 to 2 are the switches


def test_tables_follow_who_comes_and_goes() -> None:
    seen: dict[str, list[int]] = {}

    async def guest(name: str, comes: float, leaves: float) -> None:
        async with station() as here:
            await asyncio.sleep(comes)
            here.qp.attach_mcast(gid(GROUP))
            await asyncio.sleep(leaves - comes)
            here.qp.detach_mcast(gid(GROUP))
            await asyncio.sleep(10 - leaves)
            seen[name] = [wc.imm_data for wc in here.acq.cq.poll(64)]

    async def sender() -> None:
        async with station() as here:
            for second in range(6):
                here.send(second)
                await asyncio.sleep(1)

    programs = {
        "h0": sender,
        "h1": lambda: guest("h1", 0.5, 3.5),
        "h2": lambda: guest("h2", 2.5, 4.5),
        "h4": lambda: guest("h4", 1.5, 2.5),
    }
    world = sim.run(programs, row()).world
    assert seen == {"h1": [1, 2, 3], "h2": [3, 4], "h4": [2]}
    assert world.links()["dropped_route"].sum() == 2  # in the first second and in the last


def test_groups_are_apart_and_more_than_a_fabric_knows_are_refused() -> None:
    others = [GROUP + number for number in range(512)]

    async def member() -> list[int]:
        async with station() as here:
            for group in others:
                here.qp.attach_mcast(gid(group))
            with pytest.raises(verbs.VerbsError, match="512 groups"):
                here.qp.attach_mcast(gid(GROUP + 512))
            for group in others[1:]:
                here.qp.detach_mcast(gid(group))
            return await here.numbers(1)

    async def late() -> None:
        async with station() as here:
            await asyncio.sleep(1)
            here.send(1, GROUP + 1)
            here.send(7, GROUP)
            here.qp.attach_mcast(gid(GROUP + 600))  # in the place of one that is gone
            await asyncio.sleep(1)

    assert sim.run({"h0": member, "h3": late}, row()).returned["h0"] == [7]


def test_what_no_way_leads_to_is_refused() -> None:
    world = sim.World()
    for _ in range(2):
        center = world.add_switch(2)
        host = world.add_host()
        world.connect(host, 0, center, 0, rate=10**9, delay=0)

    async def first() -> None:
        async with station() as here:
            here.qp.attach_mcast(gid(GROUP))
            await asyncio.sleep(1)

    async def second() -> None:
        async with station() as here:
            await asyncio.sleep(0.5)
            with pytest.raises(verbs.VerbsError, match="no way of the simulated fabric"):
                here.qp.attach_mcast(gid(GROUP))
            here.qp.attach_mcast(gid(GROUP + 1))

    sim.run({"h0": first, "h1": second}, world)


def test_flows_to_groups_and_programs_in_groups_do_not_meet() -> None:
    fabric = fabrics.route(fabrics.fat_tree(4, rate="100GbE"))
    world = sim.World()
    sim.build(world, fabric)
    group = sim.add_group(world, fabric.fabric, ["h1", "h9", "h15"])
    world.add_flows(0, group, 100_000, transport="ud", multicast=True, message=1000)

    async def member() -> list[int]:
        async with station() as here:
            here.qp.attach_mcast(gid(GROUP))
            return await here.numbers(5)

    async def sender() -> None:
        async with station() as here:
            await asyncio.sleep(1e-6)
            for number in range(5):
                here.send(number)
            await asyncio.sleep(1)

    result = sim.run({f"h{n}": member for n in (1, 2, 15)} | {"h8": sender}, world)
    assert all(result.returned[f"h{n}"] == list(range(5)) for n in (1, 2, 15))
    assert world.flows()["done"][0] == 3 * 100_000
    assert world.check(at_rest=True) is None


class Cycle:
    """Only the garbage collector destroys it."""

    def __init__(self, qp: verbs.QP) -> None:
        self.qp, self.me = qp, self


def test_a_queue_pair_that_is_garbage_does_not_disturb_who_joins() -> None:
    """Nothing is collected while the tree of a group is made, which allocates a lot: the queue pair
    would leave its group, under a lock that the joining one holds."""

    async def member() -> bool:
        async with station() as here:
            lost = here.qp.pd.create_qp(send_cq=here.acq.cq, qp_type=verbs.QPType.UD)
            verbs.bring_up_ud(lost)
            lost.attach_mcast(gid(GROUP))
            world.connect(*spare, rate=10**9, delay=0)  # so that all links are listed again
            gc.collect()
            cycle = Cycle(lost)
            gone = weakref.ref(cycle)
            del lost, cycle
            here.qp.attach_mcast(gid(GROUP + 1))
            gc.collect()
            return gone() is None

    world = sim.World()
    sim.build(world, fabrics.route(fabrics.fat_tree(16)))
    spare = (world.add_switch(1), 0, world.add_switch(1), 0)
    assert sim.run({"h0": member}, world).returned["h0"]
