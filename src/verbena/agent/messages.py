# SPDX-License-Identifier: Apache-2.0
"""The messages between programs and the agent, as preload/paths/manager/agent.h has them.

Both ends are on one host, so numbers are in its byte order. server.py reads and writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from verbena.manage.codes import quick_members

__all__ = [
    "ANSWER_LAYOUT",
    "EVENT_MESSAGE",
    "LONGEST_HELLO",
    "LONGEST_REQUEST",
    "LONGEST_MESSAGE",
    "MAGIC",
    "SENTENCE",
    "VERSION",
    "AnswerFlag",
    "Hello",
    "ProgramAnswer",
    "ProgramPort",
    "Request",
    "Role",
    "answer",
    "hello",
    "message",
    "welcome",
    "welcomed",
]

MAGIC = 0x5662416E
VERSION = 3
_HELLO = struct.Struct("=IIIIQ1024s")
_WELCOME = struct.Struct("=IIii")
_REQUEST = struct.Struct("=QQ")
ANSWER_LAYOUT = "iIII16sIIIIIIQ"
"""Of the head of an answer, in the format of ``struct``."""
_ANSWER = struct.Struct("=" + ANSWER_LAYOUT)
_AT = "at "
SENTENCE = 0xFFFFFFFF
"""Stands in place of a command: the answer is a line for the program's log."""
LONGEST_HELLO = _HELLO.size
LONGEST_REQUEST = _REQUEST.size + 512
LONGEST_MESSAGE = 8192
EVENT_MESSAGE = 2048
"""Bytes of every message with an event: the kernel then tells how many wait to be taken."""


@quick_members
class Role(IntEnum):
    """What a connection is for."""

    DEVICE = 1
    """The descriptor of a device that a program has opened."""
    CALLS = 2
    """The requests of one thread."""
    DESCRIPTION = 3
    """What `verbena info` shows of the agent: one message with JSON."""


@quick_members
class AnswerFlag(IntFlag):
    """What else the program's side has to do."""

    TAKE_BACK = 1
    """Take the events from the descriptor, and give the command again with their serial numbers."""
    AGAIN = 2
    """Another thread takes events back: give the command again."""
    REMEMBER = 4
    """The identifier is bound to a device: it is to get DEVICE_REMOVAL if the agent ends."""
    FORGET = 8
    """The identifier is gone."""
    CHANGED = 16
    """What was answered in advance about the identifier holds no more."""
    NO_EVENT = 32
    """There is none for a GET_EVENT, which programs of simulated hosts give."""


@dataclass(frozen=True)
class ProgramPort:
    """A port of one of the program's devices; ``netdev`` is "" for every interface."""

    device: int
    number: int
    guid: int
    is_ethernet: bool
    lid: int
    netdev: str


@dataclass(frozen=True)
class Hello:
    """The first message of a connection. ``inode`` is that of the program's end of it.

    A program at a host of a live fabric names the host, ``at h7``, in place of its ports.
    """

    version: int
    role: int
    inode: int
    ports: tuple[ProgramPort, ...]
    host: str = ""

    @classmethod
    def parse(cls, data: bytes) -> Hello | None:
        """Return it, or None for what is no hello."""
        if len(data) != _HELLO.size:
            return None
        magic, version, role, _, inode, text = _HELLO.unpack(data)
        if magic != MAGIC:
            return None
        lines = text.partition(b"\0")[0].decode(errors="replace").splitlines()
        if lines and lines[0].startswith(_AT):
            return cls(version, role, inode, (), lines[0].removeprefix(_AT))
        try:
            ports = tuple(_port(line) for line in lines)
        except ValueError:
            return None
        return cls(version, role, inode, ports)


def _port(line: str) -> ProgramPort:
    device, number, guid, layer, lid, *netdev = line.split(" ")
    return ProgramPort(
        int(device), int(number), int(guid, 16), layer == "ethernet", int(lid), " ".join(netdev)
    )


