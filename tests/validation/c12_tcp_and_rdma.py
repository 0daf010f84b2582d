# SPDX-License-Identifier: Apache-2.0
"""C12: TCP and RDMA on one adapter of 400 Gb/s."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, at_most, between, holds, near
from verbena.host import Pcie
from verbena.host.hca import Node, Wire, connected
from verbena.host.tcp_path import TcpPath

GBPS = 400.0
MTU = 4096
BESIDE = 14 + 20 + 8 + 12 + 4 + 4 + 8 + 12  # Ethernet, IPv4, UDP, BTH, ICRC, FCS, preamble, gap
LAW = GBPS * MTU / (MTU + BESIDE)
SIZE = 1 << 20


def pair() -> tuple[Node, Node]:
    """Two adapters at gen5 x16 links that can carry more than the wire."""
    link = Pcie(5, 16, mps=512, tags=256)
    return connected(wire=Wire(GBPS, 500.0, mtu=MTU), pcie=link, queue_pair={"depth": 16})


def rate(verb: str, more: int) -> float:
    """Gb/s of ``more`` messages beyond the first two, on one queue pair."""
    left, right = pair()
    source, target = left.register(0, SIZE), right.register(0, SIZE)

    def took(count: int) -> int:
        start = left.machines.clock.now
        for _ in range(count):
            if verb == "WRITE":
                left.qp.write(source, target)
            else:
                left.qp.read(source, target)
        left.run()
        assert len(left.cq.poll()) == count
        return left.machines.clock.now - start

    took(1)  # fetches the translations
    return more * SIZE * 8000 / (took(2 + more) - took(2))


def measure(scope: Scope) -> Iterator[Figure]:
    more = scope.pick(1, 8)
    yield near("two queue pairs, WRITE, as reported", LAW, 392, 0.005, "Gb/s")
    yield near("READ, as reported", LAW, 390, 0.01, "Gb/s")
    for verb in scope.pick(("WRITE",), ("WRITE", "READ")):
        yield near(f"{verb}: measured here", rate(verb, more), LAW, 0.002, "Gb/s")
    one = TcpPath().receiver_gbps()
    yield at_most("TCP by one core, of that", one / LAW, 0.15)
    yield between("cores for the reported 229 to 236 Gb/s of TCP", 232 / one, 5, 6)
    frame = TcpPath().throughput_gbps(line_gbps=1.0)
    yield holds("the wire itself would carry as much TCP", frame > 0.98)


ROW = Row(
    number="C12",
    title="TCP and RDMA on the same adapter of 400 Gb/s",
    setup="Messages of 1 MiB at 400 Gb/s, packets of 4,096 bytes with the headers of RoCE v2, gen5 "
    "x16; TCP by the charged path with its defaults and MTU 9000.",
    expected="400 Gb/s times 4096 / (4096 + 82): 392 Gb/s. Reports: 392 and 390 Gb/s with two "
    "queue pairs of ConnectX-7 (github.com/novitalabs/pegaflow pull request 291), and on another "
    "one 348.5 Gb/s by ib_write_bw with one queue pair and messages of 64 KiB, and 229 to 236 by "
    "TCP (github.com/perftool-incubator/crucible issue 661).",
    fails="headers are counted otherwise, or the bus or a window of requests limits large "
    "messages.",
    meaning="RDMA is limited by headers alone. TCP's two thirds of the adapter cannot be compared "
    "more exactly: the report does not say how many cores carried it. With the costs of C11 it "
    "takes five or six.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    missing="365 and 320 Gb/s of one queue pair in the first report: limits of a queue pair in the "
    "adapter and of 16 READs at a time; here neither limits messages of 1 MiB.",
)
