# SPDX-License-Identifier: Apache-2.0
"""Methods that raise what nobody expects: the call ends with RemoteFailure, and no other does."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.rpc.conftest import live, quiet
from verbena import rpc


class Odd(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Halted(BaseException):
    """One that is not an Exception."""


@rpc.service
class Raising:
    """A service whose methods raise."""

    def add(self, a: int, b: int) -> int:
        return a + b

    def odd(self) -> None:
        raise Odd

    async def odd_by_task(self) -> None:
        raise Odd

    def surrogate(self) -> None:
        raise ValueError("no file \udcff")

    def cancelled(self) -> None:
        raise asyncio.CancelledError

    def generator_exit(self) -> None:
        raise GeneratorExit

    def halted(self) -> None:
        raise Halted("own")

    async def halted_by_task(self) -> None:
        raise Halted("own")

    async def generator_exit_by_task(self) -> None:
        raise GeneratorExit

    def leave(self) -> None:
        sys.exit(7)

    async def leave_by_task(self) -> None:
        sys.exit(7)


async def failure(client: rpc.Client, name: str) -> rpc.RemoteFailure:
    """Call a method, and return its failure; the connection must live on."""
    async with asyncio.timeout(20):
        with pytest.raises(rpc.RemoteFailure) as caught:
            await getattr(client, name)()
        await quiet(client)
        assert await client.add(1, 2) == 3
    return caught.value


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("odd", "Odd", "(its text is not known: its __str__ raises ValueError)"),
        ("odd_by_task", "Odd", "(its text is not known: its __str__ raises ValueError)"),
        ("surrogate", "ValueError", "no file \\udcff"),
        ("cancelled", "CancelledError", ""),
        ("generator_exit", "GeneratorExit", ""),
        ("generator_exit_by_task", "GeneratorExit", ""),
        ("halted", "Halted", "own"),
        ("halted_by_task", "Halted", "own"),
    ],
)
def test_a_failure_has_the_type_and_the_text(name: str, kind: str, text: str) -> None:
    async def side(client: rpc.Client) -> tuple[str, str]:
        caught = await failure(client, name)
        return caught.kind, caught.text

    assert asyncio.run(live(Raising(), side, {}, {})) == (kind, text)


SERVING = """
import asyncio
from tests.rpc.test_methods_raise import Raising
from verbena import rpc
async def main():
    async with rpc.serve(Raising(), "127.0.0.1:0") as server:
        print(server.port, flush=True)
        await server.wait_closed()
asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["leave", "leave_by_task"])
def test_a_method_that_ends_the_server_tells_its_clients(name: str) -> None:
    async def side(port: int) -> None:
        async with asyncio.timeout(20), rpc.connect(f"127.0.0.1:{port}", Raising) as client:
            with pytest.raises(rpc.RemoteFailure, match="SystemExit: 7"):
                await getattr(client, name)()

    with subprocess.Popen([sys.executable, "-c", SERVING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            asyncio.run(side(int(process.stdout.readline())))
            assert process.wait(20) == 7
        finally:
            process.kill()
