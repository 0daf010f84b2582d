# SPDX-License-Identifier: Apache-2.0
"""A key-value store: a PUT is a message, and a GET one READ of the server's table.

The server shares its table and takes PUTs; it does nothing for a GET. A slot has its key, its value
and a sum of both: a reader that came while the slot was written sees that, and reads again.
"""

import asyncio
import pickle
import sys
import zlib

import numpy as np

import verbena

PORT = 7174
SLOTS = 1024
SLOT = np.dtype([("sum", "u4"), ("key", "S60"), ("value", "S64")])


def place(key: bytes) -> int:
    return zlib.crc32(key) % SLOTS  # keys that meet replace each other, as in a cache


def sum_of(key: bytes, value: bytes) -> int:
    return zlib.crc32(key + b"\0" + value)


async def serve() -> None:
    async with verbena.listen(PORT) as listener, await listener.accept() as conn:
        table = conn.array(SLOTS, SLOT)
        await conn.send(pickle.dumps(conn.share(table)))
        async for message in conn:
            key, value = pickle.loads(message)
            table[place(key)] = (sum_of(key, value), key, value)
            await conn.send(b"stored")


async def get(table: verbena.peers.RemoteArray, key: bytes) -> bytes | None:
    while True:
        (slot,) = await table[place(key) : place(key) + 1].get()
        if not slot["sum"] or slot["sum"] == sum_of(slot["key"], slot["value"]):
            return bytes(slot["value"]) if slot["key"] == key else None


async def use(host: str) -> None:
    async with verbena.connect(f"{host}:{PORT}") as conn:
        table = pickle.loads(await conn.recv())
        for number in range(100):
            await conn.send(pickle.dumps((b"key %d" % number, b"value %d" % number)))
            await conn.recv()
        print("key 42 is", await get(table, b"key 42"))
        print("key 100 is", await get(table, b"key 100"))


asyncio.run(use(sys.argv[1]) if len(sys.argv) > 1 else serve())
