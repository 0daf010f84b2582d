# SPDX-License-Identifier: Apache-2.0
"""Messages with events, and the answers in advance that go with them, each packed by one call.

``RdmaCmDevices`` makes them for every event of every connection, so that heads (messages.py) and
structures of the kernel's interface (ucm_answers.py) share one ``struct.Struct`` here. The lengths
of all of them are multiples of 8, so they follow each other without padding.
"""

from __future__ import annotations

import struct

from verbena.agent.messages import ANSWER_LAYOUT, EVENT_MESSAGE
from verbena.agent.ucm_answers import (
    EVENT_BYTES,
    EVENT_LAYOUT,
    INDEX_ABSENT,
    QP_ATTR_GID_INDEX_AT,
    QP_ATTR_LAYOUT,
    QUERY_ADDR,
    QUERY_ADDR_BYTES,
    QUERY_ADDR_LAYOUT,
    QUERY_GID,
    QUERY_PATH,
    USABLE_PATH,
    ah_attr,
)
from verbena.agent.ucm_commands import UcmNumber
from verbena.manage.cm.qp_attributes import QpAttributes

__all__ = [
    "ADVANCE_ROOM",
    "addresses_in_advance",
    "attributes_in_advance",
    "event_with_advance",
    "path_in_advance",
]

_ADDRESSES = struct.Struct("=" + 2 * (ANSWER_LAYOUT + QUERY_ADDR_LAYOUT))
_ATTRIBUTES = struct.Struct("=" + ANSWER_LAYOUT + QP_ATTR_LAYOUT)
_PATH = struct.Struct("=" + ANSWER_LAYOUT + "IIII64s")
_PATH_BYTES = 80
_EVENT = struct.Struct("=" + ANSWER_LAYOUT + EVENT_LAYOUT)
_NO_GID = bytes(16)
_ZEROS = bytes(EVENT_MESSAGE)
ADVANCE_ROOM = EVENT_MESSAGE - _EVENT.size
"""Bytes of the answers and lines that go with an event."""
_QUERY, _INIT_QP_ATTR = int(UcmNumber.QUERY), int(UcmNumber.INIT_QP_ATTR)
_QP_ATTR_BYTES = 144


def addresses_in_advance(
    number: int,
    guid: int,
    p_key: int,
    port: int,
    by_ip: tuple[bytes, bytes],
    by_gid: tuple[bytes, bytes],
) -> bytes:
    """Return the answers to QUERY of an identifier's addresses, and of its GIDs.

    ``by_ip`` and ``by_gid`` are the source and the destination as sockaddr structures.
    """
    guid_bytes, p_key_bytes = guid.to_bytes(8, "big"), p_key.to_bytes(2, "big")
    source, destination = by_ip
    source_gid, destination_gid = by_gid
    # fmt: off
    return _ADDRESSES.pack(
        0, 0, QUERY_ADDR_BYTES, 0, _NO_GID, 0, 0, _QUERY, number, QUERY_ADDR, 0, 0,
        guid_bytes, port, p_key_bytes, len(source), len(destination), source, destination,
        INDEX_ABSENT,
        0, 0, QUERY_ADDR_BYTES, 0, _NO_GID, 0, 0, _QUERY, number, QUERY_GID, 0, 0,
        guid_bytes, port, p_key_bytes, len(source_gid), len(destination_gid), source_gid,
        destination_gid, INDEX_ABSENT,
    )
    # fmt: on


def path_in_advance(number: int, record: bytes) -> bytes:
    """Return the answer to QUERY of an identifier's only path, a PathRecord."""
    # fmt: off
    return _PATH.pack(
        0, 0, _PATH_BYTES, 0, _NO_GID, 0, 0, _QUERY, number, QUERY_PATH, 0, 0,
        1, 0, USABLE_PATH, 0, record,
    )
    # fmt: on


def attributes_in_advance(
    number: int, attributes: QpAttributes, device: int, has_index: bool
) -> bytes:
    """Return the answer to INIT_QP_ATTR. With ``has_index`` the table of ``device`` has the GID of
    the address's source, and the program's side puts its index in."""
    of, to = attributes, attributes.address
    at, gid, port = 0, _NO_GID, 0
    if to is not None and has_index:
        at, gid, port = QP_ATTR_GID_INDEX_AT, to.sgid, to.port
    # fmt: off
    return _ATTRIBUTES.pack(
        0, 0, _QP_ATTR_BYTES, at, gid, device, port,
        _INIT_QP_ATTR, number, of.state, 0, 0,
        of.mask, of.state, of.path_mtu, of.qkey, of.rq_psn, of.sq_psn, of.dest_qpn, of.access,
        ah_attr(to), of.pkey_index, of.max_rd_atomic, of.max_dest_rd_atomic,
        of.min_rnr_timer, of.port, of.timeout, of.retry_count, of.rnr_retry,
    )
    # fmt: on


def event_with_advance(
    flags: int,
    serial: int,
    about: tuple[int, int],
    names_gid: tuple[int, bytes, int, int],
    fields: tuple[int, int, int, int, bytes, int, int],
    advance: bytes,
) -> bytes:
    """Return the message with an event, padded.

    ``about`` is the identifier and, with AnswerFlag.REMEMBER, its uid. ``names_gid`` is where the
    index of a GID belongs, the GID, its device and its port. ``fields`` are those of
    struct rdma_ucm_event_resp: uid, id, event, status, parameters, vendor and options.
    """
    number, context = about
    at, gid, device, port = names_gid
    uid, identifier, kind, status, param, vendor, options = fields
    # fmt: off
    made = _EVENT.pack(
        0, flags, EVENT_BYTES, at, gid, device, port, 0, number, _EVENT.size + len(advance),
        serial, context,
        uid, identifier, kind, status, param, 0, vendor, options,
    )
    # fmt: on
    return b"".join((made, advance, _ZEROS[_EVENT.size + len(advance) :]))
