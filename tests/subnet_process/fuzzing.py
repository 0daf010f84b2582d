# SPDX-License-Identifier: Apache-2.0
"""Sends the process of a live fabric what no program would: hellos, requests, calls and MADs at
random, with descriptors of all kinds, and writes over the page that it shares (scribbling.py).

`python -m tests.subnet_process.fuzzing NAME --seconds 600` does it for the fabric NAME, and prints
the seed of what it refused to survive. test_fuzz.py does it for a moment, and repeats the messages
in corpus/, each of which once did harm. Only with ``--settings`` are the MADs such that change
ports and tables, which ends connections rightly.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from tests.agent import fuzzing as agent_fuzzing
from tests.subnet_process.scribbling import Scribbler
from verbena.subnet_process.client import control_fabric
from verbena.subnet_process.messages import LONGEST_WELCOME, Hello, Role, Welcome, fabric_address

CORPUS = Path(__file__).with_name("corpus")
FDS = ("none", "none", "none", "pipe", "memfd", "sparse", "folder", "many")
REGISTER, UNREGISTER, ENABLE_PKEY, REGISTER2 = 0xC01C1B01, 0x40041B02, 0x1B03, 0xC0281B04
WRITE = 0
PERMISSIVE = 0xFFFF
GENERAL_QKEY = 0x80010000
SMPS = (0x01, 0x81)
CLASSES = (*SMPS, 0x03, 0x04, 0x06, 0x07, 0x09, 0x21, 0x30, 0x32, 0x33)
SET = 0x02
METHODS = (0x01, 0x03, 0x05, 0x06, 0x07, 0x12, 0x13, 0x14, 0x15, 0x81, 0x84, 0x85, 0x92)
ATTRIBUTES = (
    *range(0x0001, 0x0006), *range(0x0010, 0x0020), 0x0024, *range(0x0030, 0x003E), 0x00F3, 0xFF90,
)  # fmt: skip
CALL = struct.Struct("=IIQIHBBHBB16sII4x")
REQUESTS = (
    {"do": "status"}, {"do": "host"}, {"do": "host", "host": 7}, {"do": "host", "host": "nobody"},
    {"do": "cut"}, {"do": "cut", "link": 5}, {"do": "cut", "link": "a-b-c"},
    {"do": "restore", "link": "h0:99"}, {"do": ["status"]}, {"do": {}}, {"do": None}, [], 7, None,
)  # fmt: skip


def connect(fabric: str) -> socket.socket:
    """Return a connection to the fabric that has not said anything yet."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(10)
    sock.connect(fabric_address(os.geteuid(), fabric))
    return sock


def greet(fabric: str, message: bytes, kind: str = "none") -> Welcome | None:
    """Say hello with anything, with descriptors of a kind, and take what comes."""
    with connect(fabric) as sock:
        fds = made_fds(kind)
        try:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sock.sendmsg([message], ancillary if fds else [])
        finally:
            for fd in fds:
                os.close(fd)
        return Welcome.parse(sock.recv(LONGEST_WELCOME))


def made_fds(kind: str) -> list[int]:
    """Return descriptors to send. A sparse memfd is larger than any memory."""
    if kind == "pipe":
        return list(os.pipe())
    if kind == "folder":
        return [os.open("/", os.O_RDONLY | os.O_DIRECTORY)]
    if kind == "none":
        return []
    fd = os.memfd_create("fuzz")
    os.ftruncate(fd, 1 << 62 if kind == "sparse" else 700)
    return [fd] + ([os.dup(fd) for _ in range(40)] if kind == "many" else [])


