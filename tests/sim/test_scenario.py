# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what is wrong is said before the run, with its key and line; what is right runs."""

from __future__ import annotations

import pickle
import resource
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support import ROOT
from verbena import fabrics
from verbena.sim import Scenario, ScenarioError, World, limits
from verbena.sim.document import key_lines
from verbena.sim.result import DONE, NEVER
from verbena.sim.scenario_patterns import PATTERNS, explained
from verbena.sim.units import bytes_of, gigabits_text, picoseconds, size_text, time_text

BASE = """\
[fabric]
topology = "one_switch"
hosts = 4
rate = "100GbE"
delay = "1 us"

[[traffic]]
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "64 KiB"
"""
PAUSES = '[switch]\nflow = "pauses"\nstop = "64 KiB"\nspare = "64 KiB"\n'


def test_a_scenario_runs_and_all_is_measured() -> None:
    result = Scenario.parse(BASE).run()
    assert (result.end, result.wrong) == ("done", None)
    assert result.flows["state"].tolist() == [DONE, DONE]
    assert result.flows["source"].tolist() == [0, 1]
    drain = 2 * 16 * (4096 + 28) * 80
    assert result.durations().max() > drain
    assert result.links["utilisation"].max() <= 1
    assert result.link_name(result.link("s0[3]")) == "s0-h2"
    assert result.packets["sent"] == result.packets["delivered"] == 2 * 16 * 2
    assert result.packets["under_way"] == 0
    assert 60e9 < result.goodput() < 100e9
    assert "traffic" not in result.summary()
    assert "2 of 2 flows of 64 KiB" in result.summary()


def test_one_seed_makes_one_result() -> None:
    scenario = Scenario.parse(BASE.replace("1 us", "2 us")).changed({"fabric.bit_error_rate": 1e-6})
    one, other, another = scenario.run(), scenario.run(), scenario.run(seed=5)
    assert one.flows.tobytes() == other.flows.tobytes()
    assert one.links.tobytes() == other.links.tobytes()
    assert one.links.tobytes() != another.links.tobytes()


def test_a_seed_of_a_run_is_the_scenario_s() -> None:
    """It draws the traffic too, but for traffic that has a seed of its own."""
    drawn = (
        '[fabric]\ntopology = "one_switch"\nhosts = 8\n[[traffic]]\npattern = "poisson"\n'
        'load = 0.5\nsizes = "websearch"\nlasts = "200 us"\n'
    )
    scenario = Scenario.parse(drawn)
    one, other = scenario.run(seed=3), scenario.changed({"seed": 3}).run()
    assert one.flows.tobytes() == other.flows.tobytes()
    assert one.flows.tobytes() != scenario.run().flows.tobytes()
    assert (one.seed, scenario.run().seed) == (3, 0)
    own = Scenario.parse(drawn + "seed = 11\n")
    assert own.run(seed=3).flows["start"].tolist() == own.run().flows["start"].tolist()


def test_a_summary_has_the_time_of_the_traffic_and_that_of_the_run() -> None:
    scenario = Scenario.parse(BASE)
    short, long = scenario.run(), scenario.changed({"duration": "20 ms"}).run()
    lasted = time_text(int(short.flows["finish"].max()))
    first = long.summary().splitlines()[0]
    assert f"done after {lasted} (the run lasted 20 ms), simulated in" in first
    assert f"done after {time_text(short.time)}" in short.summary()
    assert "% of 20 ms" in long.summary()
    cut = scenario.changed({"duration": "2 us"}).run().summary().splitlines()[0]
    assert "unfinished after 2 us, simulated in" in cut


def test_a_summary_counts_one_flow_as_one() -> None:
    one = Scenario.parse(BASE.replace('["h0", "h1"]', '"h0"'))
    cut = one.changed({"duration": "2 us"}).run()
    assert "ended with 1 flow unfinished after" in cut.summary()
    stalled = replace(cut, end="stalled")
    assert "stalled, 1 flow never ends, after" in stalled.summary()


def test_rates_above_a_terabit_have_no_exponent() -> None:
    assert [gigabits_text(rate) for rate in (3.86e12, 97.94e9, 999.4e9, 999.6e9, 0)] == [
        "3860 Gb/s", "97.9 Gb/s", "999 Gb/s", "1000 Gb/s", "0 Gb/s"]  # fmt: skip


