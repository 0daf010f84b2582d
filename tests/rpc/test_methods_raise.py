# SPDX-License-Identifier: Apache-2.0
"""Methods that raise what nobody expects: the call ends with RemoteFailure, and no other does."""

from __future__ import annotations

import asyncio

import pytest

from tests.rpc.conftest import live, quiet
from verbena import rpc


class Odd(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


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
    ],
)
def test_a_failure_has_the_type_and_the_text(name: str, kind: str, text: str) -> None:
    async def side(client: rpc.Client) -> tuple[str, str]:
        caught = await failure(client, name)
        return caught.kind, caught.text

    assert asyncio.run(live(Raising(), side, {}, {})) == (kind, text)
