# SPDX-License-Identifier: Apache-2.0
"""C7: what a verb takes of the PCIe links, at an adapter with a driver in memory."""

from __future__ import annotations

from collections.abc import Iterator

from tests.host.bus_bytes import BusBytes, of_a_batch, of_a_read, of_a_send, of_a_write
from tests.validation.row import Confidence, Figure, Row, Scope, equal, near
from verbena.host import Pcie

WRITES = (
    # size, way, to the adapter, to memory, at the responder to memory
    (64, "doorbell", 200, 136, 88),
    (64, "blueflame", 172, 112, 88),
    (64, "inline", 176, 88, 88),
    (4096, "doorbell", 4532, 304, 4480),
    (4096, "blueflame", 4504, 280, 4480),
)


def both(what: str, found: BusBytes, law: BusBytes) -> Iterator[Figure]:
    for place, got, expected in (
        (what, found.down, law.down),
        ("to memory", found.up, law.up),
        ("at the peer, to its adapter", found.responder_down, law.responder_down),
        ("to its memory", found.responder_up, law.responder_up),
    ):
        yield equal(place, got, expected, "B")


def measure(scope: Scope) -> Iterator[Figure]:
    for size, way, down, up, responder in WRITES[: scope.pick(3, 5)]:
        text = f"WRITE, {size} B, {way}: to the adapter"
        yield from both(text, of_a_write(size, way), BusBytes(down, up, 0, responder))
    quiet = of_a_write(64, "doorbell", signalled=False)
    yield equal("WRITE, 64 B, unsignalled: to memory", quiet.up, 136 - 88, "B")
    law = BusBytes(32 + 84, 24 + 88 + 88, 84, 24)
    yield from both("READ, 64 B: to the adapter", of_a_read(64), law)
    law = BusBytes(200, 136, 36, 88 + 24 + 88)
    yield from both("SEND, 64 B: to the adapter", of_a_send(64), law)
    for count in scope.pick((8,), (2, 8, 32)):
        found, fetched = of_a_batch(count, 64), 64 * count
        down = 32 + fetched + -(-fetched // 256) * 20 + count * 84
        up = -(-fetched // 512) * 24 + count * 24 + 88
        yield equal(f"{count} WRITEs by one doorbell: to the adapter", found.down, down, "B")
        yield equal("to memory", found.up, up, "B")
    usable = Pcie(3, 8).usable_gbps
    for (_, way, down, up, _), law_mops in zip(WRITES, (36.2, 42.1, 41.1), strict=False):
        yield near(f"{way}: most a second", usable * 1000 / 8 / max(down, up), law_mops, 2e-3, "M")


ROW = Row(
    number="C7",
    title="A verb's bus transactions",
    setup="Two computers with adapters at gen3 x8 links (MPS 256, MRRS 512), requests and "
    "completions of 64 bytes, two blocks of 64 for a request with 64 bytes inline; all caches of "
    "tables are warm.",
    expected="a doorbell is a write of 32 bytes, a fetched request a read of 24 and an answer of "
    "84, a payload of 64 the same, a completion a write of 88; BlueFlame is one write of 88 for "
    "each block in place of doorbell and fetch. k requests by one doorbell come with one fetch.",
    fails="a transaction is missing or one too many.",
    meaning="The responder's bus carries only the data of a WRITE: no request, no completion. The "
    "last three figures are the bus's bound on the rate of small WRITEs, in millions a second.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
    tested="`tests/host/test_hca.py`, `tests/host/test_hca_errors.py`",
)
