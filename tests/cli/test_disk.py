# SPDX-License-Identifier: Apache-2.0
"""`verbena disk`: disks that are served, listed, measured, and attached by NBD."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import clean_environment, own_network, verbena_command
from verbena import nvmeof
from verbena.cli import disk

NQN = "nqn.2026-01.org.example:served"
MIB = 1 << 20


def command(*words: str) -> list[str]:
    return verbena_command("disk", *words)


def run(network: list[str], *words: str, status: int = 0) -> str:
    done = subprocess.run(
        [*network, *command(*words)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


class Network:
    """A network of its own in which commands run, since the agent is one for each."""

    def __init__(self) -> None:
        words = [*own_network(), "sh", "-c", "ip link set lo up; echo ready; exec sleep 1000"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.enter = ["nsenter", "-t", str(self.process.pid), "-n"]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def network() -> Iterator[list[str]]:
    if not own_network():
        pytest.skip("the agent may have other users here; run the tests as root")
    made = Network()
    yield made.enter
    made.close()


@pytest.fixture
def served(network: list[str], tmp_path: Path) -> Iterator[str]:
    """The port of a target with a file and a disk in memory."""
    file = tmp_path / "disk.img"
    with file.open("wb") as made:
        made.truncate(8 * MIB + 500)
    words = ("serve", str(file), "--memory", "16M", "--nqn", NQN, "--port", "0")
    process = subprocess.Popen(
        [*network, *command(*words, "--listen", "127.0.0.1")],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    rest = "; the last 500 of the file are no whole block, and are not served"
    assert process.stdout.readline() == f"namespace 1: {file}, {8 * MIB} bytes{rest}\n"
    assert process.stdout.readline() == f"namespace 2: memory, {16 * MIB} bytes\n"
    listening = process.stdout.readline()
    assert listening.startswith(f"{NQN} at 127.0.0.1, port ")
    yield listening.split("port ")[1].split(";")[0]
    process.terminate()
    assert process.wait(20) == 0


def test_list(network: list[str], served: str) -> None:
    said = run(network, "list", "127.0.0.1", "--port", served)
    assert said == f"{NQN} at 127.0.0.1, port {served}\n"


@pytest.mark.parametrize("pattern", ["randread", "read", "randwrite", "write"])
def test_bench(network: list[str], served: str, pattern: str) -> None:
    words = ("127.0.0.1", "--port", served, "--pattern", pattern, "--seconds", "0.2")
    said = run(network, "bench", *words, "--namespace", "2", "--size", "16k", "--depth", "4")
    assert said.startswith(f"{pattern}, 16384 bytes, depth 4: ")
    assert "99 % within" in said


def test_bench_of_a_moment(network: list[str], served: str) -> None:
    """The processor's time is that of the commands, also where it is less than a hundredth of a
    second."""
    words = ("127.0.0.1", "--port", served, "--seconds", "0.001", "--depth", "1")
    said = run(network, "bench", *words, "--namespace", "2")
    taken = float(said.split("; ")[-1].split(" µs of this processor for a command")[0])
    assert 1 < taken < 1e4


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--namespace", "9"), "has no namespace 9; it has: 1, 2"),
        (("--size", "2M"), "1048576 at most"),
        (("--depth", "500"), "a queue of this target takes 127 commands at a time; give 127 at"),
        (
            ("--source", "127.0.0.9"),
            "or the device lacks the address; use one of `verbena devices`",
        ),
        (("--nqn", "nqn.2026-01.org.example:none"), "the target has no such subsystem"),
        (("--host-nqn", "me"), "is no NQN"),
    ],
)
def test_wrong_words(network: list[str], served: str, words: tuple[str, ...], text: str) -> None:
    said = run(network, "bench", "127.0.0.1", "--port", served, *words, status=1)
    assert said.startswith("verbena disk")
    assert said.count("\n") == 1
    assert text in said


@pytest.mark.parametrize("name", ["bench", "attach"])
def test_a_host_that_is_not_allowed(network: list[str], name: str) -> None:
    """It is told how it could be, and nothing of several subsystems."""
    words = ("--memory", "1M", "--nqn", NQN, "--allow", "nqn.2026-01.org.example:other")
    process = subprocess.Popen(
        [*network, *command("serve", *words, "--listen", "127.0.0.1", "--port", "0")],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    port = process.stdout.readline().split("port ")[1].split(";")[0]
    try:
        said = run(network, name, "127.0.0.1", "--port", port, status=1)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert said.startswith(f"verbena disk {name}: the target offers this host no subsystem: give")
    assert "--host-nqn" in said
    assert "--allow of `verbena disk serve`" in said


def test_several_subsystems(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    async def discover(*words: object) -> list[SimpleNamespace]:
        kind = nvmeof.SubsystemKind.NVM
        return [SimpleNamespace(nqn=f"nqn.2026-01.org.example:{n}", kind=kind) for n in (1, 2)]

    monkeypatch.setattr(nvmeof, "discover", discover)
    assert disk.main(["bench", "nowhere"]) == 1
    said = capsys.readouterr().err
    assert "several subsystems; name one by --nqn: nqn.2026-01.org.example:1, nqn" in said


def test_a_file_is_served_once(network: list[str], served: str, tmp_path: Path) -> None:
    file = tmp_path / "disk.img"
    said = run(network, "serve", str(file), "--port", "0", status=1)
    assert f"another target serves this already, or this one serves it twice: '{file}'" in said
    other = tmp_path / "other.img"
    other.write_bytes(bytes(4096))
    said = run(network, "serve", "--read-only", str(other), str(other), status=1)
    assert f"{other} and {other} are one file, and it is served once" in said
    other.write_bytes(b"")
    said = run(network, "serve", str(other), status=1)
    assert f"{other} has no bytes, and a disk at least 512" in said


def test_nobody_serves(network: list[str]) -> None:
    said = run(network, "list", "127.0.0.1", "--port", "4999", status=1)
    assert said.startswith("verbena disk list: 127.0.0.1:4999")


@pytest.mark.parametrize(
    ("words", "text", "status"),
    [
        (("serve",), "give a FILE, or --memory SIZE", 2),
        (("serve", "--memory", "much"), "'much' is no size", 2),
        (("serve", "--memory", "1M", "--direct"), "--direct is for files", 2),
        (("serve", "--memory", "9999999T"), "--memory: this host has not 10,995,115,", 1),
        (("serve", "--memory", "999999T"), "--memory: this host has not 1,099,510,", 1),
        (("bench", "nowhere", "--size", "100"), "--size: 100 is not whole blocks of 512", 2),
        (("bench", "nowhere", "--size", "0"), "--size: 0 is not whole blocks", 2),
        (("bench", "nowhere", "--depth", "0"), "--depth: '0' is not from 1 to 1023 commands", 2),
        (("bench", "nowhere", "--depth", "many"), "'many' is not from 1 to 1023", 2),
        (("bench", "nowhere", "--depth", "5000"), "'5000' is not from 1 to 1023", 2),
        (("serve", "--memory", "1M", "--port", "70000"), "70000 is no port", 2),
        (("serve", "/nowhere"), "No such file or directory: '/nowhere'", 1),
        (("serve", "/dev/null"), "neither a file nor a block device", 1),
        (("serve", "--memory", "1M", "--nqn", "disk"), "'disk' is no name of a subsystem", 1),
        (("serve", "--memory", "1000"), "--memory: 1000 is not whole blocks of 512", 2),
        (("serve", "--memory", "1M", "--allow", "foo"), "'foo' is no NQN of a host", 1),
        (("bench", "nowhere", "--seconds", "0"), "'0' is not a number of seconds, more than 0", 2),
        (("bench", "nowhere", "--seconds", "-1"), "'-1' is not a number of seconds", 2),
        (("bench", "nowhere", "--secon", "1"), "unrecognized arguments: --secon", 2),
        (("serve", "--memory", "1M", "--listen", "10.99.99.99"), "10.99.99.99", 1),
        (("serve", "--memory", "1M", "--state", "/nowhere"), "--state /nowhere: no folder", 2),
        (("study", "--hosts", "0"), "a study has 1 to 64 hosts", 1),
    ],
)
def test_what_cannot_be_served(
    network: list[str], words: tuple[str, ...], text: str, status: int
) -> None:
    said = run(network, *words, status=status)
    assert text in said
    is_unknown = "unrecognized" in text  # argparse leaves that to the command above
    begin = "verbena disk" if is_unknown else f"verbena disk {words[0]}"
    assert said.splitlines()[-1].startswith(f"{begin}: {'error: ' if status == 2 else ''}")


# ---- NBD -----------------------------------------------------------------------------------------


class Client:
    """A client of NBD, written from its specification."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        assert self.take(16) == b"NBDMAGICIHAVEOPT"
        assert struct.unpack(">H", self.take(2)) == (3,)
        self.socket.sendall(struct.pack(">I", 3))

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            assert part, "the server has closed the connection"
            data += part
        return data

    def go(self) -> int:
        """Choose the export; returns its size."""
        self.socket.sendall(b"IHAVEOPT" + struct.pack(">II", 7, 6) + bytes(6))
        size = 0
        while True:
            magic, option, reply, length = struct.unpack(">QIII", self.take(20))
            assert (magic, option) == (0x0003E889045565A9, 7)
            data = self.take(length)
            if reply == 1:
                return size
            if reply == 3 and data[:2] == b"\0\0":
                size = int.from_bytes(data[2:10], "big")

    def request(
        self, kind: int, offset: int, length: int, data: bytes = b"", flags: int = 0
    ) -> tuple[int, bytes]:
        self.socket.sendall(
            struct.pack(">IHHQQI", 0x25609513, flags, kind, 77, offset, length) + data
        )
        magic, error, handle = struct.unpack(">IIQ", self.take(16))
        assert (magic, handle) == (0x67446698, 77)
        return error, self.take(length) if kind == 0 and not error else b""


