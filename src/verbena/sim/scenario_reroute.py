# SPDX-License-Identifier: Apache-2.0
"""The times at which a scenario's routes change, and the routes from then on.

They come from ``reroute`` in [routing] and from [[event]] with ``reroute = true``. All routes are
computed when the scenario is read, so that a network that cannot be routed is an error with key and
line, and hosts that are cut off are a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verbena import fabrics
from verbena.fabrics import Cable, Fabric, FabricError
from verbena.sim.document import Section
from verbena.sim.reroute import ENGINES, Ways, ways_without
from verbena.sim.scenario_fabric import LinkEvent, Routing
from verbena.sim.units import time_text

__all__ = ["RouteChange", "read_reroutes", "reroute_notes"]


@dataclass(frozen=True)
class RouteChange:
    """Routes from a time in ps on, without the cables that are down then."""

    at: int
    down: frozenset[Cable]
    ways: Ways


def read_reroutes(
    section: Section,
    asked: Mapping[int, Section],
    events: tuple[LinkEvent, ...],
    fabric: Fabric,
    routing: Routing,
) -> tuple[RouteChange, ...]:
    """Return the changes in the order of time. A change after which all is as before is left
    out."""
    blamed = {
        event.at + routing.reroute: section for event in events if routing.reroute is not None
    }
    blamed |= asked
    if routing.reroute is not None or asked:
        _check_engine(section, asked, routing)
    known: dict[frozenset[Cable], Ways] = {}
    found, before = [], frozenset[Cable]()
    for at in sorted(blamed):
        down = _down(events, at)
        if down == before:
            continue
        if down not in known:
            known[down] = _ways(blamed[at], at, down, fabric, routing)
        found.append(RouteChange(at, down, known[down]))
        before = down
    return tuple(found)


def _check_engine(section: Section, asked: Mapping[int, Section], routing: Routing) -> None:
    if routing.engine in ENGINES:
        return
    where = section if "reroute" in section else next(iter(asked.values()))
    what = f'engine = "{routing.engine}"' if routing.engine else "tables from a file"
    raise where.error(
        "reroute",
        f"is not for {what}: connections keep their lanes, so routes are made anew by engines "
        f"without lanes: {', '.join(ENGINES)}",
    )


def _down(events: tuple[LinkEvent, ...], at: int) -> frozenset[Cable]:
    """Return the cables that are down at a time; of several events at one time the last one
    counts."""
    state = {event.cable: event.up for event in sorted(events, key=lambda event: event.at)
             if event.at <= at}  # fmt: skip
    return frozenset(cable for cable, up in state.items() if not up)


def _ways(
    section: Section, at: int, down: frozenset[Cable], fabric: Fabric, routing: Routing
) -> Ways:
    assert routing.engine is not None
    try:
        return ways_without(fabric, down, routing.engine, **routing.options)
    except FabricError as error:
        text = f"at {time_text(at)} cannot be: {routing.engine} cannot route what is left: {error}"
        raise section.error("reroute", text) from None


def reroute_notes(changes: tuple[RouteChange, ...], lossless: bool) -> tuple[str, ...]:
    """Return notes about hosts without a path and about credit loops, for each change."""
    notes = []
    for change in changes:
        when = f"from {time_text(change.at)} on, without {', '.join(sorted(map(str, change.down)))}"
        if lost := change.ways.lost:
            a, b = lost[0]
            more = f" ({len(lost)} such pairs)" if len(lost) > 1 else ""
            notes.append(
                f"{when}, no way leads from {a} to {b}{more}: what is sent there is dropped"
            )
        loops = (fabrics.credit_loop(part) for part in change.ways.parts) if lossless else ()
        if loop := next(filter(None, loops), None):
            notes.append(f"{when}, packets can wait for each other for ever: {loop}")
    return tuple(notes)
