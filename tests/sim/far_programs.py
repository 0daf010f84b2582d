# SPDX-License-Identifier: Apache-2.0
"""A program of tests.sim.programs or polled_programs, or one below, in a process of its own.

python -m tests.sim.far_programs NAME ARGUMENT...: each argument is a number or a text.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.sim import polled_programs, programs
from verbena import verbs
from verbena.sim import charge, remote


async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return asyncio.get_running_loop().time()


async def charging(name: str, server: str, count: int) -> float:
    """The seconds at the end of so many charges, and of messages with the other host."""
    for number in range(count):
        await charge(name, us=number)
    await (programs.ping(server, 7471, 10, 200) if server else programs.echo(7471, 10, 200))
    await charge(name, cycles=3000)
    return asyncio.get_running_loop().time()


async def waits_for_ever() -> None:
    await asyncio.Event().wait()


async def blocks_for_ever() -> None:
    with verbs.open_device() as ctx:
        ctx.create_cq(4).wait()


async def dies(seconds: float) -> None:
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


async def raises(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise ValueError("it is wrong")


async def blocks(seconds: float) -> tuple[bool, float]:
    """Waits in a call of verbs, without the loop."""
    with verbs.open_device() as ctx:
        found = ctx.create_cq(4).wait(timeout=seconds)
    return bool(found), asyncio.get_running_loop().time()


async def echo_and_die(port: int, count: int) -> None:
    await programs.echo(port, count)
    os.kill(os.getpid(), signal.SIGKILL)


async def is_killed(port: int) -> None:
    async with programs.called(port) as end:
        end.writer.write(os.getpid().to_bytes(4, "big"))
        await asyncio.Event().wait()


async def kills(host: str, port: int) -> None:
    """Kills the other end's process, which waits, and sends it a message."""
    async with programs.calling(host, port) as end:
        os.kill(int.from_bytes(await end.reader.readexactly(4), "big"), signal.SIGKILL)
        await end.qp.send(end.mr, length=64)


async def kills_its_parent(seconds: float) -> None:
    await asyncio.sleep(seconds)
    os.kill(os.getppid(), signal.SIGKILL)
    await asyncio.sleep(seconds)


async def sinks(port: int) -> int:
    taken: asyncio.Queue[int] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.put_nowait(len(await reader.read(-1)))
        writer.close()

    async with await asyncio.start_server(take, None, port):
        return await taken.get()


async def pours(host: str, port: int, count: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(bytes(count))
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def is_refused(host: str) -> float:
    try:
        await asyncio.open_connection(host, 1)
    except ConnectionRefusedError:
        return asyncio.get_running_loop().time()
    raise AssertionError


def _argument(text: str) -> object:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


if __name__ == "__main__":
    name, *texts = sys.argv[1:]
    rooms = (sys.modules[__name__], programs, polled_programs)
    program = next(getattr(room, name) for room in rooms if hasattr(room, name))
    remote.run(program(*map(_argument, texts)))
