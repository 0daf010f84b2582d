# SPDX-License-Identifier: Apache-2.0
"""C24: what was measured on Ethernets under full load, in 1980 and in 1988."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.validation.row import Confidence, Figure, Row, Scope, around, at_least, between, holds
from tests.validation.shared_medium import NEVER, saturated
from verbena.lan import Csma
from verbena.lan.medium import PS_PER_M, Outcome

METRES_PER_FOOT = 0.3048
HOSTS = (3, 10, 24)
SIZES = (64, 256, 512, 1024, 1536)  # bytes
BESIDE = 20  # bytes of preamble and gap


def places(hosts: int) -> list[int]:
    """Four clusters, 1,000 feet apart, in ps from the first."""
    feet = [1000 * (host % 4) for host in range(hosts)]
    return [round(each * METRES_PER_FOOT * PS_PER_M) for each in feet]


def mixture(short: int, hosts: int, frames: int, random: Random, seed: int) -> float:
    """The part of the line for frames of 64 and 1,536 bytes, ``short`` of eight being short."""
    csma = Csma()
    core = csma.core(places(hosts), seed=seed)

    def offer(host: int, at: int) -> int:
        size = 64 if random.randrange(8) < short else 1536
        assert core.offer(host, at, at, 8 * size, 0)
        return size

    sizes = [offer(host, 0) for host in range(hosts)]
    total = end = 0
    for _ in range(frames):
        for outcome, host, _, at, _, _ in core.run(NEVER, 1):
            if outcome == Outcome.SENT:
                total, end = total + 8 * (sizes[host] + BESIDE), at
            sizes[host] = offer(host, at)
    return total * csma.bit_ps / end


def whole(hosts: int, size: int, scope: Scope) -> tuple[float, float, float]:
    """The part of the line with preamble and gap, and the smallest and largest host's part."""
    frames = scope.pick(20_000, 500_000)
    got = saturated(Csma(), hosts, 8 * size, frames, scope.seed, places=places(hosts))
    return got.share * (size + BESIDE) / size, got.least, got.most


def measure(scope: Scope) -> Iterator[Figure]:
    csma = Csma(rate_mbps=2.94, slot=48, gap=0, header=1, jam=16, fragment=17)
    for hosts in (10, 120):
        got = saturated(csma, hosts, 8 * 512, scope.pick(20_000, 500_000), scope.seed)
        yield around(f"1980: {hosts} hosts, 512 bytes", got.share, 0.98, 0.012)
    found = {(n, size): whole(n, size, scope) for n in HOSTS for size in SIZES}
    for hosts in HOSTS:
        text = f"1988: {hosts} hosts, 1536 bytes"
        yield at_least(text, found[hosts, 1536][0], 0.95)
    yield between("24 hosts, 64 bytes", found[24, 64][0], 0.8, 0.95)
    ordered = [found[24, size][0] for size in SIZES]
    yield holds("24 hosts: longer packets carry more", ordered == sorted(ordered))
    ordered = [found[hosts, 64][0] for hosts in HOSTS]
    yield holds("64 bytes: fewer hosts carry more", ordered == sorted(ordered, reverse=True))
    if not scope.quick:
        yield around("24 hosts, 1536 bytes: least of a host", found[24, 1536][1], 1, 0.1)
        yield around("most of a host", found[24, 1536][2], 1, 0.1)
    mixed = [
        mixture(short, 24, scope.pick(4_000, 100_000), Random(scope.seed), scope.seed)
        for short in (8, 7, 4, 0)
    ]
    yield holds("mixed lengths: the more long ones, the more", mixed == sorted(mixed))
    gain = (mixed[1] - mixed[0]) / (mixed[3] - mixed[0])
    yield at_least("of that gain, by one of eight", gain, 1.5 / 8)


ROW = Row(
    number="C24",
    title="Measured Ethernets (Shoch and Hupp, CACM 1980; Boggs, Mogul and Kent, SIGCOMM 1988)",
    setup="1980: hosts at one place at 2.94 Mb/s, a slot of 48 bits, packets of 512 bytes. 1988: "
    "10 Mb/s, four clusters of hosts along 3,000 feet of cable; the part of the line counts "
    "preamble and gap. All hosts always have a packet.",
    expected="1980: the channel's use approaches 98 % under extremely heavy load, as predicted "
    "(abstract). 1988: it carries its nominal bandwidth (abstract); with mixed lengths one long "
    "packet of eight makes the use much higher than short ones alone (section 3.7). That 64 bytes "
    "and 24 hosts use 80 to 95 % is from memory of its figures: of figure 12 only the axis, from 7 "
    "to 10 Mb/s, and the label of short packets alone, between 8 and 8.5, could be read.",
    fails="long packets leave more than 5 % of the line unused, or short ones much more than were "
    "measured, or hosts get unequal parts in the long run.",
    meaning="An Ethernet under full load carries nearly all its bandwidth, unless packets are "
    "short. The hosts here have their next packet at once, which those of 1988 had not.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
)
