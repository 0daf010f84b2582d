# SPDX-License-Identifier: Apache-2.0
"""Programs of verbs on simulated hosts, and a hash of their packets with the times of each.

python -m tests.sim.recorded_programs FOLDER: the digests of all, to compare processes.
Addresses of memory differ from process to process, so they are left out, and so is the ICRC, which
covers them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.sim.fabrics import LINK, star
from verbena import aio, sim, verbs
from verbena.verbs import QPType

PORT, SIZE, ALL = 7471, 20_000, 15
GID = b"\0" * 10 + b"\xff\xff\x0a\0\0\1"  # of h0
BTH = 14 + 20 + 8
WITH_ADDRESS = {6, 10, 11, 12, 19, 20, 38, 42, 43}  # opcodes with RETH or AtomicETH, RC and UC
DATAGRAMS = (1, 64, 1000, 1024) * 5
Program = Callable[[], Coroutine[Any, Any, Any]]


def frames(capture: bytes) -> Iterator[tuple[int, bytes]]:
    """(time, frame) of each packet of a pcapng file: its enhanced packet blocks."""
    at = 0
    while at < len(capture):
        kind, length = struct.unpack_from("<II", capture, at)
        if kind == 6:
            high, low, size = struct.unpack_from("<III", capture, at + 12)
            yield high << 32 | low, capture[at + 28 : at + 28 + size]
        at += length


def without_addresses(frame: bytes) -> bytes:
    """A frame without the address of memory and the key in it, and without its ICRC."""
    end = 14 + int.from_bytes(frame[16:18], "big")
    head, rest = frame[: BTH + 12], frame[BTH + 12 : end - 4]
    return head + (rest[12:] if frame[BTH] & 0x3F in WITH_ADDRESS else rest)


# ---- programs ------------------------------------------------------------------------------------


@asynccontextmanager
async def joined(
    kind: QPType, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> AsyncIterator[tuple[aio.AsyncQP, verbs.MR]]:
    """A QP that is connected to that of the peer, with memory, until both are done."""
    reader, writer = streams
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        with aio.AsyncCQ(ctx.create_cq(256, ctx.create_comp_channel())) as acq:
            qp = pd.create_qp(send_cq=acq.cq, qp_type=kind)
            mr = pd.alloc(SIZE, ALL)
            await aio.connect_rc(qp, reader, writer, gid_index=2, psn=100)
            yield aio.AsyncQP(qp, acq), mr
            writer.write(b"!")
            await reader.readexactly(1)
    writer.close()


def server(kind: QPType, receives: int) -> Program:
    """Offers its memory and takes so many messages. Returns a hash of what is in it at the end."""

    async def run() -> str:
        calls: asyncio.Queue[Any] = asyncio.Queue()
        listening = await asyncio.start_server(lambda *pair: calls.put_nowait(pair), None, PORT)
        async with listening:
            reader, writer = streams = await calls.get()
            async with joined(kind, streams) as (qp, mr):
                memoryview(mr)[:] = bytes(number % 251 for number in range(SIZE))
                taken = [qp.recv(mr, 4096 * number, 4096) for number in range(receives)]
                writer.write(struct.pack(">QI", mr.addr, mr.rkey))
                for one in taken:
                    await one
                await reader.readexactly(1)
                return hashlib.sha256(memoryview(mr)).hexdigest()

    return run


def client(
    kind: QPType, use: Callable[[aio.AsyncQP, verbs.MR, int, int], Awaitable[None]]
) -> Program:
    """Does something with the server's memory. Returns a hash of its own at the end."""

    async def run() -> str:
        reader, writer = streams = await asyncio.open_connection("h0", PORT)
        async with joined(kind, streams) as (qp, mr):
            memoryview(mr)[:] = bytes(number % 241 for number in range(SIZE))
            address, key = struct.unpack(">QI", await reader.readexactly(12))
            await use(qp, mr, address, key)
            writer.write(b"!")
            return hashlib.sha256(memoryview(mr)).hexdigest()

    return run


async def sends(qp: aio.AsyncQP, mr: verbs.MR, *_: int) -> None:
    for size in (1, 64, 1500, 4096):
        await qp.send(mr, length=size)


async def writes(qp: aio.AsyncQP, mr: verbs.MR, address: int, key: int) -> None:
    for one in [qp.write(mr, address, key, 0, size) for size in (8, 1000, SIZE)]:
        await one


async def reads(qp: aio.AsyncQP, mr: verbs.MR, address: int, key: int) -> None:
    for one in [qp.read(mr, address, key, 0, size) for size in (8, 1000, SIZE)]:
        await one


