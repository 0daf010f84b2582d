# SPDX-License-Identifier: Apache-2.0
"""C20: the adapter's caches of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.validation.row import Confidence, Figure, Row, Scope, around, equal, near
from verbena.host import Pcie
from verbena.host.hca import Node, connected
from verbena.host.hca.tables import CONTEXT_BYTES, PROTECTION_BYTES, TRANSLATION_BYTES

ENTRIES = 8
LINK = Pcie(3, 8, round_trip_ns=900)
Use = Callable[[int], None]
BYTES = {
    "contexts": CONTEXT_BYTES,
    "protections": PROTECTION_BYTES,
    "translations": TRANSLATION_BYTES,
}


def of_pages(left: Node, right: Node, number: int) -> Use:
    """Uses one of so many pages of a region."""
    source, target = left.register(0, 4096 * number), right.register(0, 4096)
    return lambda which: left.qp.write(source, target, 64, source_offset=4096 * which)


def of_regions(left: Node, right: Node, number: int) -> Use:
    """Uses one of so many regions, which have the same page."""
    sources = [left.register(0, 64) for _ in range(number)]
    target = right.register(0, 4096)
    return lambda which: left.qp.write(sources[which], target, 64)


def of_queue_pairs(left: Node, right: Node, number: int) -> Use:
    """Uses one of so many queue pairs."""
    pairs = [left.qp]
    for _ in range(number - 1):
        pairs.append(left.driver.queue_pair(left.cq))
        pairs[-1].connect(right.driver.queue_pair(right.cq))
    source, target = left.register(0, 64), right.register(0, 64)
    return lambda which: pairs[which].write(source, target, 64)


USES = {"contexts": of_queue_pairs, "protections": of_regions, "translations": of_pages}


def misses(table: str, number: int, order: list[int]) -> tuple[float, float]:
    """Reads of a table for each request, and the us of a request, after all were used once."""
    left, right = connected(pcie=LINK, hca={table: ENTRIES})
    use = USES[table](left, right, number)
    for which in range(number):
        use(which)
        left.run()
        left.cq.poll()
    base = getattr(left.hca.tables.places, table)
    end = base + 1024 * BYTES[table]
    seen, start = left.watch(), left.machines.clock.now
    for which in order:
        use(which)
        left.run()
        left.cq.poll()
    took = (left.machines.clock.now - start) / len(order) / 1e6
    found = [one for one in seen if one.up and one.kind == "MRd" and base <= one.address < end]
    return len(found) / len(order), took


def measure(scope: Scope) -> Iterator[Figure]:
    rounds, random = scope.pick(2, 20), Random(scope.seed)
    for table, size in BYTES.items():
        times = {}
        for number in (ENTRIES, ENTRIES + 1):
            got, times[number] = misses(table, number, list(range(number)) * rounds)
            text = f"{table}: {number} in turn, {ENTRIES} entries: reads of the table"
            yield equal(text, got, float(number > ENTRIES), "a request")
        if table != "contexts":  # those of the peer miss, too
            read = LINK.round_trip_ns / 1000 + LINK.time_ps(24 + 20 + size) / 1e6
            yield near("each takes", times[ENTRIES + 1] - times[ENTRIES], read, 0.01, "us")
        for number in scope.pick((32,), (16, 32)):
            count = scope.pick(60, 800)
            got, _ = misses(table, number, random.choices(range(number), k=count))
            part = 1 - ENTRIES / number
            off = 4 * (part * (1 - part) / count) ** 0.5
            yield around(f"one of {number} at random", got, part, off, "a request")


ROW = Row(
    number="C20",
    title="An adapter's caches of queue pairs, keys and translations",
    setup="Small WRITEs by one of n queue pairs, from one of n regions, or of one of n pages; the "
    "cache of that table has 8 entries and keeps those used last.",
    expected="n in turn: always a hit for n <= 8, never for n = 9; at random a hit with 8 / n. "
    "Each miss is one read over the bus: a round trip.",
    fails="an entry is fetched twice or kept too long, or a miss costs nothing.",
    meaning="One queue pair more than the cache holds, used in turn, makes every request miss. "
    "That is why adapters with thousands of connections slow down.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
