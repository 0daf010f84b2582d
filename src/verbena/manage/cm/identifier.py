# SPDX-License-Identifier: Apache-2.0
"""Identifiers of rdma_cm: what one is, and its state machine as a table (cma.c of Linux 6.1).

``RdmaCm`` makes them and is the only one that changes them. A call without a rule in the table is
refused with EINVAL and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum, unique

from ..codes import quick_members
from ..ip_cm import PortSpace
from .addresses import CmAddress, CmFamily
from .connection import CmConnection
from .host import JoinGroup, LocalInterface
from .refusals import CmError, CmRefusal
from .resolution import CmResolution
from .routes import CmRoute

__all__ = ["ID_RULES", "GroupMember", "IdInput", "IdState", "QpKind", "RdmaId"]


@quick_members
@unique
class IdState(Enum):
    """States of an identifier."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for each rule looked up

    IDLE = "It has no address."
    ADDR_BOUND = "It has a local address and port."
    ADDR_QUERY = "The destination is being resolved."
    ADDR_RESOLVED = "Source, destination and device are known."
    ROUTE_QUERY = "A path is being looked for."
    ROUTE_RESOLVED = "The path is known."
    CONNECT = "A connection is made, or is there; the connection has states of its own."
    DISCONNECT = "The connection has ended."
    LISTEN = "Requests are taken."
    DEVICE_REMOVAL = "The device is gone."


@quick_members
@unique
class IdInput(Enum):
    """What changes an identifier's state."""

    __hash__ = object.__hash__  # Enum's own is a call of Python, for each rule looked up

    BIND = "call: bind"
    RESOLVE_ADDRESS = "call: resolve address"
    ADDRESS_FOUND = "address found"
    ADDRESS_FAILED = "address not found"
    RESOLVE_ROUTE = "call: resolve route"
    SET_PATH = "call: set option IB_PATH"
    ROUTE_FOUND = "path found"
    ROUTE_FAILED = "no path"
    LISTEN = "call: listen"
    JOIN = "call: join multicast"
    CONNECT = "call: connect"
    ACCEPT = "call: accept"
    ENDED = "DREQ or DREP received, or no answer to a DREQ"


_S, _I = IdState, IdInput
ID_RULES: dict[tuple[IdState, IdInput], IdState] = {
    (_S.IDLE, _I.BIND): _S.ADDR_BOUND,
    (_S.ADDR_BOUND, _I.RESOLVE_ADDRESS): _S.ADDR_QUERY,
    (_S.ADDR_QUERY, _I.ADDRESS_FOUND): _S.ADDR_RESOLVED,
    (_S.ADDR_QUERY, _I.ADDRESS_FAILED): _S.ADDR_BOUND,
    (_S.ADDR_RESOLVED, _I.RESOLVE_ROUTE): _S.ROUTE_QUERY,
    (_S.ADDR_RESOLVED, _I.SET_PATH): _S.ROUTE_RESOLVED,
    (_S.ROUTE_QUERY, _I.ROUTE_FOUND): _S.ROUTE_RESOLVED,
    (_S.ROUTE_QUERY, _I.ROUTE_FAILED): _S.ADDR_RESOLVED,
    (_S.ROUTE_RESOLVED, _I.CONNECT): _S.CONNECT,
    (_S.CONNECT, _I.ACCEPT): _S.CONNECT,
    (_S.CONNECT, _I.ENDED): _S.DISCONNECT,
    (_S.ADDR_BOUND, _I.LISTEN): _S.LISTEN,
    (_S.ADDR_BOUND, _I.JOIN): _S.ADDR_BOUND,
    (_S.ADDR_RESOLVED, _I.JOIN): _S.ADDR_RESOLVED,
}
"""The next state by state and input. A listener and an address in use begin with BIND."""


@quick_members
class QpKind(IntEnum):
    """Kinds of QPs, with ibverbs' numbers; ANY is a listener's that takes every kind."""

    ANY = 0
    RC = 2
    UC = 3
    UD = 4
    XRC_SEND = 9
    XRC_RECV = 10


_ANY = CmAddress.wildcard(CmFamily.IPV4)


@dataclass(eq=False, slots=True)
class GroupMember:
    """A multicast group that an identifier joined, or is about to."""

    handle: int
    id: int
    context: int
    address: CmAddress
    request: JoinGroup
    is_joined: bool = False
    events_read: int = 0


@dataclass(eq=False, slots=True)
class RdmaId:
    """An identifier. ``number`` is its handle, ``channel`` where its events go.

    ``psn`` is its starting PSN. ``context`` 0 means that a program has not accepted it yet, so that
    nothing is reported of it.
    """

    number: int
    channel: int
    space: PortSpace
    qp_kind: int
    context: int
    psn: int
    state: IdState = IdState.IDLE
    source: CmAddress = _ANY
    destination: CmAddress | None = None
    destination_gid: bytes = bytes(16)
    interface: LocalInterface | None = None
    hop_limit: int = 64
    route: CmRoute | None = None
    bound: tuple[int, int] | None = None  # port space and port that it holds
    service_id: int | None = None  # that it listens for
    backlog: int = 0  # connection requests that may still come before one is read
    backlog_size: int = 0  # of a listener: what it was at first
    turned_away: int = 0  # requests that found the backlog full, repeated ones each time
    turned_away_told: int = 0  # of how many of them the program's log has been told
    reuse_address: bool = False
    af_only: bool = False
    is_af_only_set: bool = False
    tos: int | None = None
    ack_timeout: int | None = None
    qkey: int = 0
    qpn: int = 0
    srq: bool = False
    connection: CmConnection | None = None
    resolution: CmResolution | None = None
    groups: list[GroupMember] = field(default_factory=list)
    deadline: float | None = None  # of a question to the system
    events_read: int = 0

    @property
    def is_listening(self) -> bool:
        """Whether it takes requests."""
        return self.state is IdState.LISTEN

    @property
    def is_datagram(self) -> bool:
        """Whether it is of UD."""
        return self.qp_kind == QpKind.UD

    def follow(self, what: IdInput) -> None:
        """Take the next state. Raises CmError if the table has none."""
        self.state = self.next_state(what)

    def next_state(self, what: IdInput) -> IdState:
        """Return the next state. Raises CmError if the table has none."""
        found = ID_RULES.get((self.state, what))
        if found is None:
            raise CmError(CmRefusal.WRONG_STATE, f"{what.value} in state {self.state.name}")
        return found
