# SPDX-License-Identifier: Apache-2.0
"""The rows of what Python programs use: collective calls, Dask, calls of methods, and disks.

goals.py lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.dask_cases import DaskComm
from benchmarks.disk_cases import DiskLoad, NbdDisk, NvmeDisk
from benchmarks.goal import Better, Goal, Section
from benchmarks.rank_cases import RankCall
from benchmarks.rpc_cases import RpcCall
from verbena.measure.case import KIB, MIB, Unit, size_text


def collectives() -> Iterator[Goal]:
    """From Python, beside Open MPI by mpi4py; without goals."""
    for call, sizes in (
        ("barrier", (0,)),
        ("all_reduce", (8, MIB, 32 * MIB)),
        ("broadcast", (MIB,)),
        ("all_gather", (MIB,)),
        ("all_to_all", (MIB,)),
    ):
        for nbytes in sizes:
            name = f"{call}, {size_text(nbytes)}" if nbytes else call
            for transport, peer in (("tcp", "TCP"), ("vader", "shared memory")):
                other = RankCall(call, nbytes, transport)
                yield Goal(
                    Section.COLLECTIVES,
                    f"{name}, beside {peer}",
                    RankCall(call, nbytes),
                    other,
                    None,
                    Better.LOWER,
                )


def dask() -> Iterator[Goal]:
    """Beside Dask's own comm over TCP."""
    for name, what, unit, bound, better in (
        ("small message, there and back", "small", Unit.MICROSECONDS, 0.8, Better.LOWER),
        ("array of 100 MB between two processes", "array", Unit.BANDWIDTH, 2.0, Better.HIGHER),
        # 1.3 times as fast
        ("shuffle of a 1 GiB array, four workers", "shuffle", Unit.SECONDS, 0.77, Better.LOWER),
        ("the same, by Dask's p2p", "shuffle-p2p", Unit.SECONDS, 0.77, Better.LOWER),
        ("the same, in uneven pieces", "shuffle-uneven", Unit.SECONDS, 0.77, Better.LOWER),
        (
            "shuffle of a 1 GiB table, four workers",
            "shuffle-table",
            Unit.SECONDS,
            None,
            Better.LOWER,
        ),
        # 1.5 times as fast
        ("each of four fetches 384 MiB of others", "replicate", Unit.SECONDS, 0.67, Better.LOWER),
    ):
        ours, peer = DaskComm(what, "verbena", unit), DaskComm(what, "tcp", unit)
        yield Goal(Section.DASK, name, ours, peer, bound, better)


def calls() -> Iterator[Goal]:
    """Of verbena.rpc, beside gRPC and a bare exchange of bytes over TCP."""

    def row(name: str, ours: str, peer: str | None, size: int, bound: float | None) -> Goal:
        other = RpcCall(peer, size) if peer else None
        return Goal(Section.RPC, name, RpcCall(ours, size), other, bound, Better.LOWER)

    yield row("64 B, polled", "default", None, 64, 5.0)
    yield row("64 B, woken, beside a bare exchange", "woken, uvloop", "uvloop", 64, 1.0)
    yield row("64 B, beside gRPC", "default", "gRPC", 64, 1 / 20)
    yield row("64 B, woken, beside gRPC", "woken, uvloop", "gRPC", 64, None)
    yield row("1 MiB, beside gRPC", "default", "gRPC", MIB, 1 / 5)
    yield row("1 MiB, beside a bare exchange", "default", "uvloop", MIB, None)


def disks() -> Iterator[Goal]:
    """A disk in memory on the same host, beside nbdkit's over TCP."""
    for load, bound in ((DiskLoad("randread", 4 * KIB, 32), 1.5), (DiskLoad("read", MIB, 8), 2.0)):
        yield Goal(Section.DISKS, str(load), NvmeDisk(load), NbdDisk(load), bound)
