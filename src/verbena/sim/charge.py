# SPDX-License-Identifier: Apache-2.0
"""What a program computes on a simulated host takes a core of the host's inside: ``sim.charge``.

Programs of ``sim.run`` await it, and those in processes of their own (``remote``). A host without
an inside computes in no time, as it does everything else.
"""

from __future__ import annotations

import asyncio

from .callbacks import seconds_of
from .hosts import host_here

__all__ = ["charge"]


async def charge(
    name: str, *, us: float | None = None, cycles: int | None = None, core: int = 0
) -> None:
    """Compute on this program's host for so many microseconds, or cycles of its clock.

    ``name`` is what counters, lists of costs and timelines call it. The work waits for what the
    core has to do already, as interrupts and other charges, and whatever comes meanwhile waits for
    it. A program's requests and completions are on core 0; another ``core`` stands for a thread
    that it has there. Returns when the work is done, and at once on a host without an inside.
    Raises ValueError for a core that the host lacks, a time below 0 or beyond 1000 s and a name of
    the host's own costs; TypeError for an argument of another type, or unless one of ``us`` and
    ``cycles`` is given; RuntimeError outside of a program.
    """
    host = host_here()
    if host is None:
        raise RuntimeError("charge: this is no program on a simulated host (sim.run)")
    await _until(host.charge(name, us=us, cycles=cycles, core=core))


async def _until(ended: int | None) -> None:
    """Wait until a time of the world in ps; None: no longer."""
    if ended is None:
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    timer = loop.call_at(seconds_of(ended), _end, done)
    try:
        await done
    finally:
        timer.cancel()


def _end(done: asyncio.Future[None]) -> None:
    if not done.done():  # it may have been given up at this time
        done.set_result(None)
