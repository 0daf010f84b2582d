# SPDX-License-Identifier: Apache-2.0
"""A host of its own for each test, in which nobody else's agent runs, and programs there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.roce import networks
from tests.roce.networks import Host
from tests.support import end_group

DESCRIBE = (
    "import json; from verbena.agent.client import describe_agent\n"
    "print(json.dumps(describe_agent()))"
)
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def host() -> Iterator[Host]:
    """A network namespace of its own, in which nobody else's agent is."""
    reason = networks.reason_not_to()
    if reason:
        pytest.skip(reason)
    made = Host(f"vb{os.getpid()}agent", "127.0.0.1", "::1")
    subprocess.run(["ip", "netns", "add", made.namespace], check=True)
    made.run("ip", "link", "set", "lo", "up")
    yield made
    agent = described(made)
    if agent is not None:
        os.kill(agent["pid"], signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", made.namespace], check=True)


@pytest.fixture
def start(host: Host) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*program: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        started.append(host.start(*program, env=env))
        return started[-1]

    yield run
    for process in started:
        end_group(process)


def described(host: Host) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(host.run(sys.executable, "-c", DESCRIBE))
    return found


def wait_until(true: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def listening(host: Host, count: int = 1) -> dict[str, Any]:
    """Wait for so many listeners, and describe the agent."""

    def there() -> bool:
        agent = described(host)
        return agent is not None and len(agent["listening"]) == count

    wait_until(there)
    agent = described(host)
    assert agent is not None
    return agent
