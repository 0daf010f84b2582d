# SPDX-License-Identifier: Apache-2.0
"""Lifetimes.

An object cannot be destroyed while another needs it: EBUSY, and nothing has changed. A protection
domain is needed by its regions, windows, queue pairs and shared receive queues, a completion queue
by the queue pairs and XRC SRQs that complete into it, a shared receive queue by those that receive
from it, an XRC domain by its SRQs and targets. A region is needed by the windows that are bound to
it. Otherwise its key stops working at once, also for requests that are posted and not yet carried
out, and a window's does in any case. A queue pair takes its requests with it, without a completion;
to its peer it is as if nobody answered. It has to leave its multicast groups first, which Python's
`close` does for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import windows, xrc

if TYPE_CHECKING:
    from .world import World


def users(world: World, name: str) -> list[str]:
    """The objects that need this one."""
    found = [
        qp.name
        for qp in world.qps.values()
        if name in ((qp.xrcd,) if qp.xrcd else (qp.pd, qp.send_cq, qp.recv_cq, qp.srq))
    ]
    found += [srq for srq, queue in world.srqs.items() if name in (queue.pd, queue.cq, queue.xrcd)]
    for process in world.processes.values():
        found += [one.name for one in process.regions.values() if one.pd == name]
        found += [null for null, pd in process.nulls.items() if pd == name]
        found += [window for window, made in process.windows.items() if made.pd == name]
        keys = [key for key, region in process.regions.items() if region.name == name]
        found += [key for key in keys if windows.covers(process, key)]
    return found


def close(world: World, name: str) -> str | None:
    """The errno of destroying an object."""
    if users(world, name):
        return "EBUSY"
    qp = world.qps.pop(name, None)
    if qp is not None:
        windows.unbind_all(world.memory(qp), qp)
    if world.srqs.pop(name, None):
        xrc.leave(world, name)
    for members in world.groups.values():
        members.discard(name)
    memory = world.processes[world.owner.pop(name)]
    memory.nulls.pop(name, None)
    memory.windows.pop(name, None)
    memory.regions = {k: region for k, region in memory.regions.items() if region.name != name}
    return None
