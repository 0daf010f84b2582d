# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/connections.md: states, transitions, events, reasons and refusals.

python docs/generate/connections.py

Everything is taken from the code's own tables, so that the page cannot differ from them.
"""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import marks

from verbena.manage.cm import CmRefusal, CmState, IdState, RdmaEventKind
from verbena.manage.cm.connection import CONNECTION_RULES, CmConnection
from verbena.manage.cm.identifier import ID_RULES
from verbena.manage.cm.machine import CmInput, CmMachine, CmRule
from verbena.manage.cm.resolution import RESOLUTION_RULES, CmResolution
from verbena.manage.cm_messages import RejReason, SidrStatus

PAGE = Path(__file__).parent.parent / "connections.md"


def rows(head: str, lines: Iterable[str]) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|" + "---|" * columns, *lines]) + "\n"


def states() -> str:
    return rows("| State | Meaning |", (f"| `{each.name}` | {each.value} |" for each in CmState))


def says(machine: type[CmMachine], rule: CmRule) -> str:
    """The first line of an action's docstring."""
    text = inspect.getdoc(getattr(machine, rule.action)) or ""
    return text.partition("\n")[0].rstrip(".")


def transitions(machine: type[CmMachine], rules: Mapping[object, CmRule]) -> str:
    """One row for each input of each state; states with the same row share it."""
    shared: dict[tuple[CmInput, str, str], list[str]] = {}
    for rule in rules.values():
        after = "" if rule.next is None or rule.next is rule.state else f"`{rule.next.name}`"
        key = (rule.input, says(machine, rule), after)
        shared.setdefault(key, []).append(f"`{rule.state.name}`")
    lines = [
        f"| {', '.join(names)} | {what.value} | {does} | {after} |"
        for (what, does, after), names in shared.items()
    ]
    return rows("| In state | Input | What is done | Next state |", lines)


def id_states() -> str:
    return rows("| State | Meaning |", (f"| `{each.name}` | {each.value} |" for each in IdState))


def id_transitions() -> str:
    lines = [f"| `{s.name}` | {w.value} | `{after.name}` |" for (s, w), after in ID_RULES.items()]
    return rows("| In state | Input | Next state |", lines)


def events() -> str:
    lines = (f"| {int(each)} | `{each.name}` | {each.meaning} |" for each in RdmaEventKind)
    return rows("| Number | Event | Meaning |", lines)


def reasons() -> str:
    lines = (f"| {int(each)} | `{each.name}` | {each.meaning} |" for each in RejReason)
    return rows("| Reason | Name | Meaning |", lines)


def statuses() -> str:
    lines = (f"| {int(each)} | `{each.name}` | {each.meaning} |" for each in SidrStatus)
    return rows("| Status | Name | Meaning |", lines)


def refusals() -> str:
    lines = [
        f"| `{errno.errorcode.get(each.code, each.code)}` | `{each.name}` | {each.sentence} |"
        for each in CmRefusal
        if each.code
    ]
    return rows("| errno | Refusal | What it says |", lines)


def dropped() -> str:
    lines = (f"| `{each.name}` | {each.sentence} |" for each in CmRefusal if not each.code)
    return rows("| Counter | Meaning |", lines)


PARTS: dict[str, Callable[[], str]] = {
    "states": states,
    "transitions": lambda: transitions(CmConnection, CONNECTION_RULES),
    "resolutions": lambda: transitions(CmResolution, RESOLUTION_RULES),
    "identifiers": id_states,
    "calls": id_transitions,
    "events": events,
    "reasons": reasons,
    "statuses": statuses,
    "refusals": refusals,
    "dropped": dropped,
}


def replaced(page: str) -> str:
    """The page with every table made anew."""
    for name, made in PARTS.items():
        begin = f"<!-- {name}: made by generate/connections.py -->\n"
        page = marks.replaced(page, begin, f"<!-- end of {name} -->", made())
    return page


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text()))


if __name__ == "__main__":
    main()
