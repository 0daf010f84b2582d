# SPDX-License-Identifier: Apache-2.0
"""The [[storm]] of a scenario: adapters that pause their switch on and on."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.fabrics import Tables
from verbena.sim import kinds
from verbena.sim.document import Section
from verbena.sim.scenario_switch import Switching

__all__ = ["Storm", "read_storms"]


@dataclass(frozen=True)
class Storm:
    """``host`` is a number, ``until`` None for ever; times in ps."""

    host: int
    lane: int
    at: int
    until: int | None


def read_storms(sections: list[Section], tables: Tables, switching: Switching) -> tuple[Storm, ...]:
    """Raises ScenarioError for a host, or a class with pauses, that is not there."""
    found = []
    lanes = switching.settings.get("lanes", ())
    for section in sections:
        name = section.take("host", kinds.text)
        number = tables.number.get(name, tables.host_count)
        if number >= tables.host_count:
            raise section.error("host", f"is {name!r}, and no host")
        lane = section.take("class", switching.level, 0)
        if lane >= len(lanes) or lanes[lane]["flow"] != "pauses":
            raise section.error(None, "is for a class with flow = 'pauses'")
        at = section.take("at", kinds.time, 0)
        until = section.take("until", kinds.time, None)
        if until is not None and until <= at:
            raise section.error("until", "is not after its beginning")
        section.close()
        found.append(Storm(number, lane, at, until))
    return tuple(found)