async def atomics(qp: aio.AsyncQP, mr: verbs.MR, address: int, key: int) -> None:
    for number in range(5):
        await qp.fetch_add(mr, address + 8, key, number + 1, offset=8 * number)
    await qp.compare_swap(mr, address, key, 0x0706050403020100, 5, offset=64)


async def everything(qp: aio.AsyncQP, mr: verbs.MR, address: int, key: int) -> None:
    for use in (sends, writes, reads, atomics):
        await use(qp, mr, address, key)


@asynccontextmanager
async def datagram_qp() -> AsyncIterator[tuple[verbs.QP, verbs.MR, aio.AsyncCQ]]:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        with aio.AsyncCQ(ctx.create_cq(64, ctx.create_comp_channel())) as acq:
            qp = pd.create_qp(send_cq=acq.cq, qp_type=QPType.UD)
            mr = pd.alloc(2048, 1)
            memoryview(mr)[:] = bytes(number % 251 for number in range(2048))
            verbs.bring_up_ud(qp, psn=100)
            yield qp, mr, acq


async def take_datagrams() -> list[tuple[int, int]]:
    """Messages of UD until none has come for a millisecond: (bytes, immediate data) of each."""
    calls: asyncio.Queue[Any] = asyncio.Queue()
    found: list[tuple[int, int]] = []
    listening = await asyncio.start_server(lambda *pair: calls.put_nowait(pair), None, PORT)
    async with listening, datagram_qp() as (qp, mr, acq):
        _, writer = await calls.get()
        for _ in DATAGRAMS:
            qp.recv(mr)
        writer.write(qp.qp_num.to_bytes(4, "big"))
        try:
            while len(found) < len(DATAGRAMS):
                async with asyncio.timeout(1e-3):
                    wc = await anext(acq)
                found.append((wc.byte_len, wc.imm_data))
        except TimeoutError:
            found.append((0, 0))
        writer.close()
        return found


async def give_datagrams() -> None:
    reader, writer = await asyncio.open_connection("h0", PORT)
    async with datagram_qp() as (qp, mr, acq):
        to = int.from_bytes(await reader.readexactly(4), "big")
        ah = qp.pd.create_ah(dgid=GID, sgid_index=2, is_global=True)
        for number, size in enumerate(DATAGRAMS):
            qp.send(mr, length=size, imm_data=number, ah=ah, remote_qpn=to, remote_qkey=0x11111111)
            await anext(acq)
        await reader.read()
    writer.close()


# ---- runs ----------------------------------------------------------------------------------------

LOSSY = {"bit_error_rate": 3e-6}
RUNS: dict[str, tuple[Program, Program, dict[str, float]]] = {
    "rc-send": (server(QPType.RC, 4), client(QPType.RC, sends), {}),
    "rc-write": (server(QPType.RC, 0), client(QPType.RC, writes), {}),
    "read": (server(QPType.RC, 0), client(QPType.RC, reads), {}),
    "atomics": (server(QPType.RC, 0), client(QPType.RC, atomics), {}),
    "uc-send": (server(QPType.UC, 4), client(QPType.UC, sends), {}),
    "uc-write": (server(QPType.UC, 0), client(QPType.UC, writes), {}),
    "ud": (take_datagrams, give_datagrams, {}),
    "rc-lossy": (server(QPType.RC, 4), client(QPType.RC, everything), LOSSY),
    "ud-lossy": (take_datagrams, give_datagrams, {"bit_error_rate": 3e-5}),
}


def packets_of(
    name: str, folder: Path, insides: tuple[int, ...] = ()
) -> tuple[list[tuple[int, int, bytes]], sim.Result]:
    """(host, ps, frame without addresses) of a run, as they pass the switch, and its result.

    ``insides``: hosts that get an inside.
    """
    serve, use, errors = RUNS[name]
    world = sim.World(3, timeout=8, mtu=1024)
    center = star(world, 2, {**LINK, **errors})
    for host in insides:
        world.inside(host)
    paths = [folder / f"{name}-{host}.pcapng" for host in range(2)]
    for host, path in enumerate(paths):
        world.capture(center, host, path)
    result = sim.run({"h0": serve, "h1": use}, world)
    assert world.check() is None
    return [
        (host, at, without_addresses(frame))
        for host, path in enumerate(paths)
        for at, frame in frames(path.read_bytes())
    ], result


def digest(name: str, folder: Path, insides: tuple[int, ...] = ()) -> str:
    """Of the packets, of what programs returned and when, and of what the links have counted."""
    packets, result = packets_of(name, folder, insides)
    parts = [f"{host} {at} {frame.hex()}" for host, at, frame in packets]
    parts += [json.dumps([result.returned, result.finished]), str(result.world.packets)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps({name: digest(name, Path(sys.argv[1])) for name in RUNS}))
