# SPDX-License-Identifier: Apache-2.0
"""A disk in the memory of a server: `remote_disk.py` serves it, and `remote_disk.py HOST` uses it.

The client may be killed and started again, and the server's other clients do not notice.
"""

import asyncio
import sys

from verbena import nvmeof

NQN = "nqn.2026-01.org.example:remote"


async def serve() -> None:
    """Offer a disk of 16 MiB to every host, until this is ended."""
    subsystem = nvmeof.Subsystem(NQN)
    subsystem.add(nvmeof.MemoryStore(16 << 20), block_size=4096)
    model = nvmeof.TargetModel()
    model.add(subsystem)
    async with nvmeof.Target(model) as target:
        await target.serve()


async def use(host: str) -> None:
    """Write the disk, and read it back, with many requests under way."""
    async with await nvmeof.connect(host, NQN) as controller:
        disk = controller.disks[1]
        print(f"{disk.size} bytes in blocks of {disk.block_size}")
        pieces = range(0, disk.size, 1 << 20)
        await asyncio.gather(*(disk.write(at, bytes([at >> 20]) * (1 << 20)) for at in pieces))
        await disk.flush()
        found = await asyncio.gather(*(disk.read(at, 4096) for at in pieces))
        print("each piece is right:", all(found[n] == bytes([n]) * 4096 for n in range(len(found))))


if __name__ == "__main__":
    asyncio.run(use(sys.argv[1]) if sys.argv[1:] else serve())
