# SPDX-License-Identifier: Apache-2.0
"""Pictures of results with matplotlib: of one run, and of several variants side by side.

``ScenarioResult.plot`` and ``verbena sim --plots`` call ``write`` and ``compare``. The colours are
those of Okabe and Ito, which people with colour-blindness can distinguish; lines also differ in
their dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verbena._files import writing
from verbena.sim.result import WAITING, ScenarioResult
from verbena.sim.units import time_text

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = [
    "FORMATS",
    "compare",
    "completion_times",
    "links",
    "queues",
    "stalls",
    "throughput",
    "write",
]

FORMATS = ("png", "svg", "pdf")
APART = 30  # last completion time / first: above it the axis is logarithmic
SHORT = 10  # longest duration / a variant's: above it the variant has a time axis of its own
MOST_LINES = 8  # queues that a picture shows
MOST_NAMED = 40  # nodes; a network with more is drawn without names
APART_INCHES = 0.24  # the least distance of two names in a row
UNITS = ((1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns"))
RATES = ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"))
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))

Draw = Callable[..., None]  # takes a result and axes


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plots need matplotlib: pip install matplotlib", name=error.name
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def write(result: ScenarioResult, folder: Path, format: str = "png") -> list[Path]:
    """Draw the pictures that a result has data for, and return their paths.

    They are: throughput; queues, if some were sampled; completion, if flows began; links, if the
    fabric is known; stalls, if packets waited for credits or pauses; sweeps, if there is a subnet
    manager; connections, if some were set up. Raises ValueError for an
    unknown format, and OSError.
    """
    _check(format)
    with writing(folder, "the folder of pictures"):
        folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, draw in _drawings(result):
        figure = _figure(8, 4.5)
        draw(result, figure.subplots())
        made.append(_save(figure, folder / f"{name}.{format}"))
    return made


def _check(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"pictures are {', '.join(FORMATS)}, and not {format!r}")


def _save(figure: Any, path: Path) -> Path:
    """Save the figure. An SVG keeps text as text and has no date or random names, so it is
    reproducible."""
    from matplotlib import rc_context

    dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "verbena"}):
        figure.savefig(path, dpi=130, metadata=dateless.get(path.suffix[1:]))
    return path


def _drawings(result: ScenarioResult) -> list[tuple[str, Draw]]:
    """Return the pictures that the result has data for."""
    drawn = result.fabric is not None
    return [
        (name, draw)
        for name, draw, wanted in (
            ("throughput", throughput, bool(result.delivered.any())),
            ("queues", queues, len(result.times) > 0),
            ("completion", completion_times, bool((result.flows["state"] != WAITING).any())),
            ("links", links, drawn),
            ("stalls", stalls, drawn and bool(result.links["stalled"].any())),
            ("connections", connections, any(len(each.times) for each in result.connects)),
            ("sweeps", sweep_phases, bool(result.management and result.management.sweeps)),
        )
        if wanted
    ]


def _unit(most: float) -> tuple[float, str]:
    return next((unit for unit in UNITS if most >= unit[0]), UNITS[-1])


def _style(number: int) -> dict[str, Any]:
    """Return the colour and the dashes of the line with this number."""
    turn = number // len(COLOURS)
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[turn % len(DASHES)]}


def _legend(axes: Any, lines: int) -> None:
    """Add a legend below the axes, where it does not hide data."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=min(lines, 3), fontsize=8,
        frameon=False, handlelength=2.8,
    )  # fmt: skip


def _grid(axes: Any) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")


# ---- over time -----------------------------------------------------------------------------------


