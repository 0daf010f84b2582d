# SPDX-License-Identifier: Apache-2.0
"""Draws fabrics, as SVG without any other package, or onto axes of matplotlib.

Programs and the plots of verbena.sim call this.
"""

from __future__ import annotations

import math
from html import escape
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import FabricError
from .fabric import Fabric
from .hops import FAR, hop_table

__all__ = ["draw", "heat_scale", "positions", "svg"]

Place = tuple[float, float]

COLD, HOT = np.array([208, 215, 222]), np.array([180, 35, 24])  # of cables, red green blue
MANY = 24  # cables: more are drawn thinner
LARGE = 500  # nodes; for more a spring layout takes long, and networkx needs SciPy for it

STYLE = """
.cable { fill: none; stroke: #8c959f; stroke-width: 1.4 }
.host { fill: #ffffff; stroke: #57606a }
.switch { fill: #eef2ff; stroke: #4f46e5; stroke-width: 1.5 }
.name { font: 11px sans-serif; fill: #1f2328; text-anchor: middle }
.card { fill: #ffffff; stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  .card { fill: #161b22; stroke: #30363d }
  .cable { fill: none; stroke: #6e7681 }
  .host { fill: #0d1117; stroke: #9da7b3 }
  .switch { fill: #1e1b4b; stroke: #a5b4fc }
  .name { fill: #e6edf3 }
}
"""


def positions(fabric: Fabric) -> dict[str, Place]:
    """Return the position of each node, y upwards; it is the same each time.

    Topologies of this package have positions. Others get a spring layout with a fixed seed, or, if
    they are large, rows by the distance from hosts.
    """
    own = {name: place for name, place in fabric.graph.nodes(data="pos") if place is not None}
    if len(own) == len(fabric.graph):
        return own
    if len(fabric.graph) >= LARGE:
        return _rows(fabric)
    laid = nx.spring_layout(nx.Graph(fabric.graph), seed=1)
    return {name: (float(x), float(y)) for name, (x, y) in laid.items()}


def _rows(fabric: Fabric) -> dict[str, Place]:
    """Hosts below, then the switches that have some, and so on; by number within a row."""
    tables = fabric.tables()
    level = np.zeros(len(tables.names), np.int64)
    level[tables.host_count :] = hop_table(tables).min(axis=1, initial=FAR).astype(np.int64) + 1
    place = {}
    for row in np.unique(level):
        members = np.nonzero(level == row)[0]
        for index, node in enumerate(members):
            place[tables.names[node]] = ((index + 0.5) / len(members), float(row))
    return place


def svg(
    fabric: Fabric, *, heat: ArrayLike | None = None, width: int = 720, height: int = 360
) -> str:
    """Return the fabric as an SVG document.

    ``heat`` [L] has a number from 0 to 1 for each directed link, in the order of ``Tables.links``;
    the colour of a cable shows the larger one of its two directions.
    """
    place = _scaled(positions(fabric), width, height)
    colour = [None] * fabric.graph.number_of_edges() if heat is None else _colours(fabric, heat)
    radius = _radius(place, width)
    body = []
    bends = _bends(fabric, positions(fabric))
    for cable, bend, red in zip(fabric.cables(), bends, colour, strict=True):
        style = "" if red is None else f' style="stroke: {red}; stroke-width: 2.5"'
        body.append(
            f'<path d="{_line(place[cable.a], place[cable.b], bend)}" class="cable"{style}>'
            f"<title>{escape(str(cable))}</title></path>"
        )
    for name, kind in fabric.graph.nodes(data="kind"):
        body.append(_node(name, kind, place[name], radius))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(fabric.name)}">',
            f"<style>{STYLE}</style>",
            f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" class="card"/>',
            *body,
            "</svg>\n",
        ]
    )


def _scaled(places: dict[str, Place], width: int, height: int) -> dict[str, Place]:
    """Scale positions to the picture, y downwards, with a margin."""
    points = np.array(list(places.values()), float)
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1)
    unit = np.where(high > low, (points - low) / span, 0.5)
    x = 28 + unit[:, 0] * (width - 56)
    y = 28 + (1 - unit[:, 1]) * (height - 56)
    return {
        name: (round(float(a), 1), round(float(b), 1))
        for name, a, b in zip(places, x, y, strict=True)
    }


def _radius(place: dict[str, Place], width: int) -> float:
    """Return the radius of a node, such that no two overlap unless they would be too small."""
    wanted = min(14.0, width / (2.6 * math.sqrt(len(place)) + 20))
    if len(place) < LARGE:
        points = np.array(list(place.values()))
        apart = np.linalg.norm(points[:, None] - points, axis=-1)
        apart[np.diag_indices(len(points))] = np.inf
        wanted = min(wanted, float(apart.min()) / (1 + 2**0.5))  # a square's corner and a circle
    return max(3.0, wanted)


