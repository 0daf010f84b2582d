# SPDX-License-Identifier: Apache-2.0
"""Which virtual lane a packet takes out of a switch: SL-to-VL mapping by kinds of ports."""

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
    VL by kind of the input port, kind of the output port, and SL. Hosts send on VL
    ``lane[0, 0, SL]``. With ``by_lane`` the VL that a packet came by takes the place of the SL.
    """

    kind: NDArray[np.uint8]
    lane: NDArray[np.uint8]
    by_lane: bool = False

    @property
    def lanes(self) -> int:
        """How many data VLs that needs."""
        return int(self.lane.max()) + 1

    def table(self, switch: int) -> NDArray[np.uint8]:
        """[P+1, P+1, 16]: the switch's own table, by input port, output port and SL."""
        kind = self.kind[switch]
        table: NDArray[np.uint8] = self.lane[kind[:, None], kind[None, :]]
        return table


def identity(tables: Tables, lanes: int = 1) -> LaneMap:
    """VL = SL for SLs below ``lanes``; the others share VL 0."""
    kind = np.zeros((tables.switch_count, tables.out_link.shape[1]), np.uint8)
    sl = np.arange(SLS, dtype=np.uint8)
    return LaneMap(kind, np.where(sl < lanes, sl, 0).astype(np.uint8)[None, None])