def throughput(result: ScenarioResult, axes: Any, longest: int = 0) -> None:
    """Draw what the flows of each traffic delivered together over time.

    Bytes of RC and TCP count when they are acknowledged. After a recovery, one acknowledgement
    covers all that had waited for it, so a step may show more than a link can carry.

    ``longest``: the duration in ps of the longest of several results, whose pictures share a unit.
    """
    rates = [result.throughput(number) for number in range(len(result.traffic))]
    most = max((values.max(initial=0) for _, values in rates), default=0)
    scale, name = next((unit for unit in RATES if most >= unit[0]), RATES[-1])
    factor, unit = _unit(float(max(result.time, longest)))
    for number, (times, values) in enumerate(rates):
        axes.plot(
            times / factor, values / scale, label=result.traffic[number], linewidth=1.4,
            **_style(number),
        )  # fmt: skip
    at = result.delivered_at.astype(float)
    steps = f", in steps of {time_text(float(np.median(np.diff(at))))}" if len(at) > 1 else ""
    axes.set(
        xlabel=f"time ({unit}){steps}",
        ylabel=f"throughput, acknowledged ({name})",
        title=result.name,
    )
    axes.set_xlim(0, result.time / factor)
    axes.set_ylim(0, 1.06 * most / scale or 1)
    _grid(axes)
    _legend(axes, len(rates))


def queues(
    result: ScenarioResult, axes: Any, longest: int = 0, styles: dict[str, int] | None = None
) -> None:
    """Draw the bytes that waited over time in the longest queues. Queues that were always empty are
    left out.

    ``styles``: the numbers of the queues' lines by name. Those of this picture are added, so that a
    queue has the same line in several pictures.
    """
    styles = {} if styles is None else styles
    factor, unit = _unit(float(max(result.times[-1], longest)))
    most = result.queued.max(axis=0).astype(np.int64)  # signed, to be negated below
    order = np.argsort(-most, kind="stable")
    shown = order[most[order] > 0]
    for column in shown[:MOST_LINES].tolist():
        name = _queue_name(result, column)
        axes.plot(
            result.times / factor, result.queued[:, column] / 1024, label=name, linewidth=1.2,
            **_style(styles.setdefault(name, len(styles))),
        )  # fmt: skip
    more = f", the longest {MOST_LINES} of {len(shown)}" if len(shown) > MOST_LINES else ""
    axes.set(xlabel=f"time ({unit})", ylabel="queue (KiB)", title=f"{result.name}{more}")
    axes.set_xlim(0, (float(result.times[-1]) or 1.0) / factor)
    axes.set_ylim(bottom=0)
    _grid(axes)
    if len(shown):
        _legend(axes, min(len(shown), MOST_LINES))
    else:
        _say(axes, f"nothing waited in any of the {len(most)} queues that were sampled")


def _queue_name(result: ScenarioResult, column: int) -> str:
    link, class_ = (int(part) for part in result.queues[column])
    name = result.link_name(link)
    return f"{name}, {result.classes[class_]}" if len(result.classes) > 1 else name


# ---- completion times ----------------------------------------------------------------------------


def completion_times(result: ScenarioResult, axes: Any, longest: int = 0) -> None:
    """Draw for each traffic the fraction of its flows that had completed after a time.

    Flows that have not ended, or failed, keep the line below 1; it extends to the longest time that
    any flow has lasted. The axis is logarithmic if the times differ by more than APART.
    """
    curves = [_completions(result, number) for number in range(len(result.traffic))]
    last = max((times[-1] for times, _ in curves), default=1.0)
    factor, unit = _unit(max(last, longest))
    for number, (times, part) in enumerate(curves):
        label, count = result.traffic[number], len(result.of(number))
        if part[-1] < 1:
            label += f": {round(part[-1] * count)} of {count} flows"
        ends = np.append(times, 1.03 * last) / factor
        wide = 1.5 * min(len(curves) - number, 4)  # below wider: coinciding lines are visible
        axes.step(
            ends, np.append(part, part[-1]), where="post", label=label, linewidth=wide,
            **_style(number),
        )  # fmt: skip
    axes.set(xlabel=f"completion time ({unit})", ylabel="part of all flows", title=result.name)
    first = min((times[1] for times, _ in curves if len(times) > 2), default=last)
    if first * APART < last:
        _logarithmic(axes)
        axes.set_xlim(first / 2 / factor, 1.03 * last / factor)
    else:
        axes.set_xlim(0, 1.03 * last / factor)
    axes.set_ylim(-0.02, 1.02)
    _grid(axes)
    _legend(axes, len(curves))


