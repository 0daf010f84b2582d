# SPDX-License-Identifier: Apache-2.0
"""A simulated disk whose packets are lost, duplicated and late: RC repairs it, and nothing ends."""

from __future__ import annotations

import asyncio
import random

import pytest

from verbena import fabrics, fault, nvmeof, sim

NQN = "nqn.2026-01.org.example:disk0"
BLOCK, MIB = 4096, 1 << 20
PART = 64  # blocks of each writer
RULES = "drop 2% dir=both; duplicate 1%; delay 100us 1%; seed 3"


@pytest.mark.parametrize("kind", ["memory", "delayed"])
def test_packets_that_are_lost(kind: str) -> None:
    """Data by READ and WRITE and in capsules, several commands at once, on two queues."""
    shadow = bytearray(4 * PART * BLOCK)

    async def target() -> None:
        store: nvmeof.Store = nvmeof.MemoryStore(len(shadow))
        if kind == "delayed":
            store = nvmeof.DelayedStore(store, 1e-4, 2)
        model, subsystem = nvmeof.TargetModel(), nvmeof.Subsystem(NQN)
        subsystem.add(store, BLOCK)
        model.add(subsystem)
        async with nvmeof.Target(model) as made:
            await made.serve()

    async def writer(disk: nvmeof.Disk, number: int) -> None:
        draw = random.Random(number)
        for _ in range(20):
            count = draw.choice((1, 2, 16, 40))
            at = (number * PART + draw.randrange(PART - count)) * BLOCK
            data = draw.randbytes(count * BLOCK)
            await disk.write(at, data)
            shadow[at : at + len(data)] = data
            assert await disk.read(at, len(data)) == data

    async def host() -> list[fault.Counter]:
        options = nvmeof.HostOptions(queues=2)
        async with await nvmeof.connect("h0", NQN, options=options) as controller:
            disk, context = controller.disks[1], controller.pd.context
            fault.set_rules(context, RULES)
            await asyncio.gather(*(writer(disk, number) for number in range(4)))
            await disk.flush()
            assert await disk.read(0, len(shadow)) == shadow
            acted = fault.counters(context)
            fault.set_rules(context)
            assert controller.reconnects == 0
            return acted

    programs = {"h0": target, "h1": host}
    ran = sim.run(programs, fabrics.one_switch(2, rate="100GbE"), background={"h0"})
    assert all(each.acted for each in ran.returned["h1"])
