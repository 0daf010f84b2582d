# SPDX-License-Identifier: Apache-2.0
"""C9: what a link of generation 2 leaves of small requests, beside what HERD measured."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.c08_doorbells import messages
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, near
from verbena.host.pcie import Pcie

MEASURED = 26.0  # M/s; from the publication's abstract


def measure(scope: Scope) -> Iterator[Figure]:
    for mps in (128, 256):
        rate = Pcie(2, 8, mps).usable_gbps * 64 / 88
        yield between(f"writes of 64 B, payloads of {mps} B", rate, 20.0, 21.0, "Gb/s")
    link = Pcie(2, 8)
    law = link.usable_gbps * 1000 / 8 / 176
    sent = messages({"inline": 64}, scope.pick(500, 10_000), link)
    yield near("inline requests of 64 B from one host", sent, law, 0.02, "M/s")
    law = link.usable_gbps * 1000 / 8 / 88
    yield at_least("writes of 64 B that a host can take", law, MEASURED, "M/s")


ROW = Row(
    number="C9",
    title="Small requests over PCIe 2.0 (HERD, SIGCOMM 2014)",
    setup="a link of generation 2 with 8 lanes, as of the publication's adapters; inline WRITEs of "
    "64 B from 16 QPs.",
    expected="20 to 21 Gb/s of payload in writes of 64 B, so a host can take more than the 26 M/s "
    "that the publication measured, by WRITEs, for requests that are answered; a request of two "
    "lines costs 176 B on the bus, so one host sends fewer than it can take.",
    fails="the bus's ceiling is below what was measured on it.",
    meaning="Requests come in faster than they go out: HERD's clients therefore write requests, "
    "and its answers are kept small.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
)
