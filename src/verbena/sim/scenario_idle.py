# SPDX-License-Identifier: Apache-2.0
"""Notes about keys of a scenario that have no effect with its other settings.

``Scenario`` asks when it is read. Such a key is not an error, since a variant or a sweep may make
it effective. Without a note, two runs that differ in this key alone would be equal for no visible
reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from verbena.fabrics import Routes
from verbena.sim.scenario_switch import Switching
from verbena.sim.scenario_traffic import Traffic

__all__ = ["idle_notes"]

Table = Mapping[str, Any]
ONLY_RC = ("timeout", "retry_count", "rd_atomic", "window", "ack_bytes", "recovery")
DRAWN = ("permutation", "poisson")  # random patterns; incast is random with `within`


def idle_notes(
    settings: Table,
    engine: str | None,
    routes: Routes,
    switching: Switching,
    traffic: Traffic,
    rerouted: Collection[int],
) -> tuple[str, ...]:
    """Return the notes. ``settings`` are the scenario's own, which have been checked.

    ``engine`` is None for tables from a file; ``rerouted`` are the times at which routes change.
    """
    return (
        *_fabric(settings["fabric"], routes),
        *_routing(settings, engine, routes.groups is not None, rerouted),
        *_switches(settings.get("switch", {}), switching),
        *_transports(settings, traffic),
        *_reservations(settings, traffic),
        *(
            note
            for name, table in zip(traffic.names, settings["traffic"], strict=True)
            for note in _traffic(f"traffic.{name}", table)
        ),
    )


def _fabric(table: Table, routes: Routes) -> Iterator[str]:
    links, hosts = routes.tables.links, routes.tables.host_count
    given = [f"fabric.{key}" for key in table if key.startswith("switch_")]
    if given and not ((links["src"] >= hosts) & (links["dst"] >= hosts)).any():
        yield f"{', '.join(given)}: nothing has it, since no link joins two switches"


def _routing(
    settings: Table, engine: str | None, has_choice: bool, rerouted: Collection[int]
) -> Iterator[str]:
    routing, switch = settings.get("routing", {}), settings.get("switch", {})
    tables = {"routing": routing, "switch.own": next(_balanced(switch.get("own", [])), {})}
    for name, table in tables.items():
        if table.get("balance") == "packet" and not has_choice:
            source = f'engine = "{engine}"' if engine else "a file's tables"
            yield (
                f'{name}.balance = "packet" does nothing: {source} '
                'gives each host one way; engine = "ecmp" gives several'
            )
    events = settings.get("event", [])
    if "reroute" in routing and not any({"link", "node"} & event.keys() for event in events):
        yield "routing.reroute does nothing: there is no [[event]] of a link"
    if engine == "ugal" and routing.get("per") == "packet" and "gap" in routing:
        yield 'routing.gap does nothing with per = "packet": it is of flows'
    if any(event.get("reroute") for event in events) and not rerouted:
        yield "the [[event]] with reroute = true does nothing: no link is down then"


def _balanced(tables: list[Table]) -> Iterator[Table]:
    return (table for table in tables if table.get("balance") == "packet")


def _switches(switch: Table, switching: Switching) -> Iterator[str]:
    flows = {lane.flow for lane in switching.lanes} or {"lossy"}
    if "buffer" in switch and flows == {"credits"}:
        yield "switch.buffer does nothing: all classes have credits, and a room for each input"
    elif "buffer" in switch and not switching.settings.buffer:
        yield "switch.buffer does nothing: 0 bytes are no limit, as without the key"
    if "watchdog" in switch and "pauses" not in flows:
        yield 'switch.watchdog does nothing: no class has flow = "pauses"'
    if "fecn_at" in switch and not switch.get("fecn"):
        yield "switch.fecn_at does nothing without fecn"
    classes = switch.get("class", [])
    for number, table in enumerate(classes or [switch]):
        name = f"switch.class.{table.get('name', number)}" if classes else "switch"
        yield from _class(name, table, len(switching.classes), switching)


def _class(name: str, table: Table, classes: int, switching: Switching) -> Iterator[str]:
    if "alpha" in table and table.get("flow") == "credits":
        yield f"{name}.alpha does nothing: a class with credits has its own room"
    elif table.get("alpha") and not switching.settings.buffer:
        yield f"{name}.alpha does nothing without switch.buffer, which it is a part of"
    for key in ("weight", "strict"):
        if table.get(key) and classes < 2:
            yield f"{name}.{key} does nothing: there is one class"
    if table.get("strict") and "weight" in table and classes > 1:
        yield f"{name}.weight does nothing: the class is strict"


def _transports(settings: Table, traffic: Traffic) -> Iterator[str]:
    used = set(traffic.transport.tolist())
    idle = [f"adapter.{key}" for key in ONLY_RC if key in settings.get("adapter", {})]
    if idle and "rc" not in used:
        yield f"{', '.join(idle)}: nothing has it, since no traffic is RC"
    elif "adapter.rd_atomic" in idle and "read" not in traffic.operation:
        yield "adapter.rd_atomic does nothing: no traffic reads"
    if settings.get("congestion") and used == {"tcp"}:
        yield "[congestion] does nothing: all traffic is TCP, which has a control of its own"
    if settings.get("tcp") and "tcp" not in used:
        yield '[tcp] does nothing: no traffic has transport = "tcp"'


def _reservations(settings: Table, traffic: Traffic) -> Iterator[str]:
    management = settings.get("management", {})
    hop_by_hop = management.get("reservations") == "hop by hop"
    if hop_by_hop and not traffic.reserve.any():
        yield 'management.reservations = "hop by hop" does nothing: no traffic has `reserve`'
    if "share" in management and not hop_by_hop:
        yield 'management.share does nothing without reservations = "hop by hop"'


def _traffic(name: str, table: Table) -> Iterator[str]:
    if table.get("depth", 1) > 1:
        if table.get("transport") == "tcp":
            yield f"{name}.depth does nothing: TCP has no messages"
        elif not {"message", "reserve_buffer"} & table.keys() and table.get("transport") != "ud":
            yield f"{name}.depth does nothing without message: each flow is one message"
    if "seed" in table and table["pattern"] not in DRAWN and "within" not in table:
        yield f"{name}.seed does nothing: {table['pattern']} draws nothing by chance"
    if "every" in table and table.get("repeat", 1) == 1:
        yield f"{name}.every does nothing without repeat"
