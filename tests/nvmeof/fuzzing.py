# SPDX-License-Identifier: Apache-2.0
"""Sends a target what no host would: capsules at random on queues that were connected in order.

`python -m tests.nvmeof.fuzzing ADDRESS PORT --seconds 600` does it for a target that runs.
test_fuzz.py does it for a moment, and for the capsules in corpus/, while another host works.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import struct
import time
from contextlib import suppress
from pathlib import Path

from verbena import cm, nvmeof
from verbena.nvmeof.commands import COMMAND
from verbena.nvmeof.host import HostController
from verbena.nvmeof.link import HostOptions
from verbena.verbs import QP, SendFlags

CORPUS = Path(__file__).with_name("corpus")
_OPCODES = (0, 1, 2, 5, 6, 8, 9, 0x0A, 0x0C, 0x0D, 0x0E, 0x11, 0x15, 0x18, 0x7F)
_NUMBERS = (0, 1, 2, 4, 7, 15, 16, 255, 511, 512, 4095, 4096, 0xFFFF, 1 << 20, 0xFFFFFFFF)
_LONG = (*_NUMBERS, (1 << 64) - 1, (1 << 63), (1 << 64) - 4096)


def random_capsule(draw: random.Random, address: int, key: int) -> bytes:
    """A capsule that is nearly right: most of its fields are those of a host."""
    kind = draw.choice((0x40, 0x40, 0x40, 0x4F, 0x01, 0x00, 0x31, 0x50, 0xFF))
    length = draw.choice(_NUMBERS)
    if kind >> 4 == 4:
        good = draw.random() < 0.8
        where = address if good else draw.choice(_LONG)
        rkey = key if good else draw.getrandbits(32)
        third = (length & 0xFFFFFF) | (rkey & 0xFF) << 24
        fourth = rkey >> 8 | kind << 24
    else:
        where, third, fourth = draw.choice(_LONG), length, kind << 24
    words = [draw.choice((*_NUMBERS, draw.getrandbits(32))) for _ in range(6)]
    flags = 0x40 if draw.random() < 0.9 else draw.getrandbits(8)
    opcode = draw.choice(_OPCODES) if draw.random() < 0.9 else draw.getrandbits(8)
    nsid = draw.choice((0, 1, 1, 1, 2, 4, 5, 8, 0xFFFFFFFF))
    capsule = COMMAND.pack(opcode, flags, draw.getrandbits(16), nsid, where, third, fourth, *words)
    data = draw.randbytes(draw.choice((0, 0, 0, 1, 16, 512, 1024, 4096)))
    whole = capsule + data
    return whole[: draw.choice((len(whole),) * 9 + (draw.randrange(1, len(whole) + 1),))]


async def send_capsules(conn: cm.Connection, capsules: list[bytes]) -> None:
    """Send them as they are; what comes back is not looked at."""
    buffer = conn.pd.alloc(8192)
    with suppress(OSError):
        for capsule in capsules:
            buffer.array()[: len(capsule)] = list(capsule)
            await asyncio.wait_for(
                conn.aqp.send(buffer, length=len(capsule), flags=int(SendFlags.SIGNALED)), 1.0
            )
            await asyncio.sleep(0)


async def raw_queue(address: str, port: int, qid: int) -> cm.Connection:
    """A connection of a queue on which nothing was sent yet, with receives."""

    def prepare(qp: QP) -> None:
        memory = qp.pd.alloc(64 * 16)
        for slot in range(64):
            qp.recv(memory, slot * 16, 16)

    data = struct.pack("<HHHH", 0, qid, 32, 31).ljust(32, b"\0")
    return await cm.connect(address, port, private_data=data, prepare=prepare)


async def fuzz_new_queue(address: str, port: int, capsules: list[bytes]) -> None:
    """Send capsules before Connect."""
    with suppress(OSError):
        async with await raw_queue(address, port, 0) as conn:
            await send_capsules(conn, capsules)


async def fuzz_controller(address: str, port: int, nqn: str, draw: random.Random) -> None:
    """Send capsules on the queues of a host that has connected in order."""
    options = HostOptions(keep_alive=0.0, loss_timeout=0.0, timeout=2.0)
    with suppress(OSError):
        async with await nvmeof.connect(address, nqn, port, options) as controller:
            memory = controller.disks[1].buffer(1 << 20)
            for link in (controller._links[0], controller._admin):
                if link is None or link.queue.is_ended:
                    continue
                await _send_on(controller, link.conn.qp, draw, memory.addr, memory.rkey)
            await asyncio.sleep(0.02)
            memory.close()


async def _send_on(
    controller: HostController, qp: QP, draw: random.Random, address: int, key: int
) -> None:
    buffer = controller.disks[1].buffer(8192)
    for _ in range(draw.randrange(1, 20)):
        capsule = random_capsule(draw, address, key)
        buffer.array()[: len(capsule)] = list(capsule)
        qp.send(buffer, length=len(capsule), wr_id=(1 << 60) + 1)
        await asyncio.sleep(0.001)


async def fuzz(address: str, port: int, nqn: str, seed: int, seconds: float) -> int:
    """Fuzz for some seconds; returns how many connections it made."""
    draw = random.Random(seed)
    until = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < until:
        rounds += 1
        if draw.random() < 0.3:
            capsules = [random_capsule(draw, 0, 0) for _ in range(draw.randrange(1, 30))]
            await fuzz_new_queue(address, port, capsules)
        else:
            await fuzz_controller(address, port, nqn, draw)
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--nqn", default="nqn.2026-01.org.example:disk0")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFF)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rounds = asyncio.run(
        fuzz(options.address, options.port, options.nqn, options.seed, options.seconds)
    )
    print(f"{rounds} connections")


if __name__ == "__main__":
    main()
