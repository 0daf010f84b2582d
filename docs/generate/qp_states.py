# SPDX-License-Identifier: Apache-2.0
"""Draws the QP states from the adapter's own table, which the program qp_table prints.

    qp_table | python docs/generate/qp_states.py

rewrites the table in docs/qp-states.md and the diagram docs/images/qp-states.svg.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import marks

DOCS = Path(__file__).parent.parent
PAGE = DOCS / "qp-states.md"
DIAGRAM = DOCS / "images" / "qp-states.svg"
BEGIN = "<!-- tables: made by generate/qp_states.py -->\n"
END = "<!-- end of tables -->"

TYPES = ("RC", "UC", "UD", "XRC_SEND", "XRC_RECV")
STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")


@dataclass(frozen=True)
class Transition:
    """One line of the adapter's table."""

    type: str
    source: str
    target: str
    required: tuple[str, ...]
    optional: tuple[str, ...]


def parse(lines: Iterable[str]) -> list[Transition]:
    """The transitions that qp_table printed."""
    return [
        Transition(
            row["type"],
            row["from"],
            row["to"],
            tuple(row["required"].split()),
            tuple(row["optional"].split()),
        )
        for row in csv.DictReader(lines)
    ]


# ---- the tables ----------------------------------------------------------------------------


def names(attributes: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in attributes) or "none"


def table_of(kind: str, transitions: list[Transition]) -> str:
    """Return a Markdown table of one QP type, without the transitions to RESET and ERR."""
    rows = [
        f"| {t.source} → {t.target} | {names(t.required)} | {names(t.optional)} |"
        for t in sorted(transitions, key=position)
        if t.type == kind and not is_way_out(t)
    ]
    head = f"### {kind}\n\n| Transition | Needs, besides `STATE` | Takes |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def position(transition: Transition) -> tuple[int, int]:
    return STATES.index(transition.source), STATES.index(transition.target)


def is_way_out(transition: Transition) -> bool:
    return transition.target in ("RESET", "ERR")


def ways_out(transitions: list[Transition]) -> str:
    """The sentences about RESET and ERR, which hold for every type."""
    lines = []
    for target in ("RESET", "ERR"):
        found = [t for t in transitions if t.target == target]
        sources = {kind: {t.source for t in found if t.type == kind} for kind in TYPES}
        same = all(sources[kind] == sources["RC"] for kind in TYPES)
        if not same or any(t.required or t.optional for t in found):
            raise ValueError(f"the ways to {target} differ: they need a table of their own")
        missing = [state for state in STATES if state not in sources["RC"]]
        where = f"every state but {', '.join(missing)}" if missing else "every state"
        lines.append(f"* To {target} from {where}, with no other attribute.")
    return "\n".join(lines) + "\n"


def tables(transitions: list[Transition]) -> str:
    """Return the text between the marks of docs/qp-states.md."""
    parts = [table_of(kind, transitions) for kind in TYPES]
    return "\n".join([*parts, "### All types\n", ways_out(transitions)])


def replaced(page: str, made: str) -> str:
    return marks.replaced(page, BEGIN, END, made)


# ---- the diagram ---------------------------------------------------------------------------

WIDTH, HEIGHT, BOX_W, BOX_H = 860, 285, 104, 44
CENTRES = {
    "RESET": (80, 90),
    "INIT": (240, 90),
    "RTR": (400, 90),
    "RTS": (560, 90),
    "SQD": (770, 90),
    "SQE": (560, 215),
    "ERR": (770, 215),
}
MEANING = {
    "RESET": "new",
    "INIT": "receives posted",
    "RTR": "answers",
    "RTS": "sends",
    "SQD": "send queue dry",
    "SQE": "send failed",
    "ERR": "flushes",
}
STYLE = """
.card { fill: #ffffff; stroke: #d0d7de }
.state { fill: #eef2ff; stroke: #4f46e5; stroke-width: 1.5 }
.name { font: 600 14px sans-serif; fill: #1f2328 }
.small { font: 11px sans-serif; fill: #57606a }
.line { fill: none; stroke: #57606a; stroke-width: 1.4; marker-end: url(#tip) }
.fall { stroke: #b42318; stroke-dasharray: 5 4; marker-end: url(#fall) }
.tip { fill: #57606a }
.tip-fall { fill: #b42318 }
@media (prefers-color-scheme: dark) {
  .card { fill: #161b22; stroke: #30363d }
  .state { fill: #1e1b4b; stroke: #a5b4fc }
  .name { fill: #e6edf3 }
  .small { fill: #9da7b3 }
  .line { stroke: #9da7b3 }
  .fall { stroke: #ff8f85 }
  .tip { fill: #9da7b3 }
  .tip-fall { fill: #ff8f85 }
}
"""


