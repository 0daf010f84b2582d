# SPDX-License-Identifier: Apache-2.0
"""The ready scenarios: each teaches in numbers what its text says."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from verbena.sim import Scenario, ScenarioResult, ready

LINE = 100e9
PAYLOAD = 4096 / (4096 + 12 + 62)  # of a packet on Ethernet


@cache
def run(name: str, variant: str) -> ScenarioResult:
    scenario = Scenario.load(name).variant(variant)
    result = scenario.run()
    assert result.end == scenario.expect
    assert result.wrong is None
    return result


def busy(result: ScenarioResult, source: str, target: str) -> float:
    return float(result.links["utilisation"][result.link(f"{source}-{target}")])


@pytest.mark.parametrize("name", ready.names())
def test_each_says_what_it_teaches_and_what_to_see(name: str) -> None:
    scenario = Scenario.load(name)
    assert len(scenario.teaches) > 100
    assert len(scenario.see) > 100
    assert len(scenario.variants) >= 2
    for variant in scenario.variants:
        assert scenario.variant(variant).name == f"{scenario.name}, {variant}"


def test_two_senders() -> None:
    """Lossless: none is lost, and each link into the switch stands still for half of the time."""
    lossless, lossy = run("two-senders", "lossless"), run("two-senders", "lossy")
    assert lossless.packets["dropped"] == 0
    assert lossless.flows["retransmissions"].sum() == 0
    assert lossless.goodput() == pytest.approx(LINE * PAYLOAD, rel=0.02)
    for host in ("h0", "h1"):
        stalled = lossless.links["stalled"][lossless.link(f"{host}-s0")] / lossless.time
        assert stalled == pytest.approx(0.5, abs=0.03)
    limit = 2 * (64 + 64) << 10
    assert lossless.links["queue_max"].max() <= limit
    assert lossless.queue(lossless.link("s0-h2")).max() <= limit
    assert lossy.dropped["full"] > 100
    assert lossy.flows["retransmissions"].sum() >= lossy.dropped["full"]
    assert lossy.durations().max() > 1.2 * lossless.durations().max()


def test_bufferbloat() -> None:
    """A short message waits for the whole queue: two windows of 1 MiB at the line's rate."""
    deep, shallow, dcqcn = (run("bufferbloat", name) for name in ("deep", "shallow", "dcqcn"))
    waits = [float(np.median(result.durations("short"))) / 1e6 for result in (deep, shallow, dcqcn)]
    assert waits[0] == pytest.approx(2 * (1 << 20) * 80 / PAYLOAD / 1e6, rel=0.03)
    assert waits[1] < waits[0] / 10
    assert waits[2] < waits[0] / 10
    assert deep.packets["dropped"] == dcqcn.packets["dropped"] == 0
    assert shallow.flows["retransmissions"].sum() > 100
    assert shallow.dropped["full"] > 100
    assert deep.flows["retransmissions"].sum() == dcqcn.flows["retransmissions"].sum() == 0
    late = deep.times > 10**9
    assert np.ptp(deep.queue(deep.link("s0-h3"))[late]) < 64 << 10  # it stays full


def test_incast() -> None:
    """N S / C without losses; with them the last one waits for timers, and the link is idle."""
    lossless, lossy = run("incast", "lossless"), run("incast", "lossy")
    drain = 32 * (256 << 10) * 80 / PAYLOAD
    assert lossless.durations().max() == pytest.approx(drain, rel=0.02)
    assert lossless.durations().min() > 0.9 * lossless.durations().max()
    assert lossless.packets["dropped"] == 0
    assert lossy.durations().max() > 5 * drain
    assert np.median(lossy.durations()) > 10**9  # a timeout
    assert busy(lossy, "s0", "h32") < 0.2