# What replaces what, the key that is blamed, and what is said. The line is that of the new text's
# last line, unless it is named.
WRONG = {
    "no TOML": ("hosts = 4", "hosts = = 4", "", "Invalid value"),
    "a key twice": ("hosts = 4", "hosts = 4\nhosts = 5", "fabric.hosts",
                    "fabric.hosts is there twice: line 3 has it already"),
    "a key twice in a list": (
        'size = "64 KiB"', 'size = "64 KiB"\n# here\n"size" = [\n2]', "traffic.0.size",
        "line 11 has it already"),
    "a table twice": ("[[traffic]]", "[fabric]\n[[traffic]]", "fabric", "line 1 has it already"),
    "a key of another name": (
        'to = "h2"', 'target = "h2"', "traffic.0.target", "(is 'to' meant?)"),
    "a key of another pattern's name": (
        'pattern = "flows"\nfrom = ["h0", "h1"]\nto = "h2"', 'pattern = "incast"\ntarget = "h2"',
        "traffic.0.target", "(is 'receiver' meant?)"),
    "a pattern that is misspelt": ('"flows"', '"flow"', "traffic.0.pattern", "is 'flows' meant?"),
    "an unknown key": ("hosts = 4", "hosts = 4\nhots = 5", "fabric.hots", "is 'hosts' meant"),
    "an unknown table": ("[fabric]", "[farbic]", "farbic", "is unknown (is 'fabric' meant?)"),
    "an unknown topology": ('"one_switch"', '"star"', "fabric.topology", "there are pair, one_sw"),
    "a rate of zero": ('"100GbE"', '"0 Gb/s"', "fabric.rate", "carries nothing"),
    "a rate without a unit": (
        '"100GbE"', "100", "fabric.rate", 'number without a unit: write "100 Gb/s", or "100GbE"'),
    "no rate": ('"100GbE"', '"fast"', "fabric.rate", "write 4xHDR, 100GbE or 37.5 Gb/s"),
    "no unit": ('"1 us"', "1", "fabric.delay", 'needs a unit: it is to be a time, as in "10 us"'),
    "messages of nothing": (
        'size = "64 KiB"', 'size = "64 KiB"\nmessage = 0', "traffic.0.message", "from 1"),
    "a reservation that no link can keep": (
        'size = "64 KiB"', 'size = "64 KiB"\nreserve = "200 Gb/s"', "traffic.0.reserve",
        "is 200 Gb/s, more than a link of these hosts has: 100 Gb/s"),
    "a name twice": (
        "[[traffic]]",
        '[[traffic]]\npattern = "flows"\nname = "x"\nfrom = "h0"\nto = "h1"\nsize = 9\n'
        '[[traffic]]\nname = "x"', "traffic.1.name", "another traffic has this name"),
    "an unknown unit": ('"1 us"', '"1 hour"', "fabric.delay", "not one of ps, ns, us, ms, s"),
    "a negative delay": ('"1 us"', '"-1 us"', "fabric.delay", "negative: times and delays are 0"),
    "too few hosts": ("hosts = 4", "hosts = 0", "fabric.hosts", "from 1 to 1048576"),
    "far too many hosts": (
        'topology = "one_switch"\nhosts = 4', 'topology = "fat_tree"\nk = 1000', "fabric",
        "2.5e+08 nodes"),
    "a host that is none": ('to = "h2"', 'to = "h9"', "traffic.0.to", "there are h0 to h3"),
    "a number that is no host": ('to = "h2"', "to = 4", "traffic.0.to", "no such host"),
    "a flow to itself": (
        'to = "h2"', 'to = "h1"', "traffic.0",
        "(h1 to h1, 65536 bytes at 0 ps): from a host to itself"),
    "no bytes": ('"64 KiB"', "0", "traffic.0.size", "from 1"),
    "no pattern": ('"flows"', '"chat"', "traffic.0.pattern", "there are flows, incast"),
    "a key of another pattern": (
        'size = "64 KiB"', 'size = "64 KiB"\nby = 2', "traffic.0.by", "is unknown"),
    "a class that is none": (
        'size = "64 KiB"', 'size = "64 KiB"\nclass = "gold"', "traffic.0.class", "no such class"),
    "a start in the past": (
        'size = "64 KiB"', 'size = "64 KiB"\nstart = "-5 ms"', "traffic.0.start",
        "a run begins at 0"),
    "an event in the past": (
        "[[traffic]]", '[[event]]\nlink = "s0-h1"\nup = false\nat = "-1 us"\n[[traffic]]',
        "event.0.at", "a run begins at 0"),
    "an event after the end": (
        "[fabric]",
        'duration = "1 ms"\n[[event]]\nlink = "s0-h1"\nup = true\nat = "2 ms"\n[fabric]',
        "event.0.at", "after the end"),
    "an event of no link": (
        "[[traffic]]", '[[event]]\nup = false\nat = 0\nlink = "s0-s1"\n[[traffic]]',
        "event.0.link", "no such link (is 's0-h1' meant?): there are h0-s0, h1-s0"),
    "a link twice": (
        "[[traffic]]", '[[link]]\nbetween = "s0-h1"\n[[link]]\nbetween = "h1-s0"\n[[traffic]]',
        "link.1.between", "another [[link]] is about"),
    "an engine that is none": (
        "[fabric]", '[routing]\nengine = "ospf"\n[fabric]', "routing.engine", "there are minhop"),
    "an engine for another network": (
        "[fabric]", '[routing]\nengine = "dragonfly"\n[fabric]', "routing.engine",
        "s0 is in no group"),
    "a wrong mtu": ("[fabric]", "[adapter]\nmtu = 5000\n[fabric]", "adapter.mtu", "256, 512"),
    "a wrong timeout": ("[fabric]", "[adapter]\ntimeout = 32\n[fabric]", "adapter.timeout", "31"),
    "no headroom": (
        "[fabric]", PAUSES.replace('spare = "64 KiB"', "spare = 4096") + "[fabric]",
        "switch.spare", "37690 bytes still come"),
    "no room for a packet": (
        "[fabric]", '[switch]\nflow = "credits"\nroom = 1024\n[fabric]', "switch.room",
        "would wait for ever"),
    "room for a packet, but not for its blocks": (
        "[fabric]", '[switch]\nflow = "credits"\nroom = 4194\n[fabric]', "switch.room",
        "4224 in whole blocks"),
    "no room for telemetry": (
        "[fabric]", '[congestion]\nkind = "hpcc"\nbase_rtt = "5 us"\n[switch]\nflow = "credits"\n'
        "room = 4224\n[fabric]", "switch.room", "4288 in whole blocks"),
    "flows beyond time": (
        'size = "64 KiB"', 'size = "64 KiB"\nrepeat = 3000\nevery = "10000 s"', "traffic.0.every",
        "the last of 3000 is too late"),
    "a clos of far too many hosts": (
        'topology = "one_switch"\nhosts = 4', 'topology = "clos3"\nradix = 128', "fabric",
        "5.24e+05 nodes"),
    "a parking lot of a million": (
        'topology = "one_switch"\nhosts = 4', 'topology = "parking_lot"\nsenders = 1_000_000',
        "fabric", "2e+06 nodes"),
    "a key of another flow control": (
        "[fabric]", '[switch]\nflow = "lossy"\nroom = 9000\n[fabric]', "switch.room",
        "only for flow = \"credits\""),
    "too many lanes": (
        "[fabric]", "".join(f'[[switch.class]]\nname = "c{n}"\nflow = "lossy"\n' for n in range(17))
        + "[fabric]", "switch.class", "a list of tables, at most 16"),
    "congestion that is none": (
        "[fabric]", '[congestion]\nkind = "bbr"\n[fabric]', "congestion.kind", "dcqcn, cct"),
    "congestion out of range": (
        "[fabric]", '[congestion]\nkind = "dcqcn"\ngain = 2.0\n[fabric]', "congestion.gain",
        "a number above 0 to 1"),
    "no seed": ("[fabric]", "seed = -1\n[fabric]", "seed", "from 0"),
    "an operation that the transport has not": (
        'size = "64 KiB"',
        'size = "64 KiB"\ntransport = "uc"\noperation = "read"',
        "traffic.0",
        "UC does not read",
    ),
    "a variant whose files cannot be called so": (
        'size = "64 KiB"', 'size = "64 KiB"\n[variants."a/b"]\nseed = 1', "variants.a/b",
        "no name of a variant"),
    "a network that is too large": (
        "[fabric]", 'memory = "10 KiB"\n[fabric]', "fabric", "with its traffic needs about"),
    "too much memory": (
        'size = "64 KiB"', 'size = "64 KiB"\nrepeat = 1_000_000_000', "traffic", "too many"),
}  # fmt: skip


