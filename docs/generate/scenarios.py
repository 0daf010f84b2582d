# SPDX-License-Identifier: Apache-2.0
"""Runs the ready scenarios: draws docs/images/scenarios.svg and writes the table of
docs/simulation.md.

python docs/generate/scenarios.py
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import marks
import numpy as np
from numpy.typing import ArrayLike

from verbena import fabrics
from verbena.sim import Scenario, ScenarioResult, ready
from verbena.sim.sweeps import measures
from verbena.sim.units import size_text, time_text

DOCS = Path(__file__).parent.parent
PAGE = DOCS / "simulation.md"
PICTURE = DOCS / "images" / "scenarios.svg"
BEGIN = "<!-- table: made by generate/scenarios.py -->\n"
END = "<!-- end of table -->"
WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 40  # of a chart's plane
HEAD = 30
COLOURS = ("#4f46e5", "#c2410c", "#0f766e", "#be185d")
IN_DARK = ("#a5b4fc", "#fb923c", "#2dd4bf", "#f9a8d4")
STYLE = """
.title { font: 600 13px sans-serif; fill: #1f2328; text-anchor: middle }
.axis { stroke: #8c959f; stroke-width: 1; fill: none }
.word { font: 11px sans-serif; fill: #57606a; text-anchor: middle }
.side { text-anchor: end }
.key { font: 11px sans-serif; text-anchor: end }
.line { fill: none; stroke-width: 1.6 }
COLOURS
@media (prefers-color-scheme: dark) {
  .title { fill: #e6edf3 } .word { fill: #9da7b3 } .axis { stroke: #6e7681 }
  IN_DARK
}
"""
# The legend of the colours of a network's links.
LEGEND = f"""
<g transform="translate({WIDTH / 2 - 118:g} {HEIGHT + 8})">
<path d="M0 0 h22" style="stroke: #d0d7de; stroke-width: 3"/>
<text class="word" style="text-anchor: start" x="28" y="4">never paused</text>
<path d="M118 0 h22" style="stroke: #b42318; stroke-width: 3"/>
<text class="word" style="text-anchor: start" x="146" y="4">paused all the time</text>
</g>"""

Line = tuple[str, ArrayLike, ArrayLike]


def chart_style() -> str:
    return STYLE.replace("COLOURS", rules(COLOURS)).replace("IN_DARK", rules(IN_DARK))


def rules(colours: Sequence[str]) -> str:
    """Return the style rules of a chart's lines and of their names."""
    return " ".join(
        f".line{n} {{ stroke: {colour} }} .key{n} {{ fill: {colour} }}"
        for n, colour in enumerate(colours)
    )


@cache
def run(name: str, variant: str) -> ScenarioResult:
    return Scenario.load(name).variant(variant).run()


# ---- the picture -------------------------------------------------------------------------------


def chart(title: str, x_name: str, y_name: str, lines: Sequence[Line]) -> str:
    """Lines over common axes that begin at 0."""
    across = max(float(np.max(x)) for _, x, _ in lines)
    up = max(float(np.max(y)) for _, _, y in lines)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT} {TOP} v{high} h{wide}"/>']
    parts.append(f'<text class="word" x="{LEFT + wide / 2:g}" y="{HEIGHT - 6}">{x_name}</text>')
    turned = f"translate(14 {TOP + high / 2:g}) rotate(-90)"
    parts.append(f'<text class="word" transform="{turned}">{y_name}</text>')
    for value in ticks(across):
        x = LEFT + wide * value / across
        parts.append(f'<text class="word" x="{x:g}" y="{HEIGHT - 24}">{value:g}</text>')
    for value in ticks(up):
        y = TOP + high - high * value / up
        parts.append(f'<text class="word side" x="{LEFT - 5}" y="{y + 4:g}">{value:g}</text>')
    for number, (name, x, y) in enumerate(lines):
        points = np.stack(
            [LEFT + wide * np.asarray(x) / across, TOP + high - high * np.asarray(y) / up]
        )
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points.T)
        parts.append(f'<polyline class="line line{number}" points="{path}"/>')
        parts.append(
            f'<text class="key key{number}" x="{WIDTH - RIGHT - 4}" '
            f'y="{TOP + high / 2 + 15 * number:g}">{name}</text>'
        )
    return titled(title, "\n".join(parts))


def ticks(most: float) -> list[float]:
    """Round numbers from 0 on, four to nine of them, of which none is beyond the axis."""
    power = 10.0 ** np.floor(np.log10(most))
    step = next(step for step in (2 * power, power, power / 2, power / 5) if most / step >= 3)
    return [round(step * n, 12) for n in range(int(most / step + 1e-9) + 1)]


def titled(title: str, body: str) -> str:
    return f'<text class="title" x="{WIDTH / 2:g}" y="18">{title}</text>\n' + (
        f'<g transform="translate(0 {HEAD - 4})">\n{body}\n</g>'
    )


def queue_chart() -> str:
    lines: list[Line] = []
    for variant in ("deep", "shallow", "dcqcn"):
        result = run("bufferbloat", variant)
        queue = result.queue(result.link("s0-h3"))
        some = slice(None, None, 6)
        lines.append((variant, result.times[some] / 1e9, queue[some] / 1024))
    return chart("bufferbloat: one queue", "ms", "KiB", lines)


def completion_chart() -> str:
    lines: list[Line] = []
    for variant in ("lossless", "lossy"):
        times = np.sort(run("incast", variant).durations()) / 1e9
        parts = np.arange(1, len(times) + 1) / len(times)
        lines.append((variant, np.repeat(times, 2), np.repeat(np.append(0, parts), 2)[1:-1]))
    return chart("incast: completion times", "ms", "part of the flows", lines)


def network(variant: str) -> str:
    """Draw the victim's network; colours show for how long links were stalled."""
    result = run("victim", variant)
    assert result.fabric is not None
    stalled = result.links["stalled"] / result.time
    drawn = fabrics.svg(result.fabric, heat=stalled, width=WIDTH, height=HEIGHT - 6)
    body = drawn[drawn.index("</style>") + len("</style>") : drawn.rindex("</svg>")]
    return titled(f"victim flow, {variant}: links that stand still", body + LEGEND)


def picture() -> str:
    drawn = fabrics.svg(fabrics.pair())
    style = drawn[drawn.index("<style>") : drawn.index("</style>") + len("</style>")]
    made = [queue_chart(), completion_chart(), network("pauses"), network("dcqcn")]
    step = HEIGHT + HEAD + 20
    parts = [
        f'<g transform="translate({(WIDTH + 20) * (n % 2)} {step * (n // 2)})">\n{body}\n</g>'
        for n, body in enumerate(made)
    ]
    width, height = 2 * WIDTH + 20, 2 * step
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="Four results">',
            "<!-- SPDX-License-Identifier: Apache-2.0. Made by docs/generate/scenarios.py. -->",
            style,
            f"<style>{chart_style()}</style>",
            *parts,
            "</svg>\n",
        ]
    )


