# SPDX-License-Identifier: Apache-2.0
"""What the tests of verbena.peers share: programs that run live and on simulated hosts.

``together`` runs the two sides of a connection in one process: on an event loop, over the
connection manager or a socket, directly or over RoCE, or on two hosts of a simulated fabric.
``meet`` does the same for a listener and several programs that connect to it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import verbena
from tests.carriers import OVER_ROCE
from tests.support import own_network
from verbena import fabrics, sim
from verbena.agent.client import describe_agent
from verbena.peers import PeerConnection, PeerListener

Side = Callable[[PeerConnection], Awaitable[Any]]
Together = Callable[..., list[Any]]
Dial = Callable[[], Any]  # as verbena.connect
Serve = Callable[[PeerListener], Awaitable[Any]]
Meet = Callable[..., list[Any]]


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


def certificate(folder: Path) -> tuple[str, str]:
    """Make a key and a certificate for 127.0.0.1, and return the files."""
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-keyout", key, "-out", cert, "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return key, cert


def tls_options(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a listener with TLS, and those of its clients."""
    key, cert = certificate(folder)
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(cert, key)
    return {"tls": there}, {"tls": ssl.create_default_context(cafile=cert)}


async def _result(work: Awaitable[Any]) -> Any:
    return await work


async def live_meeting(
    serve: Serve,
    clients: tuple[Callable[[Dial], Awaitable[Any]], ...],
    there: dict[str, Any],
    here: dict[str, Any],
) -> list[Any]:
    """Run a listener's program and its clients in one loop, and return what they return."""
    async with (
        asyncio.timeout(60),
        verbena.listen("127.0.0.1:0", **there) as listener,
        asyncio.TaskGroup() as group,
    ):
        dial = partial(verbena.connect, f"127.0.0.1:{listener.port}", **here)
        tasks = [group.create_task(_result(each(dial))) for each in clients]
        served = await serve(listener)
    return [served, *[task.result() for task in tasks]]


def simulated_meeting(
    serve: Serve, clients: tuple[Callable[[Dial], Awaitable[Any]], ...], **options: Any
) -> list[Any]:
    """The same on hosts of a simulated fabric."""

    async def server() -> Any:
        async with verbena.listen(":7174", **options) as listener:
            return await serve(listener)

    async def client(run: Callable[[Dial], Awaitable[Any]]) -> Any:
        return await run(partial(verbena.connect, "h0:7174", **options))

    fabric = fabrics.ring(6, rate="100GbE", length_m=5)
    programs = {f"h{n}": partial(client, each) for n, each in enumerate(clients, 1)}
    returned = sim.run({"h0": server, **programs}, fabric).returned
    return [returned[f"h{n}"] for n in range(len(clients) + 1)]


@pytest.fixture(
    params=[
        "direct cm",
        "direct socket",
        "direct tls",
        pytest.param("cm", marks=OVER_ROCE),
        pytest.param("socket", marks=OVER_ROCE),
        "simulated cm",
        "simulated socket",
    ]
)
def meet(request: pytest.FixtureRequest, tmp_path: Path) -> Meet:
    """meet(serve, *clients): [what the listener's program returns, and what each client does]."""
    via = request.param.split()[-1]

    def run(serve: Serve, *clients: Callable[[Dial], Awaitable[Any]]) -> list[Any]:
        if request.param.startswith("simulated"):
            return simulated_meeting(serve, clients, via=via)
        there, here = tls_options(tmp_path) if via == "tls" else ({"via": via}, {"via": via})
        return asyncio.run(live_meeting(serve, clients, there, here))

    return run
