# SPDX-License-Identifier: Apache-2.0
"""A process that is stopped while it shares the port with others: they are not disturbed by it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.roce.networks import Network
from tests.support import verbena_command

pytestmark = pytest.mark.debian

PORT, STOPPED_PORT, PAIRS = 20_510, 20_511, 6
ROCE = {"VERBENA_CARRIER": "roce"}


def pingpong(port: int, *words: str) -> list[str]:
    return ["ibv_rc_pingpong", "-g", "0", "-n", "100", "-p", str(port), *words]


def test_one_that_is_stopped_disturbs_no_others(network: Network) -> None:
    host = network.hosts[0]
    stopped = host.start(*pingpong(STOPPED_PORT), env=ROCE)
    try:
        host.wait_listening(stopped, STOPPED_PORT)
        time.sleep(0.2)  # it has made the program that selects the socket
        os.killpg(stopped.pid, signal.SIGSTOP)
        pair = [*pingpong(PORT), "--", *pingpong(PORT, "localhost")]
        for _ in range(PAIRS):
            host.run(*verbena_command("pair", "--", *pair), env=ROCE)
    finally:
        os.killpg(stopped.pid, signal.SIGCONT)
        stopped.kill()
        stopped.communicate()