def test_room_is_for_packets_of_the_mtu() -> None:
    text = BASE + '[switch]\nflow = "credits"\nroom = 1024\n[adapter]\nmtu = 256\n'
    assert Scenario.parse(text).run().end == "done"


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_by_key_and_line(what: str) -> None:
    old, new, key, says = WRONG[what]
    text = BASE.replace(old, new, 1)
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse(text, name="test.toml")
    assert says in str(caught.value)
    assert caught.value.key == key
    assert caught.value.line is not None
    assert str(caught.value).startswith(f"test.toml, line {caught.value.line}")
    shown = text.splitlines()[caught.value.line - 1]
    name = [part for part in key.split(".") if not part.isdecimal()][-1]
    assert name in shown or not key


def test_what_is_missing_is_named() -> None:
    for text, says in (
        (BASE.replace("hosts = 4\n", ""), "needs more for one_switch: hosts"),
        (BASE.replace('size = "64 KiB"\n', ""), "needs the key 'size'"),
        (BASE.replace("size =", "sise ="), "sise is unknown, and 'size' is missing"),
        (BASE[: BASE.index("[[traffic]]")], "needs a [[traffic]]"),
        (PAUSES.replace('spare = "64 KiB"\n', "") + BASE, "has a spare of 0 bytes"),
    ):
        with pytest.raises(ScenarioError) as caught:
            Scenario.parse(text)
        assert says in str(caught.value)


