# SPDX-License-Identifier: Apache-2.0
"""What a run's managers, connections and insides did, in the metadata of Parquet files.

``parquet`` calls ``packed`` and ``unpacked`` for results with reports of management, recovery,
connections or insides, and writes ``sweep_columns`` as sweeps.parquet. What is packed and unpacked
is equal.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from verbena.manage.sm.sweep import SweepPhase
from verbena.sim.inside_tables import packed_insides, unpacked_insides
from verbena.sim.managers import SweepRecord
from verbena.sim.recovery import Recovery
from verbena.sim.scenario_connect import ConnectReport
from verbena.sim.scenario_management import ManagementReport

if TYPE_CHECKING:
    from verbena.sim.result import ScenarioResult

__all__ = ["SWEEP_UNITS", "packed", "sweep_columns", "unpacked"]

TIMES = ("begin", "discovered", "tables_set", "end")
SWEEP_UNITS = dict.fromkeys(TIMES, "ps")
ARRAYS = ("begin", "end")  # of a ConnectReport


def packed(result: ScenarioResult) -> dict[str, Any]:
    """Return the reports that there are, of values that JSON has."""
    made: dict[str, Any] = {}
    of = result.management
    if of is not None:
        sweeps = [
            {**vars(sweep), "phases": {phase.name: at for phase, at in sweep.phases.items()}}
            for sweep in of.sweeps
        ]
        made["management"] = {**vars(of), "sweeps": sweeps}
    if result.recovery is not None:
        made["recovery"] = asdict(result.recovery)
    if result.connects:
        made["connects"] = [
            {**vars(each), **{name: getattr(each, name).tolist() for name in ARRAYS}}
            for each in result.connects
        ]
    if result.insides:
        made["insides"] = packed_insides(result.insides)
    return made


def unpacked(made: dict[str, Any], slices: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a ScenarioResult for what ``packed`` returned.

    ``slices`` are the columns of inside_slices.parquet.
    """
    found: dict[str, Any] = {}
    if "management" in made:
        of = made["management"]
        sweeps = [
            {**each, "phases": {SweepPhase[name]: at for name, at in each["phases"].items()}}
            for each in of["sweeps"]
        ]
        found["management"] = ManagementReport(
            of["nodes"],
            tuple(SweepRecord(**each) for each in sweeps),
            tuple(map(tuple, of["traps"])),
            tuple(of["problems"]),
        )
    if "insides" in made:
        found["insides"] = unpacked_insides(made["insides"], slices)
    if "recovery" in made:
        found["recovery"] = Recovery(**made["recovery"])
    if "connects" in made:
        found["connects"] = tuple(
            ConnectReport(**{**each, **{name: np.array(each[name], np.int64) for name in ARRAYS}})
            for each in made["connects"]
        )
    return found


def sweep_columns(of: ManagementReport) -> dict[str, Any]:
    """Return a row for each heavy sweep: its times, and how many SMPs it took."""
    columns: dict[str, Any] = {
        name: [getattr(sweep, name) for sweep in of.sweeps] for name in TIMES
    }
    columns["smps"] = [sweep.mads for sweep in of.sweeps]
    columns["repeated"] = [sweep.repeated for sweep in of.sweeps]
    return columns
