# SPDX-License-Identifier: Apache-2.0
"""Status of NVMe commands: ``Status`` is the status code type (bits 10:8) and code (bits 7:0).

On the wire a completion has it shifted by one bit, with DNR ("do not retry") in bit 15. The errnos
are those that Linux gives the programs that use such a disk.
"""

from __future__ import annotations

import errno
from enum import IntEnum

__all__ = ["DNR", "Status", "errno_of", "sentence_of", "status_of_wire", "wire_status"]

DNR = 0x8000
_VALUE = 0x7FF


class Status(IntEnum):
    """What a completion says, with the status code type in bits 10:8."""

    SUCCESS = 0x000
    INVALID_OPCODE = 0x001
    INVALID_FIELD = 0x002
    DATA_TRANSFER_ERROR = 0x004
    INTERNAL_ERROR = 0x006
    ABORTED = 0x007
    INVALID_NAMESPACE = 0x00B
    COMMAND_SEQUENCE = 0x00C
    SGL_COUNT = 0x00E
    SGL_DATA_LENGTH = 0x00F
    SGL_TYPE = 0x011
    SGL_OFFSET = 0x016
    KEEP_ALIVE_INVALID = 0x01A
    NAMESPACE_WRITE_PROTECTED = 0x020
    LBA_RANGE = 0x080
    CAPACITY = 0x081
    NAMESPACE_NOT_READY = 0x082
    RESERVATION_CONFLICT = 0x083
    AER_LIMIT = 0x105
    INVALID_LOG_PAGE = 0x109
    FEATURE_NOT_SAVEABLE = 0x10D
    FEATURE_NOT_CHANGEABLE = 0x10E
    CONNECT_FORMAT = 0x180
    CONNECT_BUSY = 0x181
    CONNECT_PARAMETERS = 0x182
    CONNECT_RESTART_DISCOVERY = 0x183
    CONNECT_HOST = 0x184
    WRITE_FAULT = 0x280
    UNRECOVERED_READ = 0x281
    COMPARE_FAILURE = 0x285
    ACCESS_DENIED = 0x286
    HOST_PATH = 0x370
    HOST_ABORTED = 0x371


_SENTENCES = {
    Status.INVALID_OPCODE: "the controller does not know the command",
    Status.INVALID_FIELD: "a field of the command has a value that the controller refuses",
    Status.DATA_TRANSFER_ERROR: "the data were not transferred",
    Status.INTERNAL_ERROR: "the controller failed",
    Status.ABORTED: "the command was aborted",
    Status.INVALID_NAMESPACE: "the controller has no namespace of this number",
    Status.COMMAND_SEQUENCE: "the command came at a wrong time",
    Status.SGL_DATA_LENGTH: "the length of the data is not that of the command",
    Status.SGL_TYPE: "the command describes its data in a way that the controller does not take",
    Status.SGL_OFFSET: "the data leave the capsule",
    Status.NAMESPACE_WRITE_PROTECTED: "the namespace is read-only",
    Status.LBA_RANGE: "the blocks are beyond the end of the namespace",
    Status.CAPACITY: "the namespace has no room left",
    Status.NAMESPACE_NOT_READY: "the namespace is not ready",
    Status.RESERVATION_CONFLICT: "another host has reserved the namespace",
    Status.AER_LIMIT: "too many commands wait for events",
    Status.INVALID_LOG_PAGE: "the controller has no such log page",
    Status.CONNECT_FORMAT: "the controller does not take this format of connect commands",
    Status.CONNECT_BUSY: "the controller is busy; connect again later",
    Status.CONNECT_PARAMETERS: "the target has no such subsystem, controller or queue",
    Status.CONNECT_HOST: "the subsystem's list of hosts lacks this host's NQN",
    Status.WRITE_FAULT: "the disk failed to write",
    Status.UNRECOVERED_READ: "the disk failed to read",
    Status.COMPARE_FAILURE: "the blocks differ from the data compared with",
    Status.ACCESS_DENIED: "access is denied",
    Status.HOST_PATH: "the way to the controller was lost",
}
_ERRNOS = {
    Status.SUCCESS: 0,
    Status.CAPACITY: errno.ENOSPC,
    Status.LBA_RANGE: errno.EREMOTEIO,
    Status.NAMESPACE_NOT_READY: errno.EREMOTEIO,
    Status.INVALID_OPCODE: errno.EOPNOTSUPP,
    Status.INVALID_FIELD: errno.EOPNOTSUPP,
    Status.INVALID_NAMESPACE: errno.EOPNOTSUPP,
    Status.RESERVATION_CONFLICT: errno.EBADE,
    Status.COMPARE_FAILURE: errno.EILSEQ,
    Status.NAMESPACE_WRITE_PROTECTED: errno.EROFS,
    Status.CONNECT_PARAMETERS: errno.ENOENT,
    Status.CONNECT_HOST: errno.EACCES,
    Status.CONNECT_BUSY: errno.EBUSY,
    Status.WRITE_FAULT: errno.ENODATA,
    Status.UNRECOVERED_READ: errno.ENODATA,
}


def wire_status(status: int, is_final: bool) -> int:
    """Return the 16 bits of a completion: the phase bit is 0."""
    return status << 1 | (DNR if is_final and status else 0)


def status_of_wire(value: int) -> tuple[int, bool]:
    """Return the status of a completion, and whether it says not to try again."""
    return value >> 1 & _VALUE, bool(value & DNR)


def errno_of(status: int) -> int:
    """Return the errno that Linux has for a status; EIO for those without one."""
    return _ERRNOS.get(status, errno.EIO)  # type: ignore[call-overload, no-any-return]


def sentence_of(status: int, said: str | None = None) -> str:
    """Return a status as a sentence with its number; ``said`` is a sentence of the caller's."""
    said = said or _SENTENCES.get(status, "the command failed")  # type: ignore[call-overload]
    return f"{said} (status {status >> 8:#x}/{status & 255:#04x})"
