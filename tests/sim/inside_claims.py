# SPDX-License-Identifier: Apache-2.0
"""What the texts of the ready scenarios about the inside of hosts claim, with the numbers of runs.

tests/sim/test_scenario_texts.py compares the claims with the texts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.sim.test_scenario_ready import run
from verbena.sim.inside import InsideCounters


def seen(name: str, variant: str) -> InsideCounters:
    return run(name, variant).insides[0].counters


def gb(name: str, variant: str) -> float:
    return run(name, variant).goodput() / 1e9


def cold_translations() -> list[str]:
    name = "cold-translations"
    return [
        f"carry {gb(name, 'warm'):.1f} Gb/s of payload",
        f"4 KiB / 330 ns, {4096 * 8 / 330:.1f} Gb/s",
        f"gets {gb(name, 'cold'):.1f} on an idle link",
        f"after the other: {gb(name, 'adapter'):.1f} Gb/s",
    ]


def cycles(variant: str) -> float:
    of = seen("doorbell-batching", variant)
    return sum(of.cycles[each] for each in ("post", "doorbell", "poll")) / of.requests


def doorbell_batching() -> list[str]:
    name = "doorbell-batching"
    one = run(name, "one")
    size = {
        each: seen(name, each).down.bytes / 16_000
        for each in ("one", "four", "sixteen", "blueflame")
    }
    return [
        f"{cycles('one'):.0f} in all, {one.goodput() / 512e6:.1f} million messages a second, "
        f"{gb(name, 'one'):.1f} Gb/s",
        f"requests they are {cycles('four'):.0f}, {gb(name, 'four'):.1f} Gb/s",
        f"sixteen {cycles('sixteen'):.0f}, {gb(name, 'sixteen'):.1f} Gb/s",
        f"takes {size['four']:.0f} and {size['sixteen']:.0f} bytes of PCIe to the adapter, not "
        f"{size['one']:.0f}",
        f"takes {size['blueflame']:.0f} bytes",
        f"no cycles: {gb(name, 'blueflame'):.1f} Gb/s",
    ]


def interrupt_moderation() -> list[str]:
    name = "interrupt-moderation"
    told = []
    for variant in ("at-once", "moderated", "lazy", "counted", "polling"):
        of = seen(name, variant)
        told.append((of.interrupts / of.elapsed * 1e12, 100 * of.busy / of.elapsed,
                     float(np.median(run(name, variant).durations())) / 1e6))  # fmt: skip
    once, moderated, lazy, counted, polling = told
    reads = seen(name, "polling").requests / 20.02e-3
    return [
        f"{reads / 1000:.0f},000 times a second",
        f"takes {once[2]:.1f} us, and its core is busy for {once[1]:.0f} % of the time",
        f"of several, 1 / (T + 1 / rate), {moderated[0] / 1000:.0f},000 a second: "
        f"{moderated[1]:.0f} % busy, {moderated[2]:.1f} us",
        f"there are {lazy[0] / 1000:.0f},000: {lazy[1]:.0f} % busy, {lazy[2]:.0f} us",
        f"at most, {counted[0] / 1000:.0f},000: {counted[1]:.0f} % busy, {counted[2]:.0f} us",
        f"after {polling[2]:.1f} us",
    ]


INSIDE_CLAIMS: dict[str, Callable[[], list[str]]] = {
    "cold-translations": cold_translations,
    "doorbell-batching": doorbell_batching,
    "interrupt-moderation": interrupt_moderation,
}
INSIDE_SETTINGS = {
    "cold-translations": ("32 pages", "200 Gb/s", "256 pages", "2 MiB", "900 ns", "2018"),
    "doorbell-batching": ("3 GHz", "64 bytes", "80 cycles", "100 and", "60:", "900 ns"),
    "interrupt-moderation": ("64 bytes", "8 us after", "50 us there", "50 us"),
}
