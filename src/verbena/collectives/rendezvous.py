# SPDX-License-Identifier: Apache-2.0
"""How ranks find each other: rank 0 listens at an address that all know, and tells who is where.

``join`` calls this. Each other rank listens too, at any free port, and connects to rank 0 and then
to the ranks below its own; so there is one connection between any two ranks. Launchers say rank,
size and address by environment variables.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import verbena.peers as peers
from verbena.peers import (
    PeerConnection,
    PeerConnectionEnded,
    PeerError,
    PeerListener,
    PeerOptions,
)

from .errors import Fault, GroupError, RanksAbsent, error_of
from .links import LINK_OPTIONS, Links

__all__ = ["Place", "meet", "place_from_environment"]

_RETRY = 0.05  # seconds until a rank tries again to reach rank 0, which may not listen yet
_VARIABLES = (
    # rank, size: of Verbena, Open MPI, MPICH and others with PMI, Slurm, torchrun
    ("VERBENA_RANK", "VERBENA_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("RANK", "WORLD_SIZE"),
)
_ADDRESS = "VERBENA_ADDRESS"


@dataclass(frozen=True)
class Place:
    """A rank's place in the group; ``address`` is that of rank 0. TypeError, ValueError."""

    rank: int
    size: int
    address: str

    def __post_init__(self) -> None:
        for name in ("rank", "size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} is a whole number, and not {value!r}")
            object.__setattr__(self, name, operator.index(value))
        if self.size < 1 or not 0 <= self.rank < self.size:
            raise ValueError(f"rank is from 0 to size - 1, and not {self.rank} of size {self.size}")


def place_from_environment(base: Mapping[str, str] = os.environ) -> Place:
    """Return the place that a launcher has set. Raises ValueError if there is none."""
    for rank, size in _VARIABLES:
        if rank in base and size in base:
            break
    else:
        raise ValueError(
            "no launcher has set a rank: start the program by `verbena launch -n RANKS -- PROGRAM`,"
            " by mpirun or srun, or call join(rank, size, address)"
        )
    address = base.get(_ADDRESS)
    if address is None and "MASTER_ADDR" in base:
        address = f"{base['MASTER_ADDR']}:{base.get('MASTER_PORT', '7174')}"
    if address is None:
        if int(base[size]) > 1:
            raise ValueError(
                f"{rank} is set, but no address of rank 0: set {_ADDRESS} to host:port, the same"
                " for all ranks"
            )
        address = "localhost:0"
    return Place(int(base[rank]), int(base[size]), address)


async def meet(place: Place, options: PeerOptions, timeout: float | None) -> Links:
    """Connect to all other ranks. Raises RanksAbsent, GroupError, and OSError."""
    links = Links(place.rank, place.size)
    if place.size == 1:
        return links
    options = LINK_OPTIONS | options
    try:
        async with asyncio.timeout(timeout):
            if place.rank == 0:
                await _receive_all(place, links, options)
            else:
                await _go_to_all(place, links, options)
    except TimeoutError:
        absent = sorted(set(range(place.size)) - links.connected - {place.rank})
        links.abort()
        names = ", ".join(map(str, absent)) or "none"
        raise RanksAbsent(
            f"rank {place.rank} of {place.size} waited {timeout:g} s at {place.address}; ranks that"
            f" did not come: {names}",
            absent[0] if absent else None,
            110,
        ) from None
    except BaseException:
        links.abort()
        raise
    return links


async def _receive_all(place: Place, links: Links, options: PeerOptions) -> None:
    """Rank 0: give each rank the addresses of all as soon as all are here."""
    addresses: dict[int, str] = {}
    waiting: dict[int, PeerConnection] = {}
    async with peers.listen(place.address, **options) as listener:
        while len(waiting) < place.size - 1:
            try:
                conn, told = await _accept(listener)
            except PeerConnectionEnded:
                continue  # its rank may come again
            if problem := _problem(told, place, waiting):
                with suppress(PeerError):
                    await conn.send(json.dumps({"problem": problem}).encode())
                    await conn.close()
                continue
            rank = told["rank"]
            links.add(rank, conn)
            waiting[rank] = conn
            host = conn.peer.rpartition(":")[0]
            addresses[rank] = f"{host}:{told['port']}"
        answer = json.dumps({"addresses": addresses}).encode()
        for rank, conn in waiting.items():
            with _blaming(rank):
                await conn.send(answer)
    for rank, conn in waiting.items():
        with _blaming(rank):
            await conn.recv()  # it has all its links


async def _go_to_all(place: Place, links: Links, options: PeerOptions) -> None:
    async with AsyncExitStack() as stack:
        above = place.size - 1 - place.rank
        listener = await stack.enter_async_context(peers.listen(0, **options)) if above else None
        first = await _dial(place.address, options)
        links.add(0, first)
        told = {"rank": place.rank, "size": place.size, "port": listener.port if listener else 0}
        with _blaming(0):
            await first.send(json.dumps(told).encode())
            answer = _parse(await first.recv())
        if "problem" in answer:
            raise GroupError(answer["problem"], place.rank, 22)
        try:
            async with asyncio.TaskGroup() as group:
                if listener is not None:
                    group.create_task(_accept_all(listener, links, above))
                for rank in range(1, place.rank):
                    address = answer["addresses"][str(rank)]
                    group.create_task(_connect(address, rank, links, options))
        except BaseExceptionGroup as several:  # the first has ended the others
            raise several.exceptions[0] from None
        with _blaming(0):
            await first.send(b"")


async def _accept_all(listener: PeerListener, links: Links, count: int) -> None:
    for _ in range(count):
        conn, told = await _accept(listener)
        links.add(told["rank"], conn)


async def _accept(listener: PeerListener) -> tuple[PeerConnection, dict[str, Any]]:
    """Return the next connection, and what its rank says first.

    A connection that does not get that far is closed: no link has it yet. Raises GroupError, and
    OSError.
    """
    conn = await listener.accept()
    try:
        return conn, _parse(await conn.recv())
    except BaseException:
        conn.abort()
        raise


async def _connect(address: str, rank: int, links: Links, options: PeerOptions) -> None:
    conn = await peers.connect(address, **options)
    links.add(rank, conn)  # so that a failure from here on closes it
    with _blaming(rank):
        await conn.send(json.dumps({"rank": links.rank}).encode())


@contextmanager
def _blaming(rank: int) -> Iterator[None]:
    """Have the end of the connection to a rank say which rank that was."""
    try:
        yield
    except PeerConnectionEnded as error:
        raise error_of(Fault.DIED, rank) from error


async def _dial(address: str, options: PeerOptions) -> PeerConnection:
    """Connect to rank 0, which may not listen yet."""
    while True:
        try:
            return await peers.connect(address, **options)
        except ConnectionRefusedError:
            await asyncio.sleep(_RETRY)


def _parse(message: bytes) -> dict[str, Any]:
    try:
        told = json.loads(message)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise GroupError(f"another program is at the address: it says {message[:20]!r}", code=71)
    return told


def _problem(told: dict[str, Any], place: Place, known: dict[int, PeerConnection]) -> str | None:
    rank, size = told.get("rank"), told.get("size")
    if size != place.size:
        return f"rank {rank} has joined with size {size}, and rank 0 with {place.size}"
    if not isinstance(rank, int) or not 0 < rank < place.size:
        return f"there is no rank {rank!r} in a group of {place.size}"
    if rank in known:
        return f"there are two programs with rank {rank}: each rank joins once"
    return None
