# SPDX-License-Identifier: Apache-2.0
"""The one list of what work costs: what runs as machine code, what is charged, what takes time.

``verbena compare``, ``verbena step`` and ``System.used_costs`` print from it. Cycles that are
charged have their defaults in costs.py; ``inside`` is the key under which a simulated world has the
same cost (World.inside, the table [inside] of scenarios), with the same default and source.

    print(cost_list_text(listed_costs()))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from textwrap import wrap

from verbena._arguments import checked_arguments
from verbena.host.computer import Computer
from verbena.host.core import Core
from verbena.host.costs import DEFAULTS, ORDER, Cost
from verbena.host.disk import Disk
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.device import Hca
from verbena.host.hca.driver import HcaCosts
from verbena.host.hca.formats import CQE_BYTES
from verbena.host.pcie import Pcie

CODE, CHARGED, TIME, FREE = "machine code", "charged", "time", "takes no time"
INSTRUCTIONS, TIMES, TRANSACTIONS, BYTES = "instructions", "times", "transactions", "B"
WALKS, COMMANDS = "walks", "commands"
_LEAST_WIDTH = 80
HEAD = ["cost", "how", "each", "for each; source"]

# Keys of [inside] by the name of the charged cost.
_INSIDE = {
    "verbs_post": "cpu.post",
    "doorbell": "cpu.doorbell",
    "cq_poll": "cpu.poll",
    "hard_irq": "cpu.interrupt",
    "wakeup": "cpu.wakeup",
    "syscall": "cpu.syscall",
}
_FAULTS = "NP-RDMA (2023), its abstract"


@dataclass(frozen=True)
class ListedCost:
    """``each`` in ``unit`` for every ``per``; ``how`` is one of the words above."""

    name: str
    how: str
    each: float
    unit: str
    per: str
    source: str
    inside: str = ""

    @property
    def cells(self) -> list[str]:
        """As a row below ``HEAD``."""
        unit = "cycle" if (self.each, self.unit) == (1, "cycles") else self.unit
        world = f" ({self.inside} of [inside])" if self.inside else ""
        source = f"{self.per}; {self.source}{world}"
        return [self.name, self.how, f"{self.each:g} {unit}", source]


def listed_costs() -> list[ListedCost]:
    """The whole list, with the defaults."""
    return [*_code(), *(_charged(one) for one in DEFAULTS), *_times()]


@checked_arguments(HostTypeError)
def listed_cost(name: str) -> ListedCost:
    """The row of a name; HostError if the list has none, where a new cost has to be added."""
    for one in listed_costs():
        if one.name == name:
            return one
    raise HostError(f"the list of costs has no {name!r}: add it, with its source, to {__name__}")


@checked_arguments(HostTypeError)
def cost_list_text(costs: Iterable[ListedCost], width: int | None = None) -> str:
    """Rows as lines of text, each with its source; HostError for a ``width`` below 80.

    With ``width`` no line is longer: what is too long goes on below.
    """
    if width is not None and width < _LEAST_WIDTH:
        raise HostError(f"lines of the list of costs have {_LEAST_WIDTH} places at least")
    return table_text([HEAD, *(one.cells for one in costs)], width)


def table_text(rows: list[list[str]], width: int | None = None) -> str:
    """Rows of cells as lines; the last cell of each goes on below what ``width`` has no place
    for."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    begin = sum(widths) + 2 * len(widths)
    lines = []
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        room = None if width is None else width - begin
        last = [row[-1]] if room is None else wrap(row[-1], room, break_on_hyphens=False)
        lines.append("  ".join([*cells, last[0]]))
        lines += [" " * begin + each for each in last[1:]]
    return "\n".join(lines)


def _code() -> Iterator[ListedCost]:
    """What runs as machine code: it costs what its instructions do."""
    a_cycle = "an instruction a cycle, and the wait of a load from a device"
    for name, per, source in (
        ("program", "instruction of a program, a lesson or a process", "the interpreter"),
        ("disk_driver", "instruction of the disk's drivers in verbena compare",
         "host/comparison/drivers.py"),
        ("kernel", "instruction of the kernel: system calls, scheduler, drivers, sockets",
         "host/kernel/asm"),
    ):  # fmt: skip
        yield ListedCost(name, CODE, 1, "cycles", per, f"{source}: {a_cycle}")
    yield ListedCost(
        "python_driver", FREE, 0, "cycles",
        "request or poll of an adapter's driver in Python, unless cores are charged",
        "add_node(charged=True) charges verbs_post, doorbell and cq_poll",
    )  # fmt: skip


def _charged(one: Cost) -> ListedCost:
    inside = _INSIDE.get(one.name, "")
    return ListedCost(one.name, CHARGED, one.cycles, "cycles", one.per, one.source, inside)


