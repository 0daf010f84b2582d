# SPDX-License-Identifier: Apache-2.0
"""The device that carries out the commands of librdmacm, and the kernel's /dev/infiniband/rdma_cm.

``ConnectionManagerDevice`` is what this package needs of it; agent_device.py has that of Verbena's
agent. Commands and answers are those of Linux' rdma_user_cm.h, as ``pack_command`` makes them. A
device belongs to one thread at a time, and any thread may close it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from verbena.agent.ucm_answers import EVENT_BYTES
from verbena.agent.ucm_commands import UcmNumber, pack_command

from .watched_descriptor import WatchedDescriptor

__all__ = ["KERNEL_PATH", "ConnectionManagerDevice", "DeviceAnswer", "KernelDevice"]

KERNEL_PATH = "/dev/infiniband/rdma_cm"
GET_EVENT = pack_command(UcmNumber.GET_EVENT, EVENT_BYTES)
_HEADER = struct.Struct("=IHH")


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """The answer to a command.

    If ``gid_index_at`` is not 0, the byte there stands for the index of ``gid`` in the program's
    own table, which the device does not know.
    """

    data: bytes = b""
    gid_index_at: int = 0
    gid: bytes = bytes(16)


class ConnectionManagerDevice(Protocol):
    """A device of librdmacm, opened: one event channel, with its identifiers."""

    def execute(self, command: bytes, option: bytes = b"") -> DeviceAnswer:
        """Carry out a command; ``option`` is the value of a SET_OPTION.

        Raises OSError with the errno of the refusal, EIO when the device has ended.
        """
        ...

    def migrate(self, number: int, old: ConnectionManagerDevice) -> None:
        """Move an identifier to this event channel from that of ``old``. Raises OSError."""
        ...

    def next_event(self) -> DeviceAnswer | None:
        """Return the answer to a GET_EVENT, or None if there is no event. Raises OSError."""
        ...

    def watch(self, ready: Callable[[], None]) -> None:
        """Have the running loop call this whenever there may be events, or the device has ended."""
        ...

    def unwatch(self) -> None:
        """Call it no more."""
        ...

    def wait(self, seconds: float | None) -> None:
        """Block this thread until there may be events, the device is closed, or the seconds are
        over."""
        ...

    def close(self) -> None:
        """Destroy every identifier, as a program's end does."""
        ...


class KernelDevice(WatchedDescriptor):
    """/dev/infiniband/rdma_cm, of a kernel or of ``verbena run``. Raises OSError."""

    def __init__(self, path: str = KERNEL_PATH) -> None:
        super().__init__(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))

    def execute(self, command: bytes, option: bytes = b"") -> DeviceAnswer:
        if self.is_closed:
            raise OSError(errno.EBADF, "the connection manager's device was closed")
        number, _, room = _HEADER.unpack_from(command)
        answer = ctypes.create_string_buffer(option, len(option)) if option else None
        if room:
            answer = ctypes.create_string_buffer(room)
        if answer is not None:
            command = _with_pointer(number, command, ctypes.addressof(answer))
        os.write(self.descriptor, command)
        return DeviceAnswer(answer.raw if room and answer is not None else b"")

    def migrate(self, number: int, old: ConnectionManagerDevice) -> None:
        assert isinstance(old, KernelDevice)
        self.execute(pack_command(UcmNumber.MIGRATE_ID, 4, id=number, descriptor=old.descriptor))

    def next_event(self) -> DeviceAnswer | None:
        try:
            return self.execute(GET_EVENT)
        except BlockingIOError:
            return None

    def close_descriptor(self) -> None:
        os.close(self.descriptor)


def _with_pointer(number: int, command: bytes, address: int) -> bytes:
    """The pointer to the answer, or to an option's value, is first in a body but for CREATE_ID."""
    changed = bytearray(command)
    at = _HEADER.size + (8 if number == UcmNumber.CREATE_ID else 0)
    struct.pack_into("=Q", changed, at, address)
    return bytes(changed)
