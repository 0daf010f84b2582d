# SPDX-License-Identifier: Apache-2.0
"""Simulated fabrics in virtual time: hosts with the same packet engine that sends RoCE packets
live.

``World`` is one fabric, ``build`` makes it from routes of ``verbena.fabrics``, and ``run`` starts
asyncio programs on its hosts. ``Scenario`` reads a fabric with its traffic from a TOML file and
returns a ``ScenarioResult``; ``sweep`` runs a scenario with many settings. All of these but World
need networkx (``pip install '.[sim]'`` in the checkout), so their modules are imported when they
are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from verbena.sim._world import EVENT, FLOW, LINK, QUEUE, SAMPLE, UNLIMITED, Samples, World
from verbena.sim.build import add_group, build, build_bare, levels
from verbena.sim.charge import charge
from verbena.sim.errors import Deadlock, Interrupted, NotSimulated, ProgramEnded, WorldEnded
from verbena.sim.hosts import Host, Hosts
from verbena.sim.run import Result, run
from verbena.sim.used_costs import world_costs

if TYPE_CHECKING:
    from verbena.sim.document import ScenarioError
    from verbena.sim.managed import AgentTimes, ManagedWorld
    from verbena.sim.managers import NotBroughtUpError, SimulatedManager, SweepRecord, bring_up
    from verbena.sim.processes import run_processes
    from verbena.sim.result import ScenarioResult
    from verbena.sim.scenario import Scenario
    from verbena.sim.sweeps import Sweep, SweepError, sweep

__all__ = [
    "EVENT",
    "FLOW",
    "LINK",
    "QUEUE",
    "SAMPLE",
    "UNLIMITED",
    "AgentTimes",
    "Deadlock",
    "Host",
    "Hosts",
    "Interrupted",
    "ManagedWorld",
    "NotBroughtUpError",
    "NotSimulated",
    "ProgramEnded",
    "Result",
    "Samples",
    "Scenario",
    "ScenarioError",
    "ScenarioResult",
    "SimulatedManager",
    "Sweep",
    "SweepError",
    "SweepRecord",
    "World",
    "WorldEnded",
    "add_group",
    "bring_up",
    "build",
    "build_bare",
    "charge",
    "levels",
    "run",
    "run_processes",
    "sweep",
    "world_costs",
]

_LATER = {
    "AgentTimes": "managed",
    "ManagedWorld": "managed",
    "NotBroughtUpError": "managers",
    "SimulatedManager": "managers",
    "SweepRecord": "managers",
    "bring_up": "managers",
    "ScenarioResult": "result",
    "Scenario": "scenario",
    "ScenarioError": "document",
    "Sweep": "sweeps",
    "SweepError": "sweeps",
    "run_processes": "processes",
    "sweep": "sweeps",
}


def __getattr__(name: str) -> Any:
    """Import what needs networkx at its first use; World alone does not need it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
