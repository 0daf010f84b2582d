# SPDX-License-Identifier: Apache-2.0
"""A program at a host of a fabric that uses /dev/infiniband/umad0 without libibumad.

test_umad.py starts it with the name of one of its cases; it prints JSON. A case of two programs, or
with a change of the fabric in the middle, prints a line and waits for one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

REGISTER, UNREGISTER, ENABLE_PKEY, REGISTER2 = 0xC01C1B01, 0x40041B02, 0x1B03, 0xC0281B04
UMAD, ISSM = "/dev/infiniband/umad0", "/dev/infiniband/issm0"
HEADER, MAD = 64, 256
PERMISSIVE = 0xFFFF
GET, GET_RESP, GET_TABLE = 0x01, 0x81, 0x12


def opened(flags: int = 0) -> int:
    fd = os.open(UMAD, os.O_RDWR | flags)
    fcntl.ioctl(fd, ENABLE_PKEY)
    return fd


def register(
    fd: int, mgmt_class: int, version: int = 1, methods: int = 0, qp: int = 1, rmpp: int = 0,
    oui: bytes = b"\0\0\0",
) -> int:  # fmt: skip
    words = struct.pack("=4I", *((methods >> 32 * n) & 0xFFFFFFFF for n in range(4)))
    argument = bytearray(struct.pack("=I16sBBB3sBx", 0, words, qp, mgmt_class, version, oui, rmpp))
    fcntl.ioctl(fd, REGISTER, argument)
    return int(struct.unpack_from("=I", argument)[0])


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "none"


def mad(mgmt_class: int, method: int, attribute: int, transaction: int, version: int = 1) -> bytes:
    head = struct.pack(">BBBBHHQHHI", 1, mgmt_class, version, method, 0, 0, transaction, attribute,
                       0, 0)  # fmt: skip
    return head.ljust(MAD, b"\0")


def directed(attribute: int, transaction: int, *path: int) -> bytes:
    made = bytearray(mad(0x81, GET, attribute, transaction))
    made[7] = len(path)
    made[32:36] = b"\xff" * 4
    made[129 : 129 + len(path)] = bytes(path)
    return bytes(made)


def packet(
    agent: int, data: bytes, lid: int = PERMISSIVE, qp: int = 0, timeout: int = 1000,
    retries: int = 0,
) -> bytes:  # fmt: skip
    key = 0x80010000 if qp else 0
    head = struct.pack("=5I", agent, 0, timeout, retries, len(data))
    head += struct.pack(">IIH", qp, key, lid)
    return head.ljust(HEADER, b"\0") + data


def header_of(raw: bytes) -> dict[str, int]:
    agent, status, _, _, length = struct.unpack_from("=5I", raw)
    transaction = int.from_bytes(raw[HEADER + 8 : HEADER + 16], "big")
    return {
        "agent": agent,
        "status": status,
        "length": length,
        "bytes": len(raw),
        "method": raw[HEADER + 3],
        "low": transaction & 0xFFFFFFFF,
        "high": transaction >> 32,
    }


def pause() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


# ---- cases ---------------------------------------------------------------------------------------


def registrations() -> Any:
    fd = opened()
    first = register(fd, 0x81, methods=0xA6, qp=0)
    second = opened()
    errors = {
        "the same methods": error_of(lambda: register(second, 0x81, methods=0x2, qp=0)),
        "others": error_of(lambda: register(second, 0x81, methods=0x8, qp=0)),
        "class of QP 0 on QP 1": error_of(lambda: register(second, 0x81)),
        "class of QP 1 on QP 0": error_of(lambda: register(second, 0x03, 2, qp=0)),
        "qp 2": error_of(lambda: register(second, 0x03, 2, qp=2)),
        "vendor without OUI": error_of(lambda: register(second, 0x32, methods=2)),
        "vendor": error_of(lambda: register(second, 0x32, methods=2, oui=b"\0\x14\x05")),
        "RMPP of a class without": error_of(lambda: register(second, 0x04, rmpp=1)),
        "P_Key too late": error_of(lambda: fcntl.ioctl(second, ENABLE_PKEY)),
        "unknown ioctl": error_of(lambda: fcntl.ioctl(second, 0x1B09)),
        "unregister nothing": error_of(
            lambda: fcntl.ioctl(second, UNREGISTER, struct.pack("=I", 9))
        ),
    }
    fcntl.ioctl(fd, UNREGISTER, struct.pack("=I", first))
    errors["after it was unregistered"] = error_of(
        lambda: register(second, 0x81, methods=0x2, qp=0)
    )
    for _ in range(32 - 3):
        register(second, 0)
    errors["33rd"] = error_of(lambda: register(second, 0))
    argument = bytearray(struct.pack("=IIBB2xI16sII", 0, 1, 3, 2, 5, bytes(16), 0, 1))
    third = os.open(UMAD, os.O_RDWR)
    errors["flags"] = error_of(lambda: fcntl.ioctl(third, REGISTER2, argument))
    argument_flags = struct.unpack_from("=I", argument, 12)[0]
    fine = bytearray(struct.pack("=IIBB2xI16sII", 0, 1, 3, 2, 0, bytes(16), 0, 1))
    fcntl.ioctl(third, REGISTER2, fine)
    return {"first": first, "errors": errors, "flags": argument_flags}


def exchange() -> Any:
    fd = opened(os.O_NONBLOCK)
    agent = register(fd, 0x81, qp=0)
    empty = error_of(lambda: os.read(fd, 400))
    written = os.write(fd, packet(agent, directed(0x11, 0x1111_2222_3333_4444, 1)))
    poller = select.poll()
    poller.register(fd, select.POLLIN | select.POLLOUT)
    events = poller.poll(5000)[0][1]
    while not events & select.POLLIN:
        events = poller.poll(5000)[0][1]
    short = error_of(lambda: os.read(fd, 100))
    answer = os.read(fd, 400)
    return {
        "empty": empty,
        "written": written,
        "writable": bool(events & select.POLLOUT),
        "short": short,
        "answer": header_of(answer),
        "hop pointer": answer[HEADER + 6],
        "node type": answer[HEADER + 64 + 2],
        "no agent": error_of(lambda: os.write(fd, packet(7, directed(0x11, 1)))),
        "bad agent": error_of(lambda: os.write(fd, packet(40, directed(0x11, 1)))),
        "short write": error_of(lambda: os.write(fd, packet(agent, directed(0x11, 1))[:90])),
    }


def short_header() -> Any:
    """Without ENABLE_PKEY the header has 56 bytes."""
    fd = os.open(UMAD, os.O_RDWR)
    agent = register(fd, 0x81, qp=0)
    raw = packet(agent, directed(0x11, 5))
    os.write(fd, raw[:56] + raw[64:])
    return {"bytes": len(os.read(fd, 400))}


def timeouts() -> Any:
    """Nobody answers beyond a link that is down; the blocking read waits for the last time-out."""
    fd = opened()
    agent = register(fd, 0x81, qp=0)
    begun = time.monotonic()
    os.write(fd, packet(agent, directed(0x11, 77, 1, 30), timeout=50, retries=3))
    raw = os.read(fd, 400)
    return header_of(raw) | {"seconds": time.monotonic() - begun}


def duplicates() -> Any:
    """A request is pending beyond a link that is down, and others have the same transaction ID."""
    fd = opened()
    agent, other = register(fd, 0x81, qp=0), register(fd, 0x81, qp=0)
    lost, near = (1, 30), (1,)

    def write(transaction: int, *path: int, by: int = agent, timeout: int = 60_000) -> str:
        raw = packet(by, directed(0x11, transaction, *path), timeout=timeout)
        return error_of(lambda: os.write(fd, raw))

    def answered(error: str) -> int | str:
        return header_of(os.read(fd, 400))["low"] if error == "none" else error

    return {
        "first": write(77, *lost),
        "the same": write(77, *lost),
        "of another route": write(77, *near),
        "with another upper half": write(5 << 32 | 77, *near),
        "without a time-out": write(77, *near, timeout=0),
        "of another agent": answered(write(77, *near, by=other)),
        "another": answered(write(78, *near)),
        "one that is answered": answered(write(78, *near)),
    }


def reused() -> Any:
    """The number of a descriptor that was written to becomes that of other files."""
    fd = opened()
    agent = register(fd, 0x81, qp=0)

    def asked(transaction: int) -> bytes:
        return packet(agent, directed(0x11, transaction, 1))

    def answered(transaction: int) -> int:
        os.write(fd, asked(transaction))
        return header_of(os.read(fd, 400))["low"]

    found: dict[str, Any] = {"umad": [answered(1), answered(2)]}
    near, far = socket.socketpair()
    os.dup2(near.fileno(), fd)
    near.close()
    os.write(fd, asked(3))
    found["socket takes it"] = far.recv(1000) == asked(3)
    far.send(b"x")
    found["a byte"] = os.read(fd, 400).decode()
    far.send(bytes(400))
    found["more"] = [len(os.read(fd, 330)), len(os.read(fd, 330))]
    far.close()
    found["the end"] = len(os.read(fd, 400))
    found["after the end"] = error_of(lambda: os.write(fd, asked(4)))
    reader, writer = os.pipe()
    os.dup2(writer, fd)
    found["pipe"] = os.write(fd, asked(5)), os.read(reader, 1000) == asked(5)
    found["write only"] = error_of(lambda: os.read(fd, 400))
    os.close(fd)
    found["closed"] = [
        error_of(lambda: os.write(fd, asked(6))),
        error_of(lambda: os.read(fd, 400)),
    ]
    found["same number"] = opened() == fd
    found["not registered"] = error_of(lambda: os.write(fd, asked(7)))
    found["again"] = register(fd, 0x81, qp=0), answered(8), answered(9)
    return found


def shared() -> Any:
    """A duplicate and a forked child read what the original is sent."""
    fd = opened()
    agent = register(fd, 0x81, qp=0)
    other = os.dup(fd)
    os.write(other, packet(agent, directed(0x11, 1)))
    first = header_of(os.read(fd, 400))["low"]
    pid = os.fork()
    if pid == 0:
        os.write(fd, packet(agent, directed(0x11, 2)))
        os._exit(header_of(os.read(other, 400))["low"])
    status = os.waitpid(pid, 0)[1]
    os.close(fd)
    os.write(other, packet(agent, directed(0x11, 3)))
    return [first, os.waitstatus_to_exitcode(status), header_of(os.read(other, 400))["low"]]


def long_messages() -> Any:
    """All NodeRecords: of a buffer that is too short the message stays."""
    fd = opened(os.O_NONBLOCK)
    agent = register(fd, 0x03, 2, rmpp=1)
    with open("/sys/class/infiniband/verbena0/ports/1/sm_lid") as file:
        sm_lid = int(file.read(), 16)
    os.write(fd, packet(agent, mad(0x03, GET_TABLE, 0x11, 5, 2), sm_lid, 1))
    select.select([fd], [], [], 10)
    short = error_of(lambda: os.read(fd, HEADER + MAD))
    readable = bool(select.select([fd], [], [], 0)[0])
    answer = header_of(os.read(fd, 1 << 20))
    return {"short": short, "readable": readable} | answer


def issm() -> Any:
    def mask() -> int:
        with open("/sys/class/infiniband/verbena0/ports/1/cap_mask") as file:
            return int(file.read(), 16) & 2

    seen = [mask()]
    fd = os.open(ISSM, os.O_RDWR)
    seen.append(mask())
    busy = error_of(lambda: os.open(ISSM, os.O_RDWR | os.O_NONBLOCK))
    pid = os.fork()
    if pid == 0:
        os.close(fd)  # the parent's is still open
        begun = time.monotonic()
        os.open(ISSM, os.O_RDWR)
        os._exit(0 if time.monotonic() - begun > 0.2 else 1)
    time.sleep(0.4)
    os.close(fd)
    waited = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    deadline = time.monotonic() + 5
    while mask() and time.monotonic() < deadline:
        time.sleep(0.01)
    seen.append(mask())
    return {"mask": seen, "busy": busy, "waited": waited}


def fabric_ends() -> Any:
    fd = opened()
    agent = register(fd, 0x81, qp=0)
    pause()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    events = poller.poll(5000)[0][1]
    return {
        "hung up": bool(events & select.POLLHUP),
        "read": error_of(lambda: os.read(fd, 400)),
        "write": error_of(lambda: os.write(fd, packet(agent, directed(0x11, 1)))),
        "open": error_of(lambda: os.open(UMAD, os.O_RDWR)),
        "file": error_of(lambda: open("/sys/class/infiniband/verbena0/ports/1/lid")),
    }


def folders() -> Any:
    os.chdir("/sys/class/infiniband")
    names = sorted(os.listdir())
    here = os.open("verbena0/ports", os.O_RDONLY)
    os.fchdir(here)
    with open("1/lid") as file:
        lid = file.read()
    return {"names": names, "cwd": os.getcwd(), "lid": lid, "up": os.path.exists("../node_guid")}


CASES: dict[str, Callable[[], Any]] = {
    case.__name__: case
    for case in (
        *(
            registrations,
            exchange,
            short_header,
            timeouts,
            duplicates,
            reused,
            shared,
            long_messages,
        ),
        *(issm, fabric_ends, folders),
    )
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]]()))
