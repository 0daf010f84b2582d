# SPDX-License-Identifier: Apache-2.0
"""Many connections through a token bucket with a short queue: all finish, and little is sent twice.

What is counted is checked, and no speed: of that, tests/native/test_engine_bottleneck.c.
"""

from __future__ import annotations

import re
import shutil

import pytest

from tests.roce.networks import Network

pytestmark = pytest.mark.debian

MESSAGE = 65_536
COUNTED = re.compile(r"verbena: counted: engine\.(\w+) (\d+)")


@pytest.mark.parametrize(
    ("rate", "queue", "qps", "messages"),
    [
        ("100mbit", "200kb", 1, 200),
        ("100mbit", "200kb", 16, 20),
        ("100mbit", "200kb", 64, 8),
        ("1gbit", "200kb", 64, 20),
    ],
)
def test_connections_share_a_bottleneck(
    network: Network, rate: str, queue: str, qps: int, messages: int
) -> None:
    if not shutil.which("tc"):
        pytest.skip("tc (Debian: iproute2) is not installed")
    program = ("ib_write_bw", "-F", "-s", str(MESSAGE), "-q", str(qps), "-n", str(messages))
    with network.bottleneck(rate, queue):
        pair = network.pair(*program, env={"VERBENA_LOG": "counters"})
    assert [side.status for side in pair.sides] == [0, 0], str(pair)
    assert re.search(rf"^ {MESSAGE} +{qps * messages} ", pair.client.output, re.MULTILINE), str(
        pair
    )
    counters = {name: int(value) for name, value in COUNTED.findall(pair.client.output)}
    assert counters["payload_sent"] <= 1.2 * qps * messages * MESSAGE, counters
