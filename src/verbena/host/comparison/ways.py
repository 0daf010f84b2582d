# SPDX-License-Identifier: Apache-2.0
"""The ways in which the comparison moves the same bytes, in the order of its table.

``verbena compare`` and programs call ``compare_ways``. Each way builds computers of its own, so
that one leaves nothing warm for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host.comparison.disk_ways import by_dma, by_words
from verbena.host.comparison.rdma_ways import by_read, by_remote_disk, by_send, by_write
from verbena.host.comparison.recording import Recording
from verbena.host.comparison.rows import Row
from verbena.host.comparison.settings import Setup
from verbena.host.comparison.tcp_way import by_tcp
from verbena.host.errors import HostError, HostTypeError


@dataclass(frozen=True)
class Way:
    """``option`` is its name in commands, ``title`` in tables and pictures."""

    option: str
    title: str
    says: str
    run: Callable[[Setup, int, Recording | None], Row]


WAYS = {
    way.option: way
    for way in (
        Way("pio", "disk, PIO", "a disk, by programmed I/O", by_words),
        Way("dma", "disk, DMA", "a disk, by DMA", by_dma),
        Way(
            "remote-disk", "disk there, RDMA", "a disk of another computer, by RDMA", by_remote_disk
        ),
        Way("tcp", "memory, TCP", "memory to memory by TCP sockets", by_tcp),
        Way("send", "memory, SEND", "memory to memory by SEND and RECV", by_send),
        Way("write", "memory, WRITE", "memory to memory by RDMA WRITE", by_write),
        Way("read", "memory, READ", "memory to memory by RDMA READ", by_read),
    )
}


@checked_arguments(HostTypeError)
def compare_ways(
    size: int,
    ways: Iterable[str] | None = None,
    setup: Setup | None = None,
    recording: Recording | None = None,
) -> list[Row]:
    """Moves ``size`` bytes in each way, all if None, and returns a row for each.

    ``recording`` gets the timeline of each. HostError for a size that is no multiple of 8 or too
    large, and for an unknown way.
    """
    chosen = list(WAYS if ways is None else ways)
    if unknown := [name for name in chosen if name not in WAYS]:
        raise HostError(f"there is no way {unknown[0]!r}: there are {', '.join(WAYS)}")
    if recording is not None:
        recording.check(size)
    rows = []
    for name in chosen:
        if recording is not None:
            recording.title = WAYS[name].title
        rows.append(WAYS[name].run(setup or Setup(), size, recording))
    return rows
