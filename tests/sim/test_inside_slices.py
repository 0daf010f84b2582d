# SPDX-License-Identifier: Apache-2.0
"""Slices of hosts with an inside: each is behind what it follows from, and names its flow."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sim.polled_programs import serve, use
from verbena import sim
from verbena.fabrics import Fabric, one_switch, route
from verbena.sim import Scenario, World, add_group, build
from verbena.sim.inside import COSTS, NO_FLOW, TLPS, Inside

UP, DOWN, MEMORY, WIRE = 252, 253, 254, 255
START = 1_500_000_000  # ps: the one message is posted, while the load is under way
LOAD = 4 << 20
NARROW = {"generation": 3, "lanes": 1}  # slower than the cable, so that packets wait for the link
HALF_TRIP = 450_000
TEXT = """
[fabric]
topology = "one_switch"
hosts = 2
rate = "100GbE"
delay = "1 us"

[inside]
pcie = { generation = 3, lanes = 1 }
slices = 100000

[[traffic]]
name = "both ways"
pattern = "all_to_all"
size = "256 KiB"
message = "4 KiB"
depth = 8
"""


def cable() -> World:
    world = World(seed=1)
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=100 * 10**9, delay=500_000)
    return world


def two_hosts(load: bool, **inside: Any) -> tuple[World, list[Inside]]:
    """Return them with flow 0 to h1 as the load."""
    world = cable()
    wide = world.inside("h0", slices=100_000)
    narrow = world.inside("h1", pcie=NARROW, slices=100_000, **inside)
    if load:
        world.add_flows(0, 1, LOAD, start=10**9, message=65536, depth=8)
    return world, [wide, narrow]


def loaded(operation: str, size: int, load: bool, **inside: Any) -> tuple[World, list[Inside], int]:
    """Run one message from h1 to h0. Return its flow as well."""
    world, insides = two_hosts(load, **inside)
    flow = world.add_flows(1, 0, size, operation=operation, start=START)
    world.run()
    return world, insides, flow


def of(slices: NDArray[Any], row: int, what: int, flow: int) -> NDArray[Any]:
    """Return the slices of a kind in the order of their time."""
    own = slices[(slices["row"] == row) & (slices["what"] == what) & (slices["flow"] == flow)]
    return own[np.argsort(own["at"], kind="stable")]


def chain(slices: NDArray[Any], flow: int, blueflame: bool) -> list[tuple[int, int]]:
    """Return (at, end) of each step of a WRITE, each of which follows from the one before."""
    (post,) = of(slices, 0, COSTS.index("post"), flow)
    (store,) = of(slices, 0, COSTS.index("doorbell"), flow)
    (bell,) = of(slices, DOWN, TLPS.index("write"), flow)
    asks = of(slices, UP, TLPS.index("read"), flow)
    data = of(slices, DOWN, TLPS.index("data"), flow)
    (packet,) = of(slices, WIRE, 0, flow)
    (written,) = of(slices, UP, TLPS.index("write"), flow)
    (poll,) = of(slices, 0, COSTS.index("poll"), flow)
    assert len(asks) == len(data) == (1 if blueflame else 2)
    reads = [each for pair in zip(asks, data, strict=True) for each in pair]
    steps = [post, store, bell, *reads, packet, written, poll]
    return [(int(each["at"]), int(each["end"])) for each in steps]


@pytest.mark.parametrize("load", [False, True], ids=["alone", "loaded"])
@pytest.mark.parametrize("blueflame", [False, True], ids=["doorbell", "blueflame"])
def test_each_step_of_a_write_follows_from_the_one_before(blueflame: bool, load: bool) -> None:
    world, insides, flow = loaded("write", 64, load, hca={"blueflame": blueflame})
    steps = chain(insides[1].slices(), flow, blueflame)
    post, store, *crossing, packet, written, poll = steps
    assert post[0] == START
    assert post[1] == store[0]
    assert store[1] <= crossing[0][0]
    for one, other in pairwise([*crossing, packet]):
        assert one[1] + HALF_TRIP <= other[0]
    assert packet[1] <= written[0]
    assert written[1] + HALF_TRIP <= poll[0]
    assert poll[1] == world.flows()["finish"][flow]


@pytest.mark.parametrize("operation", ["write", "read", "send"])
@pytest.mark.parametrize("interrupts", [None, {}, {"time": "8 us", "packets": 4}])
def test_a_core_does_one_thing_at_a_time_none_before_its_cause(
    operation: str, interrupts: dict[str, Any] | None
) -> None:
    _, insides, _ = loaded(operation, 100_000, True, interrupts=interrupts)
    for inside in insides:
        slices = inside.slices()
        core = np.sort(slices[slices["row"] == 0], order="at")
        assert (core["end"][:-1] <= core["at"][1:]).all()
        for flow in (0, 1):
            seen = of(slices, UP, TLPS.index("msi"), flow)
            work = of(slices, 0, COSTS.index("interrupt"), flow)
            assert len(seen) == len(work)
            assert (seen["end"] + HALF_TRIP <= work["at"]).all()
            polls = of(slices, 0, COSTS.index("poll"), flow)
            written = of(slices, UP, TLPS.index("write"), flow)
            written = written[written["bytes"] == 24 + 64]
            assert len(polls) <= len(written)
            assert (written["end"][: len(polls)] + HALF_TRIP <= polls["at"]).all()


@pytest.mark.parametrize("operation", ["write", "read", "send"])
def test_bytes_in_memory_are_of_their_flow(operation: str) -> None:
    _world, insides, flow = loaded(operation, 100_000, True)
    sizes = {0: LOAD, flow: 100_000}
    for inside in insides:
        slices = inside.slices()
        memory = slices[slices["row"] == MEMORY]
        for number, size in sizes.items():
            assert memory["bytes"][memory["flow"] == number].sum() == size
        assert set(slices["flow"].tolist()) == set(sizes)


def three_hosts() -> tuple[World, list[Inside], Fabric]:
    fabric = one_switch(3)
    world = World(seed=1)
    build(world, route(fabric))
    return world, [world.inside(host, slices=100_000) for host in ("h0", "h1", "h2")], fabric


def placed(inside: Inside, flow: int) -> int:
    """Return the bytes of a flow that are in a host's row of memory."""
    slices = inside.slices()
    return int(slices["bytes"][(slices["row"] == MEMORY) & (slices["flow"] == flow)].sum())


