# SPDX-License-Identifier: Apache-2.0
"""Sends an agent that runs what no program would: hellos, requests and commands at random.

`python -m tests.agent.fuzzing --seconds 600` does it for the agent of this network namespace, and
prints the seed of what it refused to survive. test_fuzz.py does it for a moment, and repeats the
messages in corpus/, each of which once did harm.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from verbena.agent import messages
from verbena.agent.client import describe_agent
from verbena.agent.messages import Role
from verbena.agent.server import agent_address
from verbena.agent.ucm_commands import BODIES

CORPUS = Path(__file__).with_name("corpus")
_PORT_LINE = b"0 1 00000000000000aa ethernet 0 \n"
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 10, 28, 255, 256, 0x106, 0x111, 0x13F, 0xFFFF, 0xFFFFFFFF)
_ADDRESSES = (
    struct.pack("=H", socket.AF_INET) + struct.pack(">H", 7174) + socket.inet_aton("127.0.0.1"),
    struct.pack("=H", socket.AF_INET) + struct.pack(">H", 0) + socket.inet_aton("224.1.2.3"),
    struct.pack("=H", socket.AF_INET6) + bytes(6) + bytes(15) + b"\x01" + bytes(4),
    struct.pack("=H", 27) + bytes(6) + bytes(range(40)),
)


def hello(role: int, inode: int, ports: bytes = _PORT_LINE) -> bytes:
    """Return a good hello."""
    head = struct.pack("=IIIIQ", messages.MAGIC, messages.VERSION, role, 0, inode)
    return head + ports.ljust(1024, b"\0")


def connect(fabric: str = "") -> socket.socket:
    """Return a connection that has not said anything yet to the agent, or to that of a fabric."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(5)
    sock.connect(agent_address(os.geteuid(), fabric))
    return sock


def say_hello(role: Role, fabric: str = "", ports: bytes = _PORT_LINE) -> tuple[socket.socket, int]:
    """Return a welcomed connection, and the inode by which the agent knows it."""
    sock = connect(fabric)
    inode = os.fstat(sock.fileno()).st_ino
    sock.send(hello(role, inode, ports))
    assert messages.welcomed(sock.recv(64)) == 0
    return sock, inode


class Fuzzer:
    """A device and a connection for calls; ``random`` decides everything.

    With ``fabric``, they are those of a host of that live fabric.
    """

    def __init__(self, seed: int, fabric: str = "", host: str = "") -> None:
        self.random = random.Random(seed)
        self._fabric = fabric
        self._ports = f"at {host}".encode() if fabric else _PORT_LINE
        self._device, self._inode = say_hello(Role.DEVICE, fabric, self._ports)
        self._calls, _ = say_hello(Role.CALLS, fabric, self._ports)
        self._ids = [1]

    def close(self) -> None:
        """Go as a killed program goes."""
        self._device.close()
        self._calls.close()

    def step(self) -> None:
        """Send something."""
        kind = self.random.random()
        if kind < 0.1:
            greet(self._hello(), self._fabric)
        elif kind < 0.15:
            self._ask(self.random.randbytes(self.random.choice((1, 15, 16, 17, 40, 528, 529, 600))))
        elif kind < 0.17:
            self._device.send(self.random.randbytes(3))
        else:
            self._ask(struct.pack("=QQ", self._inode, self._inode) + self._command())

    def _ask(self, data: bytes) -> None:
        self._calls.send(data)
        found = self._calls.recv(1 << 16)
        error, _, length = struct.unpack_from("=iII", found)
        if not error and length == 4:
            self._ids.append(*struct.unpack_from("=I", found, 64))

    def _hello(self) -> bytes:
        inode = self.random.choice((0, self._inode, 1 << 63))
        text = self.random.choice((b"", self._ports, b"at x", self.random.randbytes(64)))
        made = bytearray(hello(self.random.choice((1, 2, 4, 99)), inode, text))
        return self._damaged(made)

    def _command(self) -> bytes:
        number = self.random.choice(list(BODIES))
        layout = BODIES[number]
        values: list[int | bytes] = []
        for name, empty in zip(
            layout.names, layout.layout.unpack(bytes(layout.layout.size)), strict=True
        ):
            values.append(self._value(name, empty))
        body = bytearray(layout.layout.size)
        with contextlib.suppress(struct.error):
            body[:] = layout.layout.pack(*values)
        option = self.random.randbytes(self.random.choice((0, 0, 1, 4, 64)))
        room = self.random.choice((0, 4, 8, 80, 144, 280, 336, 65535))
        made = bytearray(struct.pack("=IHH", number, len(body), room) + body + option)
        return self._damaged(made) if self.random.random() < 0.3 else bytes(made)

    def _value(self, name: str, empty: int | bytes) -> int | bytes:
        if isinstance(empty, bytes):
            if "conn_param" in name:
                return struct.pack("=II256s8B", 5, 6, self.random.randbytes(256), 255, *(1,) * 7)
            return self.random.choice((*_ADDRESSES, self.random.randbytes(len(empty))))
        if name == "id":
            return self.random.choice(self._ids)
        return self.random.choice(_NUMBERS)

    def _damaged(self, data: bytearray) -> bytes:
        for _ in range(self.random.choice((0, 1, 3))):
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(
            data[: self.random.choice((len(data), self.random.randrange(1, len(data) + 1)))]
        )


def greet(message: bytes, fabric: str = "") -> None:
    """Say hello with anything, and take what comes."""
    with connect(fabric) as sock:
        sock.send(message)
        sock.recv(64)


def corpus() -> Iterator[Path]:
    """Yield the files of messages: a line for each, `hello` or `request` and hexadecimal bytes."""
    yield from sorted(CORPUS.glob("*.txt"))


def replay(path: Path) -> None:
    """Send the messages of a file; INODE stands for the device's, INODE2 for another's."""
    device, inode = say_hello(Role.DEVICE)
    calls, _ = say_hello(Role.CALLS)
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        kind, _, text = line.partition(" ")
        message = bytes.fromhex(text.replace("INODE", struct.pack("=Q", inode).hex()))
        if kind == "hello":
            greet(message.ljust(messages.LONGEST_HELLO, b"\0"))
        else:
            calls.send(message)
            calls.recv(1 << 16)
    device.close()
    calls.close()


def run(seed: int, steps: int) -> None:
    """Do so many steps as one program."""
    fuzzer = Fuzzer(seed)
    for _ in range(steps):
        fuzzer.step()
    fuzzer.close()


def main() -> None:
    """Go on until the time is over, or the agent failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    end, seed = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end:
        run(seed, 300)
        found = describe_agent()
        if found is None or found["failures"]:
            raise SystemExit(f"seed {seed}: {found}")
        seed += 1
    print(f"no failure up to seed {seed}")


if __name__ == "__main__":
    main()
