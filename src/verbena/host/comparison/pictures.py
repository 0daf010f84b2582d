# SPDX-License-Identifier: Apache-2.0
"""The comparison as an SVG picture: bars of each way for one size, and lines over several sizes.

``verbena compare --plot`` writes it. It needs no other package, and follows the reader's colour
scheme. Scales are logarithmic, since the ways differ by factors of a thousand. The colours are
those of Okabe and Ito, which people with colour-blindness can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from verbena.host.comparison.rows import Row
from verbena.host.comparison.tables import time_cell
from verbena.host.comparison.ways import WAYS

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#8c6bb1")
_STYLE = """
.card { fill: #ffffff; stroke: #d0d7de }
.grid { stroke: #d8dee4; stroke-width: 1 }
.title { font: 600 14px sans-serif; fill: #1f2328 }
.word { font: 12px sans-serif; fill: #1f2328 }
.pale { font: 11px sans-serif; fill: #57606a }
.lines { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  .card { fill: #0d1117; stroke: #30363d }
  .grid { stroke: #30363d }
  .title, .word { fill: #e6edf3 }
  .pale { fill: #9da7b3 }
}
"""
_WIDTH = 820


@dataclass(frozen=True)
class _Measure:
    """What a panel shows: its title, the value of a row, and a value as text."""

    title: str
    value: Callable[[Row], float]
    text: Callable[[float], str]


def _cycles(row: Row) -> float:
    return sum(side.cycles for side in row.sides.values())


def _copied(row: Row) -> float:
    return sum(side.copied for side in row.sides.values())


def _count(value: float) -> str:
    return f"{value:,.0f}"


LATENCY = _Measure("Latency", lambda row: row.latency_ps, time_cell)
CYCLES = _Measure("Processor cycles, both sides together", _cycles, _count)
COPIED = _Measure("Bytes that processors copied", _copied, lambda value: f"{value:,.0f} B")


def bars(rows: Sequence[Row]) -> str:
    """One size: three panels of bars, a bar for each way."""
    body: list[str] = []
    top, height = 50.0, 0.0
    for measure in (LATENCY, CYCLES, COPIED):
        panel, height = _bar_panel(measure, rows, top)
        body += panel
        top += height
    head = _text(24, 30, f"{rows[0].size:,} bytes, each way", "title")
    return _document([head, *body], top + 6, "What moving the same bytes costs, each way")


def _bar_panel(measure: _Measure, rows: Sequence[Row], top: float) -> tuple[list[str], float]:
    left, right, step = 190.0, _WIDTH - 130.0, 24.0
    values = [measure.value(row) for row in rows]
    scale = _Scale.of(values, left, right)
    bottom = top + 24 + step * len(rows)
    parts = [_text(24, top + 12, f"{measure.title} (logarithmic)", "word")]
    for power in scale.powers():
        x = scale.at(10.0**power)
        parts.append(f'<path d="M {x:.1f} {top + 22:.1f} V {bottom:.1f}" class="grid"/>')
    for number, (row, value) in enumerate(zip(rows, values, strict=True)):
        y = top + 26 + step * number
        parts.append(_text(left - 10, y + 13, WAYS[row.way].title, "word", "end"))
        length = scale.at(value) - left if value > 0 else 0.0
        if length > 0:
            parts.append(
                f'<rect x="{left:.1f}" y="{y:.1f}" width="{length:.1f}" height="17" rx="2" '
                f'fill="{_colour(row)}"/>'
            )
        parts.append(_text(left + length + 6, y + 13, measure.text(value), "pale"))
    return parts, bottom - top + 20


def sweep(rows: Sequence[Row]) -> str:
    """Several sizes: latency and cycles as lines over the size, a line for each way."""
    body: list[str] = [_text(24, 30, "The same bytes, each way, by size", "title")]
    for number, measure in enumerate((LATENCY, CYCLES)):
        body += _line_panel(measure, rows, 56 + 300.0 * number)
    ways = list(dict.fromkeys(row.way for row in rows))
    for number, way in enumerate(ways):
        y = 80 + 22 * number
        row = next(row for row in rows if row.way == way)
        body.append(f'<path d="M {_WIDTH - 170} {y} h 22" class="lines" stroke="{_colour(row)}"/>')
        body.append(_text(_WIDTH - 142, y + 4, WAYS[way].title, "word"))
    return _document(body, 656, "What moving bytes costs, each way, over the size")


def _line_panel(measure: _Measure, rows: Sequence[Row], top: float) -> list[str]:
    left, right, upper, lower = 90.0, _WIDTH - 190.0, top + 16, top + 240
    across = _Scale.of([row.size for row in rows], left, right, base=2)
    up = _Scale.of([measure.value(row) for row in rows], lower, upper)
    parts = [_text(24, top, f"{measure.title} (both axes logarithmic)", "word")]
    for power in up.powers():
        y = up.at(10.0**power)
        parts.append(f'<path d="M {left} {y:.1f} H {right}" class="grid"/>')
        parts.append(_text(left - 8, y + 4, measure.text(10.0**power), "pale", "end"))
    for power in across.powers():
        if power % 2 == 0:
            x = across.at(2.0**power)
            parts.append(_text(x, lower + 18, _size_text(2**power), "pale", "middle"))
    for way in dict.fromkeys(row.way for row in rows):
        line = sorted((row for row in rows if row.way == way), key=lambda row: row.size)
        points = [
            f"{across.at(row.size):.1f} {up.at(max(measure.value(row), 1)):.1f}" for row in line
        ]
        parts.append(
            f'<path d="M {" L ".join(points)}" class="lines" stroke="{_colour(line[0])}"/>'
        )
    return parts


def _size_text(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def _colour(row: Row) -> str:
    return _COLOURS[list(WAYS).index(row.way) % len(_COLOURS)]


@dataclass(frozen=True)
class _Scale:
    """A logarithmic scale from ``base ** low`` at ``begin`` to ``base ** high`` at ``end``."""

    low: int
    high: int
    begin: float
    end: float
    base: int

    @classmethod
    def of(cls, values: Sequence[float], begin: float, end: float, base: int = 10) -> _Scale:
        known = [value for value in values if value > 0] or [1.0]
        low = math.floor(math.log(min(known), base) + 1e-9)
        high = max(math.ceil(math.log(max(known), base) - 1e-9), low + 1)
        if base == 10:
            low -= 1  # the least value has a bar, too
        return cls(low, high, begin, end, base)

    def at(self, value: float) -> float:
        share = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * share

    def powers(self) -> range:
        return range(self.low, self.high + 1)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">'
        f"{escape(words)}</text>"
    )


def _document(body: Sequence[str], height: float, says: str) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
            f'width="{_WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(says)}">',
            f"<style>{_STYLE}</style>",
            f'<rect x="1" y="1" width="{_WIDTH - 2}" height="{height - 2:.0f}" rx="10" '
            'class="card"/>',
            *body,
            "</svg>\n",
        ]
    )
