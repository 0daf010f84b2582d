# SPDX-License-Identifier: Apache-2.0
"""An agent that gets messages at random refuses them, and goes on for everybody else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent.conftest import Start, described, listening, wait_until
from tests.roce.networks import Host
from tests.support import ROOT, verbena_command

pytestmark = pytest.mark.debian
STEPS = 1500

FUZZ = """
import json, sys
from tests.agent import fuzzing
for path in fuzzing.corpus():
    fuzzing.replay(path)
for seed in range(int(sys.argv[1]), int(sys.argv[1]) + 5):
    fuzzing.run(seed, int(sys.argv[2]) // 5)
"""


@pytest.fixture
def agent(host: Host) -> Iterator[subprocess.Popen[str]]:
    """An agent whose lines the test can read."""
    made = subprocess.Popen(
        host.command(*verbena_command("agent")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: described(host))
    yield made
    made.kill()
    made.wait()


def test_messages_at_random(host: Host, start: Start, agent: subprocess.Popen[str]) -> None:
    """A pair is connected before and works until after."""
    server = start("rping", "-s", "-a", "127.0.0.1", "-p", "7001", "-C", "100000000")
    before = listening(host)
    client = start("rping", "-c", "-a", "127.0.0.1", "-p", "7001", "-C", "100000000")
    wait_until(lambda: state(host)["connections"] == 2)
    subprocess.run(
        host.command(sys.executable, "-c", FUZZ, "1", str(STEPS)),
        check=True,
        cwd=ROOT,
        timeout=120,
    )
    after = state(host)
    agent.kill()
    said, _ = agent.communicate()
    assert after["failures"] == 0, said
    assert after["pid"] == before["pid"]
    assert after["refused"] > 50
    assert after["connections"] == 2, json.dumps(after)
    assert (server.poll(), client.poll()) == (None, None)


def state(host: Host) -> dict[str, Any]:
    found = described(host)
    assert found is not None
    return found
