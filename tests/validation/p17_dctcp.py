# SPDX-License-Identifier: Apache-2.0
"""P17: DCTCP's queue beside TCP's."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import GIGABIT
from tests.validation.row import Confidence, Figure, Row, Scope, around, at_least, at_most
from tests.validation.v19_dctcp import MILLISECOND, queue_of

DROP_TAIL = 467  # packets: 700 KB, what a switch of 4 MB lets one port have


def measure(scope: Scope) -> Iterator[Figure]:
    for rate, threshold in ((GIGABIT, 20), (10 * GIGABIT, 65)):
        name = f"{rate // GIGABIT} Gb/s, K = {threshold}"
        queue, share = queue_of(2, rate, threshold, 500 * MILLISECOND, scope.seed)
        yield around(f"{name}: longest queue", queue.max(), threshold + 2, 2, "packets")
        yield at_least(f"{name}: of the line", share, 0.999)
        tcp, tcp_share = queue_of(2, rate, DROP_TAIL, 500 * MILLISECOND, scope.seed, "reno")
        if rate == GIGABIT:
            yield at_most(f"{name}: longest queue over TCP's", queue.max() / tcp.max(), 0.1)
        yield at_least(f"{name}: goodput over TCP's", share / tcp_share, 0.999)


ROW = Row(
    number="P17",
    title="Data Center TCP (Alizadeh et al., SIGCOMM 2010)",
    setup="Two flows into one port, 1 Gb/s with K = 20 and 10 Gb/s with K = 65 packets; TCP (Reno) "
    "with a queue of 700 KB that loses what does not fit.",
    expected="a queue of about K + N, all of the line, and TCP's throughput with 90 % less buffer.",
    fails="the queue is not where the threshold is, or the line is idle at times.",
    meaning="Short flows of others wait for 20 packets in place of 400.",
    measure=measure,
    confidence=Confidence.TEXT,
)
