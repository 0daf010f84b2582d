# SPDX-License-Identifier: Apache-2.0
"""A stream keeps no borders of writes, whatever its reader does; a SEND is a message, over the same
links. The framing problem is the difference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from tests.sim.programs import called, calling
from verbena import fabrics, sim

SEGMENT = 1460  # bytes of data, with the MSS of Ethernet frames


def ring() -> fabrics.Fabric:
    return fabrics.ring(3, rate="10GbE", length_m=5)


async def note_pieces(
    found: list[bytes],
    done: asyncio.Event,
    most: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    while piece := await reader.read(most):
        found.append(piece)
    writer.close()
    done.set()


async def reads(found: list[bytes], most: int) -> None:
    done = asyncio.Event()
    serve = partial(note_pieces, found, done, most)
    async with await asyncio.start_server(serve, "h0", 7000):
        await done.wait()


async def writes(parts: Sequence[bytes]) -> None:
    _, writer = await asyncio.open_connection("h0", 7000)
    for part in parts:
        writer.write(part)
    writer.close()


def pieces(parts: Sequence[bytes], most: int = 1 << 20) -> list[int]:
    """How long the pieces are that a reader gets."""
    found: list[bytes] = []
    programs = {"h0": lambda: reads(found, most), "h1": lambda: writes(parts)}
    sim.run(programs, ring(), sockets="tcp")
    assert b"".join(found) == b"".join(parts)
    return [len(piece) for piece in found]


def of_sizes(sizes: Sequence[int]) -> list[bytes]:
    return [bytes([number + 1]) * size for number, size in enumerate(sizes)]


def messages(parts: Sequence[bytes]) -> list[bytes]:
    """The messages that a queue pair receives, over the same links as its control stream."""

    async def receives() -> list[bytes]:
        async with called(7471, 8192 * len(parts)) as end:
            posted = [
                end.qp.recv(end.mr, offset=8192 * number, length=8192)
                for number in range(len(parts))
            ]
            await end.wait_for_peer()
            lengths = [(await each).byte_len for each in posted]
            data = memoryview(end.mr)
            return [
                bytes(data[8192 * number : 8192 * number + length])
                for number, length in enumerate(lengths)
            ]

    async def sends() -> None:
        async with calling("h0", 7471, 8192 * len(parts)) as end:
            memoryview(end.mr)[: sum(map(len, parts))] = b"".join(parts)
            await end.wait_for_peer()
            starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
            await asyncio.gather(
                *[
                    end.qp.send(end.mr, offset=start, length=len(part))
                    for start, part in zip(starts, parts, strict=True)
                ]
            )

    done = sim.run({"h0": receives, "h1": sends}, ring(), sockets="tcp")
    found: list[bytes] = done.returned["h0"]
    return found


@pytest.mark.parametrize(
    ("sizes", "most", "read"),
    [
        ((100, 200), 1 << 20, [300]),  # two writes are one piece
        ((100, 200), 150, [150, 150]),
        ((3000,), 1 << 20, [SEGMENT, SEGMENT, 80]),  # and one is three
        ((100, 3000), 1 << 20, [SEGMENT, SEGMENT, 180]),
    ],
)
def test_a_stream_cuts_and_joins_what_sends_keep_apart(
    sizes: tuple[int, ...], most: int, read: list[int]
) -> None:
    parts = of_sizes(sizes)
    found = pieces(parts, most)
    assert found == read
    assert found != [*sizes]
    assert messages(parts) == parts
