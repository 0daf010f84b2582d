# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of ``verbena.sim``: each is refused with a sentence that names the argument.

The tables have the call, the exception and what its text has to say. A text must not be one of
Python's or msgspec's own, which name neither the argument nor what is allowed.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verbena import fabrics, sim
from verbena.fabrics import Fabric
from verbena.sim import Hosts, Scenario, World
from verbena.sim.document import ScenarioError
from verbena.sim.reroute import ways_without
from verbena.sim.sweeps import SweepError

RAW = re.compile(
    r"object is not|not supported between|has no attribute|unhashable|invalid literal|Expected `|"
    r"NoneType|cannot convert|unexpected keyword|could not be broadcast|out of bounds|keywords must"
)
NAN, INF, HUGE = math.nan, math.inf, 2**70
SCENARIO = """
[fabric]
topology = "one_switch"
hosts = 3
[[traffic]]
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "64 KiB"
[variants.more]
seed = 5
"""

Case = tuple[dict[str, Any], type[Exception], str]


def refused(call: Callable[..., object], case: Case) -> None:
    """The call with these arguments raises this exception with this text."""
    given, kind, text = case
    with pytest.raises(kind, match=text) as caught:
        call(**given)
    assert not RAW.search(str(caught.value)), caught.value


async def program() -> None:
    pass


def rails() -> Fabric:
    """Two hosts with two ports each."""
    made = Fabric("rails")
    for name in ("h0", "h1"):
        made.add_host(name, ports=2)
    for name in ("s0", "s1"):
        made.add_switch(name, ports=2)
        made.connect("h0", name)
        made.connect("h1", name)
    return made


def run(**given: Any) -> None:
    sim.run(**{"programs": {"h0": program}, "fabric": fabrics.one_switch(2), **given})


