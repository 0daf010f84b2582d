# SPDX-License-Identifier: Apache-2.0
"""Many connections through a token bucket with a short queue: all finish, little is sent twice, and
none gets more than its share.

What is counted is checked, and no speed: of that, tests/native/test_engine_bottleneck.c.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.roce.networks import Network

pytestmark = [
    pytest.mark.debian,
    pytest.mark.skipif(
        not shutil.which("tc"), reason="tc is not installed; apt-get install iproute2 brings it"
    ),
]

MESSAGE = 65_536
SHARES = str(Path(__file__).with_name("shares_child.py"))
COUNTED = re.compile(r"verbena: \S+: counted: engine\.(\w+) (\d+)")


@pytest.mark.parametrize(
    ("tool", "rate", "queue", "qps", "messages"),
    [
        ("ib_write_bw", "100mbit", "200kb", 1, 200),
        ("ib_write_bw", "100mbit", "200kb", 16, 20),
        ("ib_write_bw", "100mbit", "200kb", 64, 8),
        ("ib_write_bw", "1gbit", "200kb", 64, 20),
        ("ib_read_bw", "100mbit", "200kb", 1, 200),
        ("ib_read_bw", "100mbit", "200kb", 16, 20),
        ("ib_read_bw", "1gbit", "200kb", 64, 20),
    ],
)
def test_connections_share_a_bottleneck(
    network: Network, tool: str, rate: str, queue: str, qps: int, messages: int
) -> None:
    program = (tool, "-F", "-s", str(MESSAGE), "-q", str(qps), "-n", str(messages))
    with network.bottleneck(rate, queue):
        pair = network.pair(*program, env={"VERBENA_LOG": "counters"})
    assert [side.status for side in pair.sides] == [0, 0], str(pair)
    assert re.search(rf"^ {MESSAGE} +{qps * messages} ", pair.client.output, re.MULTILINE), str(
        pair
    )
    sender = pair.client if tool == "ib_write_bw" else pair.server
    counters = {name: int(value) for name, value in COUNTED.findall(sender.output)}
    excess = counters["payload_sent"] / (qps * messages * MESSAGE)
    assert excess <= 1.2, counters


@pytest.mark.parametrize("qps", [2, 8, 32])
def test_the_shares_of_a_bottleneck_are_fair(network: Network, qps: int) -> None:
    program = (sys.executable, SHARES, "-q", str(qps), "-D", "6")
    with network.bottleneck("100mbit", "200kb"):
        pair = network.pair(*program)
    assert [side.status for side in pair.sides] == [0, 0], str(pair)
    shares = json.loads(pair.client.output)
    assert len(shares) == qps
    jain = sum(shares) ** 2 / (qps * sum(share**2 for share in shares))
    assert jain >= 0.9, shares
