# SPDX-License-Identifier: Apache-2.0
"""The one list of costs has every cost that anything charges, with its source."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support import ROOT
from verbena.host import CacheCosts, Caches, Computer, Costs, HostError, Iommu, Pcie, Program, Ram
from verbena.host.comparison import Setup, compare_ways
from verbena.host.comparison.tables import cost_table
from verbena.host.cost_list import ListedCost, cost_list_text, listed_cost, listed_costs, used_costs
from verbena.host.costs import DEFAULTS
from verbena.host.hca import connected
from verbena.host.hca.driver import HcaCosts
from verbena.host.kernel import System
from verbena.sim.inside import SOURCES, InsideSettings

CHARGES = re.compile(r'(?:(?<!rows)\.charge|ledger\.add|self\.add)\(\s*"([^"]+)"')
LISTED = {one.name: one for one in listed_costs()}


def test_each_name_is_once_in_the_list_with_its_source() -> None:
    assert len(LISTED) == len(listed_costs())
    assert all(one.source and one.per for one in LISTED.values())
    assert {one.name for one in DEFAULTS} <= {*LISTED}
    assert {one.how for one in LISTED.values()} == {
        "machine code", "charged", "time", "takes no time"
    }  # fmt: skip
    with pytest.raises(HostError, match="the list of costs has no 'fax': add it"):
        listed_cost("fax")


def test_the_sources_charge_no_other_name() -> None:
    found = {
        name
        for path in (ROOT / "src" / "verbena" / "host").rglob("*.py")
        for name in CHARGES.findall(path.read_text())
    }
    assert {"verbs_post", "doorbell", "cq_poll", "mr_page", "hard_irq", "segment_in"} <= found
    assert {name: LISTED[name].how for name in found} == dict.fromkeys(found, "charged")


def test_a_driver_charges_by_names_of_the_list() -> None:
    left, right = connected(vector=46, msix=True, charged=True)
    source, target = left.register(0x10_0000, 64), right.register(0x10_0000, 64)
    left.cq.poll()
    left.cq.arm()
    left.qp.write(source, target)
    left.run()
    left.cq.poll()
    assert left.driver.spent == {
        "doorbell": left.driver.spent["doorbell"], "verbs_post": 80, "cq_poll": 60,
        "cq_poll_empty": 20, "mr_register": 3000, "mr_page": 2000,
    }  # fmt: skip
    found = {one.name: one for one in used_costs(left.computer)}
    assert all(found[name] == LISTED[name] for name in left.driver.spent)


def test_other_values_are_not_said_to_be_the_list_s() -> None:
    left, right = connected(charged=True, costs=HcaCosts(post=500))
    left.qp.write(left.register(0x10_0000, 64), right.register(0x10_0000, 64))
    found = {one.name: one for one in used_costs(left.computer)}
    assert (found["verbs_post"].each, found["verbs_post"].source) == (500, "set by the caller")
    computer = Computer()
    computer.cores[0].ledger.costs = Costs(syscall=432)
    computer.cores[0].charge("syscall")
    computer.cores[0].charge("my own work", 70)
    assert [(one.name, one.each, one.source) for one in used_costs(computer)] == [
        ("syscall", 432, "set by the caller"), ("my own work", 70, "a name of the caller's")
    ]  # fmt: skip


def test_other_structures_have_the_same_values() -> None:
    copies = [LISTED[name].each for name in ("copy_l2", "copy_l2", "copy_l3", "copy_memory")]
    assert [*CacheCosts().copy_cycles_per_byte] == copies
    assert Iommu().miss_ps == LISTED["iommu_miss"].each * 1000
    assert Setup().disk_us == LISTED["disk_medium"].each / 1000


def test_worlds_have_the_same_costs_and_sources() -> None:
    by_key = {one.inside: one for one in LISTED.values() if one.inside}
    assert {key: by_key[key].source for key in SOURCES} == SOURCES
    for key, one in by_key.items():
        part, _, name = key.partition(".")
        if name:
            value = getattr(getattr(InsideSettings(), part), name)
            assert value == one.each * (1000 if one.unit == "ns" else 1), key


def test_the_comparison_prints_what_its_rows_charged() -> None:
    setup = Setup(pcie=Pcie(4, 16, round_trip_ns=500), disk_us=7)
    rows = compare_ways(64, setup=setup)
    charged = {name for row in rows for side in row.sides.values() for name in side.charged}
    table = {name: (how, each) for name, how, each, _ in cost_table(rows, setup)[1:]}
    assert {name: table[name] for name in charged} == {
        name: ("charged", LISTED[name].cells[2]) for name in charged
    }
    assert {name: table[name] for name in {*table} - charged} == {
        "disk_driver": ("machine code", "1 cycle"), "disk_medium": ("time", "7000 ns"),
        "pcie_round_trip": ("time", "500 ns"), "pcie_rate": table["pcie_rate"],
    }  # fmt: skip
    (write,) = compare_ways(64, ["write"])
    assert [row[0] for row in cost_table([write])] == [
        "cost", "cq_poll", "doorbell", "verbs_post", "pcie_round_trip", "pcie_rate"
    ]  # fmt: skip
    unknown = replace(write, here=replace(write.here, charged={"fax": 7}))
    with pytest.raises(HostError, match="no 'fax'"):
        cost_table([unknown])


def names(costs: list[ListedCost]) -> list[str]:
    return [one.name for one in costs]


def test_a_system_says_what_its_run_has_used() -> None:
    system = System(disk=bytes(512))
    system.run("mov eax, SYS_EXIT\n syscall")
    expected = ["kernel", "program", "pcie_round_trip", "pcie_rate", "disk_medium"]
    assert names(system.used_costs()) == expected
    system.computer.cores[0].charge("wakeup")
    assert system.used_costs()[2] == LISTED["wakeup"]
    text = cost_list_text(system.used_costs())
    assert "wakeup           charged       4500 cycles  wake-up of a process" in text


def test_a_computer_that_did_nothing_used_nothing() -> None:
    computer = Computer(caches=Caches(CacheCosts(load_cycles=(1, 2, 3, 7))))
    computer.map(Ram(4096), 0)
    assert used_costs(computer) == []
    computer.cores[0].charge("wakeup", loads=64, source=0)
    assert [(one.name, one.each) for one in used_costs(computer)] == [
        ("wakeup", 4500), ("load_memory", 7)
    ]  # fmt: skip
    computer = Computer()
    computer.map(Ram(4096), 0)
    assert used_costs(computer) == []
    computer.load(Program.assemble("hlt"))
    computer.run()
    assert names(used_costs(computer)) == ["program"]


def test_lines_of_a_width_have_the_same_words() -> None:
    text, narrow = (cost_list_text(listed_costs(), width) for width in (None, 100))
    assert max(map(len, narrow.splitlines())) <= 100
    assert narrow.split() == text.split()
    with pytest.raises(HostError, match="80 places at least"):
        cost_list_text([], 79)