def _logarithmic(axes: Any) -> None:
    """Make the time axis logarithmic, with labels as 0.1 and 10 in place of powers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")


def _completions(
    result: ScenarioResult, traffic: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times in ps from 0 on, and the fraction of the traffic's flows that had ended at
    each."""
    flows, times = result.of(traffic), np.sort(result.durations(traffic))
    begun = flows[flows["state"] != WAITING]
    lasted = np.minimum(begun["finish"], np.uint64(result.time)) - begun["start"]
    longest = max(float(lasted.max(initial=0)), 1.0)
    part = np.arange(len(times) + 1) / max(1, len(flows))
    return np.concatenate([[0.0], times, [longest]]), np.append(part, part[-1])


# ---- the network ---------------------------------------------------------------------------------


BUSY = "part of the time that a link sent"
STALLED = "part of the time that a link stood still"


def links(result: ScenarioResult, axes: Any) -> None:
    """Draw the network, each cable in a colour for the busier of its two directions."""
    _network(result, axes, result.links["utilisation"], "is the busiest link")
    _scale(axes.figure, axes, BUSY)


def stalls(result: ScenarioResult, axes: Any) -> None:
    """Draw the network, each cable in a colour for how long packets waited for credits or a pause's
    end."""
    _stalls(result, axes)
    _scale(axes.figure, axes, STALLED)


def _stalls(result: ScenarioResult, axes: Any, longest: int = 0) -> None:
    stalled = result.links["stalled"] / max(1, result.time)
    _network(result, axes, stalled, "stood still the longest")


def _scale(figure: Any, axes: Any, label: str) -> None:
    from verbena.fabrics.draw import heat_scale

    heat_scale(figure, axes, label)


