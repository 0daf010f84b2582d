# SPDX-License-Identifier: Apache-2.0
"""Draws a picture as SVG text: boxes, arrows and words, in the colours of the documentation.

Called by pictures.py. A picture has a card behind it and follows the reader's colour scheme, so it
can be read on any page. Coordinates are pixels from the upper left corner.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

Point = tuple[float, float]

# name: (fill, stroke) in light and in dark
BOXES = {
    "card": ("#ffffff", "#d0d7de", "#0d1117", "#30363d"),
    "host": ("#f6f8fa", "#8c959f", "#161b22", "#6e7681"),
    "plain": ("#ffffff", "#8c959f", "#0d1117", "#6e7681"),
    "verbs": ("#eef2ff", "#4f46e5", "#1e1b4b", "#a5b4fc"),
    "memory": ("#ecfdf3", "#16803c", "#0f2a1a", "#4ade80"),
    "kernel": ("#fff4e5", "#b45309", "#2d1f0b", "#fbbf24"),
    "wrong": ("#fef0ee", "#b42318", "#2f1311", "#ff8f85"),
}
LINES = {
    "line": ("#57606a", "#9da7b3", 1.4),
    "bytes": ("#16803c", "#4ade80", 3.5),
    "slow": ("#b45309", "#fbbf24", 2.5),
    "error": ("#b42318", "#ff8f85", 1.8),
    "ask": ("#4f46e5", "#a5b4fc", 1.8),
}
WORDS = {
    "title": "600 15px sans-serif",
    "text": "13px sans-serif",
    "small": "12px sans-serif",
    "code": "12px monospace",
}
PALE = ("#57606a", "#9da7b3")
DARK = ("#1f2328", "#e6edf3")


def style() -> str:
    light, dark = [], []
    for name, (fill, stroke, dark_fill, dark_stroke) in BOXES.items():
        light.append(f".{name} {{ fill: {fill}; stroke: {stroke}; stroke-width: 1.3 }}")
        dark.append(f"  .{name} {{ fill: {dark_fill}; stroke: {dark_stroke} }}")
    for name, (colour, dark_colour, width) in LINES.items():
        light.append(f".{name} {{ fill: none; stroke: {colour}; stroke-width: {width} }}")
        light.append(f".{name}-tip {{ fill: {colour} }}")
        dark.append(f"  .{name} {{ stroke: {dark_colour} }} .{name}-tip {{ fill: {dark_colour} }}")
    for name, font in WORDS.items():
        colour, dark_colour = PALE if name == "small" else DARK
        light.append(f".{name} {{ font: {font}; fill: {colour} }}")
        dark.append(f"  .{name} {{ fill: {dark_colour} }}")
    scheme = "\n".join(["@media (prefers-color-scheme: dark) {", *dark, "}"])
    return "\n".join([*light, ".dashed { stroke-dasharray: 5 4 }", scheme])


def tips() -> str:
    return "\n".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" '
        f'markerWidth="{9 + width:g}" markerHeight="{9 + width:g}" orient="auto">'
        f'<path d="M 0 0 L 8 4 L 0 8 z" class="{name}-tip"/></marker>'
        for name, (_, _, width) in LINES.items()
    )


class Pen:
    """A picture that is being drawn; `svg()` returns its text."""

    def __init__(self, width: int, height: int, says: str) -> None:
        self.width, self.height, self.says = width, height, says
        self.parts: list[str] = []
        self.box(1, 1, width - 2, height - 2, "card", radius=10)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        *,
        title: str = "",
        lines: Iterable[str] = (),
        radius: int = 6,
        dashed: bool = False,
    ) -> None:
        """A rectangle with a title and lines in it. A line that begins with a backtick is code."""
        names = f"{kind} dashed" if dashed else kind
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
            f'class="{names}"/>'
        )
        at = y + 4
        if title:
            at += 18
            self.word(x + 12, at, title, "title" if kind == "host" else "text")
        for line in lines:
            at += 18
            self.word(x + 12, at, line.removeprefix("`"), "code" if line[0] == "`" else "small")

    def word(self, x: float, y: float, text: str, kind: str = "small", anchor: str = "") -> None:
        where = f' text-anchor="{anchor}"' if anchor else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{where} class="{kind}">{escape(text)}</text>')

    def middle(self, x: float, y: float, text: str, kind: str = "small") -> None:
        self.word(x, y, text, kind, "middle")

    def line(
        self, *points: Point, kind: str = "line", tip: bool = True, dashed: bool = False
    ) -> None:
        way = " L ".join(f"{x:g} {y:g}" for x, y in points)
        end = f' marker-end="url(#{kind})"' if tip else ""
        names = f"{kind} dashed" if dashed else kind
        self.parts.append(f'<path d="M {way}" class="{names}"{end}/>')

    def message(
        self, begin: float, end: float, y: float, text: str, kind: str = "line", drop: float = 12
    ) -> None:
        """Draw an arrow between two lifelines of a sequence; it ends `drop` below its start."""
        self.line((begin, y), (end, y + drop), kind=kind)
        self.middle((begin + end) / 2, y + drop / 2 - 7, text)

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{escape(self.says, {chr(34): "&quot;"})}">'
        )
        made = "<!-- SPDX-License-Identifier: Apache-2.0. Made by docs/generate/pictures.py. -->"
        body = "\n".join(self.parts)
        rules = f"<style>\n{style()}\n</style>\n<defs>\n{tips()}\n</defs>"
        return f"{head}\n{made}\n{rules}\n{body}\n</svg>\n"