class Fuzzer:
    """A program with an open umad0 and a page at a host; ``random`` decides everything.

    ``sets``: it also sends MADs that change what ports and switches do.
    """

    def __init__(self, seed: int, fabric: str, host: str, *, sets: bool = False) -> None:
        self.random = random.Random(seed)
        self.fabric, self.host, self._sets = fabric, host, sets
        self._open()
        for mgmt_class, qp in ((0x01, 0), (0x81, 0), (0x03, 1), (0x04, 1)):
            version, rmpp = (2, 1) if mgmt_class == 0x03 else (1, 0)
            body = struct.pack(
                "=I16sBBB3sBx", 0, bytes(16), qp, mgmt_class, version, bytes(3), rmpp
            )
            self._ioctl(REGISTER, body)
        status = control_fabric(fabric, {"do": "status"})
        self._lids = [*range(1, status["hosts"] + status["switches"] + 2), 0, 0xC000, PERMISSIVE]

    def _open(self) -> None:
        self._umad = connect(self.fabric)
        self._inode = os.fstat(self._umad.fileno()).st_ino
        self._umad.send(Hello(Role.UMAD, self.host, 1, self._inode).pack())
        welcome = Welcome.parse(self._umad.recv(LONGEST_WELCOME))
        assert welcome is not None
        assert not welcome.error
        self._umad.settimeout(None)  # MSG_DONTWAIT waits where there is one
        self._page = connect(self.fabric)
        self._scribbler = Scribbler(self._page, self.host, self.random)

    def close(self) -> None:
        """Go as a killed program goes."""
        self._umad.close()
        self._scribbler.close()
        self._page.close()

    def step(self) -> None:
        """Send something."""
        kind = self.random.random()
        if kind < 0.15:
            greet(self.fabric, self._hello(), self.random.choice(FDS))
        elif kind < 0.25:
            self._control()
        elif kind < 0.4:
            self._ioctl(self._ioctl_number(), self._ioctl_argument())
        elif kind < 0.5:
            self._ioctl(WRITE, self._written(), self.random.choice(FDS))
        elif kind < 0.57:
            self._call()
        elif kind < 0.64:
            self._scribbler.step()
        elif kind < 0.65:
            self.close()
            self._open()
        else:
            self._write()

    def _some(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randrange(most))

    def _number(self) -> int:
        return self.random.choice((0, 1, 2, 15, 16, 64, 255, 1 << 31, 0xFFFFFFFF))

    # ---- hellos and requests -------------------------------------------------------------------

    def _hello(self) -> bytes:
        role = self.random.choice((*Role, 0, 99, 0xFFFFFFFF))
        host = self.random.choice((self.host, "s0", "nobody", "", "h" * 63, "\x00", "ü" * 30))
        inode = self.random.choice((0, 1, 1 << 63, self._inode))
        if role in (Role.CALL, Role.UMAD):
            inode = self.random.choice((0, 1, 1 << 63))
        data = self.random.choice((b"", b"n", b"/sys/class/infiniband/x", self._some(400)))
        version = self.random.choice((1, 1, 1, 0, 2, 0xFFFFFFFF))
        made = bytearray(Hello(role, host, self._number(), inode, data, version).pack())
        return self._damaged(made)

    def _damaged(self, data: bytearray) -> bytes:
        """Flip bits behind the role, and cut it: one with another role may be a good hello."""
        for _ in range(self.random.choice((0, 0, 1, 3))):
            data[self.random.randrange(16, len(data))] ^= 1 << self.random.randrange(8)
        whole = self.random.random() < 0.7
        return bytes(data if whole else data[: self.random.randrange(1, len(data) + 1)])

    def _control(self) -> None:
        """A request that stops the fabric or cuts a link is not among them."""
        deep = b"[" * 30_000
        made = json.dumps(self.random.choice(REQUESTS)).encode()
        half = made[: self.random.randrange(len(made) + 1)]
        data = self.random.choice((made, half, deep, self._some(100), b'{"do":' * 3000))
        greet(self.fabric, Hello(Role.CONTROL, data=data).pack())

    # ---- umad ----------------------------------------------------------------------------------

    def _ioctl(self, number: int, argument: bytes, fds: str = "none") -> None:
        data = struct.pack("=I", number) + argument
        greet(self.fabric, Hello(Role.CALL, self.host, 0, self._inode, data).pack(), fds)

    def _ioctl_number(self) -> int:
        known = (REGISTER, UNREGISTER, REGISTER2, ENABLE_PKEY)
        return self.random.choice((*known, self.random.getrandbits(32) | 1))

    def _ioctl_argument(self) -> bytes:
        mask = self.random.choice((bytes(16), b"\xff" * 16, self.random.randbytes(16)))
        mgmt_class = self.random.choice((*CLASSES, self.random.randrange(256)))
        version, qp = self.random.choice((1, 2, 255)), self.random.choice((0, 1, 2))
        oui = self.random.choice((bytes(3), self.random.randbytes(3)))
        rmpp = self.random.choice((0, 1, 7))
        short = struct.pack("=I16sBBB3sBx", 0, mask, qp, mgmt_class, version, oui, rmpp)
        flags, wide = self._number(), self.random.choice((0, 0x1405, 1 << 31))
        long = struct.pack("=IIBB2xI16sIB3x", 0, qp, mgmt_class, version, flags, mask, wide, rmpp)
        number = struct.pack("=I", self.random.randrange(40))
        return self.random.choice((short, long, number, b"", self._some(60)))

    def _written(self) -> bytes:
        """A header as umad_send makes it, and a MAD."""
        mad = self._mad()
        is_smp = mad[1] in SMPS
        qp = self.random.choice((0, 0, 1) if is_smp else (1, 1, 1, 0, 5, 0xFFFFFFFF))
        lid = PERMISSIVE if mad[1] == 0x81 else self.random.choice(self._lids)
        timeout, retries = self.random.choice((0, 0, 5, 50)), self.random.choice((0, 1))
        agent = self.random.choice((0, 1, 2, 3, 5, 31, 32, 0xFFFFFFFF))
        head = struct.pack("=5I", agent, 0, timeout, retries, len(mad))
        key = self.random.choice((GENERAL_QKEY, GENERAL_QKEY, 0, 7))
        head += struct.pack(">IIHBB", qp, key, lid, self.random.choice((0, 0, 3, 255)), 0)
        head = head.ljust(self.random.choice((56, 64)), self.random.choice((b"\0", b"\xff")))
        return (head + mad)[: self.random.choice((320, 320, 320, 312, 100, 56, 3))]

    def _mad(self) -> bytes:
        mgmt_class = self.random.choice(CLASSES)
        method = self.random.choice((*METHODS, SET))
        if method == SET and mgmt_class in SMPS and not self._sets:
            method = 0x01
        version = 2 if mgmt_class in (0x03, 0x07) else 1
        hops = self.random.choice((0, 1, 2, 3, 63, 64, 255)) if mgmt_class == 0x81 else 0
        status = self.random.choice((0, 0, 0, 0x8000, 0x1C))
        transaction, modifier = self.random.getrandbits(64), self.random.getrandbits(32)
        attribute, modifier = (self.random.choice(of) for of in (ATTRIBUTES, (0, 1, 255, modifier)))
        head = struct.pack(
            ">BBBBHBBQHHI",
            *(1, mgmt_class, version, method, status, 0, hops),
            *(transaction, attribute, 0, modifier),
        )
        zeros = self.random.random() < 0.4
        made = bytearray(head + (bytes(232) if zeros else self.random.randbytes(232)))
        if mgmt_class == 0x81:
            made[32:36] = self.random.choice((b"\xff\xff\xff\xff", b"\0\1\0\2"))
            made[128:192] = bytes(self.random.randrange(6) for _ in range(64))
        elif mgmt_class == 0x03 and self.random.random() < 0.7:
            made[24:36] = bytes(12)
            made[48:56] = self.random.choice((bytes(8), b"\xff" * 8, self.random.randbytes(8)))
        if self.random.random() < 0.05:
            made[self.random.randrange(4)] = self.random.randrange(256)
            if made[1] in SMPS and made[3] == SET and not self._sets:
                made[3] = 0x01
        return bytes(made)

    def _write(self) -> None:
        """Write to the device, and read what is there: the next one of an ended device is new."""
        try:
            self._umad.send(self._written(), socket.MSG_DONTWAIT)
            while self._umad.recv(1024, socket.MSG_DONTWAIT):
                pass
            self.close()
            self._open()
        except BlockingIOError:
            return

    # ---- the page ------------------------------------------------------------------------------

    def _call(self) -> None:
        """Ask for a flow, or release one; a message of another length ends the connection."""
        if self.random.random() < 0.05:
            self._page.send(self.random.randbytes(self.random.choice((1, 63, 65, 300))))
            self.close()
            self._open()
            return
        kind = self.random.choice((1, 1, 2, 2, 3, 0xFFFFFFFF))
        made = CALL.pack(
            kind,
            self.random.getrandbits(32),
            self.random.choice((0, 1 << 20, 1 << 63, self.random.getrandbits(26))),
            self.random.choice((0, 1, 1, 1, 2, 255)),
            self.random.choice(self._lids),
            self.random.choice((0, 15, 255)),
            self.random.choice((0, 7, 255)),
            self.random.choice((0, 0, 31, 32, 0xFFFF)),
            self.random.choice((2, 3, 4, 9, 10, 255)),
            self.random.choice((0, 1, 255)),
            self.random.randbytes(16),
            self.random.getrandbits(24),
            self.random.getrandbits(32),
        )
        self._scribbler.ask(made)


