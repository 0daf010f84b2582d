# SPDX-License-Identifier: Apache-2.0
"""Connections: ``connect_to`` makes them at the active side, ``accept_request`` at the passive.

``ConnectionBase`` is what the connections of asyncio and of verbena.cm.sync have in common. When
the peer disconnects, the queue pair goes to ERR and the peer is answered, whatever the program
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.rdma_events import RdmaConnectionParameters, RdmaEventKind
from verbena.verbs import PD, QP, Context, QPState

from .arguments import CONNECT_SECONDS
from .errors import (
    ConnectionManagerError,
    ManagerAbsent,
    ManagerEnded,
    ParentsConnection,
    PeerGone,
    is_stale,
)
from .identifier import Address, Id, all_addresses, first_address
from .manager import DeviceOpener, Manager
from .program_abi import IdEvent
from .queues import QueueAccess, QueueOptions, Queues, make_queues

__all__ = [
    "AcceptOptions",
    "Closed",
    "ConnectionBase",
    "ConnectionOptions",
    "accept_request",
    "connect_to",
]

_READS = 16
_LEVEL_ID, _TOS, _ACK_TIMEOUT = 0, 0, 3
_NO_DREP = (
    "the peer has not answered the disconnect request; the connection has ended here: close() it,"
    " or wait longer by wait_closed()"
)


class AcceptOptions(QueueOptions, total=False):
    """Keywords of ``accept``, with those of ``QueueOptions``.

    ``private_data``: up to 196 bytes for the peer's program. ``timeout``: seconds until the peer
    must have answered (None: as long as the connection manager waits). ``initiator_depth`` and
    ``responder_resources`` are how many READs and atomics this side has under way at most, and how
    many of the peer's it serves; by default up to 16, and no more than the peer asks for.
    ``rnr_retry_count``: how often a SEND waits for the peer's receive (7: for ever).
    """

    private_data: bytes
    timeout: float | None
    initiator_depth: int | None
    responder_resources: int | None
    rnr_retry_count: int


class ConnectionOptions(AcceptOptions, total=False):
    """Keywords of ``connect``, with those of ``AcceptOptions``.

    Here ``private_data`` is up to 56 bytes, and ``timeout`` is the seconds for everything, by
    default 10; None: as long as the connection manager waits. Without a ``timeout`` of the
    caller's, address and route have 2 seconds each, as programs of librdmacm give them. ``source``
    is the address of this host to connect from. ``retry_count``: how often a packet is sent again.
    ``tos``: the type of service of the packets; ``ack_timeout``: the code of the time after which
    they are sent again. ``open_device`` opens another connection manager than ``choose_device``
    does.
    """

    source: str | None
    retry_count: int
    tos: int | None
    ack_timeout: int | None
    open_device: DeviceOpener | None


class Closed(StrEnum):
    """Why a connection is closed."""

    PEER = "the peer disconnected, or ended"
    HERE = "it was closed here"
    SILENT = "the peer did not answer the disconnection"
    DEVICE = "the device was removed"
    MANAGER = "the agent ended, so that nobody tells when the peer disconnects"
    FORKED = "it belongs to the process that forked: connect anew in the child"


class ConnectionBase(QueueAccess):
    """A connection, of asyncio and of verbena.cm.sync."""

    def __init__(
        self, identifier: Id, queues: Queues, said: RdmaConnectionParameters, pd: PD
    ) -> None:
        self.id = identifier
        self.pd = pd
        self.private_data = said.private_data
        self.local_address: Address | None = identifier.local_address
        self.remote_address: Address | None = identifier.remote_address
        self._queues = queues
        self._closed: Closed | None = None
        self._disconnects = False
        self._was_released = False
        identifier.on_event = self._take
        for event in list(identifier.events):
            self._take(event)

    @property
    def closed(self) -> Closed | None:
        """Why it is closed; None while it is not."""
        if not self.id.channel.is_async and not self.id.closed:
            self.id.channel.pump()
        if self._closed is None and isinstance(self.id.ended, ManagerEnded):
            return Closed.MANAGER
        if self._closed is None and isinstance(self.id.ended, ParentsConnection):
            return Closed.FORKED
        return self._closed

    def __repr__(self) -> str:
        state = "open" if self._closed is None else self._closed
        return (
            f"<{type(self).__name__} with {self.remote_address}, QP {self.qp.qp_num:#x}: {state}>"
        )

    # ---- events ----

    def _take(self, event: IdEvent) -> None:
        self.id.events.clear()
        if event.kind is RdmaEventKind.DISCONNECTED:
            self._on_disconnected(event.status)
        elif event.kind is RdmaEventKind.REJECTED:  # after the RTU: the peer gave up before it came
            self._end(Closed.HERE if self._disconnects else Closed.PEER)
        elif event.kind is RdmaEventKind.DEVICE_REMOVAL:
            self._end(Closed.DEVICE)

    def _on_disconnected(self, status: int) -> None:
        """Answer the peer's DREQ by a DREP; a DREP needs no answer."""
        if self._disconnects:
            self._end(Closed.SILENT if status else Closed.HERE)
            return
        self._end(Closed.PEER)
        with suppress(ConnectionManagerError):
            self.id.disconnect()

    def _end(self, reason: Closed) -> None:
        if self._closed is None:
            self._closed = reason
        with suppress(OSError):
            self._queues.to_error()

    # ---- ending ----

    async def _disconnect(self, timeout: float | None) -> Closed:
        deadline = self.id.deadline(timeout)
        if self.closed is None and not self._disconnects:
            self._disconnects = True
            try:
                self._queues.to_error()
                self.id.disconnect()
            except OSError:
                if not self._was_released:
                    raise
                return Closed.HERE  # another thread has closed it meanwhile
        return await self._wait(deadline, _NO_DREP)

    async def _wait(self, deadline: float | None, silence: str = "") -> Closed:
        """Wait until the connection has ended. Raises ConnectTimeout, which says ``silence``."""
        while (closed := self.closed) is None:
            if deadline is not None and self.id.channel.time() >= deadline:
                raise self.id.time_is_over(silence)
            await self.id.channel.wait(self.id, deadline)
        return closed

    def close(self) -> None:
        """Disconnect, if that has not happened, and close what was made for the connection.

        It waits for no answer of the peer's.
        """
        if self._was_released:
            return
        self._was_released = True
        if self.closed is None and not self._disconnects:
            with suppress(ConnectionManagerError):
                self.id.disconnect()
        self._end(Closed.HERE)
        self.id.close()
        self._queues.close()


