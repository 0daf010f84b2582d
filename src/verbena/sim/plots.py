# SPDX-License-Identifier: Apache-2.0
"""Pictures of a result, with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verbena.sim.result import WAITING, ScenarioResult

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = ["completion_times", "links", "queues", "write"]

APART = 30  # from the first completion to the last: with more, the axis is logarithmic
MOST_LINES = 8  # queues in one picture: the longest ones
UNITS = ((1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns"))


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plots need matplotlib: pip install matplotlib", name=error.name
        ) from None
    return Figure(figsize=(8, 4.5), layout="constrained")


def write(result: ScenarioResult, folder: Path) -> list[Path]:
    """queues.png, where some were sampled, completion.png and links.png; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, draw, wanted in (
        ("queues", queues, len(result.times) > 0),
        ("completion", completion_times, bool((result.flows["state"] != WAITING).any())),
        ("links", links, result.fabric is not None),
    ):
        if not wanted:
            continue
        figure = _figure()
        draw(result, figure.subplots())
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130)
        made.append(path)
    return made


def _unit(most: float) -> tuple[float, str]:
    return next((unit for unit in UNITS if most >= unit[0]), UNITS[-1])


def queues(result: ScenarioResult, axes: Any) -> None:
    """Bytes that waited over time, of the longest queues; what was always empty has no line."""
    factor, unit = _unit(float(result.times[-1]))
    longest = result.queued.max(axis=0).astype(np.int64)  # unsigned numbers have no negative
    order = np.argsort(-longest, kind="stable")
    shown = order[longest[order] > 0]
    for column in shown[:MOST_LINES].tolist():
        values = result.queued[:, column] / 1024
        axes.plot(result.times / factor, values, label=_queue_name(result, column), linewidth=1)
    more = f", the longest {MOST_LINES} of {len(shown)}" if len(shown) > MOST_LINES else ""
    axes.set(xlabel=f"time ({unit})", ylabel="queue (KiB)", title=f"{result.name}{more}")
    axes.set_xlim(0, float(result.times[-1]) / factor)
    axes.set_ylim(bottom=0)
    if len(shown):
        _legend(axes, min(len(shown), MOST_LINES))
    else:
        _say(axes, f"nothing waited in any of the {len(longest)} queues that were sampled")


def _legend(axes: Any, lines: int) -> None:
    """Below the picture: beside or over it, it would hide what it explains."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=min(lines, 3), fontsize=8,
        frameon=False,
    )  # fmt: skip


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")


def _queue_name(result: ScenarioResult, column: int) -> str:
    link, class_ = (int(part) for part in result.queues[column])
    name = result.link_name(link)
    return f"{name}, {result.classes[class_]}" if len(result.classes) > 1 else name


def completion_times(result: ScenarioResult, axes: Any) -> None:
    """The part of all flows that had ended after a time, for each traffic.

    Flows that have not ended, or failed, keep a line below 1; it is drawn as far as the longest of
    the flows has lasted. Times are on a logarithmic axis where they are far apart.
    """
    curves = [_completions(result, number) for number in range(len(result.traffic))]
    last = max((times[-1] for times, _ in curves), default=1.0)
    factor, unit = _unit(last)
    for number, (times, part) in enumerate(curves):
        label, count = result.traffic[number], len(result.of(number))
        if part[-1] < 1:
            label += f": {round(part[-1] * count)} of {count} flows"
        ends = np.append(times, 1.03 * last) / factor
        wide = 1.5 * min(len(curves) - number, 4)  # so that a line below another is seen
        axes.step(ends, np.append(part, part[-1]), where="post", label=label, linewidth=wide)
    axes.set(xlabel=f"completion time ({unit})", ylabel="part of all flows", title=result.name)
    first = min((times[1] for times, _ in curves if len(times) > 2), default=last)
    if first * APART < last:
        axes.set_xscale("log")
        axes.set_xlim(first / 2 / factor, 1.03 * last / factor)
    else:
        axes.set_xlim(0, 1.03 * last / factor)
    axes.set_ylim(-0.02, 1.02)
    axes.grid(axis="y", alpha=0.3)
    _legend(axes, len(curves))


def _completions(
    result: ScenarioResult, traffic: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in ps from 0 on, and the part of the traffic's flows that had ended at each."""
    flows, times = result.of(traffic), np.sort(result.durations(traffic))
    begun = flows[flows["state"] != WAITING]
    lasted = np.minimum(begun["finish"], np.uint64(result.time)) - begun["start"]
    longest = max(float(lasted.max(initial=0)), 1.0)
    part = np.arange(len(times) + 1) / max(1, len(flows))
    return np.concatenate([[0.0], times, [longest]]), np.append(part, part[-1])


def links(result: ScenarioResult, axes: Any) -> None:
    """The network, its cables coloured by the busier of their directions."""
    from verbena import fabrics

    fabric: Fabric | None = result.fabric
    if fabric is None:
        raise ValueError("the result of a file has no network to draw")
    fabrics.draw(fabric, axes, heat=result.links["utilisation"])
    if len(fabric.graph) <= 40:
        for name, (x, y) in fabrics.positions(fabric).items():
            label = axes.annotate(
                name, (x, y), (0, 7), textcoords="offset points", ha="center", fontsize=7, zorder=5
            )
            label.set_bbox({"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8})
    busiest = result.links["utilisation"].max(initial=0)
    axes.set_title(f"{result.name}: the busiest link is busy for {busiest:.0%} (red: 100%)")