RUN: list[Case] = [
    ({"programs": [1]}, TypeError, "programs is .1., and not a dictionary, by host"),
    ({"programs": {"h0": 5}}, TypeError, "the program of h0 is 5, and neither a function"),
    ({"programs": {"h0": lambda: 1}}, TypeError, "the program of h0 returned 1.*async def"),
    ({"programs": {"h0": lambda x: x}}, TypeError, "h0 is called without arguments .*'x'.*partial"),
    ({"programs": {"h7": program}}, ValueError, "there is no host 'h7': .*there are h0, h1"),
    ({"fabric": None}, TypeError, "fabric is None, and not a World, or a fabric"),
    ({"fabric": "h0"}, TypeError, "fabric is 'h0', and not a World"),
    ({"pkeys": [0xFFFF]}, TypeError, r"pkeys is \[65535\], and not a dictionary, by host"),
    ({"pkeys": "h0"}, TypeError, "pkeys is 'h0', and not a dictionary, by host"),
    ({"pkeys": {"h0": 5}}, ValueError, "pkeys of h0 is 5, and not a list of P_Keys"),
    ({"pkeys": {"h0": None}}, ValueError, "pkeys of h0 is None, and not a list of P_Keys"),
    ({"pkeys": {"h0": "ffff"}}, ValueError, "pkeys of h0 is 'ffff', and not a list of P_Keys"),
    ({"pkeys": {"h0": []}}, ValueError, "pkeys of h0: a port has 1 to 32 P_Keys, and not 0"),
    ({"pkeys": {"h0": [1.5]}}, ValueError, "a P_Key of h0 is 1.5, and not a whole number from 1"),
    ({"pkeys": {"h0": [True]}}, ValueError, "a P_Key of h0 is True, and not a whole number"),
    ({"pkeys": {"h0": [70000]}}, ValueError, "a P_Key of h0 is 70000, and not .* to 65535"),
    ({"pkeys": {"h0": [0x8000]}}, ValueError, "pkeys of h0: 0x8000 is of partition 0"),
    ({"pkeys": {"h0": [[1], [2]]}}, ValueError, "h0: 2 tables, and the host has 1 port$"),
    ({"pkeys": {"h00": [1]}}, ValueError, "there is no host 'h00': is 'h0' meant"),
    ({"framing": 5}, ValueError, "framing is 5, and not a list with one of bare, ethernet, inf"),
    ({"framing": "etherent"}, ValueError, "framing is 'etherent', and not one of bare, ethernet"),
    ({"framing": {"h0": "bare"}}, ValueError, "framing is {'h0': 'bare'}, and not a list"),
    ({"framing": [None]}, ValueError, "framing.0 is None, and not one of bare, ethernet"),
    ({"framing": []}, ValueError, "framing has 0 entries, and h0 has 1 port: give one for each"),
    ({"framing": ["bare"] * 2}, ValueError, "framing has 2 entries, and h0 has 1 port"),
    ({"until": "1 ms"}, ValueError, "until is '1 ms', and not a number of seconds from 0 to"),
    ({"until": -1}, ValueError, "until is -1, and not a number of seconds from 0"),
    ({"until": NAN}, ValueError, "until is nan, and not a number of seconds"),
    ({"until": INF}, ValueError, "until is inf, and not a number of seconds"),
    ({"until": 1e30}, ValueError, r"until is 1e\+30, and not a number of seconds .* to 9000000"),
    ({"until": True}, ValueError, "until is True, and not a number of seconds"),
    ({"control_delay": None}, ValueError, "control_delay is None, and not a number of seconds"),
    ({"control_delay": INF}, ValueError, "control_delay is inf, and not a number of seconds"),
    ({"control_delay": NAN}, ValueError, "control_delay is nan, and not a number of seconds"),
    ({"control_delay": [1]}, ValueError, r"control_delay is \[1\], and not a number of seconds"),
    ({"switch": 5}, TypeError, "switch is 5, and not a dictionary of the keywords of World.add_sw"),
    ({"switch": []}, TypeError, r"switch is \[\], and not a dictionary"),
    ({"switch": [("buffer", 1)]}, TypeError, "switch is .*, and not a dictionary"),
    ({"switch": {5: 6}}, TypeError, "a key of switch is 5, and not a keyword"),
    ({"switch": {"bufer": 1}}, TypeError, "switch: unknown keyword bufer: is 'buffer' meant"),
    ({"switch": {"ports": 4}}, ValueError, "switch: leave ports out"),
    ({"switch": {"lanes": 5}}, ValueError, "switch: lanes is 5, and not a list of dictionaries"),
    ({"switch": {"lanes": [5]}}, ValueError, "switch: lanes.0 is 5, and not a dictionary"),
    ({"switch": {"lanes": [{1: 2}]}}, ValueError, "lanes.0: a key is 1: it is to be text"),
    ({"switch": {"buffer": "64 KiB"}}, ValueError, "buffer is '64 KiB', .*number of bytes from 0"),
    ({"switch": {"lifetime": 0.5}}, ValueError, "lifetime is 0.5, .*a whole number of ps from 0"),
    ({"switch": {"low": [(1, 2, 3)]}}, ValueError, r"low.0 is \[1, 2, 3\], and not a list of 2, "),
    ({"switch": {"mark": (1, 2)}}, ValueError, r"mark: it has 2 values, .*\(Kmin, Kmax, Pmax\)"),
    ({"switch": {"fecn_victims": "x"}}, ValueError, "fecn_victims is 'x', and not 'hosts' or a"),
    ({"background": "h0"}, ValueError, r"background is 'h0', and not a list of hosts, as \['h0'\]"),
    ({"background": None}, ValueError, "background is None, and not a list of hosts"),
    ({"background": [5]}, ValueError, "background.0 is 5, and not a string"),
    ({"background": ["h1"]}, ValueError, "background: there is no program on host 'h1': .* h0"),
    ({"background": ["h0"]}, ValueError, "background names every host that has a program"),
    ({"seed": -1}, ValueError, "seed is -1, and not a whole number from 0"),
    ({"seed": 2**64}, ValueError, "seed is .*whole number from 0 to 18446744073709551615$"),
    ({"seed": 1.5}, ValueError, "seed is 1.5, and not a whole number"),
    ({"tcp": []}, ValueError, r"tcp is \[\], and not a dictionary"),
    ({"congestion": {}}, ValueError, "congestion needs kind: one of dcqcn, cct, hpcc"),
    ({"fabric": World(), "mtu": 256}, ValueError, "settings were given .*: leave out mtu"),
    ({"fabric": World(), "switch": {}}, ValueError, "settings were given .*: leave out switch"),
]


