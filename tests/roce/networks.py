# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces joined by a veth pair, made and removed here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.programs.pairs import TCP_LISTEN, Pair, Running
from tests.support import clean_environment, verbena_command

Environment = dict[str, str]


def reason_not_to() -> str | None:
    """Why namespaces cannot be made here, or None."""
    if os.geteuid() != 0:
        return "this user may not make a network namespace; run the tests as root"
    if not shutil.which("ip"):
        return "ip is not installed; apt-get install iproute2 brings it"
    tried = subprocess.run(["ip", "netns", "add", f"vbtry{os.getpid()}"], capture_output=True)
    if tried.returncode:
        return f"{tried.stderr.decode().strip()}: no namespace; docker run --privileged allows it"
    subprocess.run(["ip", "netns", "del", f"vbtry{os.getpid()}"], check=True)
    return None


@dataclass(frozen=True)
class Host:
    """One namespace and its addresses."""

    namespace: str
    ipv4: str
    ipv6: str

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *words]

    def run(self, *words: str, env: Environment | None = None) -> str:
        done = subprocess.run(
            self.command(*words),
            env=clean_environment() | (env or {}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(
        self, *program: str, options: tuple[str, ...] = (), env: Environment | None = None
    ) -> subprocess.Popen[str]:
        """A program over Verbena on this host."""
        return subprocess.Popen(
            self.command(*verbena_command("run", *options, "--", *program)),
            env=clean_environment() | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def gid_index(self, address: str) -> int:
        """The RoCE v2 GID that stands for this address of the host."""
        gids = gids_with(self, self.run("ip", "-oneline", "address"))
        for gid in gids:
            if gid["type"] == "RoCE v2" and gid["address"].removeprefix("::ffff:") == address:
                return int(gid["index"])
        raise LookupError(f"{address} is no GID of {gids}")

    def wait_listening(
        self, process: subprocess.Popen[str], port: int, seconds: float = 20
    ) -> None:
        """Until something on this host listens on the TCP port, or the process has ended."""
        deadline = time.monotonic() + seconds
        while process.poll() is None and not self.listens(process.pid, port):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{process.args!r} does not listen on port {port}")
            time.sleep(0.01)

    @staticmethod
    def listens(pid: int, port: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            for table in ("tcp", "tcp6"):
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    _, local, _, state, *_ = line.split()
                    if state == TCP_LISTEN and local.endswith(f":{port:04X}"):
                        return True
        return False


@cache
def gids_with(host: Host, addresses: str) -> list[dict[str, Any]]:
    """The GIDs of a host as long as `ip` says these addresses: hundreds of pairs need them, and
    `verbena` takes a third of a second."""
    (device,) = json.loads(host.run(*verbena_command("devices", "--json")))
    gids: list[dict[str, Any]] = device["ports"][0]["gids"]
    return gids


class Network:
    """Two hosts and the link between them; `mtu` is the link's."""

    PORT = 20_500

    def __init__(self, mtu: int = 1500, name: str = "net") -> None:
        mark = f"vb{os.getpid()}{name}"
        self.mtu = mtu
        self.hosts = (
            Host(f"{mark}a", "10.88.0.1", "fd00:88::1"),
            Host(f"{mark}b", "10.88.0.2", "fd00:88::2"),
        )

    def __enter__(self) -> Self:
        first, second = self.hosts
        for host in self.hosts:
            subprocess.run(["ip", "netns", "add", host.namespace], check=True)
        link = ["type", "veth", "peer", "name", "eth0", "netns", second.namespace]
        subprocess.run(first.command("ip", "link", "add", "eth0", *link), check=True)
        for host in self.hosts:
            ip = host.command("ip")
            for words in (
                ["link", "set", "lo", "up"],
                ["link", "set", "eth0", "mtu", str(self.mtu), "up"],
                ["addr", "add", f"{host.ipv4}/24", "dev", "eth0"],
                ["addr", "add", f"{host.ipv6}/64", "dev", "eth0", "nodad"],
            ):
                subprocess.run([*ip, *words], check=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], check=True)

    @contextlib.contextmanager
    def bottleneck(self, rate: str, queue: str) -> Iterator[None]:
        """A token bucket of that rate before the link, and the bytes that may wait for it."""
        words = ("root", "tbf", "rate", rate, "burst", "16kb", "limit", queue)
        for host in self.hosts:
            host.run("tc", "qdisc", "add", "dev", "eth0", *words)
        try:
            yield
        finally:
            for host in self.hosts:
                host.run("tc", "qdisc", "del", "dev", "eth0", "root")

    def pair(
        self,
        *program: str,
        gid: str = "-x",
        ipv6: bool = False,
        options: tuple[str, ...] = (),
        env: Environment | None = None,
        server_env: Environment | None = None,
        timeout: float = 60,
    ) -> Pair:
        """`PROGRAM` on the first host and `PROGRAM ADDRESS` on the second, by the convention that
        perftest and the pingpongs share; `gid` is their option for the GID's index."""
        server, client = self.hosts
        words = (*program, "-p", str(self.PORT))

        def index(host: Host) -> tuple[str, str]:
            return gid, str(host.gid_index(host.ipv6 if ipv6 else host.ipv4))

        listener = server.start(*words, *index(server), options=options, env=server_env or env)
        server.wait_listening(listener, self.PORT)
        caller = client.start(*words, *index(client), server.ipv4, options=options, env=env)
        return Running(listener, caller).finish(timeout)
