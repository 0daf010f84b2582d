# SPDX-License-Identifier: Apache-2.0
"""Every run says which costs it used, how often and from which source, in one form."""

from __future__ import annotations

import json

import pytest

from tests.sim.fabrics import star
from tests.sim.programs import echo, ping
from verbena import sim
from verbena.host import (
    Computer,
    Costs,
    Disk,
    EthernetAdapter,
    Machines,
    Pcie,
    Program,
    Ram,
)
from verbena.host.comparison import compare_ways
from verbena.host.comparison.tables import rows_costs
from verbena.host.cost_list import listed_costs
from verbena.host.kernel import System
from verbena.host.kernel.system import run_systems
from verbena.host.used_costs import UsedCosts, costs_of

LISTED = {one.name: one for one in listed_costs()}
EXIT = "mov eax, SYS_EXIT\n syscall"
DEVICE = 0x1000_0000


def counts(costs: UsedCosts) -> dict[str, tuple[float | None, str]]:
    return {one.name: (one.count, one.counted) for one in costs}


def computer_with(program: str) -> Computer:
    computer = Computer()
    computer.map(Ram(4096), 0)
    computer.map(EthernetAdapter(), DEVICE, pcie=Pcie())
    computer.load(Program.assemble(program))
    return computer


def test_a_computer_has_the_costs_of_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A load of 4 bytes is a request of 24 bytes and a completion of 24."""
    computer = computer_with(f"mov rbx, {DEVICE}\n mov eax, dword ptr [rbx]\n hlt")
    assert computer.costs == ()
    computer.run()
    slot = computer.devices[0].slot
    assert slot is not None
    crossed = slot.up.bytes + slot.down.bytes
    assert crossed == 24 + 24
    assert counts(computer.costs) == {
        "program": (3, "instructions"),
        "pcie_round_trip": (2, "transactions"),
        "pcie_rate": (crossed, "B"),
    }
    computer.cores[0].ledger.costs = Costs(syscall=432)
    computer.cores[0].charge("syscall", times=3)
    computer.cores[0].charge("my own work", 70)
    assert counts(computer.costs)["syscall"] == (3, "times")
    sources = {one.name: one.source for one in computer.costs}
    assert sources["syscall"] == "set by the caller"
    assert sources["my own work"] == "a name of the caller's"
    assert sources["program"] == LISTED["program"].source
    assert capsys.readouterr().out == ""  # nothing is printed unasked


def test_the_text_has_counts_and_sources() -> None:
    computer = computer_with("hlt")
    computer.run()
    computer.cores[0].charge("wakeup", times=1200)
    lines = str(computer.costs).splitlines()
    assert lines[0].split() == ["cost", "how", "used", "each", "for", "each;", "source"]
    assert lines[2].startswith("wakeup   charged       1,200 times     4500 cycles")
    assert lines[2].endswith("(cpu.wakeup of [inside])")
    narrow = computer.costs.text(90)
    assert max(map(len, narrow.splitlines())) <= 90
    assert narrow.split() == str(computer.costs).split()


def test_what_is_there_and_was_not_used_is_no_row() -> None:
    computer = Computer()
    computer.map(Ram(4096), 0)
    computer.map(Disk(bytes(512)), DEVICE, pcie=Pcie())
    assert computer.costs == ()


def test_machines_have_the_sum_and_different_values_apart() -> None:
    machines = Machines()
    for name, cycles in (("left", 432), ("middle", 432), ("right", 500)):
        one = machines.computer(name)
        one.map(Ram(4096), 0)
        one.load(Program.assemble("nop\n hlt"))
        one.cores[0].ledger.costs = Costs(syscall=cycles)
        one.cores[0].charge("syscall")
    machines.run()
    rows = [(one.name, one.cost.each, one.count) for one in machines.costs]
    assert rows == [("program", 1, 6), ("syscall", 432, 2), ("syscall", 500, 1)]
    assert machines.costs == costs_of(*machines.computers)


def test_a_system_has_its_kernel_and_its_processes() -> None:
    machines = Machines()
    systems = [System(name=name, machines=machines) for name in ("left", "right")]
    processes = [one.start(EXIT) for one in systems]
    run_systems(*systems)
    for system, process in zip(systems, processes, strict=True):
        found = counts(system.costs)
        assert [*found] == ["kernel", "program"]
        assert found["program"] == (process.cycles.user, "cycles")
        core = system.computer.cores[0]
        idle = round(system.computer.counters.idle_ps / system.computer.cycle_ps)
        kernel, counted = found["kernel"]
        assert kernel == core.state.cycles - idle - process.cycles.user
        assert counted == "cycles"
        core.charge("wakeup")
        assert counts(system.costs) == found | {"wakeup": (1, "times")}


def test_a_run_of_programs_has_the_costs_of_its_insides(capsys: pytest.CaptureFixture[str]) -> None:
    world = sim.World(3)
    star(world, 3)
    insides = [world.inside(host, cpu={"syscall": 700}, hca={"inline": 64}) for host in (0, 1)]
    assert sim.world_costs(world) == ()
    result = sim.run({"h0": echo(7471, 40), "h1": ping("h0", 7471, 40)}, world)
    assert result.costs == sim.world_costs(world)
    found = {one.name: one for one in result.costs}
    expected = {"verbs_post": 160, "doorbell": 80, "cq_poll": 160, "hard_irq": 160,
                "wakeup": 160, "syscall": 320, "registration": 2}  # fmt: skip
    assert {name: found[name].count for name in expected} == expected
    assert (found["syscall"].cost.each, found["syscall"].source) == (700, "set by the caller")
    assert found["verbs_post"].cost == LISTED["verbs_post"]
    seen = [inside.counters() for inside in insides]
    assert found["pcie_rate"].count == sum(one.up.bytes + one.down.bytes for one in seen)
    alone = {one.name: one.count for one in insides[0].used_costs()}
    assert {name: 2 * (alone[name] or 0) for name in expected} == expected
    assert "kernel.registration of [inside]" in str(result.costs)
    assert capsys.readouterr().out == ""


def test_a_run_without_an_inside_used_nothing() -> None:
    world = sim.World(3)
    star(world, 3)
    assert sim.run({"h0": echo(7471, 2), "h1": ping("h0", 7471, 2)}, world).costs == ()


def test_flows_of_a_world_use_costs() -> None:
    world = sim.World(framing="bare")
    star(world, 2)
    inside = world.inside(1, cache={"ddio": False}, iommu={"entries": 1})
    world.add_flows([1], 0, 1 << 16)
    world.run()
    found = {one.name: one for one in sim.world_costs(world)}
    seen = inside.counters()
    assert found["iommu_miss"].count == seen.iotlb[1] > 0
    assert found["beyond_cache"].count == seen.up.tlps["read"][0] > 0
    with pytest.raises(TypeError, match="world"):
        sim.world_costs("h0")  # type: ignore[arg-type]


def test_the_comparison_counts_its_costs() -> None:
    """A WRITE is one request, one doorbell and one poll with a completion."""
    rows = compare_ways(64, ["write"])
    costs = rows_costs(rows)
    crossings = [one for side in rows[0].sides.values() for one in (side.to_device, side.to_memory)]
    assert counts(costs) == {
        "cq_poll": (1, "times"),
        "doorbell": (1, "times"),
        "verbs_post": (1, "times"),
        "pcie_round_trip": (sum(one.transactions for one in crossings), "transactions"),
        "pcie_rate": (sum(one.bytes for one in crossings), "B"),
    }


def test_the_command_prints_costs_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    from verbena.cli import compare

    words = ["--size", "64", "--write", "--dma", "--json"]
    assert compare.main(words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert compare.main([*words, "--costs"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {*found} == {"rows", "costs"}
    assert found["rows"] == plain
    assert found["costs"] == rows_costs(compare_ways(64, ["write", "dma"])).data
    medium = next(one for one in found["costs"] if one["name"] == "disk_medium")
    assert (medium["count"], medium["counted"], medium["each"]) == (1, "commands", 10000)
    assert all(one["source"] for one in found["costs"])
    with pytest.raises(SystemExit):
        compare.main(["--write", "--costs"])
    assert "--costs is of --json" in capsys.readouterr().err
