# SPDX-License-Identifier: Apache-2.0
"""A host in a process of its own: `host_child.py ADDRESS NQN WHAT ...` (see `main`).

NVME_PORT and NVME_NSID choose another port than 4420, and another namespace than 1. NVME_BEGIN and
NVME_SIZE are the bytes that `verify` writes: 16 MiB from the first on, unless they say otherwise.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sys
import time

from verbena import nvmeof

BLOCK = 4096
PORT = int(os.environ.get("NVME_PORT", nvmeof.PORT))
NSID = int(os.environ.get("NVME_NSID", "1"))
BEGIN = int(os.environ.get("NVME_BEGIN", "0"))
CONNECTED = "connected after"  # seconds
SIZE = int(os.environ.get("NVME_SIZE", str(16 << 20)))


async def verify(controller: nvmeof.HostController, rounds: int, seconds: float) -> None:
    """Eight writers at random places; a shadow says what the disk has to have at the end."""
    disk = controller.disks[NSID]
    blocks = min(disk.size - BEGIN, SIZE) // BLOCK
    shadow = bytearray(await disk.read(BEGIN, blocks * BLOCK))
    until = time.monotonic() + seconds

    async def writer(number: int) -> int:
        draw = random.Random(BEGIN + number)
        part = blocks // 8
        done = 0
        while done < rounds or (not rounds and time.monotonic() < until):
            count = draw.choice((1, 1, 2, 16, 64))
            at = number * part + draw.randrange(part - count)
            data = draw.randbytes(count * BLOCK)
            await disk.write(BEGIN + at * BLOCK, data)
            shadow[at * BLOCK : (at + count) * BLOCK] = data
            if draw.random() < 0.3:
                assert await disk.read(BEGIN + at * BLOCK, count * BLOCK) == data
            done += 1
        return done

    counts = await asyncio.gather(*(writer(number) for number in range(8)))
    await disk.flush()
    assert await disk.read(BEGIN, len(shadow)) == shadow
    faults = "none"
    if "VERBENA_FAULT" in os.environ:
        faults = repr(controller.pd.context.fault_counters())
    said = f"writes={sum(counts)} reconnects={controller.reconnects} faults={faults}"
    print(f"VERIFIED {said}", flush=True)


async def commands(controller: nvmeof.HostController) -> None:
    """Those that Linux' target has, and one that it has not."""
    disk = controller.disks[NSID]
    await disk.write(0, b"x" * BLOCK, durable=True)
    await disk.write_zeroes(0, BLOCK)
    assert await disk.read(0, BLOCK) == bytes(BLOCK)
    await disk.discard((0, BLOCK), (2 * BLOCK, BLOCK))
    code = 0
    try:
        await disk.compare(0, bytes(BLOCK))
    except nvmeof.CommandFailed as error:
        code = error.errno or 0
    assert code in (0, errno.EOPNOTSUPP)
    await asyncio.sleep(6)  # longer than the keep-alive
    await disk.read(0, BLOCK)
    assert controller.reconnects == 0
    print("DONE")


async def main(address: str, nqn: str, what: str, *words: str) -> None:
    options = nvmeof.HostOptions(queues=2, keep_alive=4.0)
    if what == "refused":
        try:
            await nvmeof.connect(address, nqn + "x", PORT, options)
        except nvmeof.CommandFailed as error:
            print(error)
        return
    began = time.monotonic()
    async with await nvmeof.connect(address, nqn, PORT, options) as controller:
        print(f"{CONNECTED} {time.monotonic() - began:.2f}", flush=True)
        if what == "verify":
            await verify(controller, int(words[0]), float(words[1]) if words[1:] else 0.0)
        elif what == "commands":
            await commands(controller)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
