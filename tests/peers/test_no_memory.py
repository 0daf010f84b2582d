# SPDX-License-Identifier: Apache-2.0
"""A message of which there is no room for a copy stays the next one, and may be had as a loan."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.peers.conftest import Together
from verbena.peers import PeerConnection
from verbena.peers.session import Arrived, Session

PROGRAM = """
import asyncio, resource, verbena

SIZE = 200 << 20

async def main():
    async with verbena.listen("127.0.0.1:0") as listener:
        accepting = asyncio.create_task(listener.accept())
        async with verbena.connect(f"127.0.0.1:{listener.port}") as near, await accepting as far:
            sending = asyncio.create_task(near.send(bytearray(b"A") * SIZE))
            await asyncio.sleep(0.2)
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            # Room for the message, and not for a copy
            resource.setrlimit(resource.RLIMIT_AS, (used + SIZE + (90 << 20), -1))
            try:
                await far.recv()
            except MemoryError as error:
                print(error)
            async with far.recv() as view:
                print(len(view), bytes(view[-2:]))
            await sending

asyncio.run(main())
"""


class Uncopied(np.ndarray[Any, Any]):
    """Bytes for whose copy there is no memory."""

    def tobytes(self, *_: Any) -> bytes:
        raise MemoryError

    def copy(self, *_: Any) -> Any:
        raise MemoryError


@pytest.mark.parametrize("size", [10, 100_000])
def test_the_message_stays(together: Together, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def give(conn: PeerConnection) -> None:
        for number in range(3):
            await conn.send(bytes([number]) * size)

    async def take(conn: PeerConnection) -> list[bytes]:
        content = Session.content
        with monkeypatch.context() as context:

            def without_copy(session: Session, message: Arrived) -> Any:
                return content(session, message).view(Uncopied)

            context.setattr(Session, "content", without_copy)
            for _ in range(2):
                with pytest.raises(MemoryError, match=f"has {size} bytes.*as a loan"):
                    await conn.recv()
            if size == 10:
                with pytest.raises(MemoryError):
                    await conn.recv_copy()
            async with conn.recv() as view:
                first = view.tobytes()
        return [first, await conn.recv(), await conn.recv()]

    _, messages = together(give, take)
    assert messages == [bytes([number]) * size for number in range(3)]


def test_a_process_without_memory() -> None:
    program = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    said, lent = ended.stdout.splitlines()
    assert "209715200 bytes" in said
    assert lent == "209715200 b'AA'"
