# SPDX-License-Identifier: Apache-2.0
"""What the tests of verbena.rpc share: a service, and programs, live and on simulated hosts.

``together`` runs a server and one client in one process: on an event loop, over the connection
manager or a socket, directly, over RoCE, or on two hosts of a simulated fabric.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.carriers import OVER_ROCE
from tests.support import own_network
from verbena import fabrics, rpc, sim
from verbena.agent.client import describe_agent

ClientSide = Callable[[rpc.Client], Awaitable[Any]]
Together = Callable[..., Any]


@pytest.fixture(autouse=True, scope="package")
def agent_ends() -> Iterator[None]:
    """Whatever agent the tests have started does not outlive their network."""
    yield
    described = describe_agent() if own_network() else None
    if described is not None:
        os.kill(described["pid"], signal.SIGKILL)


@rpc.service
class Sample:
    """A service that the tests call. ``ran`` has what was called."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.stopped: list[str] = []
        self.gate = asyncio.Event()

    def add(self, a: int, b: int = 3) -> int:
        self.ran.append((a, b))
        return a + b

    def echo(self, data: bytes) -> bytes:
        self.ran.append(len(data))
        return data

    async def late(self, data: bytes) -> bytes:
        self.ran.append(len(data))
        await asyncio.sleep(0)
        return data

    def turn(self, data: rpc.Buffer) -> rpc.Buffer:
        return bytes(data)[::-1]

    async def held(self, name: str) -> str:
        """Return when the gate is open."""
        self.ran.append(name)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped.append(name)
            raise
        return name

    async def tidied(self) -> None:
        """Wait for ever, and then end in two steps."""
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.append("begins")
            await asyncio.sleep(0.05)
            self.stopped.append("tidy")

    async def tidied_items(self) -> AsyncIterator[int]:
        """As ``tidied``, after an item."""
        yield 1
        await self.tidied()

    async def left(self) -> float | None:
        call = rpc.current_call()
        assert call is not None
        if call.deadline is None:
            return None
        return call.deadline - asyncio.get_running_loop().time()

    def fail(self, text: str) -> None:
        raise KeyError(text)

    def unsendable(self) -> None:
        return object()  # type: ignore[return-value]

    async def count(self, to: int, size: int = 0) -> AsyncIterator[bytes]:
        try:
            for number in range(to):
                self.ran.append(number)
                yield number.to_bytes(4, "little") + bytes(size)
        except BaseException:
            self.stopped.append("count")
            raise

    async def total(self, items: AsyncIterator[int]) -> int:
        total = 0
        async for item in items:
            self.ran.append(item)
            total += item
        return total

    async def times(self, by: int, items: AsyncIterator[int]) -> AsyncIterator[int]:
        async for item in items:
            yield by * item

    async def one_then_wait(self, items: AsyncIterator[int]) -> int:
        async for item in items:
            await self.gate.wait()
            return item
        return -1

    async def first(self, items: AsyncIterator[int]) -> int:
        async for item in items:
            return item
        return -1


async def live(target: Any, side: ClientSide, served: Any, asked: Any) -> Any:
    """Serve and call in one loop, and return what the client's side returns."""
    async with asyncio.timeout(60):
        async with rpc.serve(target, "127.0.0.1:0", **served) as server:
            address = f"127.0.0.1:{server.port}"
            async with rpc.connect(address, type(target), **asked) as client:
                client.__dict__["server"] = server
                return await side(client)


def on_hosts(make: Callable[[], Any], side: ClientSide, served: Any, asked: Any) -> Any:
    """Serve and call on hosts of a simulated fabric."""
    servers: list[rpc.RpcServer] = []

    async def server() -> None:
        async with rpc.serve(make(), ":7174", **served) as made:
            servers.append(made)
            await made.wait_closed()

    async def client() -> Any:
        async with rpc.connect("h0:7174", Sample, **asked) as made:
            made.__dict__["server"] = servers[0]
            return await side(made)

    fabric = fabrics.ring(6, rate="100GbE", length_m=5)
    ran = sim.run({"h0": server, "h5": client}, fabric, background={"h0"})
    return ran.returned["h5"]


@pytest.fixture(
    params=[
        "direct socket",
        pytest.param("cm", marks=OVER_ROCE),
        pytest.param("socket", marks=OVER_ROCE),
        "simulated cm",
        "simulated socket",
    ]
)
def together(request: pytest.FixtureRequest) -> Together:
    """together(side, served={…}, **options): what ``side(client)`` returns."""
    via = request.param.split()[-1]

    def run(side: ClientSide, served: Any = None, **asked: Any) -> Any:
        serving = {"via": via, **(served or {})}
        if request.param.startswith("simulated"):
            return on_hosts(Sample, side, serving, {"via": via, **asked})

        async def main() -> Any:
            return await live(Sample(), side, serving, {"via": via, **asked})

        return asyncio.run(main())

    return run


def target_of(client: rpc.Client) -> Sample:
    """Return the object that the server of ``together`` serves."""
    found = client.__dict__["server"]._target
    assert isinstance(found, Sample)
    return found


async def quiet(client: rpc.Client) -> None:
    """Wait until no call is under way at either side; fail if some never end."""
    server = client.__dict__["server"]
    async with asyncio.timeout(10):
        while server.running or client._calls.pending:
            await asyncio.sleep(0.001)
    assert not client._link.offers
    assert client._calls._free == server._most
