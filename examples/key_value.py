# SPDX-License-Identifier: Apache-2.0
"""A key-value server: clients PUT by a message, and GET by reading the server's memory.

The table is an array of slots in registered memory. A GET is one RDMA READ of the slot where the
key belongs, so the server does nothing for it, however many clients there are. A PUT is a SEND that
the server's asyncio program answers: only it writes the table, so slots need no locks. A reader
that comes while a slot is written sees that by the checksum, and reads again.
"""

import asyncio
import struct
import sys
import zlib

from verbena import aio, verbs

PORT = 18515
SLOTS, SIZE = 1024, 256
HEAD = struct.Struct("!IHH")  # checksum of the rest, bytes of the key, bytes of the value
TABLE = struct.Struct("!QI")  # address and rkey


def pack(key: bytes, value: bytes) -> bytes:
    body = struct.pack("!HH", len(key), len(value)) + key + value
    if 4 + len(body) > SIZE:
        raise ValueError(f"key and value have {SIZE - HEAD.size} bytes together at most")
    return struct.pack("!I", zlib.crc32(body)) + body


def unpack(slot: bytes) -> tuple[bytes, bytes] | None:
    """Key and value, which are empty in an empty slot; None when it is being written."""
    checksum, key, value = HEAD.unpack_from(slot)
    end = HEAD.size + key + value
    if key and zlib.crc32(slot[4:end]) != checksum:
        return None
    return slot[HEAD.size : HEAD.size + key], slot[HEAD.size + key : end]


def place(key: bytes, tries: int) -> int:
    """The offset of the slot to look at, after so many that belong to other keys."""
    return (zlib.crc32(key) + tries) % SLOTS * SIZE


class Server:
    def __init__(self, ctx: verbs.Context) -> None:
        self.pd, self.cq = (
            ctx.alloc_pd(),
            aio.AsyncCQ(ctx.create_cq(256, ctx.create_comp_channel())),
        )
        access = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_READ
        self.table = self.pd.alloc(SLOTS * SIZE, access)

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one client's PUTs, until it closes the connection."""
        with self.pd.create_qp(send_cq=self.cq.cq) as qp:
            aqp = aio.AsyncQP(qp, self.cq)
            inbox = self.pd.alloc(SIZE)
            await aio.connect_rc(qp, reader, writer)
            message = aqp.recv(inbox)  # before the client knows the table, and so may PUT
            writer.write(TABLE.pack(self.table.addr, self.table.rkey))
            gone = asyncio.create_task(reader.read(1))
            puts = asyncio.create_task(self.serve(aqp, inbox, message))
            await asyncio.wait((gone, puts), return_when=asyncio.FIRST_COMPLETED)
            puts.cancel()
            writer.close()

    async def serve(self, aqp: aio.AsyncQP, inbox: verbs.MR, message: aio.Operation) -> None:
        while True:
            length = (await message).byte_len
            self.put(bytes(inbox.array()[:length]))
            message = aqp.recv(inbox)
            await aqp.send(inbox, length=0)  # "it is there"

    def put(self, slot: bytes) -> None:
        key, _ = unpack(slot) or (b"", b"")
        table = self.table.array()
        for tries in range(SLOTS):
            at = place(key, tries)
            found = unpack(bytes(table[at : at + SIZE]))
            if found and found[0] in (b"", key):
                table[at : at + len(slot)] = memoryview(slot)
                return


class Client:
    """One request at a time."""

    async def connect(self, ctx: verbs.Context, host: str) -> None:
        pd, self.cq = ctx.alloc_pd(), aio.AsyncCQ(ctx.create_cq(16, ctx.create_comp_channel()))
        qp = pd.create_qp(send_cq=self.cq.cq)
        self.qp, self.memory, self.answer = aio.AsyncQP(qp, self.cq), pd.alloc(SIZE), pd.alloc(8)
        self.reader, self.writer = await asyncio.open_connection(host, PORT)
        await aio.connect_rc(qp, self.reader, self.writer)
        self.addr, self.rkey = TABLE.unpack(await self.reader.readexactly(TABLE.size))

    async def put(self, key: bytes, value: bytes) -> None:
        slot = pack(key, value)
        self.memory.array()[: len(slot)] = memoryview(slot)
        answered = self.qp.recv(self.answer)
        await self.qp.send(self.memory, length=len(slot))
        await answered

    async def get(self, key: bytes) -> bytes | None:
        tries = 0
        while tries < SLOTS:
            await self.qp.read(self.memory, self.addr + place(key, tries), self.rkey)
            found = unpack(bytes(self.memory.array()))
            if found and found[0] in (b"", key):
                return found[1] if found[0] else None
            tries += found is not None
        return None


async def serve() -> None:
    with verbs.open_device() as ctx:
        server = await asyncio.start_server(Server(ctx).client, port=PORT)
        async with server:
            await server.serve_forever()


async def use(host: str) -> None:
    with verbs.open_device() as ctx:
        client = Client()
        await client.connect(ctx, host)
        for n in range(100):
            await client.put(b"key %d" % n, b"value %d" % n)
        print("key 42 is", await client.get(b"key 42"))
        print("key 100 is", await client.get(b"key 100"))
        client.writer.close()


asyncio.run(use(sys.argv[1]) if len(sys.argv) > 1 else serve())