@pytest.mark.parametrize("transport", ["ud", "uc", "tcp"])
def test_unacknowledged_packets_and_segments_name_their_flow(transport: str) -> None:
    world, insides, _ = three_hosts()
    world.add_flows(0, 1, 50_000)
    flow = world.add_flows(2, 1, 30_000, transport=transport)
    world.run()
    assert [placed(inside, 0) for inside in insides] == [50_000, 50_000, 0]
    assert [placed(inside, flow) for inside in insides] == [0, 30_000, 30_000]


def test_packets_to_a_group_name_their_flow_at_each_member() -> None:
    world, insides, fabric = three_hosts()
    group = add_group(world, fabric, fabric.hosts)
    world.add_flows(0, 1, 50_000)
    flow = world.add_flows(2, group, 30_000, transport="ud", multicast=True)
    world.run()
    assert [placed(inside, flow) for inside in insides] == [30_000, 30_000, 30_000]


def test_a_program_s_slices_name_no_flow() -> None:
    world, insides = two_hosts(load=True)
    ends = {
        "h0": lambda: serve(7471, 4096, "nothing"),
        "h1": lambda: use("h0", 7471, 4096, "write"),
    }
    sim.run(ends, world)
    for inside in insides:
        slices, seen = inside.slices(), inside.counters()
        assert set(slices["flow"].tolist()) == {0, NO_FLOW}
        assert placed(inside, 0) == seen.placed + seen.fetched - 4096
        assert placed(inside, NO_FLOW) == 4096


