# SPDX-License-Identifier: Apache-2.0
"""HPCC's additive increase beside a scenario's MTU: a note where flows stay unequal.

A scenario asks before it runs. What is multiplied keeps the shares of flows as they are; only the
``add`` of each update brings them together, against an error that is as large as a packet.
"""

from __future__ import annotations

import numpy as np

from verbena.sim.scenario_traffic import Traffic
from verbena.sim.world_settings import Hpcc, WorldSettings

__all__ = ["hpcc_note"]

# Parts of the MTU. Of four flows, with an MTU of 4096 and four seeds, the slowest had of what the
# fastest had: at 1/51 0.42 to 0.64, at 1/32 0.65 to 0.73, at 1/13 0.78 to 0.84, at 1/5 0.91 on.
LEAST_PART = 32
EVEN_PART = 5


def hpcc_note(adapter: WorldSettings, traffic: Traffic) -> str:
    """An ``add`` that is too small to make flows equal, where there are several; or nothing."""
    congestion, mtu = adapter.congestion, adapter.mtu
    if not isinstance(congestion, Hpcc) or congestion.add * LEAST_PART >= mtu:
        return ""
    long = (traffic.transport == "rc") & (traffic.work.flows["bytes"] > mtu)
    if np.count_nonzero(long) < 2:
        return ""
    return (
        f"hpcc adds {congestion.add:g} bytes to a window at a time (congestion.add), less than a "
        f"{LEAST_PART}nd of the mtu, {mtu}: flows that share a link stay unequal; "
        f"add = {-(-mtu // EVEN_PART)} or a smaller mtu brings them together"
    )
