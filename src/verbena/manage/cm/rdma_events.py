# SPDX-License-Identifier: Apache-2.0
"""Events of rdma_cm, with Linux's numbers, and their parameters. ``RdmaCm`` makes them.

A status is 0, a negative errno, or what the peer said: the reason of a REJ, the status of a
SIDR_REP.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codes import Code, quick_members
from .routes import MadAddress

__all__ = ["RdmaConnectionParameters", "RdmaDatagramParameters", "RdmaEvent", "RdmaEventKind"]


@quick_members
class RdmaEventKind(Code):
    """rdma_cm_event_type."""

    ADDR_RESOLVED = 0, "The destination has an address here; resolve the route."
    ADDR_ERROR = 1, "The address was not resolved; the status is an errno, -110: nobody answers."
    ROUTE_RESOLVED = 2, "There is a path; create the QP and connect."
    ROUTE_ERROR = 3, "There is no path; the status is the SA's, or -110."
    CONNECT_REQUEST = 4, "A peer wants to connect to a listener; accept or reject the new id."
    CONNECT_RESPONSE = 5, "The peer accepted; bring the QP to RTS, then accept."
    CONNECT_ERROR = 6, "Something failed on the way to a connection."
    UNREACHABLE = 7, "The peer did not answer (-110), or has no such datagram service (1, 2)."
    REJECTED = 8, "The peer refused; the status is the REJ's reason."
    ESTABLISHED = 9, "Both sides can send."
    DISCONNECTED = 10, "The peer disconnected, or answered this side; -110: it did not answer."
    DEVICE_REMOVAL = 11, "The device is gone; destroy the identifier."
    MULTICAST_JOIN = 12, "The group is joined."
    MULTICAST_ERROR = 13, "The group was not joined, or was lost."
    ADDR_CHANGE = 14, "The interface has another hardware address."
    TIMEWAIT_EXIT = 15, "Old packets have died out; the QP may be used again."
    ADDRINFO_RESOLVED = 16, "Subnet administration has found a service; it is not asked here yet."
    ADDRINFO_ERROR = 17, "Subnet administration has found no such service."
    USER = 18, "The program wrote it with write_event."
    INTERNAL = 19, "The program's library wrote it with write_event."


@dataclass(slots=True, unsafe_hash=True)
class RdmaConnectionParameters:
    """rdma_conn_param, of a call and of an event. Depths count READs and atomics at once.

    In an event they are this side's already: responder_resources is what the peer's
    initiator_depth was. ``qkey`` is for datagrams.
    """

    qpn: int = 0
    private_data: bytes = b""
    responder_resources: int = 0
    initiator_depth: int = 0
    flow_control: bool = False
    retry_count: int = 7
    rnr_retry_count: int = 7
    srq: bool = False
    qkey: int = 0


@dataclass(slots=True, unsafe_hash=True)
class RdmaDatagramParameters:
    """rdma_ud_param: where datagrams go. ``address`` is None in a CONNECT_REQUEST."""

    private_data: bytes = b""
    qpn: int = 0
    qkey: int = 0
    address: MadAddress | None = None


@dataclass(slots=True, unsafe_hash=True)
class RdmaEvent:
    """An event of an identifier, ``id``; of a new one for CONNECT_REQUEST, with ``listener``.

    ``context`` is what the program gave with the identifier, or with the group. ``vendor_id`` and
    ``options`` are of enhanced connection establishment. ``group`` is a multicast handle, and
    ``argument`` what ``write_event`` was given.
    """

    kind: RdmaEventKind
    id: int
    context: int = 0
    status: int = 0
    connection: RdmaConnectionParameters | None = None
    datagram: RdmaDatagramParameters | None = None
    listener: int | None = None
    group: int | None = None
    vendor_id: int = 0
    options: int = 0
    argument: int = 0
