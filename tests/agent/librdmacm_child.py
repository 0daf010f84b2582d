# SPDX-License-Identifier: Apache-2.0
"""A program of librdmacm, by ctypes: what real ones do too seldom. test_ends.py starts it.

It prints a line for each thing that it did, with the errno's name where a call failed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys

TCP = 0x106
BAD_POINTER = 8
CREATE_ID, SET_OPTION, QUERY = 0, 14, 19

cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
libc = ctypes.CDLL(None, use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.POINTER(ctypes.c_int)
for call, types in {
    "rdma_create_id": [ctypes.c_void_p] * 3 + [ctypes.c_int],
    "rdma_bind_addr": [ctypes.c_void_p, ctypes.c_char_p],
    "rdma_listen": [ctypes.c_void_p, ctypes.c_int],
    "rdma_resolve_addr": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int],
    "rdma_get_cm_event": [ctypes.c_void_p] * 2,
    "rdma_ack_cm_event": [ctypes.c_void_p],
    "rdma_destroy_id": [ctypes.c_void_p],
    "rdma_destroy_event_channel": [ctypes.c_void_p],
}.items():
    getattr(cm, call).argtypes = types


def say(*words: object) -> None:
    print(*words, flush=True)


def does(name: str, *arguments: object) -> None:
    """Call it and say how it ended."""
    ended = getattr(cm, name)(*arguments)
    say(name, "0" if ended == 0 else errno.errorcode[ctypes.get_errno()])


def address(text: str, port: int) -> bytes:
    return (
        struct.pack("=H", socket.AF_INET)
        + struct.pack(">H", port)
        + socket.inet_aton(text)
        + bytes(8)
    )


def new_id(channel: ctypes._Pointer[ctypes.c_int]) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    does("rdma_create_id", channel, ctypes.byref(made), None, TCP)
    return made


def get_event(channel: ctypes._Pointer[ctypes.c_int], ids: list[int | None]) -> None:
    """Say which event came, and for which of the identifiers."""
    event = ctypes.c_void_p()
    if cm.rdma_get_cm_event(channel, ctypes.byref(event)):
        say("event", errno.errorcode[ctypes.get_errno()])
        return
    assert event.value is not None
    of, _, kind, status = struct.unpack("=QQIi", ctypes.string_at(event.value, 24))
    say("event", kind, status, ids.index(of))
    cm.rdma_ack_cm_event(event)


def removal() -> None:
    """Two identifiers are bound to a device and one is not; then the agent ends."""
    channel = cm.rdma_create_event_channel()
    ids = [new_id(channel) for _ in range(3)]
    for number in (0, 1):
        does("rdma_bind_addr", ids[number], address("192.0.2.50", 0))
    say("ready")
    values = [each.value for each in ids]
    for _ in range(3):
        get_event(channel, values)
    does("rdma_listen", ids[0], 1)
    for each in ids:
        does("rdma_destroy_id", each)
    cm.rdma_destroy_event_channel(channel)
    again = cm.rdma_create_event_channel()
    does("rdma_bind_addr", new_id(again), address("192.0.2.50", 0))


def forked() -> None:
    """A child uses what its parent made, and then the parent does."""
    channel = cm.rdma_create_event_channel()
    made = new_id(channel)
    child = os.fork()
    if not child:
        does("rdma_bind_addr", made, address("127.0.0.1", 0))
        os._exit(0)
    os.waitpid(child, 0)
    does("rdma_listen", made, 1)


def stopped() -> None:
    """The agent is stopped between two calls."""
    channel = cm.rdma_create_event_channel()
    say("ready")
    sys.stdin.readline()
    new_id(channel)


def refused() -> None:
    """Calls that are refused."""
    channel = cm.rdma_create_event_channel()
    made = new_id(channel)
    does("rdma_bind_addr", made, address("192.0.2.77", 0))
    does("rdma_resolve_addr", made, None, address("240.0.0.1", 7), 2000)


def pointers() -> None:
    """Commands whose pointers lead nowhere."""
    channel = cm.rdma_create_event_channel()
    fd = channel.contents.value

    def write(what: str, command: bytes | int, size: int) -> None:
        ended = libc.write(
            fd, ctypes.c_void_p(command) if isinstance(command, int) else command, size
        )
        say(what, ended if ended >= 0 else errno.errorcode[ctypes.get_errno()])

    def with_head(number: int, body: bytes, room: int) -> bytes:
        return struct.pack("=IHH", number, len(body), room) + body

    answer = ctypes.create_string_buffer(8)
    create = struct.pack("=QQHB5x", 1, ctypes.addressof(answer), TCP, 2)
    write("create", with_head(CREATE_ID, create, 4), 8 + len(create))
    (number,) = struct.unpack_from("=I", answer.raw)
    write("command", BAD_POINTER, 32)
    nowhere = struct.pack("=QQHB5x", 1, BAD_POINTER, TCP, 2)
    write("answer", with_head(CREATE_ID, nowhere, 4), 8 + len(nowhere))
    option = struct.pack("=QIIII", BAD_POINTER, number, 0, 0, 1)
    write("option", with_head(SET_OPTION, option, 0), 8 + len(option))
    query = struct.pack("=QII", BAD_POINTER, number, 0)
    write("query", with_head(QUERY, query, 280), 8 + len(query))


CASES = (removal, forked, stopped, refused, pointers)

if __name__ == "__main__":
    {each.__name__: each for each in CASES}[sys.argv[1]]()
