# SPDX-License-Identifier: Apache-2.0
"""Options of identifiers (rdma_set_option): their numbers, lengths, and when they may be set.

``RdmaCm.set_option`` calls this. Integers are in this machine's byte order, as the program that
sets them has them.
"""

from __future__ import annotations

import sys
from enum import IntEnum

from ..sa_records import PathRecord
from .identifier import IdState, QpKind, RdmaId
from .refusals import CmError, CmRefusal

__all__ = ["IdOption", "set_id_option"]

_LEVEL_ID, _LEVEL_IB = 0, 1
_IB_PATH = 1
_PATH_DATA = 72  # bytes: flags, reserved, and the record
_PRIMARY_BOTH_WAYS = 0x2B  # GMP, PRIMARY, and BIDIRECTIONAL


class IdOption(IntEnum):
    """Options of level 0."""

    TOS = 0
    REUSEADDR = 1
    AFONLY = 2
    ACK_TIMEOUT = 3


_BYTES = {IdOption.TOS: 1, IdOption.REUSEADDR: 4, IdOption.AFONLY: 4, IdOption.ACK_TIMEOUT: 1}


def set_id_option(of: RdmaId, level: int, name: int, value: bytes) -> PathRecord | None:
    """Set an option; return the path for IB_PATH, which the caller sets. Raises CmError."""
    if level == _LEVEL_IB and name == _IB_PATH:
        return _path(value)
    if level != _LEVEL_ID or name not in list(IdOption):
        raise CmError(CmRefusal.OPTION_UNKNOWN, f"level {level}, option {name}")
    if len(value) != _BYTES[IdOption(name)]:
        raise CmError(CmRefusal.OPTION_LENGTH, f"{IdOption(name).name} of {len(value)} bytes")
    number = int.from_bytes(value, sys.byteorder)
    match name:
        case IdOption.TOS:
            of.tos = number
        case IdOption.REUSEADDR:
            if of.state is not IdState.IDLE and (not number or of.state is IdState.LISTEN):
                raise CmError(CmRefusal.OPTION_TOO_LATE, "REUSEADDR")
            of.reuse_address = bool(number)
        case IdOption.AFONLY:
            if of.state not in (IdState.IDLE, IdState.ADDR_BOUND):
                raise CmError(CmRefusal.OPTION_TOO_LATE, "AFONLY")
            of.af_only, of.is_af_only_set = bool(number), True
        case IdOption.ACK_TIMEOUT:
            if of.qp_kind not in (QpKind.RC, QpKind.XRC_SEND):
                raise CmError(CmRefusal.OPTION_QP_TYPE, "ACK_TIMEOUT")
            of.ack_timeout = number & 0x1F
    return None


def _path(value: bytes) -> PathRecord:
    """Return the path of an array of path data that counts. Raises CmError."""
    if len(value) % _PATH_DATA:
        raise CmError(CmRefusal.OPTION_LENGTH, f"IB_PATH of {len(value)} bytes")
    for at in range(0, len(value), _PATH_DATA):
        if int.from_bytes(value[at : at + 4], sys.byteorder) == _PRIMARY_BOTH_WAYS:
            return PathRecord.unpack(value, at + 8)
    raise CmError(CmRefusal.NO_PATH)
