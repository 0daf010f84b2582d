# SPDX-License-Identifier: Apache-2.0
"""Reads the topology that a command line names: a file, or a function of ``verbena.fabrics`` with
its sizes, as ``clos2:8`` or ``torus:4x4,hosts=2,rate=4xHDR``.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError

__all__ = ["BUILDERS", "fabric_of"]

BUILDERS: dict[str, Callable[..., Fabric]] = {
    name: getattr(fabrics, name)
    for name in (
        *("pair", "one_switch", "diamond", "chain", "dumbbell", "parking_lot", "ring", "torus"),
        *("fat_tree", "clos2", "clos3", "xgft", "dragonfly"),
    )
}
WIRING = ("rate", "switch_rate")
_LISTS = ("shape", "children", "parents", "parallel")
MOST_NODES = 20_000


def fabric_of(text: str) -> Fabric:
    """Return the fabric. Raises FabricError or OSError, which say what to do."""
    name, _, sizes = text.partition(":")
    plain = name.replace("-", "_").replace("fattree", "fat_tree")
    if plain in BUILDERS and not os.path.exists(text):
        return _checked(text, _built(plain, sizes))
    path = Path(text)
    if not path.exists():
        near = difflib.get_close_matches(plain, BUILDERS, 1)
        meant = f"; is {near[0]}:… meant?" if near else ""
        known = ", ".join(BUILDERS)
        raise FabricError(f"{text} is no file, and no topology of: {known}{meant}")
    reader = fabrics.dot.read if path.suffix in (".dot", ".gv") else fabrics.ibnetdiscover.read
    return _checked(text, reader(path.read_text()))


def _checked(text: str, made: Fabric) -> Fabric:
    if len(made.graph) > MOST_NODES:
        raise FabricError(f"{text} has {len(made.graph)} nodes: the most is {MOST_NODES}")
    if not made.hosts:
        raise FabricError(f"{text} has no hosts")
    return made


def _built(name: str, sizes: str) -> Fabric:
    build = BUILDERS[name]
    parameters = [
        each.name
        for each in inspect.signature(build).parameters.values()
        if each.kind != inspect.Parameter.VAR_KEYWORD
    ]
    given: dict[str, Any] = {}
    for place, word in enumerate(filter(None, sizes.split(","))):
        key, equals, value = word.partition("=")
        if not equals:
            if place >= len(parameters):
                raise FabricError(f"{name} has {len(parameters)} sizes: {', '.join(parameters)}")
            key, value = parameters[place], word
        if key not in parameters and key not in WIRING:
            raise FabricError(f"{name} has no {key}, but {', '.join([*parameters, *WIRING])}")
        given[key] = _value(f"{name}: {key}", key, value)
    try:
        return build(**given)
    except TypeError:  # a size is missing
        needed = ", ".join(parameters)
        raise FabricError(f"{name} needs its sizes: {name}:{needed}") from None


def _value(where: str, key: str, text: str) -> Any:
    if key in WIRING:
        return text
    if key == "wrap":
        return text not in ("no", "0", "false")
    try:
        if key in _LISTS and ("x" in text or key != "parallel"):
            return [int(word) for word in text.split("x")]
        return float(text) if "." in text else int(text)
    except ValueError:
        raise FabricError(f"{where}={text} is not a number, nor some as 4x4") from None
