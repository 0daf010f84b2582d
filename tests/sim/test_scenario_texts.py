# SPDX-License-Identifier: Apache-2.0
"""The closing texts of the ready scenarios: each number in them is what a run gives.

A text that has a number which no claim here covers, and which is none of its settings, fails.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.sim.inside_claims import INSIDE_CLAIMS, INSIDE_SETTINGS
from tests.sim.management_claims import MANAGEMENT_CLAIMS, MANAGEMENT_SETTINGS
from tests.sim.test_scenario_ready import run
from verbena.sim import Scenario, ready
from verbena.sim.units import time_text

# Of each text: numbers that are settings, or published, and not measured.
SETTINGS: dict[str, tuple[str, ...]] = {
    "bad-cable": (),
    "bufferbloat": ("64 KiB", "6 ms", '"60 ms"'),
    "deadlock": (),
    "diamond": (),
    "incast": ("32 x 256 KiB", "1 ms"),
    "long-haul": ("2.5 km", "128 KiB", "4xQDR", "10 km", "4 MiB"),
    "parking-lot": ("1/8, 1/8, 1/4 and 1/2", "1/4 each", "30 ms"),
    "pause-storm": (),
    "shared-wire": (),
    "tcp-bufferbloat": ("50 us",),
    "tcp-incast": ("16 x 256 KiB", "200 ms"),
    "two-senders": ("1 ms", "1 MiB"),
    "victim": ("100 Gb/s", "25", "75", "h2", "h0"),
    **INSIDE_SETTINGS,
    **MANAGEMENT_SETTINGS,
}


def gb(name: str, variant: str, traffic: str | None = None) -> float:
    result = run(name, variant)
    names = result.traffic if traffic is None else [traffic]
    return sum(result.goodput(each) for each in names) / 1e9


def flow_gb(name: str, variant: str, flow: int) -> float:
    result = run(name, variant)
    return int(result.flows["done"][flow]) * 8e3 / result.time


def again(name: str, variant: str) -> int:
    return int(run(name, variant).flows["retransmissions"].sum())


def dropped(name: str, variant: str) -> int:
    return run(name, variant).packets["dropped"]


def ends(name: str, variant: str, flow: int) -> float:
    """Milliseconds."""
    return float(run(name, variant).flows["finish"][flow]) / 1e9


def last(name: str, variant: str) -> float:
    return float(run(name, variant).durations().max()) / 1e9


def median(name: str, variant: str, traffic: str | None = None) -> float:
    return float(np.median(run(name, variant).durations(traffic))) / 1e9


def peak(name: str, variant: str) -> float:
    return float(run(name, variant).links["queue_max"].max()) / 1024


def idle(name: str, variant: str, link: str) -> float:
    result = run(name, variant)
    return 100 * (1 - float(result.links["utilisation"][result.link(link)]))


def stalled(name: str, variant: str, link: str) -> float:
    result = run(name, variant)
    return 100 * int(result.links["stalled"][result.link(link)]) / result.time


def more(name: str, variant: str) -> float:
    """How many more packets of data were sent than the flows have, in per cent."""
    flows = run(name, variant).flows
    return 100 * int(flows["retransmissions"].sum()) / (int(flows["bytes"].sum()) / 4096)


def changed_gb(name: str, variant: str, changes: dict[str, object], traffic: str) -> float:
    result = Scenario.load(name).variant(variant, changes, "here").run()
    return result.goodput(traffic) / 1e9


def without_storm() -> float:
    far = {"storm.0.at": "1 s", "storm.0.until": "2 s"}
    result = Scenario.load("pause-storm").variant("adapter", far, "here").run()
    return float(result.durations().max()) / 1e6


def claims(name: str) -> list[str]:
    """What the text says, with the numbers of the runs."""
    return [" ".join(claim.split()) for claim in CLAIMS[name]()]


def bad_cable() -> list[str]:
    lost = dropped("bad-cable", "go-back-n")
    packets = run("bad-cable", "replaced").packets["sent"] / 4  # of data, of one of two flows
    assert packets / lost == pytest.approx(300, rel=0.05)
    return [
        f"sends {again('bad-cable', 'go-back-n') / lost:.0f} again",
        f"the flow gets {gb('bad-cable', 'go-back-n', 'bad'):.1f} Gb/s",
        f"has {gb('bad-cable', 'go-back-n', 'good'):.1f} and does not notice",
    ]


def bufferbloat() -> list[str]:
    name = "bufferbloat"
    assert dropped(name, "dcqcn") == 0
    waits = [median(name, variant, "short") * 1e3 for variant in ("deep", "shallow", "dcqcn")]
    longer = changed_gb(name, "dcqcn", {"duration": "60 ms"}, "long")
    return [
        f"rate: {waits[0]:.0f} us",
        f"they take {waits[1]:.0f} us",
        f"{again(name, 'shallow')} packets sent again",
        f"they take {waits[2]:.0f} us and nothing is lost",
        f"grows to {peak(name, 'dcqcn'):.0f} KiB",
        f"get {gb(name, 'dcqcn', 'long'):.1f} Gb/s",
        f"the deep buffer has {gb(name, 'deep', 'long'):.1f}",
        f"they get {longer:.1f}",
    ]


def deadlock() -> list[str]:
    name = "deadlock"
    return [
        f"in a deadlock after {time_text(run(name, 'shortest').time)}",
        f"after {last(name, 'lanes'):.1f} ms and {last(name, 'up-down'):.1f} ms",
        f"{dropped(name, 'lifetime')} packets",
        f"end after {last(name, 'lifetime'):.1f} ms",
    ]


def diamond() -> list[str]:
    data = run("diamond", "by-flow").packets["sent"] / 2
    ways = [stay for stay in ("m0", "m1") if idle("diamond", "by-flow", f"s0-{stay}") < 70]
    assert len(ways) == 2
    return [
        f"the hosts get {gb('diamond', 'by-flow'):.0f} Gb/s",
        f"{again('diamond', 'by-packet') / data:.0f} for each one",
        f"is {gb('diamond', 'by-packet'):.1f} Gb/s",
    ]


def incast() -> list[str]:
    name = "incast"
    assert dropped(name, "lossy") > run(name, "lossy").packets["delivered"]
    return [
        f"100 Gb/s, {last(name, 'lossless'):.1f} ms",
        f"drops {dropped(name, 'lossy')} packets",
        f"after {median(name, 'lossy'):.1f} ms, the last after {last(name, 'lossy'):.1f} ms",
        f"idle for {idle(name, 'lossy', 's0-h32'):.0f} %",
    ]


def long_haul() -> list[str]:
    name = "long-haul"
    room = changed_gb(name, "too-far", {"switch.room": "128 KiB"}, "copy")
    assert gb(name, "too-far") == pytest.approx(room, rel=0.02)
    assert 0.25 < gb(name, "short") / gb(name, "enough") < 0.28
    return [
        f"4xQDR ({gb(name, 'enough'):.1f} Gb/s",
        f"rate, {gb(name, 'short'):.1f} Gb/s",
        f"gives {gb(name, 'too-far'):.1f} Gb/s",
        f"again ({gb(name, 'extended'):.1f})",
        f"half ({gb(name, 'extended-half'):.1f})",
    ]


def parking_lot() -> list[str]:
    return [
        f"get {gb('parking-lot', 'dcqcn'):.1f} Gb/s",
        f"they get {gb('parking-lot', 'in-turn'):.1f} taking turns",
    ]


def pause_storm() -> list[str]:
    failed = int((run("pause-storm", "switch").flows["state"] == 3).sum())
    return [
        f"at {time_text(run('pause-storm', 'storm').time)}",
        f"{failed} of {len(run('pause-storm', 'switch').flows)}",
        f"the last after {last('pause-storm', 'adapter') * 1e3:.0f} us",
        f"storm: {without_storm():.0f} us",
    ]


def shared_wire() -> list[str]:
    name = "shared-wire"
    assert gb(name, "strict", "lossless") == pytest.approx(gb(name, "alone"), rel=0.01)
    return [
        f"link, {gb(name, 'alone', 'lossless'):.1f} Gb/s",
        f"gets less, {gb(name, 'beside', 'lossless'):.1f}",
        f"{stalled(name, 'beside', 'h0-s0'):.0f} % of the time",
        f"half, {gb(name, 'reserved', 'lossless'):.1f}",
    ]


def tcp_bufferbloat() -> list[str]:
    name = "tcp-bufferbloat"
    return [
        f"drain, {median(name, 'deep', 'short'):.1f} ms",
        f"takes {median(name, 'shallow', 'short') * 1e3:.0f} us",
        f"peak of {peak(name, 'dctcp'):.0f} KiB",
        f"takes {median(name, 'dctcp', 'short') * 1e3:.0f} us",
    ]


def tcp_incast() -> list[str]:
    name = "tcp-incast"
    drain = 16 * (256 << 10) * 8e-6 * (1460 + 78) / 1460  # at 1 Gb/s, with headers
    return [
        f"take {drain:.0f} ms of the line",
        f"after {last(name, 'collapse'):.0f} ms",
        f"idle for {idle(name, 'collapse', 's0-h16'):.0f} %",
        f"repairs it ({last(name, 'short-timer'):.0f} ms)",
    ]


def two_senders() -> list[str]:
    name = "two-senders"
    timer = 4.096e-3 * 2**8  # ms, at least
    assert timer < ends(name, "lossy", 0) < 2 * timer < ends(name, "lossy", 1) < 3 * timer
    assert ends(name, "deeper", 1) < timer < ends(name, "deeper", 0) < 2 * timer
    assert run(name, "deeper").flows["retransmissions"].tolist() == [2 * 256, 2 * 256]  # windows
    return [
        f"({stalled(name, 'lossless', 'h0-s0'):.0f} %)",
        f"h0 ends after {ends(name, 'lossy', 0):.2f} ms",
        f"h1 after {ends(name, 'lossy', 1):.2f} ms",
        f"{more(name, 'lossy'):.0f} % more packets of data",
        f"idle for {idle(name, 'lossy', 's0-h2'):.0f} %",
        f"it ends after {ends(name, 'deeper', 1):.2f} ms",
        f"timer and ends after {ends(name, 'deeper', 0):.2f} ms",
        f"{more(name, 'deeper'):.0f} % more packets of data than",
        f"idle for {idle(name, 'deeper', 's0-h2'):.0f} %",
    ]


def victim() -> list[str]:
    name, payload = "victim", 4096 / (4096 + 12 + 62)
    own = run(name, "dcqcn")
    marked = own.links["marks"]
    assert marked[own.link("s0-s1")] > 0
    assert marked[own.link("s1-h2")] > 0
    assert flow_gb(name, "pauses", 0) == pytest.approx(gb(name, "pauses", "victim"), rel=0.01)
    return [
        f"{25 * payload:.1f} of payload; so",
        f"switches, {75 * payload:.1f} of payload",
        f"than h0, {gb(name, 'pauses', 'victim'):.1f}",
        f"left, {gb(name, 'own-class', 'victim'):.1f}",
        f"has {gb(name, 'dcqcn', 'victim'):.1f}",
        f"to {flow_gb(name, 'dcqcn', 0):.1f}, and",
    ]


CLAIMS = {
    "bad-cable": bad_cable,
    "bufferbloat": bufferbloat,
    "deadlock": deadlock,
    "diamond": diamond,
    "incast": incast,
    "long-haul": long_haul,
    "parking-lot": parking_lot,
    "pause-storm": pause_storm,
    "shared-wire": shared_wire,
    "tcp-bufferbloat": tcp_bufferbloat,
    "tcp-incast": tcp_incast,
    "two-senders": two_senders,
    "victim": victim,
    **INSIDE_CLAIMS,
    **MANAGEMENT_CLAIMS,
}
NAMES = re.compile(r"\b[hs]\d+\b")


@pytest.mark.parametrize("name", ready.names())
def test_the_closing_text_says_what_a_run_gives(name: str) -> None:
    text = " ".join(Scenario.load(name).see.split())
    for claim in claims(name):
        assert claim in text
        text = text.replace(claim, "", 1)
    for setting in SETTINGS[name]:
        text = text.replace(setting, "")
    assert not re.findall(r"\S*\d\S*", NAMES.sub("", text)), "a number that nobody checks"
