# SPDX-License-Identifier: Apache-2.0
"""Reads and writes fabrics as DOT, the language of Graphviz. Programs and scenarios call this."""

from __future__ import annotations

import contextlib
import io
import itertools
import warnings
from collections.abc import Mapping
from typing import Any

from .errors import FabricError
from .fabric import Fabric

__all__ = ["read", "write"]

SHAPES = {"host": "ellipse", "switch": "box"}


def write(fabric: Fabric) -> str:
    """Return the fabric as DOT text that ``read`` accepts.

    ``neato -n2 -Tsvg`` draws it if its nodes have positions.
    """
    lines = [f"graph {_quoted(fabric.name)} {{"]
    for name, node in fabric.graph.nodes(data=True):
        words = [f"kind={node['kind']}", f"shape={SHAPES[node['kind']]}", f"ports={node['ports']}"]
        words.append(f'guid="{node["guid"]:#x}"')
        if "pos" in node:
            words.append(f'pos="{72 * node["pos"][0]:g},{72 * node["pos"][1]:g}"')
        lines.append(f"  {_quoted(name)} [{', '.join(words)}];")
    for cable in fabric.cables():
        words = [f"taillabel={cable.a_port}", f"headlabel={cable.b_port}"]
        words += [f'rate="{cable.rate}"', f'delay_ns="{cable.delay_ps / 1000:.12g}"']
        lines.append(f"  {_quoted(cable.a)} -- {_quoted(cable.b)} [{', '.join(words)}];")
    return "\n".join([*lines, "}"]) + "\n"


def read(text: str, *, rate: str = "4xEDR", length_m: float = 1.0) -> Fabric:
    """The fabric that a DOT graph describes.

    A node's ``kind`` is host or switch; one without it is a host if it has a single cable.
    ``ports`` is how many it has, otherwise as many as it uses. An edge's ports are its
    ``taillabel`` and ``headlabel``, or those of ``a:1 -- b:2``, otherwise the lowest free ones;
    ``rate``, ``delay_ns`` or ``length_m`` are those of its cable, otherwise the arguments here.
    ``node [...]``, ``edge [...]`` and ``a -- {b c}`` mean what they mean to Graphviz.
    Needs pydot; raises FabricError for text that is no DOT graph.
    """
    graph = _parsed(text)
    statements = _Statements(graph)
    nodes, edges = statements.nodes, statements.edges
    used: dict[str, list[int]] = {}
    for one, other, _ in edges:
        for name, port in (one, other):
            used.setdefault(name, []).append(port or 0)
    fabric = Fabric(_plain(graph.get_name()) or "dot")
    for name, node in nodes.items():
        _add_node(fabric, name, node, used.get(name, []))
    # Cables with named ports come first, so that the others get free ports.
    for (a, a_port), (b, b_port), more in sorted(edges, key=lambda e: not (e[0][1] and e[1][1])):
        delay = more.get("delay_ns")
        length = more.get("length_m", None if delay is not None else length_m)
        fabric.connect(
            a,
            b,
            a_port=a_port,
            b_port=b_port,
            rate=more.get("rate", rate),
            delay_ns=None if delay is None else _number(f"{a} to {b}", delay),
            length_m=None if length is None else _number(f"{a} to {b}", length),
        )
    return fabric


def _add_node(fabric: Fabric, name: str, node: dict[str, str], used: list[int]) -> None:
    kind = node.get("kind", "host" if len(used) == 1 else "switch")
    if kind not in SHAPES:
        raise FabricError(f"{name}: {kind!r} is neither host nor switch")
    ports = _whole(name, node["ports"]) if "ports" in node else max([1, len(used), *used])
    guid = _whole(name, node["guid"]) if "guid" in node else None
    more: dict[str, Any] = {}
    if "pos" in node:
        place = [_number(name, value) / 72 for value in node["pos"].rstrip("!").split(",")]
        if len(place) not in (2, 3):
            raise FabricError(f"{name}: {node['pos']!r} is no place")
        more["pos"] = (place[0], place[1])
    add = fabric.add_host if kind == "host" else fabric.add_switch
    add(name, ports=ports, guid=guid, **more)