# ---- the table ---------------------------------------------------------------------------------


def table() -> str:
    """A row for each variant of each ready scenario."""
    head = [
        "`verbena sim …`",
        "Variant",
        "Gb/s",
        "Slowest",
        "Sent again",
        "Dropped",
        "Longest queue",
        "Managed",
    ]
    lines = [head, ["---", "---", "--:", "--:", "--:", "--:", "--:", "--:"]]
    for name in ready.names():
        for number, variant in enumerate(Scenario.load(name).variants):
            lines.append([f"`{name}`" if number == 0 else "", variant, *cells(run(name, variant))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cells(result: ScenarioResult) -> list[str]:
    times = result.durations()
    ended = time_text(times.max()) if len(times) == len(result.flows) else ""
    if result.end == "deadlock":
        ended = "deadlock"
    return [
        f"{sum(map(result.goodput, range(len(result.traffic)))) / 1e9:.1f}",
        ended,
        str(int(result.flows["retransmissions"].sum())),
        str(result.packets["dropped"]),
        size_text(int(result.links["queue_max"].max())),
        managed(result),
    ]


def managed(result: ScenarioResult) -> str:
    """When connections were set up, flows went on after a death, or the subnet was up."""
    found = measures(result)
    names = ("connect_last", "recovered", "swept")
    seconds = next((found[name] for name in names if name in found), np.nan)
    return "" if np.isnan(seconds) else time_text(seconds * 1e12)


def replaced(page: str, made: str) -> str:
    return marks.replaced(page, BEGIN, END, made)


if __name__ == "__main__":
    PICTURE.write_text(picture())
    PAGE.write_text(replaced(PAGE.read_text(), table()))
