# SPDX-License-Identifier: Apache-2.0
"""The commands of librdmacm, of version 4 of the kernel's interface (Linux' rdma_user_cm.h).

``parse_command`` checks a command as the kernel does and returns it with its fields by name. A
command is a header of 8 bytes (number, bytes of its body, room for the answer) and its body;
pointers in it are the program's own, which its side of the agent follows.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from verbena.manage.codes import quick_members

__all__ = [
    "BODIES",
    "CONN_PARAM_VALID_AT",
    "ConnParam",
    "UcmCommand",
    "UcmError",
    "UcmNumber",
    "pack_command",
    "parse_command",
]

_HEADER = struct.Struct("=IHH")
_CONN_PARAM = struct.Struct("=II256s8B")
CONN_PARAM_VALID_AT = _CONN_PARAM.size - 1
"""Where struct rdma_ucm_conn_param says whether it counts."""


@quick_members
class UcmNumber(IntEnum):
    """The numbers of the commands."""

    CREATE_ID = 0
    DESTROY_ID = 1
    BIND_IP = 2
    RESOLVE_IP = 3
    RESOLVE_ROUTE = 4
    QUERY_ROUTE = 5
    CONNECT = 6
    LISTEN = 7
    ACCEPT = 8
    REJECT = 9
    DISCONNECT = 10
    INIT_QP_ATTR = 11
    GET_EVENT = 12
    GET_OPTION = 13
    SET_OPTION = 14
    NOTIFY = 15
    JOIN_IP_MCAST = 16
    LEAVE_MCAST = 17
    MIGRATE_ID = 18
    QUERY = 19
    BIND = 20
    RESOLVE_ADDR = 21
    JOIN_MCAST = 22


class UcmError(Exception):
    """A command is refused with ``errno``."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode.get(number, str(number)))
        self.errno = number


@dataclass(frozen=True)
class _Body:
    """A body: its fields in order, with skipped bytes in ``layout``; and the least room."""

    layout: struct.Struct
    names: tuple[str, ...]
    room: int = 0


def _body(layout: str, names: str, room: int = 0) -> _Body:
    return _Body(struct.Struct("=" + layout), tuple(names.split()), room)


BODIES: dict[UcmNumber, _Body] = {
    UcmNumber.CREATE_ID: _body("Q8xHB5x", "uid port_space qp_type", 4),
    UcmNumber.DESTROY_ID: _body("8xI4x", "id", 4),
    UcmNumber.BIND_IP: _body("8x28sI", "address id"),
    UcmNumber.RESOLVE_IP: _body("28s28sII", "source destination id timeout_ms"),
    UcmNumber.RESOLVE_ROUTE: _body("II", "id timeout_ms"),
    UcmNumber.QUERY_ROUTE: _body("8xI4x", "id", 208),
    UcmNumber.CONNECT: _body("272sI4xII", "conn_param id ece_vendor ece_options"),
    UcmNumber.LISTEN: _body("Ii", "id backlog"),
    UcmNumber.ACCEPT: _body("Q272sI4xII", "uid conn_param id ece_vendor ece_options"),
    UcmNumber.REJECT: _body("IBB2x256s", "id private_data_length reason private_data"),
    UcmNumber.DISCONNECT: _body("I", "id"),
    UcmNumber.INIT_QP_ATTR: _body("8xII", "id qp_state", 144),
    UcmNumber.GET_EVENT: _body("8x", "", 324),
    UcmNumber.SET_OPTION: _body("QIIII", "value_at id level name length"),
    UcmNumber.NOTIFY: _body("II", "id event"),
    UcmNumber.JOIN_IP_MCAST: _body("8xQ28sI", "uid address id", 4),
    UcmNumber.LEAVE_MCAST: _body("8xI4x", "id", 4),
    UcmNumber.MIGRATE_ID: _body("8xII", "id descriptor", 4),
    UcmNumber.QUERY: _body("8xII", "id option", 8),
    UcmNumber.BIND: _body("IH2x128s", "id length address"),
    UcmNumber.RESOLVE_ADDR: _body(
        "IIHH4x128s128s", "id timeout_ms source_length length source destination"
    ),
    UcmNumber.JOIN_MCAST: _body("8xQIHH128s", "uid id length join_flags address", 4),
}
_KNOWN = {
    int(number): (
        *(number, body.layout, body.names, body.room),
        body.names.index("id") if "id" in body.names else None,
    )
    for number, body in BODIES.items()
}
_LAST = int(UcmNumber.JOIN_MCAST)


@dataclass(slots=True, unsafe_hash=True)
class ConnParam:
    """struct rdma_ucm_conn_param: what a program says of a connection that it makes or accepts."""

    qp_num: int
    qkey: int
    private_data: bytes
    srq: int
    responder_resources: int
    initiator_depth: int
    flow_control: int
    retry_count: int
    rnr_retry_count: int
    valid: int

    @classmethod
    def unpack(cls, data: bytes) -> ConnParam:
        """Return it from its 272 bytes."""
        qp_num, qkey, private, length, *rest = _CONN_PARAM.unpack(data)
        return cls(qp_num, qkey, private[:length], *rest)

    def pack(self) -> bytes:
        """Return its 272 bytes."""
        return _CONN_PARAM.pack(
            self.qp_num,
            self.qkey,
            self.private_data,
            len(self.private_data),
            self.srq,
            self.responder_resources,
            self.initiator_depth,
            self.flow_control,
            self.retry_count,
            self.rnr_retry_count,
            self.valid,
        )


@dataclass(slots=True)
class UcmCommand:
    """A command that was checked. ``room`` is what the program has for the answer, in bytes.

    ``id`` is its field of this name, or 0 where it has none: every command but two needs it.
    """

    number: UcmNumber
    room: int
    id: int
    names: tuple[str, ...]
    values: tuple[Any, ...]
    rest: bytes
    """What follows the body: the value of an option, which the program's side adds."""

    def __getitem__(self, name: str) -> Any:
        return self.values[self.names.index(name)]


def parse_command(data: bytes) -> UcmCommand:
    """Return a command. Raises UcmError with the errno that Linux has for it."""
    size = len(data)
    if size < 8:
        raise UcmError(errno.EINVAL)
    number, length, room = _HEADER.unpack_from(data)
    end = 8 + length
    if size < end or number > _LAST:
        raise UcmError(errno.EINVAL)
    known = _KNOWN.get(number)
    if known is None:
        raise UcmError(errno.ENOSYS)
    named, layout, names, least, id_at = known
    if length < layout.size:
        raise UcmError(errno.EINVAL)
    if room < least:
        raise UcmError(errno.ENOSPC)
    values = layout.unpack_from(data, 8)
    identifier = 0 if id_at is None else values[id_at]
    return UcmCommand(named, room, identifier, names, values, data[end:] if size > end else b"")


def pack_command(number: UcmNumber, room: int = 0, **fields: Any) -> bytes:
    """Return a command as a program gives it, with every field of its body by name.

    ``room`` is that for the answer. Pointers are 0: whoever needs them puts them in.
    """
    body = BODIES[number]
    packed = body.layout.pack(*(fields[name] for name in body.names))
    return _HEADER.pack(number, len(packed), room) + packed