def _parsed(text: str) -> Any:
    try:
        with warnings.catch_warnings():  # pydot uses old names of its parser
            warnings.simplefilter("ignore", DeprecationWarning)
            import pydot
    except ModuleNotFoundError:
        raise FabricError("to read DOT, install pydot (pip install pydot)") from None
    printed = io.StringIO()  # pydot prints its syntax errors
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore", DeprecationWarning)
        graphs = pydot.graph_from_dot_data(text)
    if not graphs:
        reason = printed.getvalue().strip().splitlines() or ["it cannot be parsed"]
        raise FabricError(f"no DOT graph: {reason[-1]}")
    if len(graphs) > 1:
        raise FabricError(f"there are {len(graphs)} graphs, and a fabric is one")
    return graphs[0]


Edge = tuple[tuple[str, int | None], tuple[str, int | None], dict[str, str]]


class _Statements:
    """Nodes and edges of a graph in their order, those of subgraphs too."""

    def __init__(self, graph: Any) -> None:
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[Edge] = []
        self._met: dict[str, dict[str, str]] = {}  # nodes in edges, with the defaults at that place
        self._read(graph, {}, {})
        self.nodes = {**self.nodes, **{n: m for n, m in self._met.items() if n not in self.nodes}}

    def _read(self, graph: Any, for_nodes: dict[str, str], for_edges: dict[str, str]) -> None:
        for_nodes, for_edges = dict(for_nodes), dict(for_edges)
        parts = [*graph.get_nodes(), *graph.get_edges(), *graph.get_subgraphs()]
        for part in sorted(parts, key=lambda part: int(part.get_sequence())):
            more = _attributes(part)
            if hasattr(part, "get_source"):
                self._edge(part, for_nodes, {**for_edges, **more})
            elif hasattr(part, "get_nodes"):
                self._read(part, for_nodes, for_edges)
            elif part.get_name() in ("node", "edge", "graph"):
                {"node": for_nodes, "edge": for_edges}.get(part.get_name(), {}).update(more)
            elif (name := _plain(part.get_name())) not in ("\\n", ""):
                known = self.nodes.get(name, self._met.get(name, for_nodes))
                self.nodes[name] = {**known, **more}

    def _edge(self, edge: Any, for_nodes: dict[str, str], more: dict[str, str]) -> None:
        """An end in braces stands for each node in them."""
        ends = [self._ends(end, for_nodes) for end in (edge.get_source(), edge.get_destination())]
        for one, other in itertools.product(*ends):
            a, b = _end(one, more.get("taillabel")), _end(other, more.get("headlabel"))
            for name, _ in (a, b):
                self._met.setdefault(name, dict(for_nodes))
            self.edges.append((a, b, more))

    def _ends(self, end: Any, for_nodes: dict[str, str]) -> list[str]:
        if not isinstance(end, Mapping):
            return [str(end)]
        import pydot

        part = pydot.Subgraph(obj_dict=dict(end))
        self._read(part, for_nodes, {})
        return list(dict.fromkeys(str(node.get_name()) for node in part.get_nodes()))


def _end(text: str, label: str | None) -> tuple[str, int | None]:
    name, colon, port = text.rpartition(":")
    if colon and not text.endswith('"') and port.isdecimal():
        return _plain(name), int(port)
    return _plain(text), int(label) if label is not None and label.isdecimal() else None


def _attributes(statement: Any) -> dict[str, str]:
    return {key: _plain(str(value)) for key, value in statement.get_attributes().items()}


def _plain(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"')
    return text


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def _whole(where: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise FabricError(f"{where}: {text!r} is no whole number") from None


def _number(where: str, text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise FabricError(f"{where}: {text!r} is no number") from None
