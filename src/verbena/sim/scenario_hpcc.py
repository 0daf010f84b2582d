# SPDX-License-Identifier: Apache-2.0
"""A note about HPCC's additive increase, if it is too small beside the MTU.

``Scenario`` asks before a run. HPCC's multiplicative adjustment keeps the proportions between
flows. Only the additive increase ``add`` of each update brings their rates together, against an
error that is as large as a packet.
"""

from __future__ import annotations

import numpy as np

from verbena.sim.scenario_traffic import Traffic
from verbena.sim.world_settings import Hpcc, WorldSettings

__all__ = ["hpcc_note"]

# `add` as a fraction of the MTU. With four flows, an MTU of 4096 and four seeds, the rate of the
# slowest flow was this part of the fastest's: 0.42 to 0.64 at 1/51, 0.65 to 0.73 at 1/32, 0.78 to
# 0.84 at 1/13, and 0.91 or more at 1/5.
LEAST_PART = 32
EVEN_PART = 5


def hpcc_note(adapter: WorldSettings, traffic: Traffic) -> str:
    """Return the note, if ``add`` is too small and several flows could differ; otherwise ""."""
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
