# SPDX-License-Identifier: Apache-2.0
"""Random fabrics, and an independent check of their routes by plain networkx."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from verbena.fabrics import ENGINES, Fabric, Routes, centre, route


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Connected: a random tree of switches, further cables (parallel ones too), a few hosts."""
    switches = draw(st.integers(1, 9))
    hosts = [draw(st.integers(0, 3)) for _ in range(switches)]
    hosts[0] += max(0, 2 - sum(hosts))
    made = Fabric("random")
    for index in range(switches):
        made.add_switch(f"s{index}", ports=40)
    for index in range(1, switches):
        made.connect(f"s{index}", f"s{draw(st.integers(0, index - 1))}")
    pairs = st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1))
    for a, b in draw(st.lists(pairs, max_size=12)):
        if a != b:
            made.connect(f"s{a}", f"s{b}", rate="4xHDR", length_m=7)
    count = 0
    for index, some in enumerate(hosts):
        for _ in range(some):
            made.connect(made.add_host(f"h{count}"), f"s{index}")
            count += 1
    return made


def routed(made: Fabric, engine: str, **options: Any) -> Routes:
    """Up/down goes below the centre where no roots are found, or none that all share."""
    routes = ENGINES[engine](made, **options)
    if engine == "updn" and (routes.notes or len(routes.unreachable())):
        return route(made, engine, roots=[centre(made)])
    return routes


def all_pairs(routes: Routes) -> tuple[np.ndarray, np.ndarray]:
    """Every end port to every other."""
    count = routes.tables.end_count
    src, dst = (a.ravel() for a in np.indices((count, count)))
    return src[src != dst], dst[src != dst]


def has_cycle(routes: Routes) -> bool:
    """Of the channel dependency graph, made path by path."""
    src, dst = all_pairs(routes)
    links = routes.links(src, dst)
    lanes = routes.lanes_of(src, dst, links)
    graph = nx.DiGraph()
    for way, lane in zip(links.tolist(), lanes.tolist(), strict=True):
        channels = [(link, vl) for link, vl in zip(way, lane, strict=True) if link >= 0]
        nx.add_path(graph, channels)
    return not nx.is_directed_acyclic_graph(graph)