def _network(result: ScenarioResult, axes: Any, heat: NDArray[np.float64], most: str) -> None:
    from verbena import fabrics

    fabric: Fabric | None = result.fabric
    if fabric is None:
        raise ValueError("the result of a file has no network to draw")
    fabrics.draw(fabric, axes, heat=heat)
    worst = int(heat.argmax())
    places = fabrics.positions(fabric)
    ends = {result.nodes[result.links[end][worst]] for end in ("node", "to_node")}
    named = _named(places, axes) or {name: places[name] for name in ends}
    for name, (x, y) in named.items():
        text = axes.annotate(
            name, (x, y), (0, 7), textcoords="offset points", ha="center", fontsize=7, zorder=5
        )
        text.set_bbox({"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8})
    part = f"{heat[worst]:.0%} of {time_text(result.time)}"
    axes.set_title(f"{result.name}: {result.link_name(worst)} {most}, {part}")


def _named(places: dict[str, Any], axes: Any) -> dict[str, Any]:
    """Return the nodes whose names are written: every second one or so where names would
    overlap."""
    if len(places) > MOST_NAMED:
        return {}
    across = [x for x, _ in places.values()]
    inches = axes.get_position().width * axes.figure.get_figwidth() * 0.8
    rows: dict[float, list[str]] = {}
    for name in sorted(places, key=lambda name: places[name][0]):
        rows.setdefault(round(places[name][1], 6), []).append(name)
    chosen = []
    for row in rows.values():
        apart = np.diff([float(places[name][0]) for name in row]).min(initial=np.inf)
        step = APART_INCHES / max(1e-9, inches * apart / max(np.ptp(across), 1e-9))
        chosen += row[:: max(1, int(np.ceil(step)))]
    return {name: places[name] for name in chosen}


def connections(result: ScenarioResult, axes: Any) -> None:
    """Draw how many connections of each [[connect]] were established by each time."""
    ends = [np.sort(each.end[each.end >= 0]) for each in result.connects]
    factor, unit = _unit(float(max(each.max(initial=0) for each in ends)))
    for number, (each, of) in enumerate(zip(ends, result.connects, strict=True)):
        axes.step(
            np.append(0, each) / factor, np.arange(len(each) + 1), where="post", label=of.name,
            **_style(number),
        )  # fmt: skip
    axes.set(
        xlabel=f"time ({unit})",
        ylabel="established connections",
        title=f"{result.name}: connections",
    )
    _grid(axes)
    _legend(axes, len(ends))


def sweep_phases(result: ScenarioResult, axes: Any) -> None:
    """Draw the phases of the first heavy sweeps of the subnet manager, a row for each sweep."""
    assert result.management is not None
    sweeps = result.management.sweeps[:MOST_LINES]
    factor, unit = _unit(float(max((sweep.end or result.time) - sweep.begin for sweep in sweeps)))
    colours: dict[str, int] = {}
    for row, sweep in enumerate(sweeps):
        ends = [*list(sweep.phases.values())[1:], sweep.end or result.time]
        for (phase, begin), end in zip(sweep.phases.items(), ends, strict=True):
            if end > begin:
                number = colours.setdefault(phase.name.lower(), len(colours))
                axes.barh(
                    row, (end - begin) / factor, left=(begin - sweep.begin) / factor,
                    color=COLOURS[number % len(COLOURS)], height=0.6,
                )  # fmt: skip
    for name, number in colours.items():
        axes.barh(0, 0, color=COLOURS[number % len(COLOURS)], label=name)
    axes.set_yticks(range(len(sweeps)), [time_text(sweep.begin) for sweep in sweeps])
    axes.invert_yaxis()
    axes.set(
        xlabel=f"time since the sweep began ({unit})",
        ylabel="begin of the sweep",
        title=f"{result.name}: sweeps of the subnet manager",
    )
    axes.spines[["top", "right"]].set_visible(False)
    _legend(axes, len(colours))


# ---- variants side by side -----------------------------------------------------------------------


def compare(results: Sequence[ScenarioResult], path: Path) -> Path:
    """Draw several results in one picture: a column for each, a row for each kind, on common axes.

    The format is the path's suffix. Raises ValueError for an unknown format or if there is nothing
    to draw, and OSError.
    """
    _check(path.suffix[1:])
    rows = [(name, draw, has) for name, draw, has in ROWS if any(map(has, results))]
    if not rows:
        raise ValueError("there is nothing to compare")
    with writing(path.parent, "the folder of pictures"):
        path.parent.mkdir(parents=True, exist_ok=True)
    figure = _figure(max(2, len(results)) * 4.2, len(rows) * 3.3)
    planes = figure.subplots(len(rows), len(results), squeeze=False)
    longest = max(result.time for result in results)
    styles: dict[str, int] = {}
    for number, (name, draw, has) in enumerate(rows):
        for axes, result in zip(planes[number], results, strict=True):
            said = result.name
            if has(result):
                draw(result, axes, longest, **({"styles": styles} if draw is queues else {}))
                said = axes.get_title()
            else:
                axes.set_axis_off()
                _say(axes, NOTHING[name])
            own = said.removeprefix(result.name).lstrip(":, ")
            axes.set_title(own if number else said, fontsize=9)
        if draw is _stalls:
            _scale(figure, list(planes[number]), STALLED)
        else:
            _share(planes[number])
    return _save(figure, path)


NOTHING = {
    "throughput": "nothing was delivered",
    "queues": "no queue was sampled",
    "completion": "no flow ended",
    "stalls": "no link stood still",
}


# Each kind of picture, how it is drawn, and whether a result has data for it.
ROWS: tuple[tuple[str, Draw, Callable[[ScenarioResult], bool]], ...] = (
    ("throughput", throughput, lambda result: bool(result.delivered.any())),
    ("queues", queues, lambda result: len(result.times) > 0),
    ("completion", completion_times, lambda result: len(result.durations()) > 0),
    (
        "stalls",
        _stalls,
        lambda result: result.fabric is not None and bool(result.links["stalled"].any()),
    ),
)


def _share(row: Any) -> None:
    """Give the axes of a row common limits, from the least to the most of any of them.

    A run that lasted less than 1/SHORT of the longest keeps a time axis of its own, and its label
    says so: on the common axis all of its lines would coincide.
    """
    drawn = [axes for axes in row if axes.lines]
    logarithmic = [axes.get_xlim()[0] for axes in drawn if axes.get_xscale() == "log"]
    right = max(axes.get_xlim()[1] for axes in drawn)
    left = min(logarithmic or [axes.get_xlim()[0] for axes in drawn])
    top = max(axes.get_ylim()[1] for axes in drawn)
    for axes in drawn:
        if logarithmic:
            _logarithmic(axes)
        axes.set_ylim(top=top)
        if not logarithmic and SHORT * axes.get_xlim()[1] < right:
            axes.set_xlabel(f"{axes.get_xlabel()}: an axis of its own", color=COLOURS[1])
        else:
            axes.set_xlim(left, right)
