# SPDX-License-Identifier: Apache-2.0
"""Fabrics as DOT, the language of Graphviz."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

from .errors import FabricError
from .fabric import Fabric

__all__ = ["read", "write"]

SHAPES = {"host": "ellipse", "switch": "box"}


def write(fabric: Fabric) -> str:
    """The fabric with all that ``read`` needs; ``neato -n2 -Tsvg`` draws it where it has places."""
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
    Needs pydot; raises FabricError for text that is no DOT graph.
    """
    graph = _parsed(text)
    nodes, edges = _statements(graph)
    used: dict[str, list[int]] = {}
    for one, other, _ in edges:
        for name, port in (one, other):
            used.setdefault(name, []).append(port or 0)
    fabric = Fabric(_plain(graph.get_name()) or "dot")
    for name in {**nodes, **used}:
        _add_node(fabric, name, nodes.get(name, {}), used.get(name, []))
    # Ports that are named come first, so that a cable without one takes what is left.
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
    ports = int(_number(name, node["ports"])) if "ports" in node else max([1, len(used), *used])
    guid = int(node["guid"], 0) if "guid" in node else None
    more: dict[str, Any] = {}
    if "pos" in node:
        x, y = (_number(name, value) / 72 for value in node["pos"].rstrip("!").split(","))
        more["pos"] = (x, y)
    add = fabric.add_host if kind == "host" else fabric.add_switch
    add(name, ports=ports, guid=guid, **more)


def _parsed(text: str) -> Any:
    try:
        with warnings.catch_warnings():  # pydot uses old names of its parser
            warnings.simplefilter("ignore", DeprecationWarning)
            import pydot
    except ModuleNotFoundError:
        raise FabricError("to read DOT, install pydot (pip install verbena[sim])") from None
    printed = io.StringIO()  # where pydot says what it does not understand
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore", DeprecationWarning)
        graphs = pydot.graph_from_dot_data(text)
    if not graphs:
        reason = printed.getvalue().strip().splitlines() or ["it cannot be parsed"]
        raise FabricError(f"no DOT graph: {reason[-1]}")
    return graphs[0]


Edge = tuple[tuple[str, int | None], tuple[str, int | None], dict[str, str]]


def _statements(graph: Any) -> tuple[dict[str, dict[str, str]], list[Edge]]:
    """Nodes and edges, those of subgraphs too."""
    nodes: dict[str, dict[str, str]] = {}
    edges: list[Edge] = []
    for node in graph.get_nodes():
        name = _plain(node.get_name())
        if name not in ("node", "edge", "graph", "\\n", ""):
            nodes[name] = _attributes(node)
    for edge in graph.get_edges():
        more = _attributes(edge)
        a = _end(str(edge.get_source()), more.get("taillabel"))
        edges.append((a, _end(str(edge.get_destination()), more.get("headlabel")), more))
    for part in graph.get_subgraphs():
        more_nodes, more_edges = _statements(part)
        nodes |= more_nodes
        edges += more_edges
    return nodes, edges


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


def _number(where: str, text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise FabricError(f"{where}: {text!r} is no number") from None
