# SPDX-License-Identifier: Apache-2.0
"""C17: what copying costs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, equal, holds, near
from verbena.host.caches import CacheCosts, Caches
from verbena.host.costs import Costs

GHZ = 3.0
MEASURED = ((64 << 10, 27.0), (1 << 20, 14.7), (16 << 20, 5.6))  # bytes, GB/s


def by_lines(size: int, caches: Caches) -> tuple[float, float]:
    """Cycles for each byte of a copy that finds nothing in the caches, and of the same again."""
    first = caches.copy(0, 1 << 30, size)
    return first / size, caches.copy(0, 1 << 30, size) / size


def measure(scope: Scope) -> Iterator[Figure]:
    del scope
    costs = CacheCosts()
    for size, speed in MEASURED:
        got = GHZ * size / costs.copy_of(size)
        yield near(f"a copy of {size >> 10} KiB", got, speed, 0.15, "GB/s")
    by_level = Costs()
    for level, at in (("copy_l2", 1), ("copy_l3", 2), ("copy_memory", 3)):
        cost = by_level.cycles(level)
        yield equal(f"{level} of the ledger", cost, costs.copy_cycles_per_byte[at], "cycles/B")
    small = CacheCosts(sizes=(4 << 10, 32 << 10, 256 << 10))
    for size, again in ((8 << 10, 0.1), (64 << 10, 0.2), (512 << 10, 0.5)):
        cold, warm = by_lines(size, Caches(small))
        text = f"{size >> 10} KiB, caches of 4, 32 and 256 KiB: at first"
        yield equal(text, cold, 0.5, "cycles/B")
        yield near("again", warm, again, 1e-3, "cycles/B")
    for ddio in (True, False):
        caches = Caches(small, ddio=ddio)
        caches.dma_write(0, 4096)
        level = "the last level" if ddio else "memory"
        law = small.load_cycles[2 if ddio else 3] * 64
        yield equal(f"4 KiB by DMA, loaded from {level}", caches.load(0, 4096), law, "cycles")
    share = round(small.sizes[2] * small.ddio_share) // 64
    caches = Caches(small)
    caches.dma_write(0, 2 * share * 64)
    is_gone = caches.level(0).name == "MEMORY" and caches.level((2 * share - 1) * 64).name == "L3"
    yield holds("DMA fills its share only: what came first is in memory", is_gone)


ROW = Row(
    number="C17",
    title="Copying, by level of the cache",
    setup="Costs for each byte by the level that has it, and three levels of lines of 64 bytes "
    "that keep those used last.",
    expected="27, 14.7 and 5.6 GB/s for blocks of 64 KiB, 1 MiB and 16 MiB, measured with memcpy "
    "on a loaded virtual machine; the second copy of a block finds it in the smallest level that "
    "holds both its ends.",
    fails="a copy is charged for another level than where its lines are, or DMA fills more of the "
    "cache than its share.",
    meaning="A copy costs 0.1 to 0.5 cycles for each byte: at 100 Gb/s a whole core.",
    measure=measure,
    confidence=Confidence.PROGRAM,
    quick=True,
    tested="`tests/host/test_caches.py`: what cores are charged after DMA",
)
