# SPDX-License-Identifier: Apache-2.0
"""Remote procedure calls over RDMA, for asyncio: services with typed methods, and streams.

    @rpc.service
    class Calculator:
        def add(self, a: int, b: int) -> int:
            return a + b

    async with rpc.serve(Calculator(), ":7174") as server:
        await server.wait_closed()

    async with rpc.connect("server:7174", Calculator) as calculator:
        print(await calculator.add(1, 2))

It uses verbena.peers and what that uses, so it runs on Verbena, on simulated hosts, and on adapters
by the system's libraries.
"""

from __future__ import annotations

from typing import Unpack

from verbena.cm.arguments import keywords

from .client import MAX_MESSAGE, CallStream, Client, ClientOptions, connect_client
from .errors import (
    DeadlinePassed,
    MessageTooLarge,
    NoSuchMethod,
    RemoteFailure,
    RpcError,
    ServerGone,
    WrongArguments,
)
from .methods import Buffer, service
from .opening import Opening
from .server import RpcServer, ServerOptions, start_server
from .server_calls import CURRENT, CallInfo
from .strategies import Strategies

__all__ = [
    "Buffer",
    "CallInfo",
    "CallStream",
    "Client",
    "ClientOptions",
    "DeadlinePassed",
    "MessageTooLarge",
    "NoSuchMethod",
    "Opening",
    "RemoteFailure",
    "RpcError",
    "RpcServer",
    "ServerGone",
    "ServerOptions",
    "Strategies",
    "WrongArguments",
    "connect",
    "current_call",
    "serve",
    "service",
]


@keywords(
    ServerOptions,
    calls=64,
    pickle=False,
    strategies=Strategies(),
    receives="shared",
    max_message=MAX_MESSAGE,
    slots=32,
    slot_size=4096,
)
def serve(
    target: object, address: str | int, **options: Unpack[ServerOptions]
) -> Opening[RpcServer]:
    """Serve an object of a service at ``"host:port"``, or a port (0: any that is free).

    Raises OSError, TypeError, ValueError.
    """
    return Opening(lambda: start_server(target, address, options))


@keywords(
    ClientOptions,
    timeout_may_be_0=True,
    codec="msgpack",
    strategies=Strategies(),
    max_message=MAX_MESSAGE,
    slots=32,
    slot_size=4096,
)
def connect(
    address: str, service: type | None = None, **options: Unpack[ClientOptions]
) -> Opening[Client]:
    """Connect to the server at ``"host:port"``; ``service`` is its class, for the types of results.

    Raises OSError, RpcError, ValueError.
    """
    return Opening(lambda: connect_client(address, service, options))


def current_call() -> CallInfo | None:
    """Return what is known of the call in which this runs; None outside of a service's method."""
    return CURRENT.get()
