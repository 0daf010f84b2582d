# SPDX-License-Identifier: Apache-2.0
"""Equal TCP flows that share a drop-tail queue, with the jitter of their senders and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verbena.internet import Internet, InternetError
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.tcp_sender import TcpSettings


def shares(
    seed: int, seconds: float, settings: TcpSettings, mbps: float = 10.0, queue: int = 50
) -> list[int]:
    """Bytes that arrive of each of two flows through a link of ``mbps``. Both begin at once, and
    ARP keeps the newest of the two SYNs, so that one flow begins a second later."""
    net = Internet(seed=seed)
    for name in ("a", "b", "d"):
        net.host(name)
    net.router("r")
    net.network("10.1.0.0/24", "r", "a", "b", mbps=100)
    net.network("10.2.0.0/24", "r", "d", mbps=mbps, delay_us=5000, queue=queue)
    counts: list[int] = []

    def accept(connection: TcpConnection, address: object, port: int) -> None:
        connection.on_data = count(len(counts))
        counts.append(0)

    def count(flow: int) -> Callable[[bytes], None]:
        def add(data: bytes) -> None:
            counts[flow] += len(data)

        return add

    net.node("d").tcp.listen(accept, 7)
    for name in "ab":
        made = net.node(name).tcp.connect(net.address_of("d"), 7, settings=settings)
        made.write(bytes(round(seconds * mbps * 200_000)))
    net.run(seconds)
    return counts


@pytest.mark.parametrize("seed", [1, 4])
def test_equal_flows_share_a_bottleneck(seed: int) -> None:
    """Of the seeds 1 to 20, 4 is the one that is farthest from halves: 62 % after these 20 s."""
    counts = shares(seed, 20, TcpSettings())
    assert sum(counts) * 8 / 20 > 9.2e6
    assert max(counts) < 0.63 * sum(counts)


def test_the_seed_decides_the_jitter_which_can_be_left_out() -> None:
    assert shares(1, 3, TcpSettings()) == shares(1, 3, TcpSettings())
    assert shares(1, 3, TcpSettings()) != shares(2, 3, TcpSettings())
    without = TcpSettings(jitter_us=0)
    locked = shares(1, 20, without)
    assert max(locked) > 0.7 * sum(locked)
    assert shares(1, 3, without) == shares(2, 3, without)


def test_a_request_alone_is_not_delayed() -> None:
    net = Internet()
    net.link(net.host("a"), net.host("b"), delay_us=1000)
    arrived: list[float] = []

    def accept(connection: TcpConnection, address: object, port: int) -> None:
        connection.on_data = lambda data: arrived.append(net.now_s)

    net.node("b").tcp.listen(accept, 7)
    made = net.node("a").tcp.connect(net.address_of("b"), 7)
    net.run(1)
    for _ in range(3):
        sent = net.now_s
        made.write(b"request")
        net.run(1)
        assert 0.001 < arrived[-1] - sent < 0.00101


@pytest.mark.parametrize("jitter", [-1.0, 2e6])
def test_a_jitter_without_meaning_is_refused(jitter: float) -> None:
    with pytest.raises(InternetError, match="a jitter of"):
        TcpSettings(jitter_us=jitter)
