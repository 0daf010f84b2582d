# SPDX-License-Identifier: Apache-2.0
"""Pictures of a result, with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verbena.sim.result import ScenarioResult

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = ["completion_times", "links", "queues", "write"]

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
        ("completion", completion_times, len(result.durations()) > 0),
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
    """Bytes that waited over time, of the longest queues."""
    factor, unit = _unit(float(result.times[-1]))
    order = np.argsort(-result.queued.max(axis=0), kind="stable")[:MOST_LINES]
    for column in order.tolist():
        values = result.queued[:, column]
        if not values.any():
            continue
        axes.plot(result.times / factor, values / 1024, label=_queue_name(result, column))
    axes.set(xlabel=f"time ({unit})", ylabel="queue (KiB)", title=result.name)
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend(fontsize=8)


def _queue_name(result: ScenarioResult, column: int) -> str:
    link, class_ = (int(part) for part in result.queues[column])
    name = result.link_name(link)
    return f"{name}, {result.classes[class_]}" if len(result.classes) > 1 else name


def completion_times(result: ScenarioResult, axes: Any) -> None:
    """The part of the flows that had ended after a time, for each traffic."""
    factor, unit = _unit(float(result.durations().max()))
    for number, name in enumerate(result.traffic):
        times = np.sort(result.durations(number)) / factor
        if len(times):
            axes.step(times, np.arange(1, len(times) + 1) / len(times), where="post", label=name)
    axes.set(xlabel=f"completion time ({unit})", ylabel="part of the flows", title=result.name)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=8)


def links(result: ScenarioResult, axes: Any) -> None:
    """The network, its cables coloured by the busier of their directions."""
    from verbena import fabrics

    fabric: Fabric | None = result.fabric
    if fabric is None:
        raise ValueError("the result of a file has no network to draw")
    fabrics.draw(fabric, axes, heat=result.links["utilisation"])
    if len(fabric.graph) <= 40:
        for name, (x, y) in fabrics.positions(fabric).items():
            axes.annotate(name, (x, y), (0, 7), textcoords="offset points", ha="center", fontsize=7)
    busiest = result.links["utilisation"].max()
    axes.set_title(f"{result.name}: red is {busiest:.0%} busy" if busiest > 0.995 else
                   f"{result.name}: the busiest link has {busiest:.0%}")  # fmt: skip