def attach(network: list[str], port: str, path: Path, **options: Any) -> subprocess.Popen[str]:
    """Start `verbena disk attach` for the second namespace, and wait until it serves."""
    words = ("127.0.0.1", "--port", port, "--socket", str(path), "--namespace", "2")
    process = subprocess.Popen(
        [*network, *command("attach", *words)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None
    assert f"{16 * MIB} bytes at nbd+unix" in process.stdout.readline()
    return process


@pytest.fixture
def attached(network: list[str], served: str, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk.sock"
    process = attach(network, served, path)
    yield path
    process.terminate()
    assert process.wait(20) == 0
    assert not path.exists()


def test_attached(attached: Path) -> None:
    client = Client(attached)
    assert client.go() == 16 * MIB
    data = bytes(range(256)) * 256
    assert client.request(1, 8192, len(data), data) == (0, b"")
    assert client.request(0, 8192, len(data)) == (0, data)
    assert client.request(1, 0, 512, b"x" * 512, flags=1) == (0, b"")
    assert client.request(3, 0, 0) == (0, b"")
    assert client.request(6, 8192, 4096) == (0, b"")
    assert client.request(0, 8192, 4096) == (0, bytes(4096))
    assert client.request(4, 0, 8192) == (0, b"")
    assert client.request(0, 100, 100)[0] == 22  # no whole blocks
    assert client.request(0, 16 * MIB, 512)[0] == 22
    assert client.request(99, 0, 512)[0] == 22
    other = Client(attached)
    assert other.go() == 16 * MIB
    assert other.request(0, 12_288, 512) == (0, data[:512])


def attach_at(network: list[str], served: str, path: Path) -> subprocess.CompletedProcess[str]:
    words = ("127.0.0.1", "--port", served, "--socket", str(path), "--namespace", "2")
    return subprocess.run(
        [*network, *command("attach", *words)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_is_at_the_path_of_the_socket_stays(
    network: list[str], served: str, attached: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "photos.tar"
    photos.write_text("photos")
    for path, why in (
        (photos, f"{photos} exists and is no socket: name a path that is free"),
        (attached, f"somebody serves at {attached} already: name another path"),
        (tmp_path / "no" / "x", f"no socket at {tmp_path}/no/x: No such file or directory"),
    ):
        done = attach_at(network, served, path)
        assert done.returncode == 1
        assert why in done.stderr
        assert done.stderr.count("\n") == 1
    assert photos.read_text() == "photos"
    assert Client(attached).go() == 16 * MIB


def test_a_socket_with_a_path_that_is_too_long(
    network: list[str], served: str, tmp_path: Path
) -> None:
    words = ("127.0.0.1", "--port", served, "--socket", str(tmp_path / ("x" * 200)))
    done = subprocess.run(
        [*network, *command("attach", *words)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1
    assert "no socket at" in done.stderr
    assert "path too long" in done.stderr


def test_a_socket_that_nobody_serves_is_replaced(
    network: list[str], served: str, tmp_path: Path
) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "disk.sock"))
    left.close()
    words = ("127.0.0.1", "--port", served, "--socket", str(tmp_path / "disk.sock"))
    process = subprocess.Popen(
        [*network, *command("attach", *words)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "bytes at nbd+unix" in process.stdout.readline()
    (tmp_path / "disk.sock").unlink()
    (tmp_path / "disk.sock").write_text("of somebody else")
    process.terminate()
    assert process.wait(20) == 0
    assert (tmp_path / "disk.sock").read_text() == "of somebody else"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_quietly_while_clients_are_connected(
    network: list[str], served: str, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "disk.sock"
    process = attach(network, served, path, stderr=subprocess.PIPE)
    negotiates, idle = Client(path), Client(path)
    assert idle.go() == 16 * MIB
    assert idle.request(0, 0, 512)[0] == 0
    process.send_signal(number)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors) == (0, "", "")
    assert negotiates.socket.recv(1) == idle.socket.recv(1) == b""
    assert not path.exists()


def memory_target(network: list[str], port: str) -> tuple[subprocess.Popen[str], str]:
    """A target that a test kills, and its port."""
    words = ("serve", "--memory", "4M", "--nqn", NQN, "--port", port, "--listen", "127.0.0.1")
    process = subprocess.Popen(
        [*network, *command(*words)], env=clean_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    listening = process.stdout.readline()
    return process, listening.split("port ")[1].split(";")[0]


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_target_that_is_killed_is_told_of(
    network: list[str], tmp_path: Path, comes_back: bool
) -> None:
    target, port = memory_target(network, "0")
    path = tmp_path / "disk.sock"
    words = ("127.0.0.1", "--port", port, "--socket", str(path))
    attached = subprocess.Popen(
        [*network, *command("attach", *words)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert attached.stdout is not None
        assert attached.stderr is not None
        attached.stdout.readline()
        client = Client(path)
        assert client.go() == 4 * MIB
        target.kill()
        target.wait()
        lost = attached.stderr.readline()
        assert "the target is lost (" in lost
        assert "requests wait, and it is looked for during 600 s" in lost
        client.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 99, 0, 512))
        if comes_back:
            target, _ = memory_target(network, port)
            assert attached.stderr.readline() == "verbena disk attach: the target is back\n"
            assert struct.unpack(">IIQ", client.take(16)) == (0x67446698, 0, 99)
        attached.send_signal(signal.SIGINT)
        attached.communicate(timeout=20)
        assert attached.returncode == 0
        assert not path.exists()
    finally:
        for process in (target, attached):
            process.kill()
            process.wait()


def test_it_goes_on_where_a_closed_terminal_is_ignored(
    network: list[str], served: str, tmp_path: Path
) -> None:
    path = tmp_path / "disk.sock"
    process = attach(["nohup", *network], served, path, stderr=subprocess.PIPE)
    process.send_signal(signal.SIGHUP)
    assert Client(path).go() == 16 * MIB
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_clients_that_break_the_protocol(attached: Path) -> None:
    for wrong in (b"IHAVEOPT" + b"\xff" * 8, b"nonsense" * 2, b""):
        client = Client(attached)
        client.socket.sendall(wrong)
        client.socket.close()
    client = Client(attached)
    client.go()
    client.socket.sendall(bytes(28))
    assert client.socket.recv(1) == b""
    time.sleep(0.1)
    assert Client(attached).go() == 16 * MIB


@pytest.mark.parametrize("lines", [0, 2, "full"])
def test_a_target_whose_lines_nobody_reads(network: list[str], lines: int | str) -> None:
    """It serves on, silently, and keeps no descriptors of hosts that have gone."""
    port = str(4440 + (lines if isinstance(lines, int) else 1))
    words = ("serve", "--memory", "4M", "--nqn", NQN, "--port", port, "--listen", "127.0.0.1")
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [*network, *command(*words)],
            env=clean_environment(),
            stdout=full if lines == "full" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        if process.stdout is not None:
            for _ in range(int(lines)):
                process.stdout.readline()
            process.stdout.close()
        until_it_listens(network, port)
        counts = []
        for _ in range(3):
            run(network, "bench", "127.0.0.1", "--port", port, "--seconds", "0.05")
            time.sleep(0.2)
            counts.append(len(os.listdir(f"/proc/{process.pid}/fd")))
        assert counts == counts[:1] * 3
    finally:
        process.terminate()
        assert process.stderr is not None
        errors = process.stderr.read()
    assert (process.wait(20), errors) == (0, "")


def until_it_listens(network: list[str], port: str) -> None:
    """Wait for a target of which nobody reads that it is there."""
    words = command("list", "127.0.0.1", "--port", port)
    for _ in range(50):
        done = subprocess.run(
            [*network, *words], env=clean_environment(), capture_output=True, timeout=30
        )
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens at {port}: {done.stderr!r}")
