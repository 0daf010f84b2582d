# SPDX-License-Identifier: Apache-2.0
"""The costs that runs have used, with how often and with their sources, in one form for all.

``costs`` of a ``Computer``, of ``Machines``, of a ``System``, of ``sim.Result``, and
``sim.world_costs`` are ``UsedCosts``; ``verbena compare --json --costs`` prints their ``data``.

    print(computer.costs)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from verbena._arguments import checked_arguments
from verbena.host.computer import Computer
from verbena.host.cost_list import ListedCost, Use, table_text, uses_of
from verbena.host.errors import HostTypeError

_HEAD = ["cost", "how", "used", "each", "for each; source"]


@dataclass(frozen=True)
class UsedCost:
    """A row of the list of costs, and how often it was used; ``counted`` says what is counted:
    "instructions", "times", "transactions". ``count`` None: nothing counts it."""

    cost: ListedCost
    count: float | None
    counted: str

    @property
    def name(self) -> str:
        """Of the cost."""
        return self.cost.name

    @property
    def source(self) -> str:
        """Where its value comes from."""
        return self.cost.source

    @property
    def cells(self) -> list[str]:
        """As a row of the text."""
        name, how, each, source = self.cost.cells
        used = "not counted" if self.count is None else f"{self.count:,.12g} {self.counted}"
        return [name, how, used, each, source]

    @property
    def data(self) -> dict[str, Any]:
        """As data for JSON."""
        row = self.cost
        return {
            "name": row.name,
            "how": row.how,
            "each": row.each,
            "unit": row.unit,
            "per": row.per,
            "source": row.source,
            "count": self.count,
            "counted": self.counted,
        }


class UsedCosts(tuple[UsedCost, ...]):
    """Costs in the order of their list; ``str`` has a line for each, below a head."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """Lines that have at most ``width`` places, at least 80, as far as one is given."""
        room = None if width is None else max(80, width)
        return table_text([_HEAD, *(one.cells for one in self)], room)

    @property
    def data(self) -> list[dict[str, Any]]:
        """As data for JSON."""
        return [one.data for one in self]


def summed(uses: Iterable[Use]) -> UsedCosts:
    """One row for all uses of the same cost with the same value; none for what was not used."""
    found: dict[tuple[ListedCost, str], float | None] = {}
    for use in (one for one in uses if one.count != 0):
        key = use.cost, use.counted
        before = found.get(key, 0)
        found[key] = None if before is None or use.count is None else before + use.count
    return UsedCosts(UsedCost(cost, count, what) for (cost, what), count in found.items())


@checked_arguments(HostTypeError)
def costs_of(*computers: Computer) -> UsedCosts:
    """What the runs of these computers so far have used."""
    return summed(uses_of(*computers))
