# SPDX-License-Identifier: Apache-2.0
"""Connections to peers, for asyncio: messages of any size, arrays, and windows.

    async with verbena.listen(":7174") as listener:
        async for conn in listener: ...

    async with verbena.connect("server:7174") as conn:
        await conn.send(b"hello")
        async for message in conn: ...

``verbena.peers.sync`` has the same without asyncio. It uses verbena.verbs, verbena.aio and
verbena.cm alone, so it runs on Verbena, on simulated hosts, and on adapters by the system's
libraries.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Unpack

from verbena.cm import Opening
from verbena.cm.arguments import CONNECT_SECONDS, keywords

from .arrays import Lending, RemoteArray
from .connection import (
    ConnectOptions,
    PeerConnection,
    PeerOptions,
    Posted,
    Receiving,
    Reconnect,
    connect_peer,
)
from .errors import Ended, PeerConnectionEnded, PeerError, PeerMemoryRevoked
from .listening import PeerListener, listen_for_peers

__all__ = [
    "ConnectOptions",
    "ConnectingPeer",
    "Ended",
    "Lending",
    "PeerConnection",
    "PeerConnectionEnded",
    "PeerError",
    "PeerListener",
    "PeerMemoryRevoked",
    "PeerOptions",
    "Posted",
    "Receiving",
    "Reconnect",
    "RemoteArray",
    "connect",
    "listen",
]


class ConnectingPeer:
    """What ``connect`` returns: for ``async with``, or to await."""

    def __init__(self, address: str, options: ConnectOptions) -> None:
        self._address = address
        self._options = options
        self._made: PeerConnection | None = None

    def __await__(self) -> Generator[Any, Any, PeerConnection]:
        return connect_peer(self._address, self._options).__await__()

    async def __aenter__(self) -> PeerConnection:
        self._made = await self
        return self._made

    async def __aexit__(self, kind: object, *error: object) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, *error)


@keywords(ConnectOptions, slots=32, slot_size=4096, timeout=CONNECT_SECONDS)
def connect(address: str, **options: Unpack[ConnectOptions]) -> ConnectingPeer:
    """Connect to ``"host:port"``. It waits until the listener's program accepts.

    Leaving the block of ``async with`` waits until the peer has what was sent; after an exception
    it disconnects at once. Raises ValueError, and OSError: ConnectionManagerError, VerbsError,
    PeerError, and ConnectError, as for a peer of this host with another VERBENA_CARRIER.
    """
    return ConnectingPeer(address, options)


@keywords(PeerOptions, slots=32, slot_size=4096)
def listen(address: str | int, **options: Unpack[PeerOptions]) -> Opening[PeerListener]:
    """Listen at ``"host:port"``, or a port of every address (0: any that is free).

    Raises OSError: ConnectionManagerError, VerbsError.
    """
    return Opening(lambda: listen_for_peers(address, options))
