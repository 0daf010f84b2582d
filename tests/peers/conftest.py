# SPDX-License-Identifier: Apache-2.0
"""What the tests of verbena.peers share: programs that run live and on simulated hosts.

``together`` runs the two sides of a connection in one process: on an event loop, over the
connection manager or a socket, directly or over RoCE, or on two hosts of a simulated fabric.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

import verbena
from tests.carriers import OVER_ROCE
from tests.support import own_network
from verbena import fabrics, sim
from verbena.agent.client import describe_agent
from verbena.peers import PeerConnection

Side = Callable[[PeerConnection], Awaitable[Any]]
Together = Callable[..., list[Any]]


@pytest.fixture(autouse=True, scope="package")
def agent_ends() -> Iterator[None]:
    """Whatever agent the tests have started does not outlive their network."""
    yield
    described = describe_agent() if own_network() else None
    if described is not None:
        os.kill(described["pid"], signal.SIGKILL)


async def listening(side: Side, ready: Callable[[int], object], host: str, **options: Any) -> Any:
    """Accept one peer and run a side over it."""
    async with verbena.listen(host, **options) as listener:
        ready(listener.port)
        async with await listener.accept() as conn:
            return await side(conn)


async def calling(side: Side, address: str, **options: Any) -> Any:
    """Connect and run a side over it."""
    async with verbena.connect(address, **options) as conn:
        return await side(conn)


async def live(passive: Side, active: Side, **options: Any) -> list[Any]:
    """Run both sides in one loop, and return what they return."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        server = group.create_task(listening(passive, port.set_result, "127.0.0.1:0", **options))
        client = group.create_task(calling(active, f"127.0.0.1:{await port}", **options))
    return [server.result(), client.result()]


def on_hosts(passive: Side, active: Side, **options: Any) -> list[Any]:
    """Run both sides on hosts of a simulated fabric."""

    def server() -> Coroutine[Any, Any, Any]:
        return listening(passive, lambda port: None, ":7174", **options)

    def client() -> Coroutine[Any, Any, Any]:
        return calling(active, "h0:7174", **options)

    fabric = fabrics.ring(6, rate="100GbE", length_m=5)
    returned = sim.run({"h0": server, "h5": client}, fabric).returned
    return [returned["h0"], returned["h5"]]


@pytest.fixture(
    params=[
        "direct cm",
        "direct socket",
        pytest.param("cm", marks=OVER_ROCE),
        pytest.param("socket", marks=OVER_ROCE),
        "simulated cm",
        "simulated socket",
    ]
)
def together(request: pytest.FixtureRequest) -> Together:
    """together(passive, active, **options) in one process: [what each side returns]."""
    via = request.param.split()[-1]

    def run(passive: Side, active: Side, **options: Any) -> list[Any]:
        if request.param.startswith("simulated"):
            return on_hosts(passive, active, via=via, **options)
        return asyncio.run(live(passive, active, via=via, **options))

    return run