@dataclass(slots=True, unsafe_hash=True)
class Request:
    """A command, with the inode of the descriptor that it was written to.

    ``other`` is the inode of the descriptor that a MIGRATE_ID names, or 0.
    """

    inode: int
    other: int
    command: bytes

    @classmethod
    def parse(cls, data: bytes) -> Request | None:
        """Return it, or None for what is too short to be one."""
        if len(data) < _REQUEST.size:
            return None
        inode, other = _REQUEST.unpack_from(data)
        return cls(inode, other, data[_REQUEST.size :])

    def pack(self) -> bytes:
        """Return the message."""
        return _REQUEST.pack(self.inode, self.other) + self.command


@dataclass(slots=True, unsafe_hash=True)
class ProgramAnswer:
    """An answer as a program reads it; ``answer`` makes them.

    ``command``, ``number`` and ``option`` say what an answer in advance answers.
    """

    error: int
    flags: int
    gid_index_at: int
    gid: bytes
    command: int
    number: int
    option: int
    serial: int
    data: bytes

    @classmethod
    def parse(cls, data: bytes) -> list[ProgramAnswer]:
        """Return the answer of a message and those in advance; nothing for what is no message.

        A message with an event is padded, and the option of its first answer says how long it is.
        """
        made: list[ProgramAnswer] = []
        at = 0
        while len(data) - at >= _ANSWER.size:
            error, flags, length, index_at, gid, _, _, command, number, option, serial, _ = (
                _ANSWER.unpack_from(data, at)
            )
            if option and not made:
                data = data[:option]
            at += _ANSWER.size
            rest = data[at : at + length]
            if len(rest) < length:
                return []
            made.append(cls(-error, flags, index_at, gid, command, number, option, serial, rest))
            at += length + -length % 8
        return made


def hello(role: Role, inode: int = 0, ports: Sequence[ProgramPort] = (), host: str = "") -> bytes:
    """Return a hello; that of `verbena info` has no device and no ports."""
    text = f"{_AT}{host}\n".encode() if host else b"".join(map(_port_line, ports))
    return _HELLO.pack(MAGIC, VERSION, role, 0, inode, text)


def _port_line(port: ProgramPort) -> bytes:
    layer = "ethernet" if port.is_ethernet else "infiniband"
    line = f"{port.device} {port.number} {port.guid:016x} {layer} {port.lid} {port.netdev}\n"
    return line.encode("ascii", "replace")


def welcomed(data: bytes) -> int | None:
    """Return the errno of a welcome, or None for what is none of this version."""
    if len(data) != _WELCOME.size:
        return None
    magic, version, error, _ = _WELCOME.unpack(data)
    return -error if (magic, version) == (MAGIC, VERSION) else None


def welcome(error: int, pid: int) -> bytes:
    """Return the answer to a hello; ``error`` is an errno, or 0."""
    return _WELCOME.pack(MAGIC, VERSION, -error, pid)


def answer(
    error: int = 0,
    data: bytes = b"",
    flags: int = 0,
    gid_index_at: int = 0,
    gid: bytes = bytes(16),
    device: int = 0,
    port: int = 0,
    command: int = 0,
    number: int = 0,
    option: int = 0,
    context: int = 0,
    serial: int = 0,
) -> bytes:
    """Return the answer to a request. ``error`` is an errno, or 0.

    ``gid_index_at``: at this byte of ``data`` the program's side puts the index that ``gid`` has
    for it in the table of ``port`` of ``device``. 0: nowhere. ``command``, identifier ``number``
    and ``option`` say what an answer in advance answers. ``number`` and ``context``, the
    identifier's uid, go with AnswerFlag.REMEMBER. Of two messages about an identifier the one
    with the larger ``serial`` is the newer one.
    """
    size = len(data)
    # fmt: off
    head = _ANSWER.pack(-error, flags, size, gid_index_at, gid, device, port,
                        command, number, option, serial, context)
    # fmt: on
    return head + data


def message(answers: list[bytes], longest: int = LONGEST_MESSAGE) -> bytes:
    """Return the message with an answer and those in advance; those without room are left out."""
    made = answers[0]
    if len(answers) == 1:
        return made
    if not any(len(each) % 8 for each in answers) and sum(map(len, answers)) <= longest:
        return b"".join(answers)
    for each in answers[1:]:
        longer = made + bytes(-len(made) % 8) + each
        if len(longer) > longest:
            break
        made = longer
    return made
