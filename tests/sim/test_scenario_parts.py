# SPDX-License-Identifier: Apache-2.0
"""Scenarios with range extenders, multicast groups, switches of their own kind, and promises."""

from __future__ import annotations

import numpy as np
import pytest

from verbena.sim import Scenario, ScenarioError
from verbena.sim._world import STATES

BASE = """\
seed = 1

[fabric]
topology = "dumbbell"
left = 3
right = 3
rate = "100GbE"
delay = "1 us"

[[link]]
between = "s0-s1"
length_m = 2000

[[group]]
name = "news"
members = ["h3", "h4", "h5"]

[switch]
buffer = "256 KiB"
[[switch.class]]
name = "bulk"
flow = "lossy"
alpha = 2.0
[[switch.class]]
name = "safe"
flow = "credits"
room = "128 KiB"

[[switch.own]]
of = "s1"
buffer = "64 KiB"

[[traffic]]
name = "copy"
pattern = "flows"
from = "h0"
to = "h3"
size = "1 MiB"
class = "safe"

[[traffic]]
name = "hail"
pattern = "flows"
from = "h1"
group = "news"
transport = "ud"
size = 40000
"""


def line_of(text: str, what: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if what in line)


WRONG = {
    "no such member": ('"h4", "h5"', '"h4", "h9"', "group.0.members", "there is no host \"h9\""),
    "a member twice": ('"h4", "h5"', '"h4", "h4"', "group.0.members", "has a host twice"),
    "no members": ('["h3", "h4", "h5"]', "[]", "group.0.members", "needs members"),
    "a root that is none": (
        'name = "news"', 'root = "h0"\nname = "news"', "group.0.root", "no switch to be the root"),
    "no such group": ('group = "news"', 'group = "olds"', "traffic.1.group", "there is news"),
    "a group and a target": (
        'group = "news"', 'group = "news"\nto = "h3"', "traffic.1.to", "to one of them"),
    "a group by RC": (
        'transport = "ud"', 'transport = "rc"', "traffic.1.group", "is for transport"),
    "a group of an incast": (
        'pattern = "flows"\nfrom = "h1"', 'pattern = "incast"', "traffic.1.group",
        "is for pattern"),
    "no such switch": ('of = "s1"', 'of = "s7"', "switch.own.0.of", "there is no switch \"s7\""),
    "a host as a switch": ('of = "s1"', 'of = "h1"', "switch.own.0.of", "no switch \"h1\""),
    "a switch twice": (
        'of = "s1"', 'of = "s1"\n[[switch.own]]\nof = ["s0", "s1"]', "switch.own.1.of", "has s1"),
    "an unknown key of a switch": (
        'of = "s1"', 'of = "s1"\nbufer = 1', "switch.own.0.bufer", "is 'buffer' meant"),
    "other classes": (
        'of = "s1"', 'of = "s1"\nflow = "lossy"', "switch.own.0", "has other classes"),
    "a class that is wrong": (
        'buffer = "64 KiB"', '[[switch.own.class]]\nflow = "credits"',
        "switch.own.0.class.0", "needs the key 'room'"),
    "balance of all switches": (
        'buffer = "256 KiB"', 'balance = "packet"', "switch.balance", "is unknown"),
    "an extender among lossy lanes": (
        "length_m = 2000", 'length_m = 2000\nextender = "2 MiB"', "link.0.extender",
        "is for credits"),
    "an extender without a size": (
        "length_m = 2000", 'length_m = 2000\nextender = "big"', "link.0.extender", "a size"),
    "a rate that is none": (
        'class = "safe"', 'reserve = "a lot"', "traffic.0.reserve", "write 4xHDR"),
    "buffer of credits": (
        'class = "safe"', 'class = "safe"\nreserve_buffer = "64 KiB"', "traffic.0.reserve_buffer",
        "no buffer to reserve"),
    "too little buffer": (
        'class = "safe"', 'reserve_buffer = "1 KiB"', "traffic.0.reserve_buffer",
        "depth messages are more"),
    "a promise to a group": (
        'group = "news"', 'group = "news"\nreserve = "1 Gb/s"', "traffic.1.reserve", "has several"),
    "a promise of datagrams' buffer": (
        'group = "news"', 'reserve_buffer = "64 KiB"\ngroup = "news"', "traffic.1.reserve_buffer",
        "only RC"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_by_key_and_line(old: str, new: str, key: str, message: str) -> None:
    assert BASE.count(old) == 1
    text = BASE.replace(old, new)
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse(text)
    assert caught.value.key == key
    assert message in str(caught.value)
    assert caught.value.line is not None
    last = key.rsplit(".", 1)[-1]
    if not last.isdecimal():
        assert text.splitlines()[caught.value.line - 1].startswith(f"{last} =")


def test_a_scenario_has_groups() -> None:
    result = Scenario.parse(BASE).run()
    assert (result.end, result.wrong) == ("done", None)
    hail = result.flows[result.flows["traffic"] == 1]
    assert hail["done"].tolist() == [3 * 40000]
    between = result.links[result.link("s0-s1")]
    to_members = [result.links[result.link(f"s1-h{host}")] for host in (3, 4, 5)]
    assert between["packets"] < sum(int(link["packets"]) for link in to_members)
    # By another root the tree has the same ends.
    by_root = Scenario.parse(BASE.replace('name = "news"', 'name = "news"\nroot = "s0"')).run()
    assert by_root.flows["done"].tolist() == result.flows["done"].tolist()


def test_a_switch_is_of_its_own_kind() -> None:
    text = BASE.replace('group = "news"\ntransport = "ud"', 'to = "h4"').replace(
        'from = "h1"', 'from = ["h1", "h2"]'
    )
    text = text.replace("size = 40000", 'size = "1 MiB"')
    scenario = Scenario.parse(text)
    assert scenario.switching.settings.buffer == 256 << 10
    assert scenario.switching.own[1].buffer == 64 << 10
    other = scenario.changed({"switch.own": []})
    assert other.switching.own == {}
    small, large = scenario.run(), other.run()
    for result, switch, most in ((small, "s1", 64), (large, "s1", 256), (small, "s0", 256)):
        node = scenario.routes.tables.number[switch]
        queues = result.links["queue_max"][result.links["node"] == node]
        assert queues.max() < most << 10
    node = scenario.routes.tables.number["s0"]
    assert small.links["queue_max"][small.links["node"] == node].max() > 64 << 10


def test_a_switch_has_classes_of_its_own() -> None:
    own = """of = "s1"
[[switch.own.class]]
name = "bulk"
flow = "lossy"
alpha = 0.25
[[switch.own.class]]
name = "safe"
flow = "credits"
room = "64 KiB"
"""
    scenario = Scenario.parse(BASE.replace('of = "s1"\n', own).replace('buffer = "64 KiB"\n', ""))
    lanes = scenario.switching.own[1].lanes
    assert [lane.room for lane in lanes if lane.flow == "credits"] == [64 << 10]
    assert scenario.switching.own[1].buffer == 256 << 10
    assert scenario.run().end == "done"


def test_a_scenario_has_promises() -> None:
    text = BASE.replace('class = "safe"', 'reserve = "60 Gb/s"\nreserve_buffer = "32 KiB"')
    text = text.replace('from = "h0"', 'from = ["h0", "h2"]')
    result = Scenario.parse(text).run()
    assert [STATES[state] for state in result.flows["state"]] == ["done", "refused", "done"]
    assert "1 refused" in result.summary()
    assert result.flows["retransmissions"].sum() == 0


def test_a_link_has_extenders() -> None:
    """Whose own links are not among the scenario's: what it names has the same numbers."""
    text = (
        BASE.replace('flow = "lossy"\nalpha = 2.0', 'flow = "credits"\nroom = "128 KiB"')
        .replace('[switch]\nbuffer = "256 KiB"\n', "")
        .replace('buffer = "64 KiB"', 'lifetime = "1 s"')
        .replace("length_m = 2000", 'length_m = 20000\nextender = "4 MiB"')
        .replace('size = "1 MiB"', 'size = "32 MiB"\nmessage = "1 MiB"\ndepth = 8')
    ) + '[adapter]\nwindow = "16 MiB"\n[samples]\nevery = "10 us"\n'
    far = Scenario.parse(text)
    near = Scenario.parse(text.replace('extender = "4 MiB"\n', ""))
    assert not far.notes
    assert any("s0-s1" in note for note in near.notes)
    results = far.run(), near.run()
    for result in results:
        assert (result.end, result.wrong) == ("done", None)
        assert len(result.links) == len(far.routes.tables.links)
        assert result.links["delay"][result.link("s0-s1")] == 10**8
        assert len(result.queues) == 2 * len(result.links)
        assert sorted(set(result.queues["link"].tolist())) == list(range(len(result.links)))
    assert results[0].durations().max() < results[1].durations().max() / 4
    assert results[0].goodput(0) > 0.8 * 100e9
    assert np.array_equal(results[0].links["node"], results[1].links["node"])
    small = Scenario.parse(text.replace('"4 MiB"', '"1 MiB"'))
    assert any("a room of 1048576 bytes lets s0-s1" in note for note in small.notes)


RING = """\
[fabric]
topology = "ring"
switches = 5
[routing]
engine = "updn"
[[traffic]]
pattern = "permutation"
size = "4 KiB"
"""


def test_up_down_without_roots_is_a_note_and_not_with_them() -> None:
    without = Scenario.parse(RING)
    assert without.routes.engine == "minhop"
    assert "updn found no roots" in without.notes[0]
    assert "updn found no roots" in without.run().summary()
    named = Scenario.parse(RING).changed({"routing.roots": ["s2"]})
    assert (named.routes.engine, named.notes) == ("updn", ())


def test_roots_that_leave_hosts_without_a_way_are_refused() -> None:
    trees = Scenario.parse(RING).changed({"fabric": {"topology": "chain", "switches": 5}})
    with pytest.raises(ScenarioError, match=r"routing\.roots leads nowhere from .* as roots = \["):
        trees.changed({"routing.roots": ["s0", "s4"]})
