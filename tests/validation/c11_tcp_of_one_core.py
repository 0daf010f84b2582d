# SPDX-License-Identifier: Apache-2.0
"""C11: what one core receives by TCP at 100 Gb/s."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, around, between, holds, near
from verbena.host.tcp_path import TcpPath


def measure(scope: Scope) -> Iterator[Figure]:
    path = TcpPath()
    receiver = path.receiver(65536)
    yield near("one receiving core at 3.4 GHz", path.receiver_gbps(), 42.0, 0.08, "Gb/s")
    copies = receiver.share("copy_l3", "copy_memory")
    yield around("of its cycles, copying", copies, 0.49, 0.05)
    cycles = (receiver.cycles["copy_l3"] + receiver.cycles["copy_memory"]) / 65536
    yield near("copying", cycles, 0.32, 0.02, "cycles/B")
    yield between("40 Gb/s are filled by one core", path.throughput_gbps(65536, 40.0), 38, 40)
    yield holds("100 Gb/s are not", path.throughput_gbps(65536, 100.0) < 50)
    yield holds("the sender is not the limit", path.sender_gbps() > path.receiver_gbps())
    small = TcpPath(mtu=1500)
    plain = TcpPath(mtu=1500, tso=False, gro=False)
    order = path.receiver_gbps() > small.receiver_gbps() > plain.receiver_gbps()
    yield holds("jumbo frames help, and GRO helps", order)
    small_part = plain.receiver(65536).share("copy_l3") < 0.1
    yield holds("without GRO copying is a small part", small_part)


ROW = Row(
    number="C11",
    title="TCP, one core, 100 Gb/s (Understanding host network stack overheads, SIGCOMM 2021)",
    setup="The charged path of TCP with its default costs: 3.4 GHz, TSO and GRO, MTU 9000, "
    "messages of 64 KiB; two costs and the part of copies from memory are tuned to the first two "
    "figures.",
    expected="about 42 Gb/s for each core, more than half of all cycles copying for one long flow; "
    "one core fills 40 Gb/s and not 100; servers of 3.4 GHz, frames of 9,000 bytes, 64 KiB by TSO "
    "and GRO (passages of the publication, sections 1, 2.2 and 3.1). That copying is 49 % of the "
    "receiver's cycles is how a reader has figure 3.",
    fails="copying is not the receiver's largest part, or one core fills 100 Gb/s.",
    meaning="A byte costs the receiver two thirds of a cycle, half of that for the copy from the "
    "kernel's memory to the program's, which RDMA does without.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
)