C = TypeVar("C", bound=ConnectionBase)


# ---- the active side -----------------------------------------------------------------------------


async def connect_to(
    manager: Manager, kind: type[C], host: str, port: int, options: ConnectionOptions
) -> C:
    """Connect to the first address of a host that accepts. Raises ConnectionManagerError."""
    deadline = manager.deadline(options.get("timeout", CONNECT_SECONDS))
    await manager.enter(deadline)
    try:
        targets = await all_addresses(manager.channel, host, port, deadline)
        source = await source_address(manager, options.get("source"), deadline)
        about = f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"
        return await _connect_first(manager, kind, targets, source, about, options, deadline)
    finally:
        manager.leave()


async def source_address(
    manager: Manager, source: str | None, deadline: float | None
) -> CmAddress | None:
    """Return the address that the caller wants to use, or None."""
    if source is None:
        return None
    return await first_address(manager.channel, source, deadline=deadline)


async def _connect_first(
    manager: Manager,
    kind: type[C],
    targets: Sequence[CmAddress],
    source: CmAddress | None,
    about: str,
    options: ConnectionOptions,
    deadline: float | None,
) -> C:
    failure: ConnectionManagerError | None = None
    for target in targets:
        try:
            return await _connect_one(manager, kind, target, source, about, options, deadline)
        except (ManagerAbsent, ManagerEnded):
            raise
        except ConnectionManagerError as error:
            failure = failure or error
        if deadline is not None and manager.channel.time() >= deadline:
            break
    assert failure is not None
    raise failure


async def _connect_one(
    manager: Manager,
    kind: type[C],
    target: CmAddress,
    source: CmAddress | None,
    about: str,
    options: ConnectionOptions,
    deadline: float | None,
) -> C:
    identifier = await Id.make(manager)
    try:
        identifier.about = about
        pd = await reach(identifier, target, source, options, deadline)
        queues = make_queues(pd.context, pd, manager.is_async, identifier.qp_type, options)
        try:
            identifier.bring(queues.qp, QPState.INIT)
            prepare(queues.qp, options)
            identifier.connect(_asked(pd.context, queues.qp, options))
            answer = await identifier.expect(RdmaEventKind.CONNECT_RESPONSE, deadline)
            _establish(identifier, queues.qp)
            return kind(identifier, queues, answer.connection, pd)
        except BaseException:
            identifier.close()  # the peer gets a REJ
            queues.close()
            raise
    except BaseException:
        identifier.close()
        raise


