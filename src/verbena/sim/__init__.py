# SPDX-License-Identifier: Apache-2.0
"""Fabrics in virtual time: simulated hosts with the packet engine that also runs live."""

from verbena.sim._world import FLOW, LINK, QUEUE, SAMPLE, UNLIMITED, Samples, World
from verbena.sim.build import add_group, build, levels
from verbena.sim.errors import Deadlock, Interrupted, NotSimulated
from verbena.sim.hosts import Host, Hosts
from verbena.sim.run import Result, run

__all__ = [
    "FLOW",
    "LINK",
    "QUEUE",
    "SAMPLE",
    "UNLIMITED",
    "Deadlock",
    "Host",
    "Hosts",
    "Interrupted",
    "NotSimulated",
    "Result",
    "Samples",
    "World",
    "add_group",
    "build",
    "levels",
    "run",
]
