# SPDX-License-Identifier: Apache-2.0
"""A server or a client of verbena.cm for the tests: ``child.py WHAT PORT``.

Each prints a line when something has happened. With CM_TEST_DEVICE=kernel it uses
/dev/infiniband/rdma_cm, which `verbena run` has.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from verbena import cm, verbs
from verbena.cm import sync

HOST = os.environ.get("CM_TEST_HOST", "127.0.0.1")
BYTES = int(os.environ.get("CM_TEST_BYTES", "16"))
COUNT = int(os.environ.get("CM_TEST_COUNT", "1"))
SECONDS = 30


async def open_kernel_device() -> cm.KernelDevice:
    return cm.KernelDevice()


OPENER = open_kernel_device if os.environ.get("CM_TEST_DEVICE") == "kernel" else None


def say(*words: object) -> None:
    print(*words, flush=True)


class Buffers:
    """Receives that are posted before the peer can send."""

    def __init__(self) -> None:
        self.mr: verbs.MR | None = None

    def post(self, qp: verbs.QP) -> None:
        self.mr = qp.pd.alloc(2 * BYTES * COUNT)
        for number in range(COUNT):
            qp.recv(self.mr, number * BYTES, BYTES)


async def exchange(conn: cm.Connection, buffers: Buffers) -> None:
    """Send COUNT messages and receive as many; a server of ucmatose sends first."""
    assert buffers.mr is not None
    if os.environ.get("CM_TEST_CLOSES"):
        for number in range(COUNT):
            await conn.aqp.send(buffers.mr, (COUNT + number) * BYTES, BYTES)
    for _ in range(COUNT):
        await anext(conn.acq)
    if not os.environ.get("CM_TEST_CLOSES"):
        for number in range(COUNT):
            await conn.aqp.send(buffers.mr, number * BYTES, BYTES)


async def serve(port: int) -> None:
    """Echo COUNT messages of each client, as rdma_server does."""
    async with cm.listen(port, open_device=OPENER) as listener:
        say("listening", listener.port)
        async for request in listener:
            buffers = Buffers()
            async with await request.accept(private_data=b"served", prepare=buffers.post) as conn:
                say("connected", request.private_data.rstrip(b"\0").decode())
                await exchange(conn, buffers)
                if os.environ.get("CM_TEST_CLOSES"):
                    await conn.disconnect()
                say("closed:", await conn.wait_closed())


async def idle(port: int) -> None:
    """Accept, and wait for the end."""
    async with cm.listen(port, open_device=OPENER) as listener:
        say("listening", listener.port)
        try:
            async for request in listener:
                async with await request.accept() as conn:
                    say("connected")
                    say("closed:", await conn.wait_closed())
        except cm.ManagerEnded as error:
            say("listener:", error)


def connect(port: int) -> None:
    """Send COUNT messages and wait for as many; as rdma_client does."""
    buffers = Buffers()
    with sync.connect(
        HOST, port, private_data=b"child", prepare=buffers.post, timeout=SECONDS, open_device=OPENER
    ) as conn:
        say("connected", conn.private_data.rstrip(b"\0").decode("ascii", "replace"))
        assert buffers.mr is not None
        for number in range(COUNT):
            conn.qp.send(buffers.mr, (COUNT + number) * BYTES, BYTES)
        completions = conn.cq.wait(2 * COUNT, timeout=SECONDS)
        for each in completions:
            each.raise_for_status()
        say("exchanged", len(completions))
        if os.environ.get("CM_TEST_WAITS"):
            say("closed:", conn.wait_closed(SECONDS))


def stay(port: int) -> None:
    """Connect, and wait until something ends."""
    with sync.connect(HOST, port, timeout=SECONDS, open_device=OPENER) as conn:
        say("connected")
        say("closed:", conn.wait_closed())
        mr = conn.pd.alloc(8)
        say("QP", conn.qp.state.name)
        mr.close()
    try:
        sync.connect(HOST, port, timeout=5, open_device=OPENER)
    except cm.ConnectionManagerError as error:
        say("again:", type(error).__name__)


def wait_for_answer(port: int) -> None:
    """Connect to a listener that does not answer."""
    try:
        sync.connect(HOST, port, open_device=OPENER)
    except cm.ConnectionManagerError as error:
        say("failed:", type(error).__name__, error)


def listen_only(port: int) -> None:
    """Listen, and read no request."""
    with sync.listen(port) as listener:
        say("listening", listener.port)
        time.sleep(SECONDS)


def main() -> None:
    what, port = sys.argv[1], int(sys.argv[2])
    if what in ("serve", "idle"):
        asyncio.run(serve(port) if what == "serve" else idle(port))
    else:
        {"connect": connect, "stay": stay, "ask": wait_for_answer, "listen": listen_only}[what](
            port
        )


if __name__ == "__main__":
    main()
