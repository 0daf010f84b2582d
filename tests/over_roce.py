# SPDX-License-Identifier: Apache-2.0
"""Runs the tests marked `over_roce` in a second pytest whose device sends RoCE packets.

A process chooses its carriers once, so the tests that run directly and those that run by packets
cannot share a process. The second pytest has a network of its own, where UDP port 4791 is free, and
VERBENA_CARRIER=roce. tests/conftest.py hands it one test after the other and takes over its
reports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from typing import Any

import pytest

from tests.support import ROOT, own_network

# An interface that can send to groups, which loopback cannot, with an address of each IP version.
# In its first second Linux loses what goes from it to IPv6 groups, though it says UP.
LINK = """
ip link add eth0 mtu 9000 type veth peer name eth1 mtu 9000 && ip link set eth1 up &&
ip link set eth0 addrgenmode none && ip link set eth0 up &&
ip addr add 10.88.0.1/24 dev eth0 && ip addr add fd00:88::1/64 dev eth0 nodad &&
sleep 2 && exec "$0" "$@"
"""
SECONDS = 660  # more than any test's own limit, which the second pytest enforces


def is_elsewhere(item: pytest.Item) -> bool:
    """Whether this process cannot run the test. With VERBENA_CARRIER=roce it can (for --pdb)."""
    by_packets = os.environ.get("VERBENA_CARRIER") == "roce"
    return item.get_closest_marker("over_roce") is not None and not by_packets


def network() -> list[str]:
    """What to put before the command of the second pytest; nothing where no network may be made."""
    prefix = own_network()
    return [*prefix, "sh", "-c", LINK] if prefix else []


class Second:
    """The second pytest, started when its first test is due and again if a test has ended it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, item: pytest.Item, following: pytest.Item | None) -> list[pytest.TestReport]:
        """The reports of one test; `following` is the next one, for which fixtures may stay."""
        if self._process is None:
            self._start([str(one.path) for one in item.session.items if is_elsewhere(one)])
        try:
            self._pipe.send((item.nodeid, following.nodeid if following else None))
            if not self._pipe.poll(SECONDS):
                raise TimeoutError(f"the second pytest did not answer within {SECONDS} s")
            reports = self._pipe.recv()
        except (OSError, EOFError) as error:
            return [self._lost(item, error)]
        hook = self._config.hook.pytest_report_from_serializable
        return [hook(config=self._config, data=data) for data in reports]

    def stop(self) -> None:
        """Fixtures of the session end first; what has not ended in 20 s is killed."""
        if self._process is None:
            return
        self._pipe.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self, paths: list[str]) -> None:
        self._pipe, there = Pipe()
        with there:
            words = [str(there.fileno()), *dict.fromkeys(paths)]
            self._process = subprocess.Popen(
                [*network(), sys.executable, "-m", "tests.over_roce", *words],
                env=os.environ | {"VERBENA_CARRIER": "roce"},
                cwd=ROOT,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def _lost(self, item: pytest.Item, error: Exception) -> pytest.TestReport:
        assert self._process is not None
        if isinstance(error, TimeoutError):
            self._process.kill()
        process = self._process
        self.stop()
        return pytest.TestReport(
            item.nodeid,
            item.location,
            keywords={},
            outcome="failed",
            longrepr=f"The pytest that runs tests over RoCE ended with status {process.returncode}"
            f" ({error!r}).",
            when="call",
        )


class Runner:
    """The plugin of the second pytest: its tests are those that it is told, in that order."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._reports: list[dict[str, Any]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        while True:
            try:
                name, following = self._pipe.recv()
            except EOFError:
                return True
            item = items[name]
            hook = item.config.hook.pytest_runtest_protocol
            hook(item=item, nextitem=items.get(following))
            self._pipe.send(self._reports)
            self._reports = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook.pytest_report_to_serializable
        self._reports.append(hook(config=self._config, report=report))

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Runner(pipe)]))


if __name__ == "__main__":
    main()
