# SPDX-License-Identifier: Apache-2.0
"""Listeners, and the requests that come to them: what asyncio and verbena.cm.sync have in common.

A request that its program has neither accepted nor rejected is refused when the listener closes.
"""

from __future__ import annotations

import errno
from typing import TypeVar

from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.rdma_events import RdmaConnectionParameters
from verbena.verbs import PD

from .arguments import REJECT_BYTES, SIDR_REPLY_BYTES, check_bytes
from .connection import AcceptOptions, ConnectionBase, accept_request
from .datagrams import DatagramBase, accept_datagrams
from .errors import ConnectionManagerError, is_stale
from .identifier import Address, Id, first_address, public_address
from .manager import Manager

__all__ = ["ListenerBase", "RequestBase", "listen_at"]

_LEVEL_ID, _AF_ONLY = 0, 2

C = TypeVar("C", bound=ConnectionBase)
D = TypeVar("D", bound=DatagramBase)


class RequestBase:
    """A peer's request, of asyncio and of verbena.cm.sync."""

    def __init__(self, identifier: Id, asked: RdmaConnectionParameters) -> None:
        self.id = identifier
        self.private_data = asked.private_data
        self.initiator_depth = asked.initiator_depth
        self.responder_resources = asked.responder_resources
        self._asked = asked
        self._was_answered = False
        addresses = identifier.addresses()
        self.local_address: Address | None = public_address(addresses.source)
        self.remote_address: Address | None = public_address(addresses.destination)
        identifier.about = f"the request of {addresses.destination}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.remote_address}, {self.private_data!r}>"

    @property
    def pd(self) -> PD:
        """The protection domain that the connection has unless ``accept`` is given another.

        Memory of it may be made before ``accept``, so that ``private_data`` can name its rkey.
        """
        return self.id.default_pd(None)

    @property
    def is_open(self) -> bool:
        """Whether it still has to be answered."""
        return not self._was_answered and not self.id.closed

    def reject(self, private_data: bytes = b"") -> None:
        """Refuse it, and tell the peer why: up to 148 bytes. Raises ConnectionManagerError.

        If the peer has given up, there is nothing left to refuse.
        """
        check_bytes(private_data, SIDR_REPLY_BYTES if self.id.datagram else REJECT_BYTES)
        self._answer()
        try:
            self.id.reject(private_data)
        except ConnectionManagerError as error:
            if not is_stale(error):
                raise
        finally:
            self.id.close()

    def _answer(self) -> None:
        if not self.is_open:
            raise ConnectionManagerError(errno.EINVAL, f"{self.id.about} was answered already")
        self._was_answered = True

    async def _accept(self, kind: type[C], options: AcceptOptions) -> C:
        self._answer()
        return await accept_request(self.id, kind, self._asked, options)

    async def _accept_datagrams(self, kind: type[D], options: AcceptOptions) -> D:
        self._answer()
        return await accept_datagrams(self.id, kind, self.private_data, options)


R = TypeVar("R", bound=RequestBase)


class ListenerBase:
    """A listener. ``address`` is where it listens, with the port that it got."""

    def __init__(self, identifier: Id, manager: Manager) -> None:
        self.id = identifier
        self._manager = manager
        self._waiting: list[RequestBase] = []
        address = identifier.local_address
        assert address is not None
        self.address: Address = address

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return self.address.port

    def __repr__(self) -> str:
        state = "closed" if self.id.closed else "open"
        return f"<{type(self).__name__} at {self.address}: {state}>"

    async def _next_request(self, kind: type[R], timeout: float | None) -> R:
        event = await self.id.get_request(timeout)
        listening = self.id
        adopted = await Id.adopt(listening.manager, event.number, listening.datagram)
        try:
            await adopted.move_to(self._manager_of_connection())
            asked = event.connection
            if listening.datagram:
                asked = RdmaConnectionParameters(private_data=event.datagram.private_data)
            request = kind(adopted, asked)
        except BaseException:
            adopted.close()
            raise
        self._waiting = [each for each in self._waiting if each.is_open]
        self._waiting.append(request)
        return request

    def _manager_of_connection(self) -> Manager:
        """With asyncio the loop's; otherwise one for each, since another thread may have it."""
        return self._manager if self._manager.is_async else self._manager.branch()

    def close(self) -> None:
        """Listen no more, and refuse the requests that were not answered."""
        for request in self._waiting:
            if request.is_open:
                request.id.close()
        self._waiting.clear()
        self.id.close()


L = TypeVar("L", bound=ListenerBase)


async def listen_at(
    manager: Manager, kind: type[L], host: str | None, port: int, backlog: int, datagram: bool
) -> L:
    """Listen at a port. Raises ConnectionManagerError."""
    identifier = await Id.make(manager.branch(is_lazy=True), datagram)
    try:
        identifier.about = f"{host or 'every address'}, port {port}"
        await _bind(identifier, host, port)
        identifier.listen(backlog)
        made = kind(identifier, manager)
        identifier.about = f"{host or 'every address'}, port {made.port}"
        return made
    except BaseException:
        identifier.close()
        raise


async def _bind(identifier: Id, host: str | None, port: int) -> None:
    """Bind to an address, or to every one: of IPv6, which has those of IPv4, if there is IPv6."""
    if host is not None:
        identifier.bind(await first_address(identifier.channel, host, port))
        return
    try:
        identifier.set_option(_LEVEL_ID, _AF_ONLY, bytes(4))  # whatever bindv6only says
        identifier.bind(CmAddress.wildcard(CmFamily.IPV6).with_port(port))
    except ConnectionManagerError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
        identifier.bind(CmAddress.wildcard(CmFamily.IPV4).with_port(port))
