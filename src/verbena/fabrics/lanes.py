# SPDX-License-Identifier: Apache-2.0
"""SL-to-VL mapping: the virtual lane on which a packet leaves a switch.

Routing engines make a LaneMap, ``sim.build`` fills the switches' tables from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .tables import Tables

__all__ = ["SLS", "LaneMap", "identity"]

SLS = 16


@dataclass(frozen=True)
class LaneMap:
    """SL-to-VL tables (IBA 7.6.6), shared by ports of one kind.

    ``kind`` [S, P+1] uint8 is the kind of each switch port; ``lane`` [kinds, kinds, 16] uint8 the
    VL by kind of the input port, kind of the output port, and SL. Hosts send on VL ``lane[0, 0,
    SL]``. With ``by_lane`` the VL on which a packet arrived is used in place of the SL.
    """

    kind: NDArray[np.uint8]
    lane: NDArray[np.uint8]
    by_lane: bool = False

    @property
    def lanes(self) -> int:
        """The number of data VLs that the tables use."""
        return int(self.lane.max()) + 1

    def table(self, switch: int) -> NDArray[np.uint8]:
        """Return [P+1, P+1, 16]: a switch's table, by input port, output port and SL."""
        kind = self.kind[switch]
        table: NDArray[np.uint8] = self.lane[kind[:, None], kind[None, :]]
        return table


def identity(tables: Tables, lanes: int = 1) -> LaneMap:
    """VL = SL for SLs below ``lanes``; the others share VL 0."""
    kind = np.zeros((tables.switch_count, tables.out_link.shape[1]), np.uint8)
    sl = np.arange(SLS, dtype=np.uint8)
    return LaneMap(kind, np.where(sl < lanes, sl, 0).astype(np.uint8)[None, None])
