# SPDX-License-Identifier: Apache-2.0
"""The exceptions of verbena.cm: what the connection manager refused, and what the peer answered.

Each is an OSError, and where Python has one for the case also that: a TimeoutError, a
ConnectionRefusedError. The sentences are those of manage/cm/refusals.py and of the reasons of REJ
and SIDR_REP messages.
"""

from __future__ import annotations

import errno
import os

from verbena.agent.sentences import ROUTE_SENTENCES, sa_sentence
from verbena.agent.ucm_commands import UcmNumber
from verbena.manage.cm.rdma_events import RdmaEventKind
from verbena.manage.cm.refusals import CmRefusal
from verbena.manage.cm_messages import RejReason, SidrStatus

__all__ = [
    "AddressInUse",
    "ConnectTimeout",
    "ConnectionManagerError",
    "ManagerAbsent",
    "ManagerEnded",
    "NoListener",
    "NoSuchAddress",
    "ParentsConnection",
    "PeerGone",
    "Rejected",
    "Unreachable",
    "call_refused",
    "event_error",
    "is_stale",
]


class ConnectionManagerError(OSError):
    """A connection was not made, or a call was refused; the text says why and what to do.

    ``reason`` is the peer's, a ``RejReason`` or a ``SidrStatus``, or the connection manager's, a
    ``CmRefusal``; None for an errno alone. ``private_data`` is what the peer's program said, with
    the zeros that fill it.
    """

    reason: RejReason | SidrStatus | CmRefusal | None = None
    private_data: bytes = b""


class Rejected(ConnectionManagerError, ConnectionRefusedError):
    """The peer refused; ``private_data`` may say why."""


class NoListener(Rejected):
    """Nothing listens at the peer's address and port."""


class Unreachable(ConnectionManagerError):
    """No interface with an RDMA device leads to the peer."""


class ConnectTimeout(ConnectionManagerError, TimeoutError):
    """The time is over: the caller's, or that for which the connection manager waits."""


class PeerGone(ConnectionManagerError, ConnectionAbortedError):
    """The peer gave up before the connection was made: it ended, or its time was over.

    ``after_accepting``: the peer is the side that accepts, and had accepted.
    """

    def __init__(self, about: str, after_accepting: bool = False) -> None:
        why = (
            "the peer has given up, since it ended or its time was over; wait for the next request"
        )
        if after_accepting:
            why = (
                "the peer accepted and gave up at once: its program ended, closed its listener, or"
                " cancelled the call that accepts; see what it says, and connect again"
            )
        super().__init__(errno.ECONNABORTED, f"{about}: {why}")


class AddressInUse(ConnectionManagerError):
    """Another listener has the address and port."""


class NoSuchAddress(ConnectionManagerError):
    """No interface of this host has the address, or a host name has none."""


class ManagerAbsent(ConnectionManagerError):
    """There is no connection manager: no device, or no agent."""


_AGENT_ENDED = (
    "the agent, which manages connections, has ended: data of connections that are made go on, but "
    "nobody tells when they end; connect again for a new agent"
)


class ManagerEnded(ConnectionManagerError):
    """The agent that manages connections has ended. Data of connections that are made go on."""

    def __init__(self, text: str = _AGENT_ENDED) -> None:
        super().__init__(errno.EIO, text)


class ParentsConnection(ConnectionManagerError):
    """A forked child used what its parent has connected, or listens by."""

    def __init__(self) -> None:
        super().__init__(
            errno.ECHILD,
            "this connection or listener belongs to the process that forked: connect or listen"
            " anew in the child",
        )


class DeviceRefusal(OSError):
    """A device refuses a command, and says by which row of the table; None where it cannot."""

    def __init__(self, code: int, refusal: CmRefusal | None = None) -> None:
        super().__init__(code, os.strerror(code))
        self.refusal = refusal


_STALE = (CmRefusal.QP_TOO_EARLY, CmRefusal.WRONG_STATE, CmRefusal.NO_CONNECTION)


def is_stale(error: ConnectionManagerError) -> bool:
    """Whether a refused answer to a request says that the request is no longer there."""
    return error.reason in _STALE


# ---- calls ---------------------------------------------------------------------------------------

