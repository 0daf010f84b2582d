# SPDX-License-Identifier: Apache-2.0
"""Cases of simulated fabrics, computers and cables: each is measured in a fresh process, on one
core."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from typing import Any

from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import (
    MeasureError,
    Program,
    SkipError,
    python_environment,
    run_alone,
)

TIMEOUT = 180.0
# The modules of functions that are not in fabric_scripts.
_MODULES = {
    "instructions": "host_scripts",
    "accesses": "host_scripts",
    "cable": "host_scripts",
    "inside": "inside_scripts",
}


@dataclass(frozen=True)
class FabricRun:
    """A value that a function of fabric_scripts, host_scripts or inside_scripts returns.

    ``arguments`` are (name, value) pairs.

    One run gives several values; a later case for another one of them uses the same run.
    """

    script: str
    value: str
    label: str
    unit: Unit
    arguments: tuple[tuple[str, Any], ...] = ()
    needs: tuple[str, ...] = ("networkx",)
    scale: float = 1.0

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        for module in self.needs:
            if importlib.util.find_spec(module) is None:
                raise SkipError(f"{module} is not installed: pip install {module}")
        key = (self.script, self.arguments)
        if self.value not in _LEFT.get(key, {}):
            _LEFT[key] = run(self.script, cores, seconds=effort.seconds, **dict(self.arguments))
        return Sample(_LEFT[key].pop(self.value) * self.scale)


# Values of earlier runs that no case has used yet.
_LEFT: dict[tuple[str, tuple[tuple[str, Any], ...]], dict[str, float]] = {}


def run(script: str, cores: Cores, **arguments: Any) -> dict[str, float]:
    """The values of a function of one of those modules. Raises MeasureError."""
    module = f"benchmarks.{_MODULES.get(script, 'fabric_scripts')}"
    words = [sys.executable, "-m", module, script, json.dumps(arguments)]
    said = run_alone(Program(words, python_environment()), cores.first, TIMEOUT)
    try:
        made: dict[str, float] = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise MeasureError(f"{script} printed no result: {said[-200:]!r}") from error
    return made