def test_a_network_in_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.dot").write_text("graph { a -- s; b -- s; c -- t; d -- t }")
    text = BASE.replace('topology = "one_switch"\nhosts = 4', 'file = "net.dot"')
    with pytest.raises(ScenarioError, match=r"line 4: fabric\.delay is not for a network from a"):
        Scenario.parse(text, folder=tmp_path)
    text = text.replace('delay = "1 us"\n', "")
    with pytest.raises(ScenarioError, match=r"line 2: fabric\.file .*no way from a to c"):
        Scenario.parse(text, folder=tmp_path)


def test_networks_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "net.dot").write_text(fabrics.dot.write(fabrics.one_switch(4, rate="4xHDR")))
    (tmp_path / "net.txt").write_text(fabrics.ibnetdiscover.write(fabrics.one_switch(4)))
    for name in ("net.dot", "net.txt"):
        text = f'[fabric]\nfile = "{name}"\n' + BASE[BASE.index("[[traffic]]") :]
        assert Scenario.parse(text, folder=tmp_path).run().end == "done"
    with pytest.raises(ScenarioError, match=r"line 2: fabric\.file cannot be read.*net\.not"):
        Scenario.parse(text.replace("net.txt", "net.not"), folder=tmp_path)


def test_routes_in_a_circle_are_refused(tmp_path: Path) -> None:
    """Forwarding tables of two switches that send h0's packets to each other."""
    fabric = fabrics.dumbbell(1, 1)
    routes = fabrics.route(fabric, "minhop")
    guids = routes.tables.guids[routes.tables.host_count :]
    trunk = int(routes.out[1, 0])
    lines = []
    for guid in guids:
        lines += [f"Unicast lids [0x0-0x2] of switch guid 0x{guid:016x}"]
        lines += [f"0x{lid:04x} {trunk:03d} : (x)" for lid in (1, 2)]
    (tmp_path / "lfts").write_text("\n".join(lines) + "\n")
    text = (
        '[fabric]\ntopology = "dumbbell"\nleft = 1\nright = 1\n[routing]\nfile = "lfts"\n'
        '[[traffic]]\npattern = "flows"\nfrom = "h0"\nto = "h1"\nsize = 1\n'
    )
    with pytest.raises(ScenarioError, match=r"line 6: routing\.file has a routing loop to h0: s0"):
        Scenario.parse(text, folder=tmp_path)


