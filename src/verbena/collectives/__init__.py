# SPDX-License-Identifier: Apache-2.0
"""Collective calls on NumPy arrays, between ranks that are connected by ``verbena.peers``.

    async with await collectives.join(rank, size, "host:7174") as group:
        total = await group.all_reduce(array)

``verbena.collectives.sync`` has the same without asyncio. Both use verbena.peers alone, so they run
on Verbena, on simulated hosts, and on adapters by the system's libraries.
"""

from __future__ import annotations

from typing import Unpack

from verbena.cm.arguments import keywords
from verbena.peers import PeerOptions

from .choosing import ALGORITHMS
from .errors import (
    GroupError,
    MismatchedCall,
    RankDied,
    RankGaveUp,
    RankLeft,
    RanksAbsent,
)
from .group import Group
from .links import LINK_OPTIONS
from .operators import OPERATORS
from .rendezvous import Place, meet, place_from_environment

__all__ = [
    "ALGORITHMS",
    "OPERATORS",
    "Group",
    "GroupError",
    "MismatchedCall",
    "Place",
    "RankDied",
    "RankGaveUp",
    "RankLeft",
    "RanksAbsent",
    "join",
    "place_from_environment",
]


@keywords(PeerOptions, **LINK_OPTIONS)
async def join(
    rank: int | None = None,
    size: int | None = None,
    address: str | None = None,
    *,
    timeout: float | None = 60,
    **options: Unpack[PeerOptions],
) -> Group:
    """Join the group of ``size`` ranks whose rank 0 listens at ``address``, ``"host:port"``.

    Without arguments they come from the launcher's environment variables: those of ``verbena
    launch``, mpirun, srun or torchrun. ``options`` are those of ``verbena.connect``, the same at
    all ranks. Raises RanksAbsent after ``timeout`` seconds, ValueError, and OSError.
    """
    return Group(await meet(place_of(rank, size, address), options, timeout))


def place_of(rank: int | None, size: int | None, address: str | None) -> Place:
    """Return the place that the arguments or the environment give. Raises ValueError."""
    if rank is None and size is None and address is None:
        return place_from_environment()
    if rank is None or size is None or address is None:
        raise ValueError("join takes rank, size and address, or none of them")
    return Place(rank, size, address)
