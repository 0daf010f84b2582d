# SPDX-License-Identifier: Apache-2.0
"""Draws four topologies into docs/images/fabrics.svg and writes the tables of docs/fabrics.md.

python docs/generate/fabrics.py
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import marks
import numpy as np

from verbena import fabrics
from verbena.sim import World, build

DOCS = Path(__file__).parent.parent
PAGE = DOCS / "fabrics.md"
PICTURE = DOCS / "images" / "fabrics.svg"
BEGIN = "<!-- table: made by generate/fabrics.py -->\n"
COLLECTIVES = "<!-- table: collectives, made by generate/fabrics.py -->\n"
END = "<!-- end of table -->"
WIDTH, HEIGHT = 420, 250
HOSTS, SIZE = 16, 64 << 20
ALPHA, BETA = 2e6 + 4096 * 80, 80.0  # ps: two links of 1 us and a packet, and a byte at 100 Gb/s
FORMULAS = {
    "ring_all_reduce": "2 (p − 1) (α + S/p β)",
    "double_tree_all_reduce": "2 S β + 4 log₂ p (α + c β), about",
    "halving_doubling_all_reduce": "2 log₂ p α + 2 (p − 1)/p S β",
    "tree_all_reduce": "3 S β, or more",
    "ring_reduce_scatter": "(p − 1) (α + S/p β)",
    "recursive_halving_reduce_scatter": "log₂ p α + (p − 1)/p S β",
    "ring_all_gather": "(p − 1) (α + S/p β)",
    "recursive_doubling_all_gather": "⌈log₂ p⌉ α + (p − 1)/p S β",
    "binomial_broadcast": "⌈log₂ p⌉ (α + S β)",
    "chain_broadcast": "(p − 2 + k) (α + S/k β)",
    "double_tree_broadcast": "S β + 2 log₂ p (α + c β), about",
}


def shown() -> list[tuple[str, fabrics.Fabric, int, int]]:
    """Names, fabrics, and widths and heights at which nodes have room for their names."""
    return [
        ("fat_tree(4)", fabrics.fat_tree(4), WIDTH, HEIGHT),
        ("torus((4, 6))", fabrics.torus((4, 6)), WIDTH, HEIGHT),
        ("dragonfly(1, 4, 1)", fabrics.dragonfly(1, 4, 1), 570, 420),
        ("diamond(hosts=2, paths=2)", fabrics.diamond(hosts=2, paths=2), 270, 420),
    ]


def picture() -> str:
    """The four, each as ``fabrics.svg`` draws it, two in a row."""
    parts: list[str] = []
    x = y = 0
    for index, (name, made, width, height) in enumerate(shown()):
        drawn = fabrics.svg(made, width=width, height=height)
        style = drawn[drawn.index("<style>") : drawn.index("</style>") + len("</style>")]
        body = drawn[drawn.index("</style>") + len("</style>") : drawn.rindex("</svg>")]
        parts.append(
            f'<g transform="translate({x} {y + 24})">{body}</g>\n'
            f'<text x="{x + width / 2:g}" y="{y + 16}" class="title">{name}</text>'
        )
        x, y = (0, y + height + 34) if index % 2 else (x + width + 10, y)
    width, height = 2 * WIDTH + 10, y
    title = (
        "<style>.title { font: 600 13px monospace; fill: #1f2328; text-anchor: middle }\n"
        "@media (prefers-color-scheme: dark) { .title { fill: #e6edf3 } }</style>"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="Four topologies">',
            "<!-- SPDX-License-Identifier: Apache-2.0. Made by docs/generate/fabrics.py. -->",
            style,
            title,
            *parts,
            "</svg>\n",
        ]
    )


def table() -> str:
    """Engines on some fabrics: effective bisection bandwidth, lanes, and credit loops."""
    made = [
        fabrics.fat_tree(8),
        fabrics.torus((6, 6), 2),
        fabrics.dragonfly(2, 4, 2),
        fabrics.ring(6, 4),
    ]
    lines = [["", *(some.name for some in made)], ["---"] + ["---"] * len(made)]
    for engine in fabrics.ENGINES:
        lines.append([f"`{engine}`", *(cell(some, engine) for some in made)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(made: fabrics.Fabric, engine: str) -> str:
    try:
        with warnings.catch_warnings(record=True) as said:
            routes = fabrics.route(made, engine)
    except fabrics.FabricError as error:
        if more := re.search(r"more than (\d+) lanes", str(error)):
            return f"more than {more[1]} VLs"
        return "not for it"
    if said:
        return "as minhop"
    if routes.detours is not None:  # packets choose paths: the tables do not give their rates
        return f"by detours ({routes.lanes.lanes} VLs)"
    hosts = routes.tables.end_count
    random = np.random.default_rng(1)
    shares = []
    for _ in range(40):
        ends = random.permutation(hosts)
        flows = random.integers(0, 1 << 62, hosts // 2)
        shares.append(routes.rates(ends[: hosts // 2], ends[hosts // 2 :][: hosts // 2], flows))
    loop = fabrics.credit_loop(routes)
    lanes = routes.lanes.lanes
    notes = [f"{lanes} VLs"] * (lanes > 1) + ["credit loop"] * (loop is not None)
    return f"{np.mean(shares):.2f}" + (f" ({', '.join(notes)})" if notes else "")


def collectives() -> str:
    """Return the theoretical and the simulated time of each collective operation."""
    lines = ["| | Theory | | Simulated |", "|---|---|--:|--:|"]
    for name, formula in FORMULAS.items():
        cost = fabrics.collective_cost(name, HOSTS, SIZE, ALPHA, BETA)
        lines.append(
            f"| `{name}` | {formula} | {cost / 1e9:.2f} ms | {simulated(name) / 1e9:.2f} ms |"
        )
    return "\n".join(lines) + "\n"


def simulated(name: str) -> int:
    work, world = getattr(fabrics, name)(HOSTS, SIZE), World(framing="bare", window=16 << 20)
    build(world, fabrics.route(fabrics.one_switch(HOSTS, rate="100GbE", delay_ns=1000)))
    flow = work.flows
    world.add_flows(flow["src"], flow["dst"], flow["bytes"], flow["start"], after=work.after)
    assert world.run() == "done"
    return int(world.flows()["finish"].max())


def replaced(page: str, made: str) -> str:
    return marks.replaced(page, BEGIN, END, made)


if __name__ == "__main__":
    PICTURE.write_text(picture())
    page = replaced(PAGE.read_text(), table())
    PAGE.write_text(marks.replaced(page, COLLECTIVES, END, collectives()))
