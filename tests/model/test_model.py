# SPDX-License-Identifier: Apache-2.0
"""The core does what the model of verbs says, in random programs, over every port.

A failing program is shrunk and printed as one that can be run by itself. ``make model`` runs many
more of them, with a seed that it prints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.compare import Difference, forget_core
from tests.model.core import Setting
from tests.model.machine import Machine

EXAMPLES = int(os.environ.get("VERBENA_MODEL_EXAMPLES", "0"))
"""Programs for each setting; 0 stands for the few, always the same, of the test suite."""

SETTINGS = [Setting("direct", 1), Setting("direct", 2), Setting("roce", 1), Setting("roce", 2)]


def profile(examples: int, steps: int) -> settings:
    return settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,  # the program says it better
    )


def search(machine: type[Machine], chosen: settings) -> None:
    difference = ""
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Difference as found:
        difference = str(found)
    if difference:
        pytest.fail(difference, pytrace=False)


@pytest.fixture(params=SETTINGS, ids=lambda s: f"{s.port}, {s.processes} processes")
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    yield request.param
    forget_core(request.param)


@pytest.mark.timeout(0 if EXAMPLES else 600)  # shrinking takes its time
def test_random_programs(setting: Setting) -> None:
    machine = type("RandomProgram", (Machine,), {"setting": setting})
    search(machine, profile(20 if setting.port == "roce" else 45, 30))


@pytest.mark.timeout(0 if EXAMPLES else 600)  # shrinking takes its time
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.processes == 2], indirect=True)
def test_random_programs_whose_processes_end(setting: Setting) -> None:
    machine = type("EndingProgram", (Machine,), {"setting": setting, "ends": True})
    search(machine, profile(8, 30))