def test_tcp_incast() -> None:
    """One timer of 200 ms for what takes 35 ms; a timer of a round trip is the cure."""
    names = ("collapse", "short-timer", "deep", "dctcp")
    results = {name: run("tcp-incast", name) for name in names}
    drain = 16 * (256 << 10) * 8000 * (1460 + 78) / 1460
    slowest = {name: result.durations().max() for name, result in results.items()}
    assert 200e9 < slowest["collapse"] < 200e9 + drain
    assert busy(results["collapse"], "s0", "h16") < 0.2
    for name in names[1:]:
        assert slowest[name] == pytest.approx(drain, rel=0.05)
        assert busy(results[name], "s0", "h16") > 0.95
    lost = {name: result.packets["dropped"] for name, result in results.items()}
    assert lost["deep"] == lost["dctcp"] == 0
    assert lost["short-timer"] > lost["collapse"] > 100
    assert results["collapse"].flows["timeouts"].sum() > 4
    assert results["dctcp"].flows["marks"].sum() > 1000


def test_tcp_bufferbloat() -> None:
    """What waits is what the buffer holds, and with DCTCP what the switch lets be."""
    deep, shallow, dctcp = (run("tcp-bufferbloat", name) for name in ("deep", "shallow", "dctcp"))
    whole = 10e9 * 1460 / (1460 + 78)
    for result in (deep, dctcp):
        assert result.goodput("long") > 0.98 * whole
    assert 0.9 * whole < shallow.goodput("long") < whole  # it may wait for a timer of 10 ms
    waits = [float(np.median(result.durations("short"))) / 1e6 for result in (deep, shallow, dctcp)]
    assert 2000 < waits[0] < (4 << 20) * 8e-4
    assert waits[1] < 41 + (64 << 10) * 8e-4
    assert waits[2] == pytest.approx(43 + 98_000 * 8e-4, rel=0.1)
    assert dctcp.packets["dropped"] == 0
    assert shallow.of("short")["timeouts"].sum() > 0
    late = dctcp.times > 50 * 10**9
    assert dctcp.queue(dctcp.link("s0-h3"))[late].max() < 120_000


def test_diamond() -> None:
    """Packets that overtake each other are sent again, though none is lost."""
    by_flow, by_packet = run("diamond", "by-flow"), run("diamond", "by-packet")
    assert by_flow.packets["dropped"] == by_packet.packets["dropped"] == 0
    assert by_flow.flows["retransmissions"].sum() == 0
    assert by_packet.flows["retransmissions"].sum() > 1000
    assert by_packet.goodput() < by_flow.goodput() / 3
    ways = [busy(by_packet, "s0", middle) for middle in ("m0", "m1")]
    assert min(ways) > 0.5
    assert min(ways) / max(ways) > 0.9


def test_victim_flow() -> None:
    """A pause stops all of a class: the victim gets what the congested flow gets."""
    results = {name: run("victim", name) for name in ("pauses", "own-class", "dcqcn")}
    line = LINE * PAYLOAD
    victim = {name: result.goodput("victim") / line for name, result in results.items()}
    assert victim["pauses"] == pytest.approx(0.25, abs=0.02)
    assert victim["own-class"] == pytest.approx(0.75, abs=0.02)
    assert victim["dcqcn"] > 0.7
    for result in results.values():
        assert result.packets["dropped"] == 0
        assert result.goodput("to h2") > 0.95 * line
    through = results["pauses"].links
    assert through["pauses"].sum() > 100
    assert through["stalled"][results["pauses"].link("s0-s1")] > 0.4 * results["pauses"].time


def test_deadlock() -> None:
    """The links that wait for each other are the circle that the routes have."""
    stuck = run("deadlock", "shortest")
    assert len(stuck.blocked) == 6
    names = [stuck.link_name(link) for link in stuck.blocked]
    ends = [name.split("-") for name in names]
    assert all(one[1] == other[0] for one, other in zip(ends, ends[1:] + ends[:1], strict=True))
    assert any("credit loop" in note for note in stuck.notes)
    assert stuck.packets["under_way"] > 100
    assert stuck.packets["dropped"] == 0
    for cure in ("lanes", "up-down"):
        result = run("deadlock", cure)
        assert result.packets["dropped"] == result.packets["under_way"] == 0
        assert not result.notes
    lifetime = run("deadlock", "lifetime")
    assert set(lifetime.dropped) == {"lifetime"}
    assert lifetime.durations().max() > 3 * run("deadlock", "lanes").durations().max()


