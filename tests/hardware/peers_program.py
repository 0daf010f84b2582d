# SPDX-License-Identifier: Apache-2.0
"""Two sides of a connection to a peer: ``peers_program.py`` serves, ``peers_program.py HOST`` asks.

They exchange messages of many sizes, a loan, a shared array, atomics and a lent window. A side says
what it found, in one line for each.
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import sys

import numpy as np

import verbena
from verbena.peers import PeerConnection

PORT = 7300
MIB = 1 << 20
SIZES = (0, 1, 100, 4056, 4057, 65_536, MIB)  # 4056 bytes fit into a slot


def content(size: int) -> bytes:
    return np.random.default_rng(size).integers(0, 256, size, "u1").tobytes()


async def serve() -> None:
    async with verbena.listen(PORT) as listener:
        print("listening")
        async with await listener.accept() as conn:
            await answer_messages(conn)
            await share(conn)
            await lend(conn)
            print("the end:", await conn.wait_closed())


async def ask(host: str) -> None:
    async with verbena.connect(f"{host}:{PORT}") as conn:
        await send_messages(conn)
        await use_arrays(conn)
        await use_window(conn)


async def answer_messages(conn: PeerConnection) -> None:
    for _ in SIZES:
        await conn.send((await conn.recv())[::-1])
    async with conn.recv() as view:
        await conn.send(hashlib.sha256(view).digest())


async def send_messages(conn: PeerConnection) -> None:
    for size in SIZES:
        await conn.send(content(size))
        assert await conn.recv() == content(size)[::-1], size
    await conn.send(content(MIB))
    assert await conn.recv() == hashlib.sha256(content(MIB)).digest()
    print("messages are right")


async def share(conn: PeerConnection) -> None:
    table, large = conn.array((4, 3), "i8"), conn.array(MIB // 8, "i8")
    table[...] = np.arange(12).reshape(4, 3)
    large[...] = 7
    await conn.send(pickle.dumps((conn.share(table), conn.share(large))))
    await conn.recv()
    print("shared:", table.tolist(), int(large.sum()))


async def use_arrays(conn: PeerConnection) -> None:
    table, large = pickle.loads(await conn.recv())
    print("a slice:", (await table[1:3].get()).tolist())
    await table[3].put(np.zeros(3, "i8"))
    print("atomics:", await table[3, 0].fetch_add(5), await table[3, 1].compare_swap(0, 7))
    print("a large array:", int((await large.get()).sum()))
    await large[1:].put(np.arange(MIB // 8 - 1))
    await conn.send(b"used")


async def lend(conn: PeerConnection) -> None:
    table = conn.array((4, 3), "i8")
    async with conn.lend(table[1:3], write=True) as window:
        await conn.send(pickle.dumps(window))
        await conn.recv()
    await conn.send(b"over")
    print("lent:", table.tolist())


async def use_window(conn: PeerConnection) -> None:
    window = pickle.loads(await conn.recv())
    await window.put(np.ones((2, 3), "i8"))
    print("a window:", (await window.get()).tolist())
    await conn.send(b"done")
    await conn.recv()
    try:
        await window.get()
    except verbena.peers.PeerMemoryRevoked:
        print("the window has ended")


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1]) if sys.argv[1:] else serve())
