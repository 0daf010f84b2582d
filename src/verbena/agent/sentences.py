# SPDX-License-Identifier: Apache-2.0
"""What a program's log says of refused calls of librdmacm, and of events that report a failure.

rdma_cm_device.py puts these lines into answers; the program's side writes them if it has a log.
"""

from __future__ import annotations

import errno

from verbena.agent.ucm_commands import UcmError, UcmNumber
from verbena.manage.attribute_ids import StatusCode
from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.identifier import RdmaId
from verbena.manage.cm.rdma_events import RdmaEvent, RdmaEventKind
from verbena.manage.cm.refusals import CmError
from verbena.manage.cm_messages import RejReason, SidrStatus

__all__ = [
    "ROUTE_SENTENCES",
    "backlog_sentence",
    "event_sentence",
    "refusal_sentence",
    "sa_sentence",
]

_CALLS = {
    UcmNumber.BIND_IP: "rdma_bind_addr",
    UcmNumber.BIND: "rdma_bind_addr",
    UcmNumber.RESOLVE_IP: "rdma_resolve_addr",
    UcmNumber.RESOLVE_ADDR: "rdma_resolve_addr",
    UcmNumber.JOIN_IP_MCAST: "rdma_join_multicast",
    UcmNumber.JOIN_MCAST: "rdma_join_multicast",
    UcmNumber.LEAVE_MCAST: "rdma_leave_multicast",
    UcmNumber.GET_EVENT: "rdma_get_cm_event",
    UcmNumber.INIT_QP_ATTR: "rdma_init_qp_attr",
}
_FAILURES = {
    RdmaEventKind.ADDR_ERROR,
    RdmaEventKind.ROUTE_ERROR,
    RdmaEventKind.CONNECT_ERROR,
    RdmaEventKind.UNREACHABLE,
    RdmaEventKind.REJECTED,
    RdmaEventKind.MULTICAST_ERROR,
}
_ERRNOS = {
    errno.ETIMEDOUT: "Nobody answers; is the peer there, and does the network lead to it?",
    errno.ENODEV: (
        "The address's interface has no RDMA device, or the device lacks the address; use one of"
        " `verbena devices`."
    ),
    errno.ENETUNREACH: "No route leads to the address.",
    errno.EHOSTUNREACH: "No route leads to the address.",
}
NO_REPLY = (
    "Nobody answers; is the peer there, does the network lead to it, and does its program read "
    "requests? A full backlog drops them."
)
NO_PATH = "Subnet administration knows no path to the peer; look for a port that is not ACTIVE"
NO_MANAGER = "No subnet manager answers: its host says that none runs there any more; start one"
ROUTE_SENTENCES = {
    errno.EAGAIN: "No subnet manager has brought the port up; start one, or wait for it.",
    errno.ETIMEDOUT: "Subnet administration does not answer; does the subnet manager still run?",
}
"""Of ROUTE_ERROR, on InfiniBand."""
UNSCOPED = (
    " The address is link-local and names no interface, so the routes chose one; append %interface."
)
_ASKS_SA = {RdmaEventKind.ROUTE_ERROR, RdmaEventKind.MULTICAST_ERROR}
_OTHERS = {
    errno.EAFNOSUPPORT: "The address family is none of IPv4, IPv6 and AF_IB; use one.",
    errno.ENOSYS: "There is no such command or option.",
}


def sa_sentence(kind: RdmaEventKind, status: int) -> str | None:
    """Return what the status of an answer to a question to subnet administration means.

    Without a full stop; None for a status that has no sentence. A host answers a Get or Set that
    no program takes with METHOD_ATTRIBUTE_UNSUPPORTED, as Linux' ib_mad does; subnet
    administration itself supports what is asked here.
    """
    if kind not in _ASKS_SA or status <= 0:
        return None
    if status == StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED:
        return NO_MANAGER
    return NO_PATH if kind is RdmaEventKind.ROUTE_ERROR else None


def refusal_sentence(number: int | None, error: UcmError | CmError) -> str:
    """Return the line about a refused command; of UcmError about a command that is not well
    formed, or about an identifier of another channel."""
    call = _name(number)
    if isinstance(error, CmError):
        return f"{call} failed: {_errno(error.errno or 0)}; {error.args[1]}"
    says = _OTHERS.get(error.errno, "The command or its identifier is not valid.")
    return f"{call} failed: {_errno(error.errno)}; {says}"


def _name(number: int | None) -> str:
    try:
        known = UcmNumber(-1 if number is None else number)
    except ValueError:
        return "a command of rdma_cm"
    return _CALLS.get(known) or f"rdma_{known.name.lower()}"


def _errno(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def event_sentence(event: RdmaEvent, destination: CmAddress | None = None) -> str | None:
    """Return the line about an event that reports a failure; None for every other.

    ``destination`` is that of the event's identifier.
    """
    said = _event_sentence(event)
    if said is None or event.kind is not RdmaEventKind.ADDR_ERROR or destination is None:
        return said
    return said + UNSCOPED if destination.is_link_local and not destination.scope_id else said


def backlog_sentence(listener: RdmaId) -> str:
    """Return the line about a listener whose backlog was full."""
    count = listener.turned_away
    found, again = "a request", "its sender tries again"
    if count > 1:
        found, again = f"{count} requests", "their senders try again"
    return (
        f"rdma_listen at {listener.source}: {found} found the backlog of {listener.backlog_size} "
        f"full; {again}. Read events faster, or listen with a larger backlog."
    )


def _event_sentence(event: RdmaEvent) -> str | None:
    if event.kind not in _FAILURES or event.status == 0:
        return None
    about = f"RDMA_CM_EVENT_{event.kind.name}, status {event.status}"
    is_route = event.kind is RdmaEventKind.ROUTE_ERROR
    if event.status < 0:
        known = _ERRNOS | (ROUTE_SENTENCES if is_route else {})
        if event.kind is RdmaEventKind.UNREACHABLE:
            known[errno.ETIMEDOUT] = NO_REPLY
        says = known.get(-event.status, event.kind.meaning)
        return f"{about} ({_errno(-event.status)}): {says}"
    if said := sa_sentence(event.kind, event.status):
        return f"{about}: {said}."
    codes = {RdmaEventKind.REJECTED: RejReason, RdmaEventKind.UNREACHABLE: SidrStatus}
    try:
        code = codes[event.kind](event.status)
    except (KeyError, ValueError):
        return f"{about}: {event.kind.meaning}"
    return f"{about} ({code.name}): {code.meaning}"