def test_parking_lot() -> None:
    """Fair to inputs: 1/8, 1/8, 1/4, 1/2. DCQCN knows flows."""
    shares = {}
    for name in ("in-turn", "dcqcn"):
        done = run("parking-lot", name).flows["done"].astype(float)
        shares[name] = done / done.sum()
    assert shares["in-turn"] == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 2], abs=0.01)
    assert shares["dcqcn"] == pytest.approx([1 / 4] * 4, abs=0.05)
    assert run("parking-lot", "in-turn").goodput() > 0.99 * LINE * PAYLOAD


def test_long_haul() -> None:
    """min(C, room / (2 ser + 2 d)), and no more than 128 KiB of room count."""
    rate, packet = 32e9, 4096 + 12 + 14
    payload = 4096 / packet

    def law(room: int, metres: float) -> float:
        seconds = 2 * (packet * 8 / rate + metres * 5e-9)
        return min(rate, room * 8 / seconds) * payload

    results = {name: run("long-haul", name) for name in ("enough", "short", "too-far")}
    for name, room, metres in (
        ("enough", 128 << 10, 2500),
        ("short", 32 << 10, 2500),
        ("too-far", 128 << 10, 10000),
    ):
        # The first round trip, and whole packets and blocks of 64 bytes.
        assert results[name].goodput() == pytest.approx(law(room, metres), rel=0.14)
        assert results[name].packets["dropped"] == 0
    assert results["enough"].goodput() > 0.97 * rate * payload
    for name, part in (("extended", 1.0), ("extended-half", 0.5)):
        result = run("long-haul", name)
        assert result.goodput() == pytest.approx(part * rate * payload, rel=0.07)
        assert result.packets["dropped"] == 0
    short = results["short"]
    assert short.links["stalled"][short.link("s0-s1")] > 0.6 * short.time
    assert not results["enough"].notes
    assert "4194304 bytes lets s0-s1 carry at most 10.3" in results["too-far"].notes[0]


def test_bad_cable() -> None:
    """Each loss costs what is under way; the flow beside it notices nothing."""
    repeated, strict, replaced = (run("bad-cable", n) for n in ("go-back-n", "strict", "replaced"))
    assert repeated.dropped["damaged"] > 10
    bad, good = repeated.of("bad"), repeated.of("good")
    assert bad["retransmissions"].sum() > 5 * repeated.dropped["damaged"]
    assert good["retransmissions"].sum() == 0
    assert repeated.goodput("bad") < 0.95 * repeated.goodput("good")
    assert strict.of("bad")["state"].tolist() == [3]
    assert strict.of("bad")["status"].tolist() == [12]  # IBV_WC_RETRY_EXC_ERR
    assert strict.of("good")["state"].tolist() == [2]
    assert replaced.packets["dropped"] == 0
    assert replaced.goodput("bad") == pytest.approx(replaced.goodput("good"), rel=0.01)


def test_pause_storm() -> None:
    """One adapter stops all; a switch's watchdog gives up on its flows, its own on none."""
    alone, switch, adapter = (run("pause-storm", name) for name in ("storm", "switch", "adapter"))
    assert alone.flows["done"].sum() < 0.5 * alone.flows["bytes"].sum()
    assert alone.packets["dropped"] == 0
    assert len(alone.blocked) > 0
    to_broken = switch.flows["target"] == 0
    assert set(switch.flows["state"][~to_broken & (switch.flows["source"] != 0)]) == {2}
    assert set(switch.flows["state"][to_broken]) == {3}
    assert switch.dropped["watchdog"] == switch.packets["dropped"] > 0
    assert switch.links["storms"][switch.link("e0-h0")] == 1
    assert set(adapter.flows["state"]) == {2}
    assert adapter.packets["dropped"] == adapter.links["storms"].sum() == 0


