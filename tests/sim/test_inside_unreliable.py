# SPDX-License-Identifier: Apache-2.0
"""Programs' UD and UC requests on hosts with an inside: complete when their packets have left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import star
from verbena import aio, sim, verbs
from verbena.sim.inside import COSTS, Inside

UP, MEMORY, WIRE = 252, 254, 255
SIZE = 2048
GID = b"\0" * 10 + b"\xff\xff\x0a\0\0\1"  # of h0


async def idle() -> None:
    await asyncio.sleep(0.01)


async def sends(qp_type: verbs.QPType, count: int, size: int) -> list[float]:
    """Send so many at once to a QP that is not there. Returns the times in us until each is
    complete."""
    with verbs.open_device() as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(256, ctx.create_comp_channel())
        qp = pd.create_qp(send_cq=cq, qp_type=qp_type, max_send_wr=64)
        mr = pd.alloc(size, verbs.AccessFlags.LOCAL_WRITE)
        ah = pd.create_ah(dgid=GID, sgid_index=2, is_global=True)
        to: dict[str, Any] = {}
        if qp_type == verbs.QPType.UD:
            verbs.bring_up_ud(qp)
            to = {"ah": ah, "remote_qpn": 99, "remote_qkey": 0x11111111}
        else:
            peer = verbs.QPInfo(qp_type, 99, 0, 0, GID, verbs.MTU.MTU_2048)
            verbs.bring_up(qp, replace(peer, qp_num=qp.qp_num), peer, 2)
        begin = asyncio.get_running_loop().time()
        for _ in range(count):
            qp.send(mr, **to)
        with aio.AsyncCQ(cq) as acq:
            times = []
            for _ in range(count):
                wc = await anext(acq)
                assert wc.status == verbs.WCStatus.SUCCESS
                times.append((asyncio.get_running_loop().time() - begin) * 1e6)
            return times


def run(
    qp_type: verbs.QPType, count: int = 1, size: int = SIZE, **inside: Any
) -> tuple[list[float], Inside]:
    world = sim.World(3)
    star(world, 2)
    host = world.inside("h1", slices=10_000, **inside)
    result = sim.run({"h0": idle, "h1": lambda: sends(qp_type, count, size)}, world)
    assert world.check(at_rest=True) is None
    return result.returned["h1"], host


@pytest.mark.parametrize("qp_type", [verbs.QPType.UD, verbs.QPType.UC])
@pytest.mark.parametrize("interrupts", [None, {}, {"time": "3 us", "packets": 4}])
@pytest.mark.parametrize("count", [1, 9])
def test_a_completion_is_behind_the_payload_and_the_packet(
    qp_type: verbs.QPType, interrupts: dict[str, Any] | None, count: int
) -> None:
    _, host = run(qp_type, count, interrupts=interrupts)
    slices, seen = host.slices(), host.counters()
    assert (seen.fetched, seen.completions) == (count * SIZE, count)
    fetched = np.sort(slices["end"][slices["row"] == MEMORY])
    left = np.sort(slices["at"][slices["row"] == WIRE])
    written = np.sort(slices["at"][(slices["row"] == UP) & (slices["bytes"] == 24 + 64)])
    assert len(fetched) == len(left) == len(written) == count
    assert (written >= left).all()
    assert (left > fetched).all()
    polled = np.sort(slices["at"][(slices["row"] == 0) & (slices["what"] == COSTS.index("poll"))])
    assert polled[0] > written[0]


@pytest.mark.parametrize("qp_type", [verbs.QPType.UD, verbs.QPType.UC])
def test_requests_do_not_wait_for_the_packets_before_them(qp_type: verbs.QPType) -> None:
    """Reads overlap: 30 take the link's time, and not a round trip each."""
    (alone,), _ = run(qp_type)
    times, host = run(qp_type, 30)
    link = host.counters().down.busy / 1e6
    assert alone > 0.9 + 0.45  # a round trip for the payload, and half of one for the completion
    assert times[-1] < alone + link + 10
    assert times[-1] < 30 * 0.9
