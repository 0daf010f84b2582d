# SPDX-License-Identifier: Apache-2.0
"""Whole runs of a shared medium against recorded ones, so that a quicker way to find who begins
next, and who hears whom, changes no result.

The digests are those of the code that asked each pair of stations and had all in one heap, except
where many stations are at one place: of those that begin at one time the first is that with the
lowest number. A change of behaviour that is
meant puts in what the test prints. Stations always have a frame, since logarithms of Poisson
streams may differ in their last bit from one C library to another.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random

import pytest

from verbena.lan import Csma
from verbena.lan._cable import CableState


def cable(stations: int, *, star: bool, span_ps: int, seed: int) -> CableState:
    """Stations at random places, of which several may be the same; each always has a frame."""
    random = Random(seed)
    places = [random.randrange(span_ps // 20 + 1) * 20 for _ in range(stations)]
    core = Csma(jam=32).core(places, seed=seed, star=star)
    for station in range(stations):
        core.source(station, random.randrange(10**6), 512 + 8 * random.randrange(1400), 0)
    return core


def digest(core: CableState, stations: int) -> str:
    found = sha256()
    for _ in range(12):
        found.update(repr(core.run(1 << 62, 60)).encode())
    found.update(repr([core.counters(one) for one in range(stations)]).encode())
    found.update(repr((core.collisions, core.runs, core.last_end)).encode())
    return found.hexdigest()[:12]


RECORDED = {
    # stations, star, the farthest place in ps: digest
    (2, False, 12_000_000): "175b92e6236d",
    (5, False, 3_000_000): "5604592ef6e1",
    (70, False, 12_000_000): "b815afb227bc",
    (256, False, 5_000_000): "3941a0c0d551",
    (256, False, 400): "20a2894d074c",
    (300, False, 0): "920531866918",
    (90, True, 6_000_000): "5c9d0b7ce3bf",
    (256, True, 0): "4439c411c183",
    (40, False, 60_000_000): "00d8b06f449c",  # too long: collisions are late, and frames cross
}


@pytest.mark.parametrize(("stations", "star", "span_ps"), list(RECORDED))
def test_a_run_is_as_recorded(stations: int, star: bool, span_ps: int) -> None:
    core = cable(stations, star=star, span_ps=span_ps, seed=stations + span_ps)
    assert digest(core, stations) == RECORDED[stations, star, span_ps]