def test_a_million_flows_need_memory() -> None:
    text = BASE.replace('size = "64 KiB"', 'size = "64 KiB"\nrepeat = 500_000')
    with pytest.raises(ScenarioError, match=r"needs about .* GiB of memory, and 1 GiB are there"):
        Scenario.parse(f'memory = "1 GiB"\n{text}')
    few = Scenario.parse(f'memory = "1 GiB"\n{BASE}')
    assert len(few.traffic) == 2


def test_flows_one_after_the_other_need_little_memory() -> None:
    text = BASE.replace('size = "64 KiB"', 'size = 64\nrepeat = 50_000\nevery = "1 ms"')
    assert len(Scenario.parse(f'memory = "64 MiB"\n{text}').traffic) == 100_000


def test_a_small_buffer_may_be_tried_out() -> None:
    text = PAUSES.replace("64 KiB", "5 KiB") + BASE.replace("64 KiB", "8 MiB")
    result = Scenario.parse(f'allow = ["loss"]\n{text}').run()
    assert result.links["dropped_headroom"].sum() > 0
    assert "headroom" in (result.wrong or "")
    assert "WRONG: port" in result.summary()


def test_buffers_that_slow_a_link_are_remarked() -> None:
    text = '[switch]\nflow = "credits"\nroom = 8192\n' + BASE
    scenario = Scenario.parse(text)
    assert "8192 bytes lets" in scenario.notes[0]
    result = scenario.run()
    claimed = float(scenario.notes[0].split("at most ")[1].split()[0]) * 1e9
    measured = result.links["utilisation"][result.link("h0-s0")] * 100e9
    assert 0 < measured <= 1.1 * claimed


def test_a_host_with_several_ports_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.dot").write_text(
        "graph { a [kind=host]; s [kind=switch]; a -- s; a -- s; b -- s }"
    )
    with pytest.raises(ScenarioError, match=r"line 1: fabric has a host of several ports, a"):
        Scenario.parse(
            '[fabric]\nfile = "net.dot"\n[[traffic]]\npattern = "flows"\nfrom = "a"\nto = "b"\n'
            "size = 1\n",
            folder=tmp_path,
        )


# ---- settings -----------------------------------------------------------------------------------


def test_settings_are_changed_by_key() -> None:
    scenario = Scenario.parse(BASE.replace("[[traffic]]", '[[traffic]]\nname = "bulk"'))
    changed = scenario.changed({"traffic.bulk.size": 100, "fabric.hosts": 6, "switch.fecn": 5})
    assert changed.traffic.work.flows["bytes"].tolist() == [100, 100]
    assert len(changed.fabric.hosts) == 6
    assert changed.switching.settings.fecn == 5
    assert len(scenario.fabric.hosts) == 4
    with pytest.raises(ScenarioError, match=r"there is no 'mice' for traffic\.mice\.size"):
        scenario.changed({"traffic.mice.size": 1})
    with pytest.raises(ScenarioError, match=r"bigger: fabric.hosts .*from 1 to") as caught:
        scenario.changed({"fabric.hosts": "many"}, "bigger")
    assert caught.value.line is None


def test_traffic_without_a_name_is_called_by_its_pattern_and_a_number() -> None:
    """A name that is given comes first; results, settings and tables know each by its own."""
    some = '[[traffic]]\npattern = "flows"\nfrom = "h3"\nto = "h0"\nsize = 4096\n'
    scenario = Scenario.parse(BASE + some + some + some + 'name = "flows-2"\n' + some)
    names = ("flows", "flows-3", "flows-4", "flows-2", "flows-5")
    assert scenario.traffic.names == names
    result = scenario.changed({"traffic.flows-4.size": 8192}).run()
    assert result.traffic == names
    assert [int(result.of(name)["bytes"][0]) for name in names[1:]] == [4096, 8192, 4096, 4096]
    with pytest.raises(ScenarioError, match="no 'flows-6'"):
        scenario.changed({"traffic.flows-6.size": 8192})


def test_congestion_control_without_marks_is_noted() -> None:
    text = BASE + '[congestion]\nkind = "dcqcn"\n'
    note = "dcqcn, but no switch marks: no flow slows down"
    assert note in Scenario.parse(text).notes
    marking = text + "[switch]\nmark = { low = 10000, high = 20000 }\n"
    assert note not in Scenario.parse(marking).notes


