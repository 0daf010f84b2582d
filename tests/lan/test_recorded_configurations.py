# SPDX-License-Identifier: Apache-2.0
"""Each attempt and each counter of a shared medium, for several seeds and configurations, against
what the code gave on 2026-11-29, before a saturated cable became quicker.

`test_recorded.py` has the usual CSMA/CD with stations at random places. This file has stations that
are evenly spaced, so that many attempts are of one instant, other slots, backoffs and limits of
tries, and frames that are offered one by one. A change of behaviour that is meant puts in what the
test prints. No time comes from a logarithm, which may differ from one C library to another; `ideal`
rounds its logarithms to whole slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from verbena.lan import Csma
from verbena.lan._cable import CableState


@dataclass(frozen=True)
class Case:
    """`span_ps`: from the first to the last place; `rules` and `made` are of `Csma` and its core;
    `size`: bytes of each frame, or None for random sizes."""

    stations: int
    span_ps: int = 5_000_000
    size: int | None = 1518
    rules: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    def core(self, seed: int) -> CableState:
        gaps = max(self.stations - 1, 1)
        places = [round(one * self.span_ps / gaps) for one in range(self.stations)]
        return Csma(**self.rules).core(places, seed=seed, log_collisions=True, **self.made)

    def bits(self, random: Random) -> int:
        return 8 * (random.randrange(64, 1519) if self.size is None else self.size)


CASES = {
    "256 stations, 1,518 bytes": Case(256),
    "256 stations, 64 bytes": Case(256, size=64),
    "5 stations, 1,518 bytes": Case(5),
    "64 stations at one place": Case(64, span_ps=0, size=512),
    "65 stations, two at the most apart": Case(65, span_ps=1, size=512),
    "700 stations, any size": Case(700, size=None),
    "120 stations of a hub": Case(120, made={"star": True}),
    "a tenth of the rate": Case(100, span_ps=50_000_000, rules={"rate_mbps": 1}),
    "100 Mb/s": Case(100, span_ps=900_000, rules={"rate_mbps": 100}),
    "no doubling": Case(30, size=256, rules={"doublings": 0}),
    "14 doublings, of which many exceed the ring of times": Case(
        150, rules={"doublings": 14, "tries": 40, "slot": 100, "header": 40}
    ),
    "5 tries": Case(200, size=None, rules={"tries": 5}),
    "no jam": Case(80, rules={"jam": 0}),
    "slots of a bit": Case(40, rules={"slot": 1, "header": 0, "fragment": 8, "jam": 32}),
    "too long, 12 ms": Case(60, span_ps=12_000_000_000, size=None),
    "too long, 60 us": Case(90, span_ps=60_000_000, size=64),
    "too long, a hub": Case(50, span_ps=40_000_000, size=64, made={"star": True}),
    "Metcalfe and Boggs": Case(256, span_ps=0, made={"ideal": True}),
    "Metcalfe and Boggs, 1,000 m": Case(90, size=512, made={"ideal": True}),
}


def saturated(case: Case, seed: int) -> CableState:
    """A cable whose stations always have a frame: half from the start on, half from some later."""
    random = Random(seed)
    core = case.core(seed)
    for station in range(case.stations):
        since = random.randrange(10**8) if station % 2 else 0
        core.source(station, since, case.bits(random), 0)
    return core


def ended(core: CableState, stations: int, log: Sequence[object]) -> str:
    found = sha256(repr(log).encode())
    found.update(repr([core.counters(one) for one in range(stations)]).encode())
    found.update(repr((core.collisions, core.runs, core.last_end)).encode())
    return found.hexdigest()[:12]


def digest(case: Case, seed: int) -> str:
    core = saturated(case, seed)
    log = [entry for _ in range(20) for entry in core.run(1 << 62, 50)]
    return ended(core, case.stations, log)


def digest_of_offers(case: Case, seed: int) -> str:
    """The stations get 2,000 frames one by one; a quarter of them while many are sent."""
    random = Random(seed)
    core = case.core(seed)
    times = sorted(random.randrange(10**12) for _ in range(2_000))
    times[500:1000] = [times[500]] * 500
    log: list[object] = []
    for token, (now, following) in enumerate(pairwise([*times, 1 << 62])):
        log.append(core.offer(random.randrange(case.stations), now, now, case.bits(random), token))
        while results := core.run(following):
            log += results
        log.append(core.next_at)
    return ended(core, case.stations, log)


SATURATED: dict[tuple[str, int], str] = {
    # name of the case, seed: digest
    ("256 stations, 1,518 bytes", 1): "7463dc88b104",
    ("256 stations, 1,518 bytes", 2): "7fbddab85cde",
    ("256 stations, 1,518 bytes", 3): "193e6fc95e35",
    ("256 stations, 64 bytes", 1): "5cec1d2dff90",
    ("256 stations, 64 bytes", 2): "c62f503d143c",
    ("256 stations, 64 bytes", 3): "0818cca3c3c1",
    ("5 stations, 1,518 bytes", 1): "6ace8b6904a6",
    ("5 stations, 1,518 bytes", 2): "2ddbf030ebb3",
    ("5 stations, 1,518 bytes", 3): "b20e614a6d47",
    ("64 stations at one place", 1): "f758cc8840fb",
    ("64 stations at one place", 2): "45217acbc2b0",
    ("64 stations at one place", 3): "17471e8665e8",
    ("65 stations, two at the most apart", 1): "fb125da6df2a",
    ("65 stations, two at the most apart", 2): "cfba1abda626",
    ("65 stations, two at the most apart", 3): "44410c2331a5",
    ("700 stations, any size", 1): "52ced4d35516",
    ("700 stations, any size", 2): "78b374eefaf7",
    ("700 stations, any size", 3): "7437e0876f1e",
    ("120 stations of a hub", 1): "c97501b55fb1",
    ("120 stations of a hub", 2): "0e763396909d",
    ("120 stations of a hub", 3): "770dc5ae1748",
    ("a tenth of the rate", 1): "be2aab811fcd",
    ("a tenth of the rate", 2): "7806ddf251ef",
    ("a tenth of the rate", 3): "31e095d0945f",
    ("100 Mb/s", 1): "f256da3a28f0",
    ("100 Mb/s", 2): "e9ccf8d9b794",
    ("100 Mb/s", 3): "c9ae0deaf545",
    ("no doubling", 1): "7a898070c4bc",
    ("no doubling", 2): "c4348d840634",
    ("no doubling", 3): "3384d8bed3ce",
    ("14 doublings, of which many exceed the ring of times", 1): "cf34ef17875b",
    ("14 doublings, of which many exceed the ring of times", 2): "4792c4d7e660",
    ("14 doublings, of which many exceed the ring of times", 3): "5dc3973d9ca6",
    ("5 tries", 1): "b0f7ccc25b38",
    ("5 tries", 2): "50cc06b0b862",
    ("5 tries", 3): "725253b914e3",
    ("no jam", 1): "39e471a1962b",
    ("no jam", 2): "2c51a3f7e6ca",
    ("no jam", 3): "4b8dd72f064c",
    ("slots of a bit", 1): "c625964fa580",
    ("slots of a bit", 2): "179865a9fe42",
    ("slots of a bit", 3): "5b154eae1b2c",
    ("too long, 12 ms", 1): "9b46bbf035fc",
    ("too long, 12 ms", 2): "1f86a7548107",
    ("too long, 12 ms", 3): "1aca1ba7a5b7",
    ("too long, 60 us", 1): "317efcebb0d4",
    ("too long, 60 us", 2): "555ebc8f909d",
    ("too long, 60 us", 3): "cb738374982a",
    ("too long, a hub", 1): "e181295602f8",
    ("too long, a hub", 2): "20d5fe9e1f0b",
    ("too long, a hub", 3): "84314fe88149",
    ("Metcalfe and Boggs", 1): "097a9f2f6dde",
    ("Metcalfe and Boggs", 2): "bdda02225cd3",
    ("Metcalfe and Boggs", 3): "b61c66eda22a",
    ("Metcalfe and Boggs, 1,000 m", 1): "263e1ee04243",
    ("Metcalfe and Boggs, 1,000 m", 2): "4982813144e1",
    ("Metcalfe and Boggs, 1,000 m", 3): "9988d497282d",
}

OFFERED: dict[tuple[str, int], str] = {
    ("256 stations, 1,518 bytes", 1): "298b8603a659",
    ("256 stations, 1,518 bytes", 2): "9d540f154635",
    ("256 stations, 1,518 bytes", 3): "4c8670aa10c7",
    ("256 stations, 64 bytes", 1): "9c1df6251697",
    ("256 stations, 64 bytes", 2): "ef8986fa851c",
    ("256 stations, 64 bytes", 3): "d768d3759f60",
    ("5 stations, 1,518 bytes", 1): "057bf65aa9fb",
    ("5 stations, 1,518 bytes", 2): "6199fae65dce",
    ("5 stations, 1,518 bytes", 3): "3d30baedc717",
    ("64 stations at one place", 1): "39707f0cf5a8",
    ("64 stations at one place", 2): "05f804d7467f",
    ("64 stations at one place", 3): "5a414039ac5f",
    ("65 stations, two at the most apart", 1): "da13711b0519",
    ("65 stations, two at the most apart", 2): "830db05a4d27",
    ("65 stations, two at the most apart", 3): "5ea31d1c0a85",
    ("700 stations, any size", 1): "231ec36cfab7",
    ("700 stations, any size", 2): "19dcb5addf88",
    ("700 stations, any size", 3): "6c0db1e2b385",
    ("120 stations of a hub", 1): "fc520dd87501",
    ("120 stations of a hub", 2): "9d337f7718eb",
    ("120 stations of a hub", 3): "19d8664f733e",
    ("a tenth of the rate", 1): "b39e37979a78",
    ("a tenth of the rate", 2): "73e3f07cccfb",
    ("a tenth of the rate", 3): "8efd9e75bd83",
    ("100 Mb/s", 1): "4da742a1b123",
    ("100 Mb/s", 2): "9b9495b4c7b8",
    ("100 Mb/s", 3): "9a21582f7f93",
    ("no doubling", 1): "22780a8c45a8",
    ("no doubling", 2): "ee762106c346",
    ("no doubling", 3): "4a2de923f29f",
    ("14 doublings, of which many exceed the ring of times", 1): "ab14dd812c1b",
    ("14 doublings, of which many exceed the ring of times", 2): "60ce6f925ebe",
    ("14 doublings, of which many exceed the ring of times", 3): "6b1a297acc7b",
    ("5 tries", 1): "5f9e258ebd72",
    ("5 tries", 2): "43ba2090fdbd",
    ("5 tries", 3): "c982ba263d73",
    ("no jam", 1): "329cc597136d",
    ("no jam", 2): "7c5c152c736e",
    ("no jam", 3): "5af34d39b383",
    ("slots of a bit", 1): "2651f165a301",
    ("slots of a bit", 2): "6c46b85cf98e",
    ("slots of a bit", 3): "4f81a2d50777",
    ("too long, 12 ms", 1): "53ed55bc227f",
    ("too long, 12 ms", 2): "991b3cf5b137",
    ("too long, 12 ms", 3): "ba380581a1c8",
    ("too long, 60 us", 1): "2cd0b42733db",
    ("too long, 60 us", 2): "13fdcfc629dc",
    ("too long, 60 us", 3): "6aadcdb29d64",
    ("too long, a hub", 1): "3a8a1ce27d1c",
    ("too long, a hub", 2): "c25fb3fe0be5",
    ("too long, a hub", 3): "acd8d219e196",
    ("Metcalfe and Boggs", 1): "91af1847b924",
    ("Metcalfe and Boggs", 2): "a179f71540a5",
    ("Metcalfe and Boggs", 3): "3546367ba65a",
    ("Metcalfe and Boggs, 1,000 m", 1): "6a334b7884b0",
    ("Metcalfe and Boggs, 1,000 m", 2): "96c040bacd0d",
    ("Metcalfe and Boggs, 1,000 m", 3): "6d058c135c17",
}


@pytest.mark.parametrize(("name", "seed"), list(SATURATED))
def test_a_saturated_medium_is_as_recorded(name: str, seed: int) -> None:
    assert digest(CASES[name], seed) == SATURATED[name, seed]


@pytest.mark.parametrize(("name", "seed"), list(OFFERED))
def test_a_medium_with_offered_frames_is_as_recorded(name: str, seed: int) -> None:
    assert digest_of_offers(CASES[name], seed) == OFFERED[name, seed]
