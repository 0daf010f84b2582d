# SPDX-License-Identifier: Apache-2.0
"""Every refusal of the connection manager: its errno, and a sentence that says what to do.

Calls that are refused raise ``CmError`` with a row of this table; received MADs that are dropped
are counted by the row's name, and a log prints its sentence. The errno is what Linux's rdma_cm
returns for the same misuse (drivers/infiniband/core/cma.c and ucma.c of Linux 6.1).
"""

from __future__ import annotations

import errno
from enum import Enum, unique
from typing import Self

from ..codes import quick_members

__all__ = ["ENOTSUPP", "CmError", "CmRefusal"]

ENOTSUPP = 524  # of the kernel's own; programs see the number


@quick_members
@unique
class CmRefusal(Enum):
    """A refusal. ``code`` is its errno, or 0 for a received MAD; ``sentence`` is for people."""

    code: int
    sentence: str

    def __new__(cls, code: int, sentence: str) -> Self:
        made = object.__new__(cls)
        made._value_ = sentence
        made.code = code
        made.sentence = sentence
        return made

    # Received MADs.
    NOT_A_MAD = 0, "The datagram is no MAD of 256 bytes with BaseVersion 1; look at its sender."
    OTHER_CLASS = 0, "The MAD is of another class than communication management; it goes elsewhere."
    OTHER_VERSION = 0, "The MAD's ClassVersion is not 2; update the sender's connection manager."
    OTHER_METHOD = 0, "The MAD's method is not Send, the only one of the class; it is dropped."
    UNKNOWN_MESSAGE = 0, "The AttributeID names no message of communication management."
    UNMATCHED = 0, "The message is for a connection that is no longer here; do nothing."
    UNEXPECTED = 0, "The connection's state has no use for the message; do nothing."
    OTHER_QPN = 0, "The DREQ names another QP than the connection's; look at its sender."
    BACKLOG_FULL = 0, "The listener's backlog is full; read its events faster, or listen with more."
    NO_PORT = 0, "The MAD came through a port that the device does not have."

    # Calls, by any identifier.
    WRONG_STATE = errno.EINVAL, "The call does not fit the state; wait for the event before it."
    NO_SUCH_ID = errno.ENOENT, "There is no such identifier; it was destroyed, or never made."
    OTHER_CHANNEL = errno.EINVAL, "The identifier belongs to another event channel; use its own."
    NO_SUCH_CHANNEL = errno.EINVAL, "There is no such event channel; it was closed."
    NO_SUCH_GROUP = errno.ENOENT, "There is no such multicast handle; the group was left."
    TOO_MANY_IDS = errno.ENOMEM, "There are as many identifiers as there can be; destroy some."
    PORT_SPACE = errno.EINVAL, "The port space is none of IPOIB, TCP, UDP and IB; choose one."
    ALREADY_CONNECTED = errno.EISCONN, "The connection is established already; go on."
    NO_CONNECTION = errno.EINVAL, "The identifier has no connection yet; connect or accept first."
    NO_DEVICE_YET = errno.EINVAL, "The identifier has no device yet; bind it or resolve an address."
    PRIVATE_DATA = errno.EINVAL, "The private data is too long for this message; shorten it."
    REASON = (
        errno.EINVAL,
        "A program rejects with reason 28 (consumer reject) or 35 (ECE); use one.",
    )
    QP_STATE = errno.EINVAL, "Attributes are known for INIT, RTR and RTS; ask for one of these."
    QP_TOO_EARLY = errno.EINVAL, "RTR and RTS need the peer's REQ or REP; wait for its event."
    VALUE = errno.EINVAL, "A number does not fit its field of the message; make it smaller."
    EVENT_KIND = errno.EINVAL, "Only USER (18) and INTERNAL (19) can be written; use one."
    NOTIFICATION = errno.EINVAL, "Only COMM_EST (4) can be notified; there is no second path."

    # Addresses and ports.
    FAMILY = errno.EAFNOSUPPORT, "The address family is none of IPv4, IPv6 and AF_IB; use one."
    OTHER_FAMILY = errno.EINVAL, "Source and destination are not of one family; use the same."
    NO_SCOPE = (
        errno.EINVAL,
        "A link-local IPv6 address of this host needs a scope id; append %interface.",
    )
    NO_ROUTE = (
        errno.ENETUNREACH,
        "No route leads to the address; check it, and the routes of this host.",
    )
    NOT_LOCAL = errno.EADDRNOTAVAIL, "No interface has the address; use an address of this host."
    NO_DEVICE = (
        errno.ENODEV,
        "The address's interface has no RDMA device, or the device lacks the address; use one of"
        " `verbena devices`.",
    )
    PORT_IN_USE = errno.EADDRINUSE, "Another identifier has address and port; choose another port."
    WILDCARD_IN_USE = (
        errno.EADDRNOTAVAIL,
        "The port is not free at every address; close what listens there, or choose another port.",
    )
    NO_PORT_LEFT = errno.EADDRNOTAVAIL, "Every ephemeral port is in use; close some identifiers."
    PRIVILEGED_PORT = errno.EACCES, "Ports below 1024 need CAP_NET_BIND_SERVICE; use a higher one."
    NOT_A_PORT_SPACE = (
        errno.EPROTONOSUPPORT,
        "The service ID belongs to no port space of the identifier's; use its own space.",
    )
    NO_TIMEOUT = errno.EINVAL, "The timeout is 0; give the milliseconds to wait for a route."

    # Options.
    OPTION_LENGTH = errno.EINVAL, "The option has another length; see rdma_set_option(3)."
    OPTION_UNKNOWN = errno.ENOSYS, "There is no such option; see rdma_set_option(3)."
    OPTION_TOO_LATE = errno.EINVAL, "The option cannot be changed in this state; set it earlier."
    OPTION_QP_TYPE = errno.EINVAL, "The option is for RC and XRC; UD has no such timer."
    NO_PATH = errno.EINVAL, "No path has the flags GMP, PRIMARY and BIDIRECTIONAL; give one."

    # Datagrams and groups.
    QKEY = errno.EINVAL, "The Q_Key differs from the identifier's; all of an identifier's are one."
    NOT_DATAGRAM = errno.EINVAL, "Groups are for identifiers of UD; use the port space UDP."
    JOIN_FLAGS = errno.EINVAL, "The flags of a join are 0 (full member) or 1 (send-only); use one."
    JOIN_ADDRESS = errno.EINVAL, "The address 0 is no group; give a multicast address."
    JOIN_IPV6 = ENOTSUPP, "RoCE v2 joins no IPv6 group in Linux's rdma_cm; use an IPv4 group."


class CmError(OSError):
    """A call that the connection manager refuses; nothing has changed. ``refusal`` is the row."""

    def __init__(self, refusal: CmRefusal, about: str = "", code: int = 0) -> None:
        """``code`` is the errno where the system gave another one than the row has."""
        text = f"{about}: {refusal.sentence}" if about else refusal.sentence
        super().__init__(code or refusal.code, text)
        self.refusal = refusal