def test_an_event_that_a_run_does_not_live_to_see_is_noted() -> None:
    event = '[[event]]\nlink = "s0-h1"\nup = false\nat = "5 s"\n'
    assert any(
        "before the event at 5 s" in note for note in Scenario.parse(BASE + event).run().notes
    )


def test_a_pause_may_end_at_any_fill_where_it_begins_at_a_part_of_what_is_free() -> None:
    switch = '[switch]\nflow = "pauses"\nbuffer = "1 MiB"\nalpha = 0.1\ngo = 4096\nspare = 100000\n'
    result = Scenario.parse(BASE + switch).run()
    assert (result.end, result.wrong) == ("done", None)


def test_variants_are_changes_with_a_name() -> None:
    text = BASE + '[variants.small]\n"traffic.0.size" = 5\n[variants.none]\n"fabric.hosts" = 0\n'
    scenario = Scenario.parse(text, name="net.toml")
    assert scenario.variants == ("small", "none")
    small = scenario.variant("small")
    assert small.name == "net, small"
    assert small.traffic.work.bytes == 10
    with pytest.raises(ScenarioError, match=r"net.toml, variant none: fabric\.hosts"):
        scenario.variant("none")
    with pytest.raises(ScenarioError, match='no variant "large": there are small, none'):
        scenario.variant("large")


def test_a_scenario_goes_to_another_process() -> None:
    scenario = Scenario.parse(BASE).changed({"fabric.hosts": 5})
    again = pickle.loads(pickle.dumps(scenario))
    assert len(again.fabric.hosts) == 5
    assert again.run().flows.tobytes() == scenario.run().flows.tobytes()