def test_shared_wire() -> None:
    """The lossy class takes the memory, and with it a part of what the lossless one may send."""
    names = ("alone", "beside", "reserved", "strict")
    results = {name: run("shared-wire", name) for name in names}
    line = LINE * PAYLOAD
    share = {name: result.goodput("lossless") / line for name, result in results.items()}
    assert share["alone"] > 0.98
    assert share["beside"] < 0.42
    assert share["reserved"] == pytest.approx(0.5, abs=0.02)
    assert share["strict"] > 0.98
    for result in results.values():
        assert result.links["dropped_headroom"].sum() == 0
        assert result.of("lossless")["retransmissions"].sum() == 0
    assert results["beside"].dropped["full"] > 1000


def test_cold_translations() -> None:
    """One walk of 330 ns for each page of 4 KiB; more at a time, or larger pages, fill the link."""
    names = ("warm", "cold", "walkers", "huge-pages", "adapter")
    rates = {name: run("cold-translations", name).goodput() for name in names}
    line = 200e9 * PAYLOAD
    for name in ("warm", "walkers", "huge-pages"):
        assert rates[name] == pytest.approx(line, rel=0.01)
    assert rates["cold"] == pytest.approx(4096 * 8 / 330e-9, rel=0.02)
    assert rates["adapter"] == pytest.approx(4096 * 8 / 900e-9, rel=0.02)
    pages = (32 << 20) // 4096
    for name, missed in (("warm", 32), ("cold", pages), ("walkers", pages), ("huge-pages", 1)):
        for report in run("cold-translations", name).insides:
            assert report.counters.iotlb == (pages - missed, missed)


def test_doorbell_batching() -> None:
    """A core's cycles for each message bound the rate; the bytes are those of the transactions."""
    for name, batch, cycles, size in (
        ("one", 1, 240, 200),
        ("four", 4, 80 + 100 / 4 + 60, 161),
        ("sixteen", 16, 80 + 100 / 16 + 60, 155),
        ("blueflame", 1, 240, 172),
    ):
        result = run("doorbell-batching", name)
        seen = result.insides[0].counters
        assert seen.requests == 8 * 128_000 // 64
        assert seen.doorbells + seen.blueflames == seen.requests / batch
        assert seen.down.bytes / seen.requests == size
        assert seen.busy / seen.elapsed > 0.99
        assert result.goodput() == pytest.approx(3e9 / cycles * 64 * 8, rel=0.01)


def test_interrupt_moderation() -> None:
    """Fewer interrupts, 1 / (T + 1 / rate), for more latency; a core that polls has none."""
    names = ("at-once", "moderated", "counted", "lazy", "polling")
    results = {name: run("interrupt-moderation", name) for name in names}
    seen = {name: result.insides[0].counters for name, result in results.items()}
    reads = 1e12 / 7e6 + 1e12 / 11e6 + 1e12 / 13e6
    raised = {name: of.interrupts / of.elapsed * 1e12 for name, of in seen.items()}
    assert raised["moderated"] == pytest.approx(1 / (8e-6 + 1 / reads), rel=0.03)
    assert raised["lazy"] == pytest.approx(1 / (50e-6 + 1 / reads), rel=0.03)
    assert raised["counted"] == pytest.approx(reads / 8, rel=0.03)
    assert raised["polling"] == 0
    busy = [seen[name].busy / seen[name].elapsed for name in names]
    assert busy == pytest.approx([0.48, 0.27, 0.13, 0.075, 0.025], rel=0.05)
    medians = [float(np.median(results[name].durations())) / 1e6 for name in names]
    assert medians == pytest.approx([5.7, 11.8, 16.9, 31.9, 3.06], rel=0.02)
    for name in names[:-1]:
        assert seen[name].interrupts + seen[name].merged == seen[name].completions