@pytest.mark.parametrize("case", RUN, ids=str)
def test_run_names_a_wrong_argument(case: Case) -> None:
    refused(run, case)


@pytest.mark.parametrize("framing", [["ethernet"], ["ethernet"] * 3])
def test_framing_is_a_list_of_as_many_as_a_host_has_ports(framing: list[str]) -> None:
    many = "1 entry" if len(framing) == 1 else "3 entries"
    text = f"framing has {many}, and h0 has 2 ports: give one for each port"
    with pytest.raises(ValueError, match=text):
        sim.run({}, rails(), framing=framing)
    sim.run({}, rails(), framing=framing[:1] * 2)


@pytest.mark.parametrize("names", [("h0",), {"h0"}, {"h0": 1}.keys(), np.array(["h0"])])
def test_background_is_any_collection_of_names(names: Any) -> None:
    sim.run({"h0": program, "h1": program}, fabrics.one_switch(2), background=names)


def test_numpy_numbers_are_numbers() -> None:
    keys: Any = np.array([0xFFFF, 0x8001])
    result = sim.run(
        {"h0": program}, fabrics.one_switch(2), until=float(np.float64(1)), pkeys={"h0": keys}
    )
    assert result.hosts["h0"].pkeys == ((0xFFFF, 0x8001),)


# ---- a program's timers, and the network beside the fabric ---------------------------------------


def test_a_sleep_without_an_end_is_no_error_of_the_clock() -> None:
    """As on a real loop: it is cancelled when the awaited programs have returned."""

    async def idle() -> None:
        await asyncio.sleep(INF)

    async def short() -> str:
        await asyncio.sleep(1e-6)
        return "done"

    programs = {"h0": short, "h1": idle}
    result = sim.run(programs, fabrics.one_switch(2), background=["h1"])
    assert result.returned == {"h0": "done"}
    assert result.now == pytest.approx(1e-6)


def test_a_sleep_without_an_end_is_named_when_nothing_else_happens() -> None:
    async def idle() -> None:
        await asyncio.sleep(1e30)

    with pytest.raises(sim.Deadlock, match=r"h0: .*in idle"):
        sim.run({"h0": idle}, fabrics.one_switch(2))


def test_a_timer_that_is_not_a_number_is_refused() -> None:
    async def wrong() -> None:
        await asyncio.sleep(NAN)

    with pytest.raises(ValueError, match="NaN"):
        sim.run({"h0": wrong}, fabrics.one_switch(2))


@pytest.mark.parametrize(
    ("port", "error", "why"),
    [
        ("http", OSError, "and not a number from 0 to 65535"),
        (1.5, OSError, "and not a number from 0 to 65535"),
        (-1, OverflowError, r"port must be 0-65535\."),
        (70000, OverflowError, r"port must be 0-65535\."),
    ],
)
def test_a_port_that_is_no_number_is_named(port: Any, error: type[Exception], why: str) -> None:
    async def client() -> None:
        await asyncio.open_connection("h1", port)

    async def server() -> None:
        await asyncio.start_server(lambda reader, writer: None, port=port)

    for each in (client, server):
        with pytest.raises(error, match=rf"the port is {port!r}.*{why}"):
            sim.run({"h0": each}, fabrics.one_switch(2))


# ---- worlds --------------------------------------------------------------------------------------


def routed() -> World:
    made = World()
    sim.build(made, fabrics.route(fabrics.one_switch(3)))
    return made


def build(**given: Any) -> None:
    sim.build(**{"world": World(), "routes": fabrics.route(fabrics.one_switch(3)), **given})


