# SPDX-License-Identifier: Apache-2.0
"""V14: the timeout of acknowledgements, and how often it is waited for."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld, finish, star
from tests.validation.row import Figure, Row, Scope, equal, near

DOWN_FROM, DOWN_TO = 0, 3_000_000
TABLE = {8: 1.049, 10: 4.194, 14: 67.1}  # code: ms
BARE = 2 * (4096 + 64) * 80 + 4_000_000  # there and back over two links


def repeated_after(code: int) -> float:
    """ms between a packet that is lost and its repetition, over one link that was down."""
    world = CheckedWorld(framing="bare", timeout=code)
    center = star(world, 2)
    world.set_link(center, 1, up=False, at=DOWN_FROM)
    world.set_link(center, 1, up=True, at=DOWN_TO)
    world.add_flows(0, 1, 4096)
    finish(world)
    return (int(world.flows()["finish"][0]) - BARE) / 1e9


def given_up_after(code: int, retries: int) -> tuple[float, int]:
    """ms until the connection ends, and packets sent again, when the link stays down."""
    world = CheckedWorld(framing="bare", timeout=code, retry_count=retries)
    center = star(world, 2)
    world.set_link(center, 1, up=False, at=DOWN_FROM)
    world.add_flows(0, 1, 4096)
    finish(world)
    flow = world.flows()[0]
    assert (flow["state"], flow["status"]) == (3, 12)  # failed: IBV_WC_RETRY_EXC_ERR
    return int(flow["finish"]) / 1e9, int(flow["resent"])


def measure(scope: Scope) -> Iterator[Figure]:
    for code, milliseconds in TABLE.items():
        waited = repeated_after(code)
        yield near(f"timeout {code}", waited, milliseconds, 0.001, "ms")
        yield near(f"timeout {code}, to the nanosecond", waited, 4.096e-3 * 2**code, 1e-6, "ms")
    for retries in (0, 3, 7):
        ended, resent = given_up_after(8, retries)
        law = (retries + 1) * 4.096e-3 * 2**8
        yield near(f"timeout 8, retry_cnt {retries}: the end", ended, law, 1e-4, "ms")
        yield equal(f"timeout 8, retry_cnt {retries}: packets sent again", resent, retries)


ROW = Row(
    number="V14",
    title="Timeouts and retries",
    setup="A packet meets a link that is down: for a moment, or for good.",
    expected="it is sent again 4.096 µs · 2^timeout later (IBA 9.7.6.1.3 allows up to four times "
    "that; here it is the time itself): 1.049 ms for 8, 67.1 ms for 14; and the connection ends "
    "after 1 + retry_cnt such times, having sent it again retry_cnt times.",
    fails="the timer starts too early or late, grows, or a retry is not counted.",
    meaning="A simulated loss costs what the same settings cost live.",
    measure=measure,
    quick=True,
    tested="the table of RNR timers: `tests/native/test_engine_retry.c` (WRITEs and READs, which "
    "flows are made of, need no receive request)",
)
