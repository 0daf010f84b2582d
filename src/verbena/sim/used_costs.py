# SPDX-License-Identifier: Apache-2.0
"""The costs that the insides of simulated hosts have used, as the rows of the one list of costs.

``sim.world_costs`` has those of all hosts of a world, ``Inside.used_costs`` those of one, and
``sim.Result.costs`` those of a run of programs. ``verbena.host.used_costs`` has their form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from verbena.host.cost_list import (
    CHARGED,
    TIMES,
    TRANSACTIONS,
    WALKS,
    ListedCost,
    Use,
    link_uses,
    listed_costs,
)
from verbena.host.used_costs import UsedCosts, summed
from verbena.sim._world import World, inside_of
from verbena.sim.arguments import require
from verbena.sim.inside import COSTS, InsideCounters, InsideSettings, OwnCost
from verbena.sim.kernel_settings import KernelSettings, kernel_source

__all__ = ["uses_of_inside", "world_costs"]


def world_costs(world: World) -> UsedCosts:
    """Return what the insides of a world's hosts have used so far; nothing without an inside.

    The world is not running. Raises TypeError.
    """
    require("world", world, World, "a World")
    insides = (inside_of(world, number) for number in range(world.hosts))
    return summed(use for inside in insides if inside is not None for use in inside.uses())


def uses_of_inside(
    given: InsideSettings, own: Mapping[str, OwnCost], seen: InsideCounters
) -> Iterator[Use]:
    """What the inside of one host has used, by its settings and its counters."""
    rows = {row.inside: row for row in listed_costs() if row.inside}
    for name in COSTS:
        each = getattr(given.cpu, name)
        count = seen.cycles[name] / each if each else None
        if seen.cycles[name]:
            yield Use(_valued(rows[f"cpu.{name}"], each), count, TIMES)
    for name, cost in own.items():
        if name not in COSTS:
            yield Use(_own_row(name, cost), cost.times, TIMES)
    transactions = seen.up.transactions + seen.down.transactions
    if transactions:
        yield from link_uses(given.link, transactions, seen.up.bytes + seen.down.bytes)
    if seen.iotlb[1]:
        yield Use(_valued(rows["iommu.miss"], given.iommu.miss / 1000), seen.iotlb[1], WALKS)
    reads = seen.up.tlps["read"][0]
    if reads and not given.cache.ddio:
        row = _valued(rows["cache.beyond"], given.cache.beyond / 1000)
        yield Use(row, reads, TRANSACTIONS)


def _valued(row: ListedCost, each: float) -> ListedCost:
    """The row with the value of the settings."""
    return row if row.each == each else replace(row, each=each, source="set by the caller")


def _own_row(name: str, cost: OwnCost) -> ListedCost:
    """The row of a cost of the kernel, or of one that programs have named."""
    if cost.each is None:
        each = cost.cycles / cost.times
        return ListedCost(name, CHARGED, each, "cycles", "charge", "a name of the caller's")
    per, _, source = kernel_source(name).partition("; ")
    default = getattr(KernelSettings(), name)
    row = ListedCost(name, CHARGED, default, "cycles", per, source, f"kernel.{name}")
    return _valued(row, cost.each)
