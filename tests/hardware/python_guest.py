# SPDX-License-Identifier: Apache-2.0
"""Guests that run Python programs over Linux' soft-RoCE, through the system's rdma-core.

A guest mounts this host's files, read-only, and links the interpreter that runs the tests, its
environment and this repository to the same paths as here. So it has the build that is tested, and
nothing is copied. libibverbs, librdmacm and the provider librxe are those of the guest's image.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from tests.roce.linux_guest import PYTHON, RELAY, STATUS, Guest, Lab
from tests.support import ROOT, clean_environment

HERE = Path(__file__).parent
FORKING_SERVER = HERE / "forking_server.py"
PROGRAMS_PORT = 7001
_HOST = "/host"


def _linked() -> list[Path]:
    """Return the paths of this host that a guest has to have, none of them below another."""
    named = [ROOT, Path(sys.prefix), Path(sysconfig.get_path("stdlib"))]
    wanted = {*_hops(Path(sys.executable)), *(path for e in named for path in (e, e.resolve()))}
    return sorted(path for path in wanted if not wanted.intersection(path.parents))


def _hops(path: Path) -> list[Path]:
    """Return a path and those of the symbolic links that lead from it to the file."""
    found = [path]
    while found[-1].is_symlink():
        found.append(found[-1].parent / found[-1].readlink())
    return found


def _library_folders() -> list[str]:
    """Return where the guest's loader looks: its own folders are first, so that rdma-core is its
    own."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    own = [f"/usr/lib/{multiarch}", f"/lib/{multiarch}"]
    interpreters = [sysconfig.get_config_var("LIBDIR") or f"{sys.base_prefix}/lib"]
    return own + [f"{_HOST}{folder}" for folder in interpreters + own]


def _settle(guest: Guest) -> None:
    """Mount this host's files, and put what Python needs where it is here."""
    options = "ro,trans=virtio,cache=loose,msize=1048576"
    commands = [
        "set -e; modprobe 9pnet_virtio; modprobe 9p",
        f"mkdir {_HOST}; mount -t 9p -o {options} host {_HOST}",
    ]
    for path in map(str, _linked()):
        commands.append(f"mkdir -p {quote(str(Path(path).parent))}")
        commands.append(f"[ -e {quote(path)} ] || ln -s {quote(_HOST + path)} {quote(path)}")
    guest.run("\n".join(commands))


def boot_python_guests(lab: Lab, *numbers: int) -> list[Guest]:
    """Boot guests in which ``run_in_guest`` and ``serving_in_guest`` run programs."""
    guests = lab.boot_all(*numbers, image=PYTHON)
    for guest in guests:
        _settle(guest)
    servers = [guest.start(in_guest(FORKING_SERVER, str(PROGRAMS_PORT))) for guest in guests]
    for server in servers:
        assert server.stdout is not None
        said = server.stdout.readline()
        assert said == "ready\n", said + server.communicate()[0]
    return guests


def in_guest(*words: str | Path, **variables: str) -> str:
    """Return the shell's command that starts this Python with these words in a guest."""
    given = {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
        "LD_LIBRARY_PATH": ":".join(_library_folders()),
        "VERBENA_LIBRARY": "system",
        **variables,
    }
    settings = " ".join(f"{name}={quote(value)}" for name, value in given.items())
    command = " ".join(quote(str(word)) for word in (sys.executable, *words))
    return f"cd {quote(str(ROOT))}; exec env {settings} {command}"


def start_in_guest(
    guest: Guest, *words: str | Path, pid_file: str = "/dev/null", **variables: str
) -> subprocess.Popen[str]:
    """Start a Python program in a guest: its output is the process's, the status at its end."""
    relay = subprocess.Popen(
        guest.lab.command(sys.executable, "-c", RELAY, guest.ipv4, str(PROGRAMS_PORT)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert relay.stdin is not None
    texts = [str(word) for word in words]
    relay.stdin.write(json.dumps({"words": texts, "variables": variables, "pid_file": pid_file}))
    relay.stdin.write("\n")
    relay.stdin.close()
    relay.stdin = None
    return relay


def ended(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """Wait for the end of a program in a guest, and return what it said. Raises AssertionError if
    it failed."""
    status, said = Guest.status_and_text(process.communicate(timeout=seconds)[0])
    assert status == 0, said
    return said


def run_in_guest(guest: Guest, *words: str | Path, **variables: str) -> str:
    """Run a Python program in a guest and return what it says. Raises AssertionError if it
    fails."""
    return ended(start_in_guest(guest, *words, **variables))


def _wait_for_listener(guest: Guest, port: int, pid_file: str) -> None:
    """Wait until a program of the guest listens, at a port of TCP or by the connection manager.

    The kernel does not say who listens at addresses of all devices, so it is the open channel that
    is looked for: the program listens a moment later, and to start a client takes longer.
    """
    tcp = f"netstat -ltn | grep -q ':{port} '"
    manager = f"ls -l /proc/$(cat {pid_file})/fd 2>/dev/null | grep -q /dev/infiniband/rdma_cm"
    command = f"for i in $(seq 300); do {tcp} && exit 0; {manager} && exit 0; sleep 0.1; done"
    guest.run(f"{command}; exit 1")


class Server:
    """A program that serves in a guest, or beside the guests; ``said`` is what it said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""

    def ended(self, seconds: float = 30) -> str:
        """Wait for its end, and return what it said."""
        if not self.said:
            self.said = self.process.communicate(timeout=seconds)[0].partition(STATUS)[0]
        return self.said


@contextmanager
def serving_in_guest(guest: Guest, port: int, *words: str | Path) -> Iterator[Server]:
    """A Python program that listens in a guest; it is ended after the block where it still runs."""
    pid_file = f"/tmp/pid.{port}"
    guest.run(f"rm -f {pid_file}")
    server = Server(start_in_guest(guest, *words, pid_file=pid_file))
    try:
        _wait_for_listener(guest, port, pid_file)
        yield server
    finally:
        guest.run(f"kill $(cat {pid_file}) 2>/dev/null; true")
        said = server.ended()
    assert "Traceback" not in said, said


@contextmanager
def serving_beside(lab: Lab, *words: str | Path) -> Iterator[Server]:
    """A Python program on the laboratory's bridge, with Verbena's own device; it says a line when
    it listens."""
    process = subprocess.Popen(
        lab.command(sys.executable, *(str(word) for word in words)),
        env=clean_environment() | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    server = Server(process)
    assert process.stdout is not None
    first = process.stdout.readline()
    try:
        yield server
    finally:
        process.terminate()
        said = first + server.ended()
    assert "Traceback" not in said, said


def run_beside(lab: Lab, *words: str | Path, seconds: float = 60) -> str:
    """Run a Python program on the laboratory's bridge, with Verbena's own device."""
    done = subprocess.run(
        lab.command(sys.executable, *(str(word) for word in words)),
        env=clean_environment() | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