@pytest.mark.parametrize("transport", ["rc", "uc", "ud", "tcp"])
def test_the_wire_s_row_has_each_packet(transport: str) -> None:
    world, insides = two_hosts(load=False)
    world.add_flows(0, 1, 100_000, transport=transport)
    world.run()
    rows = [inside.slices() for inside in insides]
    assert [int(row["bytes"][row["row"] == WIRE].sum()) for row in rows] == world.links()[
        "bytes"
    ].tolist()


@pytest.mark.parametrize("blueflame", [False, True], ids=["doorbell", "blueflame"])
@pytest.mark.parametrize("transport", ["rc", "uc", "ud"])
@pytest.mark.parametrize("ghz", [0.01, 3.0])
@pytest.mark.parametrize("depth", [1, 8, 16])
def test_no_packet_leaves_before_its_request_was_posted(
    depth: int, ghz: float, transport: str, blueflame: bool
) -> None:
    world = cable()
    settings: dict[str, Any] = {"cpu": {"ghz": ghz}, "hca": {"blueflame": blueflame}}
    inside = world.inside("h0", slices=100_000, **settings)
    world.add_flows(0, 1, 40 * 64, message=64, depth=depth, transport=transport)
    world.run()
    slices = inside.slices()
    stores = of(slices, 0, COSTS.index("doorbell"), 0)
    bells = of(slices, DOWN, TLPS.index("write"), 0)
    asks = of(slices, UP, TLPS.index("read"), 0)
    packets = of(slices, WIRE, 0, 0)
    assert len(stores) == len(bells) == len(packets) == 40
    assert (stores["end"] <= bells["at"]).all()
    per_request = len(asks) // 40
    assert (bells["end"] + HALF_TRIP <= asks["at"][::per_request]).all()
    assert (bells["end"] + 3 * HALF_TRIP <= packets["at"]).all()


@pytest.mark.parametrize("transport", ["uc", "ud"])
def test_a_core_s_cycles_bound_the_rate_of_what_is_not_acknowledged(transport: str) -> None:
    """A request takes 180 cycles, and the completion of a UC request 60."""
    world = cable()
    inside = world.inside("h0", cpu={"ghz": 0.1})
    world.add_flows(0, 1, 64 * 1000, message=64, depth=16, transport=transport)
    world.run()
    cycles = 180 if transport == "ud" else 240
    assert int(world.flows()["finish"][0]) == pytest.approx(1000 * cycles * 10_000, rel=0.01)
    assert inside.counters().busy == pytest.approx(inside.counters().elapsed, rel=0.01)


def test_inline_packets_overtake_on_the_wire() -> None:
    """One that waits for no payload leaves before another flow's that does."""
    world = cable()
    inside = world.inside("h0", slices=1000, hca={"inline": 64})
    other = world.inside("h1", slices=1000)
    world.add_flows(0, 1, [50_000, 64])
    world.run()
    (packet,) = of(inside.slices(), WIRE, 0, 1)
    (placed,) = of(other.slices(), UP, TLPS.index("write"), 1)
    assert packet["end"] + 500_000 == placed["at"]


def test_overlapping_slices_of_a_link_have_rows_of_their_own(tmp_path: Path) -> None:
    scenario = Scenario.parse(TEXT)
    result = scenario.run()
    result.timeline(tmp_path / "out.json")
    shown = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in shown
        if event["name"] == "thread_name"
    }
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {place: [] for place in names}
    for event in shown:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(event)
    assert "PCIe to memory, 2" in names.values()
    for place, row in rows.items():
        if names[place].startswith(("PCIe", "core", "memory", "wire")):
            row.sort(key=lambda event: (event["ts"], event["dur"]))
            for one, other in pairwise(row):
                assert one["ts"] + one["dur"] <= other["ts"] + 1e-9
    for report in result.insides:
        own = [row for (pid, _), row in rows.items() if pid == report.host + 1]
        up = [each for row in own for each in row if each.get("cat") == "PCIe to memory"]
        assert sum(each["args"]["bytes"] for each in up) == report.counters.up.bytes
