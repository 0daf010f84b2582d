# SPDX-License-Identifier: Apache-2.0
"""Keys that do nothing beside the others: a note says so, and a run without the key is the same."""

from __future__ import annotations

import tomllib

import pytest

from verbena.sim import Scenario, ready

FABRIC = """\
[fabric]
topology = "dumbbell"
left = 2
right = 2
rate = "100GbE"
delay = "1 us"
"""
TRAFFIC = """\
[[traffic]]
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "256 KiB"
"""
TCP = TRAFFIC + 'transport = "tcp"\n'
CREDITS = '[switch]\nflow = "credits"\nroom = "128 KiB"\n'
LOSSY = '[switch]\nflow = "lossy"\n'
TWO = (
    LOSSY.replace("switch", "[switch.class]") + 'strict = true\n[[switch.class]]\nflow = "lossy"\n'
)
MARK = "[switch]\nmark = { low = 0, high = 1000 }\n"

# What stands there besides, the key that does nothing, and what the note says.
IDLE = {
    "packets of one way": (TRAFFIC, '[routing]\nbalance = "packet"\n', 'engine = "minhop" gives'),
    "a switch of its own": (
        "[switch]\n" + TRAFFIC, '[[switch.own]]\nof = "s0"\nbalance = "packet"\n', "one way"),
    "no event": (TRAFFIC, '[routing]\nreroute = "1 ms"\n', "no [[event]] of a link"),
    "no link is down": (TRAFFIC, '[[event]]\nat = "1 us"\nreroute = true\n', "no link is down"),
    "a buffer of credits": (CREDITS + TRAFFIC, 'switch.buffer = "64 KiB"\n', "have credits"),
    "a buffer of nothing": (TRAFFIC, '[switch]\nbuffer = "0 B"\n', "0 bytes are no limit"),
    "an alpha of credits": (CREDITS + TRAFFIC, "switch.alpha = 0.5\n", "has its own room"),
    "an alpha of nothing": (LOSSY + TRAFFIC, "switch.alpha = 0.5\n", "without switch.buffer"),
    "a watchdog of nothing": (
        LOSSY + TRAFFIC, 'switch.watchdog = { detect = "20 us" }\n', 'flow = "pauses"'),
    "fecn at nothing": (LOSSY + TRAFFIC, 'switch.fecn_at = "output"\n', "without fecn"),
    "a weight of one class": (LOSSY + TRAFFIC, "switch.weight = 3\n", "there is one class"),
    "one strict class": (LOSSY + TRAFFIC, "switch.strict = true\n", "there is one class"),
    "a strict class's weight": (TWO + TRAFFIC, "switch.class.0.weight = 3\n", "is strict"),
    "RC's own": (TCP, '[adapter]\nwindow = "64 KiB"\ntimeout = 4\n',
                 "adapter.timeout, adapter.window: nothing has it, since no traffic is RC"),
    "reads": (TRAFFIC, "[adapter]\nrd_atomic = 2\n", "no traffic reads"),
    "congestion of TCP": (MARK + TCP, '[congestion]\nkind = "dcqcn"\n', "all traffic is TCP"),
    "TCP's own": (TRAFFIC, "[tcp]\nmss = 1000\n", 'no traffic has transport = "tcp"'),
    "a depth of one message": (TRAFFIC, "traffic.0.depth = 4\n", "without message"),
    "a depth of TCP": (TCP, "traffic.0.depth = 4\n", "TCP has no messages"),
    "a seed of nothing": (TRAFFIC, "traffic.0.seed = 4\n", "flows draws nothing by chance"),
    "every of one": (TRAFFIC, 'traffic.0.every = "4 us"\n', "without repeat"),
}  # fmt: skip


def test_rates_between_switches_are_noted_where_there_is_one_switch() -> None:
    text = '[fabric]\ntopology = "one_switch"\nhosts = 3\nswitch_rate = "10GbE"\n' + TRAFFIC
    (note,) = Scenario.parse(text).notes
    assert note == "fabric.switch_rate: nothing has it, since no link joins two switches"


def with_key(text: str, key: str) -> Scenario:
    """The key is a table, or a setting of one that is there."""
    if key.startswith("["):
        return Scenario.parse(FABRIC + text + key)
    name, _, value = key.partition(" = ")
    return Scenario.parse(FABRIC + text).changed({name: tomllib.loads(f"x = {value}")["x"]})


@pytest.mark.parametrize("what", IDLE)
def test_a_key_that_does_nothing_is_noted(what: str) -> None:
    text, key, says = IDLE[what]
    plain, idle = Scenario.parse(FABRIC + text), with_key(text, key)
    assert not any(says in note for note in plain.notes)
    assert [note for note in idle.notes if says in note]
    one, other = plain.run(), idle.run()
    assert one.flows.tobytes() == other.flows.tobytes()
    assert one.links.tobytes() == other.links.tobytes()


@pytest.mark.parametrize(
    "text",
    [
        TRAFFIC + '[routing]\nengine = "ecmp"\nbalance = "packet"\n',
        TRAFFIC + "message = 4096\ndepth = 4\n",
        TRAFFIC + 'repeat = 2\nevery = "4 us"\n',
        '[[traffic]]\npattern = "permutation"\nsize = 4096\nseed = 4\n',
        '[[traffic]]\npattern = "incast"\nsize = 4096\nwithin = "1 us"\nseed = 4\n',
        LOSSY + 'buffer = "64 KiB"\nalpha = 0.5\n' + TRAFFIC,
        TRAFFIC + '[[event]]\nlink = "h0-s0"\nat = "1 us"\nup = false\n'
        '[routing]\nreroute = "1 us"\n',
    ],
)
def test_a_key_that_does_something_is_not(text: str) -> None:
    assert not [note for note in Scenario.parse(FABRIC + text).notes if "nothing" in note]


@pytest.mark.parametrize("name", ready.names())
def test_the_ready_ones_have_no_idle_key(name: str) -> None:
    scenario = Scenario.load(name)
    for one in [scenario.variant(name) for name in scenario.variants] or [scenario]:
        assert not [note for note in one.notes if "does nothing" in note or "nothing has" in note]
