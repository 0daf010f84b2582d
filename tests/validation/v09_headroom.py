# SPDX-License-Identifier: Apache-2.0
"""V9: the headroom of priority flow control."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.pausing import headroom
from tests.validation.row import Figure, Row, Scope, at_least, at_most, equal

RATE, FRAME, PAUSE = 100 * 10**9, 4200, 64
TABLE = {100: 20_964, 300: 45_964, 10_000: 1_258_464}  # metres: bytes


def measure(scope: Scope) -> Iterator[Figure]:
    for metres, room in TABLE.items():
        delay = metres * 5000
        enough = headroom(RATE, delay, room, framing="ethernet")
        yield at_most(f"{metres} m: comes after a pause", enough.need, room, "B")
        yield at_least(
            f"{metres} m: no less than the link holds", enough.need, 2 * delay // 80, "B"
        )
        yield equal(f"{metres} m: lost with that headroom", enough.lost, 0)
        less = headroom(RATE, delay, 2 * delay // 80 - FRAME, framing="ethernet")
        yield at_least(f"{metres} m: lost with a frame less than the link", less.lost, 1)


ROW = Row(
    number="V9",
    title="Headroom for pauses",
    setup="A sender so far away is paused while it sends frames of about 4200 bytes at 100 Gb/s.",
    expected="at most 2 d C + 2 frames + the pause frame come after the pause was asked for: "
    "20,964, 45,964 and 1,258,464 bytes at 100 m, 300 m and 10 km; more than 2 d C.",
    fails="a pause frame waits for more than one frame, or does not wait for the one in front.",
    meaning="The headroom of the formula is enough, and what the cable holds is not.",
    measure=measure,
    tested="`tests/sim/test_laws.py`, with pauses that wait behind frames; "
    "`tests/native/test_lanes.c`, with the longest wait",
    missing="the time that a peer may take to react (IEEE 802.1Q 36.1.3.3): a sender here obeys at "
    "once.",
)