def text(x: float, y: float, content: str, css: str = "small") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" class="{css}">{escape(content)}</text>'


def box(state: str) -> str:
    x, y = CENTRES[state]
    corner = f'x="{x - BOX_W / 2:g}" y="{y - BOX_H / 2:g}"'
    rect = f'<rect {corner} width="{BOX_W}" height="{BOX_H}" rx="8" class="state"/>'
    return "\n".join([rect, text(x, y - 2, state, "name"), text(x, y + 14, MEANING[state])])


def which(kinds: list[str]) -> str:
    """Return the types as text; empty when every type has the transition."""
    return "" if len(kinds) == len(TYPES) else " ".join(kinds)


def loop(state: str, label: str) -> str:
    x, y = CENTRES[state]
    top = y - BOX_H / 2
    path = f"M {x - 16} {top:g} C {x - 34} {top - 44:g} {x + 34} {top - 44:g} {x + 16} {top:g}"
    return f'<path d="{path}" class="line"/>\n' + text(x, top - 38, label)


def arrow(source: str, target: str, label: str, shift: float, css: str = "line") -> str:
    """A straight arrow; `shift` moves it aside, so that a pair of states can have two."""
    (x1, y1), (x2, y2) = CENTRES[source], CENTRES[target]
    if y1 == y2:
        way = 1 if x2 > x1 else -1
        x1, x2, y1, y2 = x1 + way * BOX_W / 2, x2 - way * (BOX_W / 2 + 2), y1 + shift, y2 + shift
        at = ((x1 + x2) / 2, y1 - 6 if shift <= 0 else y1 + 14)
    else:
        way = 1 if y2 > y1 else -1
        y1, y2, x1, x2 = y1 + way * BOX_H / 2, y2 - way * (BOX_H / 2 + 2), x1 + shift, x2 + shift
        at = (x1 + (34 if shift > 0 else -34), (y1 + y2) / 2 + 4)
    line = f'<path d="M {x1:g} {y1:g} L {x2:g} {y2:g}" class="{css}"/>'
    return line + "\n" + text(*at, label)


# For two arrows between the same states, and beside the arrow of a failed request.
SHIFTS = {("RTS", "SQD"): -9.0, ("SQD", "RTS"): 9.0, ("SQE", "RTS"): -14.0}


def edges(transitions: list[Transition]) -> list[str]:
    """Every transition but those to RESET and ERR, once for all the types that have it."""
    pairs = {(t.source, t.target): None for t in sorted(transitions, key=position)}
    drawn = []
    for source, target in pairs:
        if target in ("RESET", "ERR"):
            continue
        have = {t.type for t in transitions if (t.source, t.target) == (source, target)}
        label = which([kind for kind in TYPES if kind in have])
        if source == target:
            drawn.append(loop(source, label))
        else:
            drawn.append(arrow(source, target, label, SHIFTS.get((source, target), 0)))
    return drawn


def failures() -> list[str]:
    """Return the transitions that no call makes: those of a failed request (IBA 10.3.1)."""
    (x1, y1), (x2, y2) = CENTRES["RTS"], CENTRES["ERR"]
    start = f"{x1 + BOX_W / 2 - 8:g} {y1 + BOX_H / 2:g}"
    end = f"{x2 - BOX_W / 2 - 2:g} {y2 - BOX_H / 2 + 6:g}"
    return [
        arrow("RTS", "SQE", "UC UD", 14, "line fall"),
        f'<path d="M {start} L {end}" class="line fall"/>',
        text((x1 + x2) / 2 + 26, (y1 + y2) / 2, "RC XRC"),
    ]


def diagram(transitions: list[Transition]) -> str:
    """The SVG: a card of its own, so that it is readable on any page."""
    outs = [line.removeprefix("* ").rstrip(".") for line in ways_out(transitions).splitlines()]
    notes = [*outs, "Dashed: a request failed"]
    body = [
        *edges(transitions),
        *failures(),
        *(box(state) for state in STATES),
        *(text(250, 190 + 20 * i, note) for i, note in enumerate(notes)),
    ]
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" class="{css}"/></marker>'
        for name, css in (("tip", "tip"), ("fall", "tip-fall"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="States of a queue pair">',
            "<!-- SPDX-License-Identifier: Apache-2.0. Made by docs/generate/qp_states.py. -->",
            f"<style>{STYLE}</style>",
            f"<defs>{heads}</defs>",
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10" class="card"/>',
            *body,
            "</svg>\n",
        ]
    )


def main() -> None:
    transitions = parse(sys.stdin)
    PAGE.write_text(replaced(PAGE.read_text(), tables(transitions)))
    DIAGRAM.write_text(diagram(transitions))


if __name__ == "__main__":
    main()
