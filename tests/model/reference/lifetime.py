# SPDX-License-Identifier: Apache-2.0
"""Lifetimes.

An object cannot be destroyed while another needs it: EBUSY, and nothing has changed. A protection
domain is needed by its regions, queue pairs and shared receive queues, a completion queue by the
queue pairs that complete into it, a shared receive queue by those that receive from it. A region is
needed by nobody: its key stops working at once, also for requests that are posted and not yet
carried out. A queue pair takes its requests with it, without a completion; to its peer it is as if
nobody answered. It has to leave its multicast groups first, which Python's `close` does for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .world import World


def users(world: World, name: str) -> list[str]:
    """The objects that need this one."""
    found = [
        qp.name for qp in world.qps.values() if name in (qp.pd, qp.send_cq, qp.recv_cq, qp.srq)
    ]
    found += [srq for srq, queue in world.srqs.items() if queue.pd == name]
    for process in world.processes.values():
        found += [key for key, region in process.regions.items() if region.pd == name]
    return found


def close(world: World, name: str) -> str | None:
    """The errno of destroying an object."""
    if users(world, name):
        return "EBUSY"
    world.owner.pop(name)
    world.qps.pop(name, None)
    world.srqs.pop(name, None)
    for members in world.groups.values():
        members.discard(name)
    for process in world.processes.values():
        process.regions.pop(name, None)
    return None
