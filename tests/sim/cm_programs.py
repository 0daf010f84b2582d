# SPDX-License-Identifier: Apache-2.0
"""Programs that connect by verbena.cm and verbena.peers, each in a process of its own.

python -m tests.sim.cm_programs NAME ARGUMENT...: names with sync_ run without asyncio.
"""

from __future__ import annotations

import asyncio
import sys

import verbena
from verbena import cm, verbs
from verbena.cm import sync as cm_sync
from verbena.peers import sync as peers_sync
from verbena.sim import remote

PORT = 7174
LOCAL = verbs.AccessFlags.LOCAL_WRITE


async def serve() -> tuple[bytes, bytes, str]:
    async with cm.listen(PORT) as listener:
        request = await listener.get_request()
        async with await request.accept(private_data=b"welcome") as conn:
            memory = conn.pd.alloc(64, LOCAL)
            await conn.aqp.recv(memory)
            closed = await conn.wait_closed()
            return bytes(request.private_data[:5]), bytes(memoryview(memory)[:4]), closed.name


async def call(host: str) -> tuple[bytes, float, float]:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with cm.connect(host, PORT, private_data=b"hello") as conn:
        took = loop.time() - begin
        await asyncio.sleep(1e-4)
        memory = conn.pd.alloc(64, LOCAL)
        memoryview(memory)[:4] = b"data"
        await conn.aqp.send(memory)
        return bytes(conn.private_data[:7]), took, loop.time()


async def call_nobody(host: str) -> str:
    try:
        async with cm.connect(host, PORT):
            return "connected"
    except cm.ConnectionManagerError as error:
        return type(error).__name__


def sync_serve() -> tuple[bytes, bytes, str]:
    with cm_sync.listen(PORT) as listener:
        request = listener.get_request()
        with request.accept(private_data=b"welcome") as conn:
            memory = conn.pd.alloc(64, LOCAL)
            conn.qp.recv(memory)
            assert conn.qp.recv_cq.wait(timeout=1)
            closed = conn.wait_closed()
            return bytes(request.private_data[:5]), bytes(memoryview(memory)[:4]), closed.name


def sync_call(host: str) -> tuple[bytes, float, float]:
    begin = remote.time()
    with cm_sync.connect(host, PORT, private_data=b"hello") as conn:
        took = remote.time() - begin
        remote.sleep(1e-4)
        memory = conn.pd.alloc(64, LOCAL)
        memoryview(memory)[:4] = b"data"
        conn.qp.send(memory)
        assert conn.qp.send_cq.wait(timeout=1)
        return bytes(conn.private_data[:7]), took, remote.time()


def sync_wait(seconds: float) -> tuple[str, float]:
    begin = remote.time()
    with cm_sync.listen(PORT) as listener:
        try:
            listener.get_request(timeout=seconds)
        except cm.ConnectTimeout as error:
            return type(error).__name__, remote.time() - begin
    raise AssertionError


def sync_wait_for_ever() -> None:
    with cm_sync.listen(PORT) as listener:
        listener.get_request()


def sync_peer() -> list[bytes]:
    with peers_sync.listen(PORT) as listener:
        conn = next(iter(listener))
        with conn:
            return list(conn)


def sync_peer_call(host: str, count: int) -> tuple[int, float]:
    with peers_sync.connect(f"{host}:{PORT}") as conn:
        for number in range(count):
            conn.send(bytes([number]) * 3000)
        return count, remote.time()


async def peer_call(host: str, count: int) -> int:
    async with verbena.connect(f"{host}:{PORT}") as conn:
        for number in range(count):
            await conn.send(bytes([number]) * 3000)
    return count


if __name__ == "__main__":
    name, *texts = sys.argv[1:]
    given = [int(text) if text.isdigit() else text for text in texts]
    if name == "sync_wait":
        given = [float(texts[0])]
    if name.startswith("sync_"):
        remote.run_sync(lambda: globals()[name](*given))
    else:
        remote.run(globals()[name](*given))
