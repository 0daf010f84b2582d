# SPDX-License-Identifier: Apache-2.0
"""Datagrams: who serves a port by UD, and multicast groups.

``resolve_peer`` asks for the peer's queue pair (SIDR), ``accept_datagrams`` answers, and
``join_group`` joins a multicast group. What comes of each has a queue pair in RTS, and ``to``, the
keywords of a SEND.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypedDict, TypeVar

from verbena.manage.cm.rdma_events import RdmaConnectionParameters, RdmaEventKind
from verbena.verbs import AH, PD, QP, Gid, QPState

from .arguments import CONNECT_SECONDS
from .connection import AcceptOptions, ConnectionOptions, given_pd, prepare, reach, source_address
from .errors import ConnectionManagerError
from .identifier import Address, Id, first_address
from .manager import Manager
from .program_abi import DatagramParameters, IdEvent
from .queues import QueueAccess, Queues, make_ah, make_queues

__all__ = [
    "DatagramBase",
    "DatagramTarget",
    "GroupBase",
    "accept_datagrams",
    "join_group",
    "resolve_peer",
]


class DatagramTarget(TypedDict):
    """Keywords of ``AsyncQP.send`` and ``QP.send`` for a datagram."""

    ah: AH
    remote_qpn: int
    remote_qkey: int


class DatagramBase(QueueAccess):
    """A UD queue pair and a peer, of asyncio and of verbena.cm.sync."""

    def __init__(
        self, identifier: Id, queues: Queues, pd: PD, peer: DatagramParameters | None, said: bytes
    ) -> None:
        self.id = identifier
        self.pd = pd
        self.private_data = said
        self.local_address: Address | None = identifier.local_address
        self.remote_address: Address | None = identifier.remote_address
        self._queues = queues
        self.qpn = peer.qpn if peer else 0
        self.qkey = peer.qkey if peer else 0
        self.ah: AH | None = make_ah(pd, peer.address) if peer else None

    @property
    def to(self) -> DatagramTarget:
        """The keywords that address a SEND to the peer: ``qp.send(mr, **peer.to)``."""
        if self.ah is None:
            raise ValueError(
                "the peer's address is known from its first datagram: pd.create_ah_from_wc"
            )
        return {"ah": self.ah, "remote_qpn": self.qpn, "remote_qkey": self.qkey}

    def close(self) -> None:
        """Close what was made for it."""
        self.id.close()
        if self.ah is not None:
            self.ah.close()
        self._queues.close()


D = TypeVar("D", bound=DatagramBase)


def bring_up_datagrams(identifier: Id, qp: QP, options: AcceptOptions) -> None:
    """Bring a UD queue pair to RTS with the identifier's Q_Key; one in RTS stays as it is."""
    if qp.state == QPState.RTS:
        return
    identifier.bring(qp, QPState.INIT)
    prepare(qp, options)
    qp.modify(qp_state=QPState.RTR)
    qp.modify(qp_state=QPState.RTS, sq_psn=0)


async def resolve_peer(
    manager: Manager, kind: type[D], host: str, port: int, options: ConnectionOptions
) -> D:
    """Ask for the queue pair that serves a port. Raises ConnectionManagerError."""
    deadline = manager.deadline(options.get("timeout", CONNECT_SECONDS))
    identifier = await Id.make(manager, True, deadline)
    queues = None
    try:
        identifier.about = f"{host}:{port}"
        target = await first_address(identifier.channel, host, port, deadline)
        source = await source_address(manager, options.get("source"), deadline)
        pd = await reach(identifier, target, source, options, deadline)
        queues = make_queues(pd.context, pd, manager.is_async, identifier.qp_type, options)
        bring_up_datagrams(identifier, queues.qp, options)
        identifier.connect(_datagram_parameters(queues.qp, options))
        answer = await identifier.expect(RdmaEventKind.ESTABLISHED, deadline)
        peer = answer.datagram
        return kind(identifier, queues, pd, peer, peer.private_data)
    except BaseException:
        identifier.close()
        if queues is not None:
            queues.close()
        raise


def _datagram_parameters(qp: QP, options: AcceptOptions) -> RdmaConnectionParameters:
    return RdmaConnectionParameters(
        qpn=qp.qp_num, private_data=options.get("private_data", b""), srq=qp.srq is not None
    )


async def accept_datagrams(identifier: Id, kind: type[D], said: bytes, options: AcceptOptions) -> D:
    """Answer a request for a queue pair. Raises ConnectionManagerError."""
    queues = None
    try:
        pd = identifier.default_pd(given_pd(options))
        is_async = identifier.manager.is_async
        queues = make_queues(pd.context, pd, is_async, identifier.qp_type, options)
        bring_up_datagrams(identifier, queues.qp, options)
        identifier.accept(_datagram_parameters(queues.qp, options))
        return kind(identifier, queues, pd, None, said)
    except BaseException:
        identifier.close()
        if queues is not None:
            queues.close()
        raise


# ---- groups --------------------------------------------------------------------------------------


class GroupBase(DatagramBase):
    """A multicast group, of asyncio and of verbena.cm.sync."""

    def __init__(
        self, identifier: Id, queues: Queues, pd: PD, group: DatagramParameters, handle: int
    ) -> None:
        super().__init__(identifier, queues, pd, group, b"")
        self.gid = Gid(group.address.dgid)
        self.lost = False
        self._lid = group.address.dlid
        self._handle = handle
        self._is_attached = False
        identifier.on_event = self._take

    def attach(self) -> None:
        """Have the queue pair receive the group's datagrams."""
        self.qp.attach_mcast(self.gid, self._lid)
        self._is_attached = True

    def _take(self, event: IdEvent) -> None:
        if event.kind is RdmaEventKind.MULTICAST_ERROR:
            self.lost = True

    def close(self) -> None:
        """Leave the group, and close what was made for it."""
        if self.id.closed:
            return
        if self._is_attached and not self.qp.closed:
            with suppress(OSError):
                self.qp.detach_mcast(self.gid, self._lid)
        with suppress(ConnectionManagerError):
            self.id.leave_multicast(self._handle)
        super().close()


G = TypeVar("G", bound=GroupBase)


async def join_group(
    manager: Manager, kind: type[G], group: str, send_only: bool, options: ConnectionOptions
) -> G:
    """Join a multicast group. Raises ConnectionManagerError."""
    deadline = manager.deadline(options.get("timeout", CONNECT_SECONDS))
    identifier = await Id.make(manager, True, deadline)
    queues = None
    try:
        identifier.about = f"the group {group}"
        target = await first_address(identifier.channel, group, deadline=deadline)
        source = await source_address(manager, options.get("source"), deadline)
        seconds = identifier.step_seconds(deadline, options.get("timeout"))
        await identifier.resolve_addr(target, source, seconds)
        pd = identifier.default_pd(given_pd(options))
        queues = make_queues(pd.context, pd, manager.is_async, identifier.qp_type, options)
        bring_up_datagrams(identifier, queues.qp, options)
        handle = identifier.join_multicast(identifier.uid, target, send_only)
        event = await identifier.expect(RdmaEventKind.MULTICAST_JOIN, deadline)
        joined = kind(identifier, queues, pd, event.datagram, handle)
        if not send_only:
            joined.attach()
        return joined
    except BaseException:
        identifier.close()
        if queues is not None:
            queues.close()
        raise