BUILD: list[Case] = [
    ({"world": None}, TypeError, "world is None, and not a World"),
    ({"world": World}, TypeError, "world is the class World, and not a World"),
    ({"routes": None}, TypeError, "routes is None, and not the Routes that fabrics.route"),
    ({"routes": fabrics.one_switch(3)}, TypeError, r"build takes routes.*fabrics.route\(fabric\)"),
    ({"switch": "x"}, TypeError, "switch is 'x', and not a dictionary"),
    ({"own": {99: {}}}, ValueError, "a switch of own is 99, and not a whole number from 0 to 0"),
    ({"own": {0: 5}}, TypeError, r"own\[0\] is 5, and not a dictionary"),
    ({"own": [1]}, TypeError, r"own is \[1\], and not a dictionary"),
    ({"framing": "bare"}, ValueError, "framing is 'bare', and not a list"),
    ({"framing": ["bare"] * 2}, ValueError, "framing has 2 entries, and h0 has 1 port"),
    ({"bit_error_rate": "x"}, ValueError, "bit_error_rate is 'x', and not a number, or one for"),
    ({"bit_error_rate": [0, 0]}, ValueError, r"bit_error_rate has the shape \(2,\).*the 3 cables"),
    ({"bit_error_rate": NAN}, ValueError, "bit_error_rate is nan, and not a number from 0"),
    ({"extender": [0] * 5}, ValueError, r"extender has the shape \(5,\).*each of the 3 cables"),
    ({"extender": 1.5}, ValueError, "extender is 1.5, and not a whole number, or one for each"),
]


@pytest.mark.parametrize("case", BUILD, ids=str)
def test_build_names_a_wrong_argument(case: Case) -> None:
    refused(build, case)


WORLD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("add_host", {"framing": []}, ValueError, r"framing is \[\], and not one of bare"),
    ("add_switch", {"ports": NAN}, ValueError, "ports is nan, and not a whole number from 1"),
    ("connect", {"a": None}, ValueError, "there is no node None: they are 0 to 3"),
    ("connect", {"a": True}, ValueError, "there is no node True"),
    ("connect", {"a_port": "x"}, ValueError, "there is no port 'x' of node 3: they are 0 to 3"),
    ("connect", {"bit_error_rate": "x"}, ValueError, "bit_error_rate is 'x', and not a number"),
    ("connect", {"extender": []}, ValueError, r"extender is \[\], and not a whole number"),
    ("set_link", {"at": "x"}, ValueError, "at is 'x', and not a whole number from 0"),
    ("set_link", {"at": 1.5}, ValueError, "at is 1.5, and not a whole number from 0"),
    ("set_link", {"at": HUGE}, ValueError, "at is 11805.*, and not a whole number from 0"),
    ("set_link", {"up": 5}, TypeError, "up is 5, and neither True nor False"),
    ("call_at", {"function": "x"}, TypeError, "function is 'x', and not a function"),
    ("capture", {"path": 5}, TypeError, "path is 5, and not the name of a file"),
    ("set_routes", {"switch": None}, ValueError, "there is no node None: they are 0 to 3"),
    ("set_routes", {"switch": 0}, ValueError, "node 0 is not a switch"),
    ("set_routes", {"ports": None}, ValueError, "are to be whole numbers, and are None"),
    ("set_detours", {"per": []}, ValueError, r"per is \[\], and not one of flow, packet"),
    ("add_group", {"members": 5}, ValueError, "members is 5, and not a list of hosts"),
    ("add_group", {"members": ["h0"]}, ValueError, "there is no host 'h0': they are 0 to 2"),
    ("add_group", {"ports": [1]}, ValueError, r"ports is \[1\], and not a dictionary of lists"),
    ("add_group", {"ports": {3: 1}}, ValueError, "an entry of ports is 1, and not a list"),
    ("add_flows", {"size": 1e6}, ValueError, "size is 1000000.0, and not a whole number, or an"),
    ("add_flows", {"read": "x"}, ValueError, "read is 'x', and not True or False, or an array"),
    ("add_flows", {"control": 5}, ValueError, "control is 5, and not one of reno, cubic, dctcp"),
    ("add_flows", {"source": [0, 1], "size": [1, 2, 3]}, ValueError, "source 2, size 3"),
    ("add_flows", {"after": 5}, ValueError, "after is 5, and not a list of pairs of flows"),
    ("sample", {"queues": 5}, ValueError, "queues is 5, and not a list of"),
    ("sample", {"queues": [5]}, ValueError, r"a queue is 5, and not \(node, port\)"),
    ("sample", {"queues": [(0, 0, 9)]}, ValueError, "there is no lane 9 of port 0 of node 0"),
    ("pause_storm", {"host": "h0"}, ValueError, "there is no node 'h0': they are 0 to 3"),
    ("run", {"until": "x"}, ValueError, "until is 'x', and not a whole number from 0"),
    ("run", {"progress": 5}, TypeError, "progress is 5, and not a function"),
    ("delivered", {"group": [NAN]}, ValueError, "group is .*: there are 0 flows"),
    ("counters", {"host": 1.5}, ValueError, "there is no host 1.5: they are 0 to 2"),
    ("congestion_log", {"host": None}, ValueError, "there is no host None: they are 0 to 2"),
]
USUAL: dict[str, dict[str, Any]] = {
    "add_host": {},
    "add_switch": {"ports": 2},
    "connect": {"a": 3, "a_port": 0, "b": 2, "b_port": 0, "rate": 10**9, "delay": 0},
    "set_link": {"node": 0, "port": 0, "up": False, "at": 5},
    "call_at": {"at": 5, "function": print},
    "capture": {"node": 0, "port": 0, "path": "unused.pcapng"},
    "set_routes": {"switch": 3, "ports": [1, 2, 3]},
    "set_detours": {"group": [0] * 4},
    "add_group": {"members": [0, 1], "ports": {3: [1, 2]}},
    "add_flows": {"source": 0, "target": 2, "size": 100},
    "sample": {"interval": 100},
    "pause_storm": {"host": 0},
    "run": {},
    "delivered": {"group": [], "groups": 1},
    "counters": {"host": 0},
    "congestion_log": {"host": 0},
}


