# SPDX-License-Identifier: Apache-2.0
"""Fabrics in virtual time: simulated hosts with the packet engine that also runs live."""

from verbena.sim._world import FLOW, LINK, World
from verbena.sim.build import build, levels

__all__ = ["FLOW", "LINK", "World", "build", "levels"]
