# SPDX-License-Identifier: Apache-2.0
"""The [[storm]] tables of a scenario: pause storms, in which an adapter pauses its switch
endlessly.

``Scenario`` reads them after the switches, since a storm needs a class with pauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import field

from verbena.fabrics import Tables
from verbena.sim.document import Section, toml_text
from verbena.sim.scenario_switch import Switching
from verbena.sim.settings import TIME, Settings, unit

__all__ = ["Storm", "read_storms"]


class _Table(Settings):
    host: str
    level: Annotated[int, unit("class")] = field(name="class", default=0)
    at: Annotated[int, TIME] = 0
    until: Annotated[int, TIME] | None = None


@dataclass(frozen=True)
class Storm:
    """A pause storm. ``host`` is a number; ``at`` and ``until`` are in ps, and None is for ever."""

    host: int
    lane: int
    at: int
    until: int | None


def read_storms(sections: list[Section], tables: Tables, switching: Switching) -> tuple[Storm, ...]:
    """Return the storms. Raises ScenarioError for an unknown host or a class without pauses."""
    found = []
    lanes = switching.settings.lanes
    for section in sections:
        of = section.read(_Table, {"class": switching.level})
        number = tables.number.get(of.host, tables.host_count)
        if number >= tables.host_count:
            raise section.error("host", f"= {toml_text(of.host)}: there is no such host")
        if of.level >= len(lanes) or lanes[of.level].flow != "pauses":
            raise section.error(None, 'is for a class with flow = "pauses"')
        if of.until is not None and of.until <= of.at:
            raise section.error("until", "is not after its beginning")
        found.append(Storm(number, of.level, of.at, of.until))
    return tuple(found)