def test_errors_go_to_another_process() -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse(BASE.replace("hosts = 4", "hosts = 0"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.key, again.line) == (str(caught.value), "fabric.hosts", 3)


def test_lines_are_found_in_all_of_toml() -> None:
    text = 'a.b = 1\n"c d" = """\nx\n[no]\n"""\n[e] # f\n[[g.h]]\ni = [\n  1, { j = "]" },\n]\n' + (
        "[[g.h]]\ni = '#'\n[g.h.k]\nl = 1979-05-27\n"
    )
    lines = key_lines(text)
    assert lines[("a", "b")] == 1
    assert lines[("c d",)] == 2
    assert ("no",) not in lines
    assert lines[("e",)] == 6
    assert lines[("g", "h", 0, "i", 1, "j")] == 9
    assert lines[("g", "h", 1, "i")] == 12
    assert lines[("g", "h", 1, "k", "l")] == 14


def test_links_are_changed_one_by_one() -> None:
    text = BASE.replace(
        "[[traffic]]", '[[link]]\nbetween = "h0-s0"\nrate = "10GbE"\nlength_m = 100\n[[traffic]]'
    )
    result = Scenario.parse(text).run()
    rates = result.links["rate"], result.links["delay"]
    at, other = result.link("h0-s0"), result.link("h1-s0")
    assert (int(rates[0][at]), int(rates[1][at])) == (10 * 10**9, 500_000)
    assert (int(rates[0][other]), int(rates[1][other])) == (100 * 10**9, 10**6)
    assert result.durations()[0] > 5 * result.durations()[1]


def test_links_go_down_and_up() -> None:
    text = BASE.replace("64 KiB", "4 MiB").replace(
        "[fabric]",
        '[adapter]\ntimeout = 6\n[[event]]\nlink = "s0-h2"\nat = "50 us"\nup = false\n'
        '[[event]]\nlink = "s0-h2"\nat = "100 us"\nup = true\n[fabric]',
    )
    result = Scenario.parse(text).run()
    assert result.end == "done"
    assert result.dropped["down"] > 0
    assert [up for _, up, _ in result.link_events] == [False, True]


def test_classes_share_a_wire() -> None:
    text = BASE.replace("64 KiB", "4 MiB").replace(
        "[fabric]",
        '[[switch.class]]\nname = "lossy"\nflow = "lossy"\nalpha = 1.0\nweight = 16\n'
        '[[switch.class]]\nname = "safe"\nflow = "credits"\nroom = "64 KiB"\nweight = 48\n[fabric]',
    )
    text += (
        'name = "lossy"\n[[traffic]]\nname = "safe"\npattern = "flows"\nfrom = "h3"\nto = "h2"\n'
    )
    text += 'size = "64 MiB"\nclass = "safe"\nmessage = 65536\ndepth = 16\n'
    text = text.replace("[fabric]", 'duration = "500 us"\n[fabric]').replace("4 MiB", "64 MiB")
    text = text.replace('duration = "500 us"\n', "")
    result = Scenario.parse('duration = "500 us"\n' + text).run()
    assert result.classes == ("lossy", "safe")
    assert result.goodput("safe") == pytest.approx(0.75 * 96e9, rel=0.05)


def test_flows_that_never_end_are_a_result() -> None:
    text = BASE.replace("[fabric]", "[adapter]\ntimeout = 0\n[fabric]").replace(
        "[[traffic]]", '[[event]]\nlink = "s0-h2"\nat = 0\nup = false\n[[traffic]]'
    )
    result = Scenario.parse(text).run()
    assert result.end == "stalled"
    assert "2 flows never end" in result.summary()


# ---- interruption -------------------------------------------------------------------------------


def test_an_interrupted_run_leaves_what_it_measured() -> None:
    scenario = Scenario.parse(BASE.replace("64 KiB", "1 GiB"))

    def stop(world: World) -> None:
        raise KeyboardInterrupt

    result = scenario.run(progress=stop)
    assert result.end == "interrupted"
    assert result.wrong is None
    assert 0 < result.packets["delivered"] < 2 * (1 << 18)
    assert (result.flows["finish"] == NEVER).all()
    assert "interrupted after" in result.summary()


def test_control_c_ends_a_run() -> None:
    scenario = Scenario.parse(
        BASE.replace("64 KiB", "1 GiB").replace("[[traffic]]", "[[traffic]]\nrepeat = 200")
    )
    main = threading.main_thread().ident
    assert main is not None
    started = threading.Event()

    def press() -> None:
        started.wait()
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    result = scenario.run(progress=lambda _: started.set())
    thread.join()
    assert result.end == "interrupted"


# ---- units --------------------------------------------------------------------------------------


def test_what_a_process_may_have_is_limited_by_its_ulimit() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    try:
        assert limits.available_memory() < 1.1 * (1 << 30)
        with pytest.raises(ScenarioError, match=r"2e.07 flows are too many"):
            Scenario.parse(BASE + "repeat = 10_000_000\n")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_units_are_exact() -> None:
    assert picoseconds("1.5 us") == 1_500_000
    assert picoseconds("0.001 ns") == 1
    assert picoseconds("3µs") == 3_000_000
    assert picoseconds(0) == 0
    assert bytes_of("64 KiB") == 65536
    assert bytes_of("1.5 MB") == 1_500_000
    assert bytes_of(17) == 17
    for wrong in ("0.0001 ns", "10", 5, True, None, "5 KB"):
        with pytest.raises(ValueError):
            picoseconds(wrong)
    assert [time_text(t) for t in (999, 1000, 1_743_000_000, 999_600_000)] == [
        "999 ps", "1 ns", "1.74 ms", "1000 us"]  # fmt: skip
    assert [size_text(n) for n in (64, 65536, 65_500)] == ["64 B", "64 KiB", "63.96 KiB"]


def test_traffic_patterns_make_their_flows() -> None:
    head = BASE[: BASE.index("[[traffic]]")]
    for table, count in {
        'pattern = "incast"\nsize = 10\nreceiver = "h1"': 3,
        'pattern = "permutation"\nsize = 10': 4,
        'pattern = "shift"\nby = 1\nsize = 10\nhosts = 3': 3,
        'pattern = "all_to_all"\nsize = 10\nin_turn = false': 12,
        'pattern = "all_to_all"\nsize = 10': 12,
        'pattern = "ring_all_reduce"\nsize = 100': 24,
        'pattern = "tree_all_reduce"\nsize = 100': 6,
        'pattern = "tree_all_reduce"\nsize = 100\nchunk = 50': 12,
        'pattern = "double_tree_all_reduce"\nsize = 100\nhosts = 3': 8,
        'pattern = "halving_doubling_all_reduce"\nsize = 100': 16,
        'pattern = "ring_reduce_scatter"\nsize = 100': 12,
        'pattern = "recursive_halving_reduce_scatter"\nsize = 100\nhosts = 3': 4,
        'pattern = "ring_all_gather"\nsize = 100': 12,
        'pattern = "recursive_doubling_all_gather"\nsize = 100': 8,
        'pattern = "binomial_broadcast"\nsize = 100\nroot = "h2"': 3,
        'pattern = "chain_broadcast"\nsize = "100 KB"\nchunk = "10 KB"\nroot = 1': 30,
        'pattern = "double_tree_broadcast"\nsize = 100': 6,
        'pattern = "flows"\nfrom = 0\nto = [1, 2, 3]\nsize = 9\nrepeat = 4\nevery = "1 us"': 12,
    }.items():  # fmt: skip
        scenario = Scenario.parse(f"{head}[[traffic]]\n{table}\n")
        assert len(scenario.traffic) == count
        assert scenario.run().end == "done"
    starts = scenario.traffic.work.flows["start"]
    assert starts.tolist() == np.repeat(np.arange(4) * 10**6, 3).tolist()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_key_that_is_documented_is_known_and_no_other(pattern: str) -> None:
    """An unknown key's error lists all keys that there may be."""
    needed = {"from": "h0", "to": "h1", "size": 10, "by": 1, "load": 0.1, "sizes": "websearch",
              "lasts": "1 us", "file": "trace.csv", "pattern": pattern}  # fmt: skip
    keys = explained(PATTERNS[pattern])
    table = {name: value for name, value in needed.items() if name in (*keys, "pattern")}
    for name, key in keys.items():
        if key.required or (pattern, name) == ("flows", "to"):
            few = {other: value for other, value in table.items() if other != name}
            with pytest.raises(ScenarioError, match=f"traffic.0 needs the key '{name}'"):
                Scenario.make({"fabric": {"topology": "pair"}, "traffic": [few]})
    if pattern == "trace":
        return
    with pytest.raises(ScenarioError, match="surplus is unknown") as caught:
        Scenario.make({"fabric": {"topology": "pair"}, "traffic": [{**table, "surplus": 1}]})
    assert set(str(caught.value).split("may be ")[1].split(", ")) == {*keys, "pattern"}


def test_a_trace_and_a_load_make_flows(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "source,destination,bytes,start_ps\nh0,h1,10,5\n2,h3,20,6\n"
    )
    head = BASE[: BASE.index("[[traffic]]")]
    text = f'{head}[[traffic]]\npattern = "trace"\nfile = "trace.csv"\nstart = "1 us"\n'
    flows = Scenario.parse(text, folder=tmp_path).traffic.work.flows
    assert flows["start"].tolist() == [1_000_005, 1_000_006]
    poisson = (
        f'{head}[[traffic]]\npattern = "poisson"\nload = 0.3\nsizes = "fb_hadoop"\nlasts = "1 ms"\n'
    )
    one, other = (Scenario.parse(poisson).changed({"seed": n}) for n in (1, 2))
    assert len(one.traffic) > 10
    assert one.traffic.work.flows.tobytes() != other.traffic.work.flows.tobytes()
    with pytest.raises(
        ScenarioError, match=r"traffic\.0\.sizes = .mine.: it is no file, and none of websearch"
    ):
        Scenario.parse(poisson.replace("fb_hadoop", "mine"))


def test_datagrams_and_sends_are_traffic_too() -> None:
    for more in (
        'transport = "ud"',
        'transport = "uc"',
        'operation = "send"',
        'operation = "read"',
    ):
        result = Scenario.parse(f"{BASE}{more}\n").run()
        assert (result.end, result.wrong) == ("done", None)
        assert result.flows["done"].tolist() == [65536, 65536]


def test_steps_wait_for_each_other() -> None:
    """A ring all-reduce takes 2 (n - 1) steps, one after the other."""
    head = BASE[: BASE.index("[[traffic]]")]
    step = '[[traffic]]\npattern = "ring_all_reduce"\nsize = "4 MiB"\n'
    result = Scenario.parse(head + step).run()
    assert result.end == "done"
    assert result.time > 6 * (1 << 20) * 80


def test_the_example_of_the_documentation_runs() -> None:
    page = (ROOT / "docs" / "simulation.md").read_text()
    example = page[page.index("```toml\n") + 8 :]
    scenario = Scenario.parse(example[: example.index("```")])
    assert scenario.variants == ("lossy",)
    for one in (scenario, scenario.variant("lossy")):
        assert one.run().wrong is None
