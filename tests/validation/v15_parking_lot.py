# SPDX-License-Identifier: Apache-2.0
"""V15: the parking lot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import MIB, MICROSECOND, CheckedWorld, chain, credits
from tests.validation.row import Figure, Row, Scope, around

TABLE = {
    (2, 1, 1): (1 / 4, 1 / 4, 1 / 2),
    (2, 1, 1, 1): (1 / 8, 1 / 8, 1 / 4, 1 / 2),
    (2, 1, 1, 1, 1): (1 / 16, 1 / 16, 1 / 8, 1 / 4, 1 / 2),
}


def shares(hosts: tuple[int, ...]) -> np.ndarray:
    """What each sender has of the last link, in the steady state."""
    world = CheckedWorld(framing="bare", window=MIB)
    chain(world, list(hosts), **credits(64 << 10))
    target = sum(hosts) - 1
    world.add_flows(np.arange(target), target, 256 * MIB)
    sent = []
    for until in (300, 5300):
        world.run(until=until * MICROSECOND)
        links = world.links()
        ends = links[links["node"] >= len(hosts)]  # the switches were made first
        sent.append(ends["bytes"][np.argsort(ends["node"])][:target].astype(float))
    got: np.ndarray = sent[1] - sent[0]
    return got / got.sum()


def measure(scope: Scope) -> Iterator[Figure]:
    for hosts, expected in TABLE.items():
        found = shares(hosts)
        for number, (got, law) in enumerate(zip(found, expected, strict=True)):
            yield around(f"{len(expected)} senders, number {number + 1}", float(got), law, 0.01)


ROW = Row(
    number="V15",
    title="Parking lot",
    setup="A row of switches with credits; two senders at the first, one at each of the others, "
    "all to a host at the last; one lane, nothing that controls congestion.",
    expected="each switch serves its inputs in turn, so each on the way halves a share: ¼ ¼ ½; "
    "⅛ ⅛ ¼ ½; 1/16 1/16 ⅛ ¼ ½.",
    fails="a switch serves flows or packets instead of inputs, or credits favour an input.",
    meaning="Who is far away gets less: fairness at each switch is not fairness of the whole.",
    measure=measure,
    tested="`tests/sim/test_laws.py`",
    missing="1/n each under an ideal congestion control: see P1, with DCQCN.",
)
