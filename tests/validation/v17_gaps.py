# SPDX-License-Identifier: Apache-2.0
"""V17: InfiniBand's congestion control table."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import MIB, MICROSECOND, CheckedWorld, credits, star
from tests.validation.row import Figure, Row, Scope, near


def rate(gaps: list[float], **settings: int) -> float:
    """Of the line, of a sender whose packets are all marked, when the table's end is reached."""
    cct = {"kind": "cct", "gaps": gaps, "timer": 10**12, "notice_interval": 0, **settings}
    world = CheckedWorld(framing="infiniband", congestion=cct)
    center = star(world, 3, fecn=1, **credits(64 << 10))
    world.add_flows([0, 1], 2, 64 * MIB)
    busy = []
    for until in (600, 1600):
        world.run(until=until * MICROSECOND)
        links = world.links()
        busy.append(int(links["busy"][(links["node"] != center)][0]))
    return (busy[1] - busy[0]) / (1000 * MICROSECOND)


def measure(scope: Scope) -> Iterator[Figure]:
    for gap in (1.0, 3.0, 7.0):
        yield near(f"a gap of {gap:g} packet times", rate([0.0, gap]), 1 / (1 + gap), 0.02)
    table = [float(gap) for gap in range(16)]
    got = rate(table, limit=4)
    yield near("16 entries, CCTI_Limit 4", got, 1 / 5, 0.02)
    got = rate(table, limit=4, increase=4)
    yield near("the same, CCTI_Increase 4", got, 1 / 5, 0.02)


ROW = Row(
    number="V17",
    title="Gaps of the congestion control table",
    setup="Two senders into one port whose packets are all marked, with a timer that does not end.",
    expected="a rate of 1/(1 + IRD) of the line, IRD being the table's entry in packet times "
    "(IBA A10); no entry beyond CCTI_Limit.",
    fails="the gap counts from the packet's beginning, or the index passes its limit.",
    meaning="The table is a list of rates, and marks walk it.",
    measure=measure,
    tested="`tests/sim/test_laws.py`, `tests/native/test_rates.c`",
)
