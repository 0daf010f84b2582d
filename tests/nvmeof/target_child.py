# SPDX-License-Identifier: Apache-2.0
"""A target in a process of its own: `target_child.py ADDRESS PORT FILE...`.

It prints its port when it listens. A line `add BYTES` adds a disk in memory, `remove NSID` removes
one, `allow NQN` changes the list of hosts, `subsystem NQN BYTES` adds a subsystem with a disk in
memory, `queues` prints how many are connected.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from verbena import nvmeof

NQN = "nqn.2026-01.org.example:disk0"


def add_subsystem(model: nvmeof.TargetModel, nqn: str, size: int) -> None:
    made = nvmeof.Subsystem(nqn)
    made.add(nvmeof.MemoryStore(size), 4096)
    model.add(made)


async def obey(
    target: nvmeof.Target, model: nvmeof.TargetModel, subsystem: nvmeof.Subsystem
) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, *rest = line.split()
        if word == "add":
            subsystem.add(nvmeof.MemoryStore(int(rest[0])), 4096)
        elif word == "remove":
            subsystem.remove(int(rest[0]))
        elif word == "allow":
            subsystem.allow(rest[0])
        elif word == "subsystem":
            add_subsystem(model, rest[0], int(rest[1]))
        print(target.queues, flush=True)


async def main(address: str, port: int, files: list[str]) -> None:
    model = nvmeof.TargetModel()
    subsystem = nvmeof.Subsystem(NQN)
    for each in files:
        if each.isdigit():
            subsystem.add(nvmeof.MemoryStore(int(each)), 4096)
        else:
            saved = nvmeof.ReservationFile.beside(each)
            subsystem.add(nvmeof.FileStore(Path(each)), reservation_file=saved)
    model.add(subsystem)
    async with nvmeof.Target(model, host=address, port=port) as target:
        print(target.port, flush=True)
        await obey(target, model, subsystem)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