def _establish(identifier: Id, qp: QP) -> None:
    """Answer the peer's REP by an RTU. Raises PeerGone if the peer has given up since."""
    try:
        identifier.bring(qp, QPState.INIT, QPState.RTR, QPState.RTS)
        identifier.accept()
    except ConnectionManagerError as error:
        if is_stale(error):
            raise PeerGone(identifier.about, after_accepting=True) from None
        raise


async def reach(
    identifier: Id,
    target: CmAddress,
    source: CmAddress | None,
    options: ConnectionOptions,
    deadline: float | None,
) -> PD:
    """Resolve address and route, and return the protection domain on the device found."""
    if (tos := options.get("tos")) is not None:
        identifier.set_option(_LEVEL_ID, _TOS, bytes([tos]))
    if (ack_timeout := options.get("ack_timeout")) is not None:
        identifier.set_option(_LEVEL_ID, _ACK_TIMEOUT, bytes([ack_timeout]))
    timeout = options.get("timeout")
    await identifier.resolve_addr(target, source, identifier.step_seconds(deadline, timeout))
    await identifier.resolve_route(identifier.step_seconds(deadline, timeout))
    return identifier.default_pd(given_pd(options))


def given_pd(options: QueueOptions) -> PD | None:
    """Return the protection domain that the caller's options name."""
    given = options.get("qp")
    return options.get("pd") if given is None else given.pd


def prepare(qp: QP, options: QueueOptions) -> None:
    """Have the caller post receives."""
    call = options.get("prepare")
    if call is not None:
        call(qp)


def _asked(context: Context, qp: QP, options: ConnectionOptions) -> RdmaConnectionParameters:
    device = context.query_device()
    depth, resources = options.get("initiator_depth"), options.get("responder_resources")
    return RdmaConnectionParameters(
        qpn=qp.qp_num,
        private_data=options.get("private_data", b""),
        initiator_depth=min(_READS, device.max_qp_init_rd_atom) if depth is None else depth,
        responder_resources=min(_READS, device.max_qp_rd_atom) if resources is None else resources,
        retry_count=options.get("retry_count", 7),
        rnr_retry_count=options.get("rnr_retry_count", 7),
        srq=qp.srq is not None,
    )


# ---- the passive side ----------------------------------------------------------------------------


async def accept_request(
    identifier: Id, kind: type[C], asked: RdmaConnectionParameters, options: AcceptOptions
) -> C:
    """Accept a request. Raises ConnectionManagerError; the request is refused then."""
    deadline = identifier.deadline(options.get("timeout"))
    try:
        pd = identifier.default_pd(given_pd(options))
        manager = identifier.manager
        queues = make_queues(pd.context, pd, manager.is_async, identifier.qp_type, options)
        try:
            identifier.bring(queues.qp, QPState.INIT)
            prepare(queues.qp, options)
            granted = _granted(pd.context, queues.qp, asked, options)
            served = granted.responder_resources
            identifier.bring(queues.qp, QPState.RTR, max_dest_rd_atomic=served)
            identifier.bring(queues.qp, QPState.RTS, max_rd_atomic=granted.initiator_depth)
            identifier.accept(granted)
            await identifier.expect(RdmaEventKind.ESTABLISHED, deadline)
            return kind(identifier, queues, asked, pd)
        except BaseException:
            identifier.close()
            queues.close()
            raise
    except ConnectionManagerError as error:
        identifier.close()
        if is_stale(error):
            raise PeerGone(identifier.about) from None
        raise
    except BaseException:
        identifier.close()
        raise


def _granted(
    context: Context, qp: QP, asked: RdmaConnectionParameters, options: AcceptOptions
) -> RdmaConnectionParameters:
    device = context.query_device()
    depth, resources = options.get("initiator_depth"), options.get("responder_resources")
    own_depth = min(_READS, device.max_qp_init_rd_atom) if depth is None else depth
    own_resources = min(_READS, device.max_qp_rd_atom) if resources is None else resources
    return RdmaConnectionParameters(
        qpn=qp.qp_num,
        private_data=options.get("private_data", b""),
        initiator_depth=min(own_depth, asked.initiator_depth),
        responder_resources=min(own_resources, asked.responder_resources),
        rnr_retry_count=options.get("rnr_retry_count", 7),
        srq=qp.srq is not None,
    )
