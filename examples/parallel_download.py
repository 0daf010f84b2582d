# SPDX-License-Identifier: Apache-2.0
"""A file server whose clients connect by the connection manager, and download by READs.

The server says where its data are in the private data with which it accepts a connection, so there
is no other exchange: no socket, and no message. A client opens four connections at once and reads a
quarter of the data through each. Clients in C would use librdmacm.
"""

import asyncio
import struct
import sys
import zlib

from verbena import cm, verbs

PORT = 7471
SIZE = 1 << 20
PARTS = 4
OFFER = struct.Struct("!QIII")  # address, rkey, length and checksum


async def serve() -> None:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        data = pd.alloc(SIZE, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_READ)
        data.array("u4")[:] = range(SIZE // 4)
        offer = OFFER.pack(data.addr, data.rkey, SIZE, zlib.crc32(data))

        async def attend(request: cm.ConnectionRequest) -> None:
            async with await request.accept(private_data=offer, pd=pd) as conn:
                await conn.wait_closed()

        async with cm.listen(PORT) as listener, asyncio.TaskGroup() as clients:
            async for request in listener:
                clients.create_task(attend(request))


async def download_part(number: int, host: str, pd: verbs.PD, memory: verbs.MR) -> int:
    """Read one of the parts, and return the checksum of the whole."""
    async with cm.connect(host, PORT, pd=pd, timeout=10) as conn:
        addr, rkey, length, checksum = OFFER.unpack_from(conn.private_data)
        part = length // PARTS
        await conn.aqp.read(memory, addr + number * part, rkey, offset=number * part, length=part)
        return checksum


async def download(host: str) -> None:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        memory = pd.alloc(SIZE)
        async with asyncio.TaskGroup() as group:
            parts = [
                group.create_task(download_part(number, host, pd, memory))
                for number in range(PARTS)
            ]
        print(f"{SIZE} bytes; they are right: {parts[0].result() == zlib.crc32(memory)}")


asyncio.run(download(sys.argv[1]) if len(sys.argv) > 1 else serve())
