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
from verbena.host.costs import DEFAULTS, ORDER, Cost
from verbena.host.disk import Disk
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.device import Hca
from verbena.host.hca.driver import HcaCosts
from verbena.host.hca.formats import CQE_BYTES
from verbena.host.pcie import Pcie

CODE, CHARGED, TIME, FREE = "machine code", "charged", "time", "takes no time"
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
    rows = [HEAD, *(one.cells for one in costs)]
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    begin = sum(widths) + 6
    lines = []
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        last = [row[3]] if width is None else wrap(row[3], width - begin, break_on_hyphens=False)
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

    A cost that a caller has named is a row, too, which says so.
    """
    found: dict[str, ListedCost] = {}
    if any(one.instructions for one in computers):
        found["program"] = listed_cost("program")
    for core in (core for one in computers for core in one.cores):
        for name, cycles in core.ledger.cycles.items():
            known = {one.name: one for one in core.ledger.costs.all()}
            if name not in known:
                each = cycles / (core.ledger.times[name] or 1)
                found[name] = ListedCost(
                    name, CHARGED, each, "cycles", "charge", "a name of the caller's"
                )
            else:
                found[name] = _as_charged(known[name], cycles, core.ledger.times[name])
    if "verbs_post" not in found and any(
        isinstance(device, Hca) for one in computers for device in one.devices
    ):
        found["python_driver"] = listed_cost("python_driver")
    for one in computers:
        for row in _times_of(one):
            found.setdefault(row.name, row)
    return list(found.values())


def _as_charged(cost: Cost, cycles: float, times: float) -> ListedCost:
    """The row of a cost, with what was charged instead if that is no multiple of it."""
    row, each = _charged(cost), cycles / times if times else 0
    if each and row.each and abs(each / row.each - round(each / row.each)) > 1e-9:
        return replace(row, each=each, source="set by the caller")
    return row


def _times_of(computer: Computer) -> Iterator[ListedCost]:
    for device in computer.devices:
        if device.slot is not None:
            yield from link_costs(device.slot.link)
        if device.iommu is not None:
            yield replace(listed_cost("iommu_miss"), each=device.iommu.miss_ps / 1000)
        if isinstance(device, Disk):
            yield disk_cost(device.latency_ps)