@pytest.mark.parametrize(("method", "given", "kind", "text"), WORLD, ids=str)
def test_a_world_names_a_wrong_argument(
    method: str, given: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused(getattr(routed(), method), ({**USUAL[method], **given}, kind, text))


def test_the_one_node_there_is_has_no_range() -> None:
    world = World()
    world.add_host()
    with pytest.raises(ValueError, match="there is no node 1: there is only 0"):
        world.set_link(1, 0, False, 0)


def levels(**given: Any) -> None:
    routes = fabrics.route(fabrics.ring(5), "dfsssp")
    sim.levels(**{"routes": routes, "source": 0, "target": 1, **given})


def add_group(**given: Any) -> None:
    fabric = fabrics.one_switch(3)
    sim.add_group(**{"world": routed(), "fabric": fabric, "members": ["h0", "h1"], **given})


def hosts(**given: Any) -> None:
    Hosts(**{"world": routed(), **given})


def rerouted(**given: Any) -> None:
    ways_without(**{"fabric": fabrics.one_switch(3), "down": [], "engine": "updn", **given})


OTHERS: list[tuple[Callable[..., None], Case]] = [
    (levels, ({"routes": 5}, TypeError, "routes is 5, and not the Routes")),
    (levels, ({"source": 99}, ValueError, "source: there is no host 99: there are 0 to 4")),
    (levels, ({"target": -1}, ValueError, "target: there is no host -1")),
    (levels, ({"target": "h1"}, ValueError, "target is 'h1', and not the number of a host")),
    (add_group, ({"world": 5}, TypeError, "world is 5, and not a World")),
    (add_group, ({"fabric": None}, TypeError, "fabric is None, and not the Fabric")),
    (add_group, ({"members": "h0"}, TypeError, "members is 'h0', and not a list of hosts' names")),
    (add_group, ({"members": [0]}, TypeError, "one of members is 0, and not the name of a host")),
    (add_group, ({"senders": 5}, TypeError, "senders is 5, and not a list of hosts' names")),
    (hosts, ({"world": 5}, TypeError, "world is 5, and not a World")),
    (hosts, ({"names": "abc"}, TypeError, "names is 'abc', and not a list of the hosts' names")),
    (hosts, ({"names": [1, 2, 3]}, TypeError, "a name of a host is 1, and not a string")),
    (hosts, ({"ports": 5}, TypeError, "ports is 5, and not a list")),
    (hosts, ({"ports": [[0], [1], [9]]}, ValueError, "a port is 9, and not .* from 0 to 2")),
    (rerouted, ({"fabric": 5}, TypeError, "fabric is 5, and not a Fabric")),
    (rerouted, ({"down": "h0-s0"}, TypeError, "down is 'h0-s0', and not a list of cables")),
    (rerouted, ({"down": ["h0-s0"]}, TypeError, "one of down is 'h0-s0', and not a Cable")),
    (rerouted, ({"roots": 5}, ValueError, "roots is 5, and not a list of switches' names")),
    (rerouted, ({"rots": []}, TypeError, "the engine updn has no option 'rots': it has roots")),
]


@pytest.mark.parametrize(("call", "case"), OTHERS, ids=str)
def test_a_wrong_argument_is_named(call: Callable[..., None], case: Case) -> None:
    refused(call, case)


@pytest.mark.parametrize("name", [[], {}, None, 5])
def test_a_host_is_found_by_text_alone(name: Any) -> None:
    found = Hosts(routed())
    assert found.find(name) is None
    with pytest.raises(ValueError, match=r"there is no host .*: there are h0, h1, h2"):
        found[name]


# ---- scenarios, results and sweeps ---------------------------------------------------------------

Method = tuple[str, dict[str, Any], type[Exception], str]
OF_A_SCENARIO: list[Method] = [
    ("load", {"path": None}, TypeError, "path is None, and not a file or the name of a ready"),
    ("parse", {"text": b""}, TypeError, "text is b'', and not the text of a TOML file"),
    ("parse", {"text": "", "folder": 5}, TypeError, "folder is 5, and not a folder"),
    ("make", {"settings": []}, TypeError, r"settings is \[\], and not a dictionary"),
    ("changed", {"changes": "x"}, TypeError, "changes is 'x', and not a dictionary, as"),
    ("changed", {"changes": {5: 1}}, TypeError, "a key of changes is 5, and not the name of a"),
    ("variant", {"name": None}, ScenarioError, "no variant None: there are more"),
    ("variant", {"name": "mor"}, ScenarioError, "no variant \"mor\": is 'more' meant"),
    ("variant", {"name": "more", "changes": [1]}, TypeError, r"changes is \[1\], and not a dict"),
    ("run", {"progress": 5}, TypeError, "progress is 5, and not a function of the World"),
    ("run", {"captures": "x"}, TypeError, "captures is 'x', and not a dictionary"),
    ("run", {"captures": {"h0-s0": 5}}, TypeError, "the capture of h0-s0 is 5, and not the name"),
    ("run", {"capture_bytes": 5}, ValueError, "capture_bytes is 5, and not a whole number from 64"),
]


@pytest.mark.parametrize(("method", "given", "kind", "text"), OF_A_SCENARIO, ids=str)
def test_a_scenario_names_a_wrong_argument(
    method: str, given: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused(getattr(Scenario.parse(SCENARIO), method), (given, kind, text))


OF_A_RESULT: list[Method] = [
    ("of", {"traffic": 5}, ValueError, "traffic is 5, and not a whole number from 0 to 0"),
    ("durations", {"traffic": NAN}, ValueError, "traffic is nan, and not a whole number"),
    ("goodput", {"traffic": -1}, ValueError, "traffic is -1, and not a whole number"),
    ("throughput", {"traffic": None}, ValueError, "traffic is None, and not a whole number"),
    ("link_name", {"link": 99}, ValueError, "link is 99, and not a whole number from 0 to 5"),
    ("end_name", {"number": -1}, ValueError, "number is -1, and not a whole number from 0 to 3"),
    ("queue", {"link": "h0-s0"}, ValueError, "link is 'h0-s0', and not a whole number"),
    ("queue", {"link": 0, "class_": None}, ValueError, "class_ is None, and not a whole number"),
    ("plot", {"folder": None}, TypeError, "folder is None, and not the name of a file or folder"),
    ("timeline", {"path": 5}, TypeError, "path is 5, and not the name of a file"),
    ("to_parquet", {"folder": 5}, TypeError, "folder is 5, and not the name of a file or folder"),
    ("from_parquet", {"folder": 5}, TypeError, "folder is 5, and not the name of a file or folder"),
]


@pytest.mark.parametrize(("method", "given", "kind", "text"), OF_A_RESULT, ids=str)
def test_a_result_names_a_wrong_argument(
    method: str, given: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused(getattr(Scenario.parse(SCENARIO).run(), method), (given, kind, text))


def sweep(**given: Any) -> None:
    usual = {"scenario": Scenario.parse(SCENARIO), "workers": 1, "quiet": True}
    sim.sweep(**{**usual, **given})


SWEEP: list[Case] = [
    ({"scenario": "incast"}, TypeError, "scenario is 'incast', and not a Scenario"),
    ({"over": "x"}, TypeError, "over is 'x', and not a dictionary of lists"),
    ({"over": {5: [1]}}, TypeError, "a key of over is 5, and not the name of a setting"),
    ({"seeds": NAN}, ValueError, "seeds is nan, and not a whole number from 1"),
    ({"seeds": 0}, ValueError, "seeds is 0, and not a whole number from 1"),
    ({"seeds": HUGE}, ValueError, "seeds is 11805.*, and not a whole number from 1"),
    ({"seeds": "12"}, ValueError, "seeds is '12', and not a number or a list of numbers"),
    ({"workers": 0}, ValueError, "workers is 0, and not a whole number from 1"),
    ({"workers": 1.5}, ValueError, "workers is 1.5, and not a whole number from 1"),
    ({"measure": 5}, TypeError, "measure is 5, and not a function of a ScenarioResult"),
    ({"measure": lambda result: 5}, SweepError, "measure returned 5, and not a dictionary"),
    ({"over": {"switch.buffer": ["x"]}}, ScenarioError, 'with switch.buffer = "x", seed = 0'),
]


@pytest.mark.parametrize("case", SWEEP, ids=str)
def test_a_sweep_names_a_wrong_argument(case: Case) -> None:
    refused(sweep, case)


# ---- values in errors of scenarios are written as in TOML ----------------------------------------

NOTATION: list[tuple[dict[str, Any], str]] = [
    ({"duration": ["a", "b"]}, 'duration = ["a", "b"]: it is not a time'),
    ({"duration": True}, "duration = true: it is not a time"),
    ({"duration": ("a", 1)}, 'duration = ["a", 1]: it is not a time'),
    ({"fabric.hosts": {"a": [1, None]}}, "fabric.hosts = {a = [1, no value]}: it is to be a whole"),
    ({"fabric.hosts": None}, "fabric needs more for one_switch: hosts"),
    ({"switch.buffer": None}, "switch.buffer has no value: it is to be a number of bytes from 0; "),
    ({"fabric.topology": 'a"b'}, r'fabric.topology = "a\"b": there are'),
    ({"traffic": [["a"]]}, 'traffic.0 = ["a"]: it is to be a table, [[traffic]]'),
    ({"variants": {"v": 5}}, "variants.v = 5: it is to be a table, [variants.v]"),
    ({"traffic.0.to": "h9"}, 'traffic.0.to = "h9": there is no such host'),
    ({"traffic.0.to": []}, "a list of one stands for all: from has 2, to has 0, size has 1"),
    ({"routing.engine": "ugal", "routing.reroute": "1 us"}, "cannot route this"),
    ({"switch.flow": "lossy", "switch.room": 5}, 'switch.room is only for flow = "credits"'),
    ({"switch.own": [{"of": "h0"}]}, 'switch.own.0.of = "h0": there is no switch "h0"'),
    ({"storm": [{"host": "h9"}]}, 'storm.0.host = "h9": there is no such host'),
    ({"storm": [{"host": "h0"}]}, 'storm.0 is for a class with flow = "pauses"'),
    ({"group": [{"name": "g", "members": ["x"]}]}, 'group.0.members = "x": there is no host "x"'),
    ({"duration": "5 parsecs"}, 'it has the unit "parsecs", which is not one of ps, ns'),
]


@pytest.mark.parametrize(("changes", "text"), NOTATION, ids=str)
def test_a_scenario_shows_values_as_toml(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse(SCENARIO).changed(changes)
    assert text in str(caught.value)
