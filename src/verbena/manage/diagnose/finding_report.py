# SPDX-License-Identifier: Apache-2.0
"""Findings as text for people, and as JSON for programs. ``verbena diagnose`` prints them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from .fabric_snapshot import FabricSnapshot
from .fault_finding import FaultFinding, FaultSeverity

__all__ = ["findings_as_json", "findings_as_text"]

WIDTH = 96


def findings_as_text(found: Sequence[FaultFinding], seen: FabricSnapshot) -> str:
    """Return a table of the suspects, and for each a paragraph; last what was looked at."""
    suspects = [each for each in found if each.severity > FaultSeverity.NOTE]
    notes = [each for each in found if each.severity <= FaultSeverity.NOTE]
    parts = []
    if suspects:
        parts.append(_table(suspects))
        parts += [_paragraph(number, each) for number, each in enumerate(suspects, 1)]
    parts += [
        textwrap.fill(f"Note: {_sentence(each.reason)} {each.advice}", WIDTH) for each in notes
    ]
    parts += [textwrap.fill(f"Note: {sentence}", WIDTH) for sentence in seen.lacks]
    ending = f"{len(suspects)} suspect{'s' * (len(suspects) != 1)}" if suspects else "nothing found"
    if not seen.can_judge:
        ending = "nothing can be judged"
    parts.append(f"{_seen(seen)}: {ending}.")
    return "\n\n".join(parts)


def _seen(seen: FabricSnapshot) -> str:
    """What was looked at; a source may not say of a node whether it is a switch."""
    known = [node for node in seen.nodes.values() if node.is_kind_known]
    hosts, unknown = sum(not node.is_switch for node in known), len(seen.nodes) - len(known)
    nodes = f"{hosts} hosts, {len(known) - hosts} switches"
    if unknown:
        nodes += f", {unknown} nodes that are one or the other"
    return f"{nodes}, {len(seen.peers) // 2} cables"


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _table(found: Sequence[FaultFinding]) -> str:
    rows = [("", "severity", "suspect", "fault")]
    rows += [
        (str(number), each.severity.name.lower(), str(each.suspect), each.kind.value)
        for number, each in enumerate(found, 1)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _paragraph(number: int, each: FaultFinding) -> str:
    lines = [_filled(f"{number}. {_sentence(each.reason)} {each.advice}")]
    if each.others:
        lines.append(f"   also: {', '.join(map(str, each.others))}")
    if each.numbers:
        text = ", ".join(f"{name}: {value}" for name, value in each.numbers.items())
        lines.append(textwrap.fill(text, WIDTH, initial_indent="   ", subsequent_indent="   "))
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0]}{text[1:]}."


def findings_as_json(found: Sequence[FaultFinding], seen: FabricSnapshot) -> str:
    """Return the findings and what was looked at as JSON."""
    return json.dumps(
        {
            "nodes": len(seen.nodes),
            "cables": len(seen.peers) // 2,
            "lacks": seen.lacks,
            "findings": [each.as_dict() for each in found],
        },
        indent=1,
    )
