# SPDX-License-Identifier: Apache-2.0
"""The table [inside] of a scenario: the insides of its hosts, and what they did in a run.

``Scenario`` calls ``read_inside`` once the fabric is known, ``InsidePlan.add`` for each world, and
``InsideReport.of`` at the end. The keys are those of ``World.inside``, and ``hosts``: without it
all hosts get the same inside. An empty table gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from numpy.typing import NDArray

from verbena.sim._world import World
from verbena.sim.document import Section, toml_text
from verbena.sim.inside import (
    COSTS,
    Inside,
    InsideCounters,
    InsideSettings,
    parameters,
    printed_costs,
)
from verbena.sim.settings import MANY, given, unit

__all__ = [
    "InsidePlan", "InsideReport", "full_slices", "inside_lines", "read_inside", "used_costs",
]  # fmt: skip

WHOLE = {"whole": int}


class _Table(InsideSettings):
    hosts: Annotated[list[Annotated[int, unit("host")]] | None, MANY] = None


@dataclass(frozen=True)
class InsidePlan:
    """Which hosts get an inside, by number, and its keywords."""

    hosts: tuple[int, ...]
    keywords: dict[str, Any]

    def add(self, world: World) -> list[Inside]:
        """Give the hosts of a new world their insides."""
        return [world.inside(host, **self.keywords) for host in self.hosts]


@dataclass(frozen=True, eq=False)
class InsideReport:
    """What the inside of a host did until the end of a run. ``slices``: ``Inside.slices``;
    ``costs``: ``Inside.costs``."""

    host: int
    counters: InsideCounters
    slices: NDArray[Any]
    costs: tuple[str, ...] = COSTS

    @classmethod
    def of(cls, inside: Inside) -> InsideReport:
        return cls(inside.host, inside.counters(), inside.slices(), inside.costs)


def read_inside(section: Section, hosts: Sequence[str]) -> InsidePlan | None:
    """Return the plan, or None without a table. ``hosts``: the names, by number. Raises
    ScenarioError."""
    numbers = {name: number for number, name in enumerate(hosts)}

    def number(name: object) -> int:
        if not isinstance(name, str) or name not in numbers:
            raise ValueError(f"there is no host {toml_text(name)}")
        return numbers[name]

    if not section.table:
        return None
    table = section.read(_Table, {"host": number, **WHOLE})
    keywords = {name: value for name, value in given(table).items() if name != "hosts"}
    try:
        parameters(InsideSettings(**keywords))
    except ValueError as error:
        raise section.blame(error) from None
    chosen = tuple(range(len(hosts))) if table.hosts is None else tuple(table.hosts)
    if not chosen:
        raise section.error("hosts", "names no host: leave the key out for all hosts")
    if len({*chosen}) < len(chosen):
        raise section.error("hosts", "has a host twice")
    return InsidePlan(chosen, keywords)


def inside_lines(reports: Sequence[InsideReport]) -> list[str]:
    """Return a line for the summary of a run, about all hosts that have an inside."""
    if not reports:
        return []
    seen = [report.counters for report in reports]
    time = sum(one.elapsed * one.cores for one in seen) or 1
    busy, polling = (sum(getattr(one, name) for one in seen) for name in ("busy", "spinning"))
    up, down = (sum(getattr(one, way).bytes for one in seen) for way in ("up", "down"))
    interrupts, merged = (
        sum(getattr(one, name) for one in seen) for name in ("interrupts", "merged")
    )
    missed = sum(one.iotlb[1] + one.mtt[1] for one in seen)
    hosts = "1 host" if len(seen) == 1 else f"{len(seen)} hosts"
    return [
        f"inside {hosts}: cores busy {busy / time:.0%}, polling {polling / time:.0%}; PCIe "
        f"{up:,} B to memory, {down:,} B to adapters; {interrupts:,} interrupts, {merged:,} "
        f"merged; {missed:,} misses"
    ]


def full_slices(
    plan: InsidePlan, reports: Sequence[InsideReport], nodes: Sequence[str]
) -> list[str]:
    """Return a note for each host whose slices are as many as its inside records: what came later
    is in no timeline. ``nodes``: the names, by number."""
    most = plan.keywords.get("slices", 0)
    return [
        f"the rows of {nodes[report.host]}'s cores and links end at "
        f"{int(report.slices['at'].max()) / 10**6:.3f} us, with the {most:,} slices of [inside]: "
        "more show what came later"
        for report in reports
        if most and len(report.slices) >= most
    ]


def used_costs(plan: InsidePlan, reports: Sequence[InsideReport]) -> list[str]:
    """Return a line for each cost that a run used, with its value and its source."""
    settings = InsideSettings(**plan.keywords)
    used = {"cpu.ghz", "pcie.generation", "pcie.lanes", "pcie.round_trip"}
    for report in reports:
        used |= {f"cpu.{name}" for name, cycles in report.counters.cycles.items() if cycles}
        used |= {"iommu.miss"} if report.counters.iotlb[1] else set()
    used |= set() if settings.cache.ddio else {"cache.beyond"}
    return [line for line in printed_costs(settings).splitlines() if line.split()[0] in used]