def corpus() -> Iterator[Path]:
    """Yield the files of messages: a line for each, which test_fuzz.py describes."""
    yield from sorted(CORPUS.glob("*.txt"))


def replay(path: Path, fabric: str, host: str) -> None:
    """Send the messages of a file.

    ``hello ROLE NUMBER FDS DATA``, ``call FDS DATA`` to an open umad0, ``umad DATA`` for a message
    on it, and ``page DATA``. The data are hexadecimal; ``5b*30000`` repeats them.
    """
    fuzzer = Fuzzer(1, fabric, host)
    for line in path.read_text().splitlines():
        kind, *words = line.split()
        if not line or kind == "#":
            continue
        text, _, times = (words.pop() if words else "").partition("*")
        data = bytes.fromhex(text) * int(times or 1)
        if kind == "hello":
            role, number, fds = words
            greet(fabric, Hello(int(role), host, int(number), 1, data).pack(), fds)
        elif kind == "call":
            fuzzer._ioctl(WRITE, data, words[0])
        else:
            (fuzzer._umad if kind == "umad" else fuzzer._page).send(data)
    control_fabric(fabric, {"do": "status"})
    fuzzer.close()


def run(seed: int, steps: int, fabric: str, host: str, *, sets: bool = False) -> None:
    """Do so many steps as one program, and then some commands of its connection manager."""
    fuzzer = Fuzzer(seed, fabric, host, sets=sets)
    for _ in range(steps):
        fuzzer.step()
    fuzzer.close()
    manager = agent_fuzzing.Fuzzer(seed, fabric, host)
    for _ in range(steps // 3):
        manager.step()
    manager.close()


def main() -> None:
    """Go on until the time is over, or the fabric's process has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fabric")
    parser.add_argument("--host", default="h3")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--settings", action="store_true")
    options = parser.parse_args()
    end, seed = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end:
        run(seed, 300, options.fabric, options.host, sets=options.settings)
        found = control_fabric(options.fabric, {"do": "status"})
        if found["failures"]:
            raise SystemExit(f"seed {seed}: {found}")
        seed += 1
    print(f"no failure up to seed {seed}, and {found['refused']} messages refused")


if __name__ == "__main__":
    main()
