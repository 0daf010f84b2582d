# SPDX-License-Identifier: Apache-2.0
"""Multicast forwarding tables: a tree over the switches for each multicast LID.

``Sweep`` and ``SubnetManager`` call ``MulticastRoutes.blocks`` after the routes are known, and
whenever a membership has changed. Trees are those of ``verbena.fabrics.multicast``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import FabricError
from verbena.fabrics.multicast import tree_of_ends

from .sweep_routing import SubnetRoutes

__all__ = ["FIRST_MLID", "MulticastRoutes"]

FIRST_MLID = 0xC000
_LIDS_OF_BLOCK, _PORTS_OF_POSITION = 32, 16


class MulticastRoutes:
    """Trees of groups in a subnet that is routed.

    A tree is computed once for each set of members. Members are (node GUID, port number), where
    port 0 is a switch itself. ``notes`` says which groups have no tree, and why.
    """

    def __init__(self, routes: SubnetRoutes) -> None:
        self.notes: list[str] = []
        self._routes = routes
        self._trees: dict[frozenset[tuple[int, int]], NDArray[np.bool_] | None] = {}

    def tree(self, members: Iterable[tuple[int, int]]) -> NDArray[np.bool_] | None:
        """Return [S, P+1]: the ports of the tree of a group; None without a member or a tree."""
        key = frozenset(members)
        if key not in self._trees:
            self._trees[key] = self._grown(key)
        return self._trees[key]

    def _grown(self, members: frozenset[tuple[int, int]]) -> NDArray[np.bool_] | None:
        ends = [self._routes.ends[each] for each in members if each in self._routes.ends]
        switches = [
            self._routes.rows[guid]
            for guid, port in members
            if not port and guid in self._routes.rows
        ]
        tables = self._routes.routes.tables
        ends = [end for end in ends if tables.end_switch[end] >= 0]
        if not ends and not switches:
            return None
        try:
            made = tree_of_ends(self._routes.fabric, sorted(ends), switches=sorted(switches))
        except FabricError as error:
            self.notes.append(str(error))
            return None
        return made.ports

    def blocks(
        self, groups: Mapping[int, Iterable[tuple[int, int]]]
    ) -> dict[int, dict[tuple[int, int], bytes]]:
        """Return the multicast tables of the groups, by MLID, for each switch's GUID.

        A table is its blocks of 64 bytes by position and block; blocks of zeros are left out.
        """
        found: dict[int, dict[tuple[int, int], bytearray]] = {}
        guids = {row: guid for guid, row in self._routes.rows.items()}
        for mlid, members in groups.items():
            ports = self.tree(members)
            if ports is None:
                continue
            block, place = divmod(mlid - FIRST_MLID, _LIDS_OF_BLOCK)
            for row in np.nonzero(ports.any(axis=1))[0].tolist():
                table = found.setdefault(guids[row], {})
                for port in np.nonzero(ports[row])[0].tolist():
                    position, bit = divmod(port, _PORTS_OF_POSITION)
                    data = table.setdefault((position, block), bytearray(64))
                    data[2 * place + (bit < 8)] |= 1 << (bit & 7)
        return {
            guid: {key: bytes(data) for key, data in table.items()} for guid, table in found.items()
        }
