# SPDX-License-Identifier: Apache-2.0
"""What rdma_cm asks of the system, and how the system answers.

Questions about local addresses are answered at once, by a ``CmHost``. What may take time is a
request that ``RdmaCm.take_requests`` returns; the owner answers it by a call that names the
identifier. An answer to a question that nobody has any more is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..sa_query import SaQuery
from ..sa_records import McMemberRecord, PathRecord
from .addresses import CmAddress

__all__ = [
    "AddressAnswer",
    "CmHost",
    "CmRequest",
    "JoinGroup",
    "LeaveGroup",
    "LocalInterface",
    "QueryPath",
    "ResolveAddress",
]


@dataclass(slots=True, unsafe_hash=True)
class LocalInterface:
    """A network interface: the device's port behind it, its MTU in bytes, and its index.

    ``port`` 0: there is no RDMA device. ``gid`` is the source GID of its packets. ``broadcast`` is
    the GID of IPoIB's broadcast group, on InfiniBand, and ``broadcast_qkey`` its Q_Key, which is
    that of the port space IPOIB.
    """

    port: int
    gid: bytes
    mtu: int = 1500
    index: int = 0
    p_key: int = 0xFFFF
    broadcast: bytes = bytes(16)
    broadcast_qkey: int = 0


class CmHost(Protocol):
    """The system's addresses."""

    def interface_of(self, address: CmAddress) -> LocalInterface | None:
        """Return the interface that has an IP address, or None if there is none."""

    def reaches(self, local: CmAddress, peer: CmAddress, port: int) -> bool:
        """Whether ``local`` is an address of the port, and packets to ``peer`` leave by it."""

    def may_bind(self, port: int) -> bool:
        """Whether the program may bind a port below 1024."""

    def route_error(self, source: CmAddress, destination: CmAddress) -> int:
        """Return the errno of the routes that lead to no such destination; 0: one may lead there.

        A call is refused with it. A source that is zero stands for every address.
        """


@dataclass(slots=True, unsafe_hash=True)
class ResolveAddress:
    """Find route and neighbour of a destination; answer by ``address_resolved``."""

    id: int
    source: CmAddress
    destination: CmAddress
    timeout_ms: int


@dataclass(slots=True, unsafe_hash=True)
class AddressAnswer:
    """The interface towards a destination, the source address there, and the peer's GID."""

    source: CmAddress
    interface: LocalInterface
    destination_gid: bytes
    hop_limit: int = 64


@dataclass(slots=True, unsafe_hash=True)
class QueryPath:
    """Ask subnet administration for a path; answer by ``path_resolved``."""

    id: int
    port: int
    query: SaQuery[PathRecord]
    timeout_ms: int


@dataclass(slots=True, unsafe_hash=True)
class JoinGroup:
    """Join a multicast group; answer by ``group_joined``.

    On InfiniBand subnet administration is asked for ``query``, after the record of ``broadcast``
    has given SL, flow label and traffic class. On Ethernet there is no query, and the answer comes
    by itself; ``sends_igmp`` says whether the interface has to become a member.
    """

    group: int
    port: int
    mgid: bytes
    query: SaQuery[McMemberRecord] | None = None
    broadcast: bytes = bytes(16)
    sends_igmp: bool = False


@dataclass(slots=True, unsafe_hash=True)
class LeaveGroup:
    """Undo a ``JoinGroup``. There is no answer."""

    group: int
    port: int
    mgid: bytes
    sends_igmp: bool = False


CmRequest = ResolveAddress | QueryPath | JoinGroup | LeaveGroup