def _bends(fabric: Fabric, place: dict[str, Place]) -> list[float]:
    """Return how far each cable bends from the straight line, as a fraction of its length.

    Straight parallel cables, and those that close the rings of a torus, would hide others. (A ring
    topology is drawn as a circle, in which the last cable hides none.)
    """
    coordinate = dict(fabric.graph.nodes(data="coordinate"))
    between = [
        math.dist(place[cable.a], place[cable.b])
        for cable in fabric.cables()
        if coordinate[cable.a] is not None and coordinate[cable.b] is not None
    ]
    short = 1.5 * min(between, default=0.0)
    seen: dict[frozenset[str], int] = {}
    bends = []
    for cable in fabric.cables():
        a, b = coordinate[cable.a], coordinate[cable.b]
        around = a is not None and b is not None and math.dist(a, b) > 1
        around &= math.dist(place[cable.a], place[cable.b]) > short
        pair = frozenset((cable.a, cable.b))
        copy = seen[pair] = seen.get(pair, -1) + 1
        bends.append(0.1 * (around + (copy + 1) // 2 * (-1) ** copy))
    return bends


def _line(start: Place, end: Place, bend: float) -> str:
    (x1, y1), (x2, y2) = start, end
    if not bend:
        return f"M {x1:g} {y1:g} L {x2:g} {y2:g}"
    x, y = (x1 + x2) / 2 + 2 * bend * (y2 - y1), (y1 + y2) / 2 - 2 * bend * (x2 - x1)
    return f"M {x1:g} {y1:g} Q {x:.1f} {y:.1f} {x2:g} {y2:g}"


def _node(name: str, kind: str, place: Place, radius: float) -> str:
    x, y = place
    if kind == "host":
        shape = f'<circle cx="{x:g}" cy="{y:g}" r="{radius:.1f}" class="host"/>'
    else:
        shape = (
            f'<rect x="{x - radius:.1f}" y="{y - radius:.1f}" width="{2 * radius:.1f}" '
            f'height="{2 * radius:.1f}" rx="3" class="switch"/>'
        )
    if radius < 9:
        return f"<g><title>{escape(name)}</title>{shape}</g>"
    return f'{shape}<text x="{x:g}" y="{y + 4:g}" class="name">{escape(name)}</text>'


def _cable_heat(fabric: Fabric, heat: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(heat, float)
    count = 2 * fabric.graph.number_of_edges()
    if values.shape != (count,):
        raise FabricError(f"{fabric.name}: heat of shape {values.shape} for {count} directed links")
    hotter: NDArray[np.float64] = np.clip(values.reshape(-1, 2).max(axis=1), 0, 1)
    return hotter


def _colours(fabric: Fabric, heat: ArrayLike) -> list[str]:
    """Return colours from light grey to dark red, which also differ in brightness."""
    shades = COLD + _cable_heat(fabric, heat)[:, None] * (HOT - COLD)
    return ["#{:02x}{:02x}{:02x}".format(*map(round, shade)) for shade in shades.tolist()]


def draw(fabric: Fabric, axes: Any, *, heat: ArrayLike | None = None) -> None:
    """Draw the fabric onto axes of matplotlib, with ``heat`` as in ``svg``; hotter cables are
    thicker.

    ``heat_scale`` draws a scale beside it.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    place = positions(fabric)
    count = fabric.graph.number_of_edges()
    colours = ["#8c959f"] * count if heat is None else _colours(fabric, heat)
    thin = 1.2 if count <= MANY else 0.6
    width = np.full(count, thin)
    if heat is not None:
        width += 2 * thin * _cable_heat(fabric, heat)
    drawn = zip(fabric.cables(), _bends(fabric, place), colours, width.tolist(), strict=True)
    for cable, bend, colour, wide in drawn:
        (x1, y1), (x2, y2) = place[cable.a], place[cable.b]
        middle = (x1 + x2) / 2 + 2 * bend * (y2 - y1), (y1 + y2) / 2 - 2 * bend * (x2 - x1)
        line = Path([(x1, y1), middle, (x2, y2)], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        patch = PathPatch(line, fill=False, edgecolor=colour, linewidth=wide, zorder=0)
        axes.add_patch(patch)
        axes.update_datalim(line.interpolated(8).vertices)
    graph = nx.Graph(fabric.graph)
    for names, shape in ((fabric.hosts, "o"), (fabric.switches, "s")):
        nx.draw_networkx_nodes(
            graph, place, names, 60, "#eef2ff", shape, edgecolors="#4f46e5", ax=axes
        )
    axes.autoscale_view()
    axes.set_axis_off()


def heat_scale(figure: Any, axes: Any, label: str) -> None:
    """Draw a scale of the cables' colours, from 0 to 100 %, beside axes or a list of them."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.ticker import PercentFormatter

    colours = LinearSegmentedColormap.from_list("heat", [COLD / 255, HOT / 255])
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), colours), ax=axes, shrink=0.7, format=PercentFormatter(1)
    )
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