def _times() -> Iterator[ListedCost]:
    """What takes a core or a transfer time without being charged to a core by name."""
    faults = HcaCosts()
    for name, took in (("minor", faults.minor_fault_ns), ("major", faults.major_fault_ns)):
        per = f"{name} page fault of an adapter with on-demand paging"
        yield ListedCost(f"{name}_fault", TIME, took, "ns", per, _FAULTS)
    yield from link_costs(Pcie())
    yield ListedCost(
        "iommu_miss", TIME, 330, "ns", "walk of an IOMMU's tables",
        "334 ns in the measurements of pcie-bench", "iommu.miss",
    )  # fmt: skip
    yield ListedCost(
        "beyond_cache", TIME, 70, "ns", "read of a device that no cache answers, in a world",
        "a read gains 54 to 75 ns in the processor's cache (pcie-bench)", "cache.beyond",
    )  # fmt: skip
    yield ListedCost(
        "adapter_entry", TIME, CQE_BYTES, "B", "request and completion of an adapter",
        "sizes of requests and completions as in Linux' driver mlx5", "hca",
    )  # fmt: skip
    yield disk_cost(Disk(bytes(512)).latency_ps)


def link_costs(link: Pcie) -> Iterator[ListedCost]:
    """What a link takes: its round trip, and the rate of each direction."""
    yield ListedCost(
        "pcie_round_trip", TIME, link.round_trip_ns, "ns", "load over a link; half for each way",
        "pcie-bench, at 128 B, by a reader's notes; machines differ tenfold", "pcie.round_trip",
    )  # fmt: skip
    yield ListedCost(
        "pcie_rate", TIME, round(link.usable_gbps, 1), "Gb/s",
        f"direction of a link of generation {link.generation} with {link.lanes} lanes",
        "headers, completions and the usable rate: the model of pcie-bench (SIGCOMM 2018)", "pcie",
    )  # fmt: skip


def disk_cost(latency_ps: float) -> ListedCost:
    """What a command of a disk takes."""
    return ListedCost(
        "disk_medium",
        TIME,
        latency_ps / 1000,
        "ns",
        "command, until the medium has the data",
        ORDER,
    )


# ---- what runs have used ------------------------------------------------------------------------


@checked_arguments(HostTypeError)
def used_costs(*computers: Computer) -> list[ListedCost]:
    """The rows that computers have used so far, with the values that they had.

    A cost that a caller has named is a row, too, which says so. ``used_costs.py`` has how often.
    """
    found: dict[str, ListedCost] = {}
    for use in uses_of(*computers):
        found.setdefault(use.cost.name, use.cost)
    return list(found.values())


@dataclass(frozen=True)
class Use:
    """A row, and how often one part of a computer has used it. ``counted`` says in what; None: it
    is not counted. With 0 it was there and was not used."""

    cost: ListedCost
    count: float | None
    counted: str


def uses_of(*computers: Computer) -> Iterator[Use]:
    """What each part of computers has used so far: cores, links, IOMMUs, disks."""
    if instructions := sum(one.instructions for one in computers):
        yield Use(listed_cost("program"), instructions, INSTRUCTIONS)
    charged = [use for one in computers for core in one.cores for use in _charged_to(core)]
    yield from charged
    if all(use.cost.name != "verbs_post" for use in charged) and any(
        isinstance(device, Hca) for one in computers for device in one.devices
    ):
        yield Use(listed_cost("python_driver"), None, TIMES)
    for one in computers:
        yield from _times_of(one)


def _charged_to(core: Core) -> Iterator[Use]:
    ledger = core.ledger
    known = {one.name: one for one in ledger.costs.all()}
    for name, cycles in ledger.cycles.items():
        times = ledger.times[name]
        if name in known:
            row = _as_charged(known[name], cycles, times)
        else:
            source = "a name of the caller's"
            row = ListedCost(name, CHARGED, cycles / (times or 1), "cycles", "charge", source)
        yield Use(row, times, TIMES)


def _as_charged(cost: Cost, cycles: float, times: float) -> ListedCost:
    """The row of a cost, with what was charged instead if that is no multiple of it."""
    row, each = _charged(cost), cycles / times if times else 0
    if each and row.each and abs(each / row.each - round(each / row.each)) > 1e-9:
        return replace(row, each=each, source="set by the caller")
    return row


def _times_of(computer: Computer) -> Iterator[Use]:
    for device in computer.devices:
        crossed = None  # whether anything has gone over its link; unknown without one
        if device.slot is not None:
            ways = device.slot.up, device.slot.down
            crossed = sum(way.transactions for way in ways)
            yield from link_uses(device.slot.link, crossed, sum(way.bytes for way in ways))
        uncounted = 0 if crossed == 0 else None
        if device.iommu is not None:
            row = replace(listed_cost("iommu_miss"), each=device.iommu.miss_ps / 1000)
            yield Use(row, uncounted, WALKS)
        if isinstance(device, Disk):
            yield Use(disk_cost(device.latency_ps), uncounted, COMMANDS)


def link_uses(link: Pcie, transactions: float, size: float) -> Iterator[Use]:
    """The rows of a link over which so many transactions of ``size`` bytes in all have gone."""
    round_trip, rate = link_costs(link)
    yield Use(round_trip, transactions, TRANSACTIONS)
    yield Use(rate, size, BYTES)
