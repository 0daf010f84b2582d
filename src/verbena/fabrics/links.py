# SPDX-License-Identifier: Apache-2.0
"""The names of directed links: in scenarios, on the command line, in results and in errors.

"s0-h1" is the link from s0 to h1. If several cables join the two, the names have ports:
"s0[1]-s1[1]"; "s0[1]" alone is the link that leaves port 1 of s0. All of these are accepted
everywhere; texts have the shortest name that is unique.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .fabric import Fabric

__all__ = ["LinkNames"]

MOST_COMPARED = 4096  # names that are compared with a misspelt one, for a hint
SHOWN = 6


class LinkNames:
    """Names of directed links, which are numbered as in ``Tables.links``.

    ``nodes`` are the names of all nodes; the arrays have for each link the number of the node that
    sends and its port, and those of the node at the other end.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        node: ArrayLike,
        port: ArrayLike,
        to_node: ArrayLike,
        to_port: ArrayLike,
    ) -> None:
        self._nodes = nodes
        self._ends: NDArray[np.int64] = np.stack(
            [np.asarray(part, np.int64) for part in (node, port, to_node, to_port)], axis=1
        )
        self._pair = self._ends[:, 0] * len(nodes) + self._ends[:, 2]

    @classmethod
    def of(cls, fabric: Fabric) -> LinkNames:
        """Return the names for a fabric's cables, each of which is two links."""
        nodes = [*fabric.graph]
        number = {name: place for place, name in enumerate(nodes)}
        ends = [
            end
            for cable in fabric.cables()
            for end in (
                (number[cable.a], cable.a_port, number[cable.b], cable.b_port),
                (number[cable.b], cable.b_port, number[cable.a], cable.a_port),
            )
        ]
        return cls(nodes, *np.array(ends, np.int64).reshape(-1, 4).T)

    def name(self, link: int) -> str:
        """Return the shortest unique name of a link."""
        return self._shortest(link, np.count_nonzero(self._pair == self._pair[link]) == 1)

    def all(self) -> tuple[str, ...]:
        """``name`` of each link."""
        _, where, count = np.unique(self._pair, return_inverse=True, return_counts=True)
        return tuple(self._shortest(link, n == 1) for link, n in enumerate(count[where].tolist()))

    def _shortest(self, link: int, alone: bool) -> str:
        """``alone``: no other link joins the same two nodes."""
        a, b = self._nodes[self._ends[link, 0]], self._nodes[self._ends[link, 2]]
        if alone and "-" in a + b:  # "x-y" to "z" is spelt as "x" to "y-z"
            alone = len(self._named[f"{a}-{b}"]) == 1
        return f"{a}-{b}" if alone else self._full(link)

    def find(self, name: object) -> int:
        """Return the number of a link. Raises ValueError if no link or more than one has the
        name."""
        found = self._named.get(name, []) if isinstance(name, str) else []
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(map(self._full, found[:3]))
            raise ValueError(f"there are {len(found)} of them: {names}")
        raise ValueError(f"there is no such link{self._meant(name)}: there are {self._some()}")

    def _full(self, link: int) -> str:
        node, port, to_node, to_port = self._ends[link]
        return f"{self._nodes[node]}[{port}]-{self._nodes[to_node]}[{to_port}]"

    @cached_property
    def _named(self) -> dict[str, list[int]]:
        """Links by each of their names."""
        named: dict[str, list[int]] = {}
        for link, (node, port, to_node, _) in enumerate(self._ends.tolist()):
            a, b = self._nodes[node], self._nodes[to_node]
            for name in (f"{a}-{b}", self._full(link), f"{a}[{port}]"):
                named.setdefault(name, []).append(link)
        return named

    def _meant(self, name: object) -> str:
        if not isinstance(name, str) or len(self._named) > MOST_COMPARED:
            return ""
        close = difflib.get_close_matches(name, [key for key in self._named if "-" in key], 1)
        return f" (is {close[0]!r} meant?)" if close else ""

    def _some(self) -> str:
        names = [self.name(link) for link in range(0, min(len(self._ends), 2 * SHOWN), 2)]
        more = ", ..." * (len(self._ends) > 2 * SHOWN)
        return ", ".join(names) + more + ", and each in the other direction"
