# SPDX-License-Identifier: Apache-2.0
"""C13: packets and interrupts of a router with one processor that polls under load."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.validation.row import Confidence, Figure, Row, Scope, around, at_most, near
from verbena.host.receive_path import Work, receive_by_polling, steady

# Bytes of a packet, packets offered a second; of a million packets, how many went out, and the
# receive interrupts.
TABLE = (
    (60, 890_000, 409_362, 17),
    (128, 758_150, 464_364, 21),
    (256, 445_632, 774_646, 42),
    (512, 232_666, 994_445, 241_292),
    (1024, 119_061, 1_000_003, 872_519),
    (1440, 85_193, 1_000_003, 946_576),
)
WORK = Work(interrupt=4.0, packet=2.8, spread=0.7)


def measure(scope: Scope) -> Iterator[Figure]:
    packets = scope.pick(20_000, 1_000_000)
    for size, rate, out, interrupts in TABLE:
        got = receive_by_polling(steady(rate, packets), WORK, Random(scope.seed))
        assert got.offered == packets
        part = got.out / packets
        yield near(f"{size} B: out", part, out / 1e6, scope.pick(0.05, 0.04), "of the packets")
        each = got.interrupts / packets
        if interrupts < 100:
            yield at_most(f"{size} B: interrupts", each, 1e-4, "a packet")
        else:
            yield around(f"{size} B: interrupts", each, interrupts / 1e6, 0.05, "a packet")


ROW = Row(
    number="C13",
    title="Interrupts and polling (NAPI_HOWTO of Linux 2.6)",
    setup="A million packets at equal distances for one core: 2.8 us a packet on the average, with "
    "a coefficient of variation of 0.7, 4 us for an interrupt with its poll, a ring of 256, a "
    "quota of 64. These three numbers are tuned to the table.",
    expected="the document's table, of a router with e1000 adapters: at six sizes how many packets "
    "went out, and how many receive interrupts there were.",
    fails="above saturation there are interrupts, or below it fewer than one for each few packets.",
    meaning="One server explains all six rows: above its rate it polls and never turns interrupts "
    "on; below, it is interrupted for nearly every packet.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
)