_PRIVATE_DATA = (UcmNumber.CONNECT, UcmNumber.ACCEPT, UcmNumber.REJECT)
_BY_ERRNO = {
    errno.EADDRINUSE: CmRefusal.PORT_IN_USE,
    errno.EADDRNOTAVAIL: CmRefusal.NOT_LOCAL,
    errno.ENODEV: CmRefusal.NO_DEVICE,
    errno.ENETUNREACH: CmRefusal.NO_ROUTE,
    errno.EHOSTUNREACH: CmRefusal.NO_ROUTE,
    errno.EACCES: CmRefusal.PRIVILEGED_PORT,
    errno.EAFNOSUPPORT: CmRefusal.FAMILY,
    errno.ENOENT: CmRefusal.NO_SUCH_ID,
    errno.ENOMEM: CmRefusal.TOO_MANY_IDS,
    errno.EISCONN: CmRefusal.ALREADY_CONNECTED,
}
_KINDS: dict[int, type[ConnectionManagerError]] = {
    errno.EADDRINUSE: AddressInUse,
    errno.EADDRNOTAVAIL: NoSuchAddress,
    errno.ENODEV: Unreachable,
    errno.ENETUNREACH: Unreachable,
    errno.EHOSTUNREACH: Unreachable,
    errno.ETIMEDOUT: ConnectTimeout,
}


def call_refused(
    number: UcmNumber, error: OSError, about: str, private_data: bytes = b"", wildcard: bool = False
) -> ConnectionManagerError:
    """Return the exception for a command that the device refused.

    The kernel gives an errno alone; the row of the table follows from it and the command.
    ``wildcard``: whether the command is about every address.
    """
    if isinstance(error, ConnectionManagerError):
        return error
    code = error.errno or errno.EINVAL
    refusal = error.refusal if isinstance(error, DeviceRefusal) else None
    if refusal is None:
        refusal = _likely_refusal(number, code, private_data, wildcard)
    if refusal is CmRefusal.WILDCARD_IN_USE:
        code = errno.EADDRINUSE  # as everywhere else; the device has another number
    kind = _KINDS.get(code)
    sentence = refusal.sentence if refusal is not None else os.strerror(code)
    made = (kind or ConnectionManagerError)(code, f"{about}: {sentence}")
    made.reason = refusal
    return made


def _likely_refusal(
    number: UcmNumber, code: int, private_data: bytes, wildcard: bool
) -> CmRefusal | None:
    if code == errno.EADDRNOTAVAIL and wildcard:
        return CmRefusal.WILDCARD_IN_USE
    if code == errno.EINVAL:
        is_long = number in _PRIVATE_DATA and len(private_data) > _room_for(number)
        return CmRefusal.PRIVATE_DATA if is_long else CmRefusal.WRONG_STATE
    return _BY_ERRNO.get(code)


def _room_for(number: UcmNumber) -> int:
    """How much private data the shortest message of the command has room for."""
    return {UcmNumber.CONNECT: 56, UcmNumber.ACCEPT: 136}.get(number, 136)


# ---- events --------------------------------------------------------------------------------------


def event_error(
    kind: RdmaEventKind, status: int, private_data: bytes, about: str, datagram: bool
) -> ConnectionManagerError:
    """Return the exception for an event that ends what a program waits for."""
    if kind is RdmaEventKind.REJECTED and status > 0:
        return _refused_by(RejReason(status), private_data, about)
    if status > 0 and datagram and kind is RdmaEventKind.UNREACHABLE:
        return _refused_by(SidrStatus(status), private_data, about)
    if said := sa_sentence(kind, status):
        return Unreachable(errno.EHOSTUNREACH, f"{about}: {said} (status {status:#06x})")
    code = -status or errno.ECONNABORTED
    sentence = kind.meaning if code == errno.ECONNABORTED else _sentence(kind, code)
    return _KINDS.get(code, ConnectionManagerError)(code, f"{about}: {sentence}")


_UNSAID = (
    "The peer refused, and gave no reason; the program refuses, or listens at another address of"
    " its host than this one."
)


def _refused_by(reason: RejReason | SidrStatus, private_data: bytes, about: str) -> Rejected:
    is_absent = reason in (RejReason.INVALID_SERVICE_ID,) or reason is SidrStatus.UNSUPPORTED
    kind = NoListener if is_absent else Rejected
    sentence = reason.meaning
    if reason is RejReason.CONSUMER_REJECT and not any(private_data):
        sentence = _UNSAID
    made = kind(errno.ECONNREFUSED, f"{about}: {sentence}")
    made.reason, made.private_data = reason, private_data
    return made


def _sentence(kind: RdmaEventKind, code: int) -> str:
    if kind is RdmaEventKind.ROUTE_ERROR and code in ROUTE_SENTENCES:
        return ROUTE_SENTENCES[code]
    if code == errno.ETIMEDOUT:
        if kind is RdmaEventKind.ADDR_ERROR:
            return "Nobody on the network answers for the address; check it, and its host."
        return (
            "The peer does not answer; check its host, and whether its program reads requests: a "
            "full backlog drops them."
        )
    if code == errno.ENODEV:
        return CmRefusal.NO_DEVICE.sentence
    if code in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "No route leads to the address; check it, and the routes of this host."
    return f"{os.strerror(code)}. {kind.meaning}"
