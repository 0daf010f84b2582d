# SPDX-License-Identifier: Apache-2.0
"""Errors of the simulator's Python API for wrong use, and the texts of its objects."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest

from tests.support import ROOT
from verbena import fabrics, sim
from verbena.sim.run import WORLD
from verbena.sim.scenario import Scenario

DOWN = """
[fabric]
topology = "one_switch"
hosts = 3
[adapter]
timeout = 4
retry_count = 1
[[traffic]]
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "1 MiB"
[[event]]
link = "h0-s0"
at = "20 us"
up = false
"""


def programs() -> Any:
    async def program() -> None:
        pass

    return {"h0": program}


def test_an_unknown_keyword_of_run_is_named_with_the_nearest() -> None:
    fabric: Any = fabrics.one_switch(2)
    wrong: Any = {"swich": {}}
    with pytest.raises(TypeError, match="no keyword 'swich': did you mean switch"):
        sim.run(programs(), fabric, **wrong)
    with pytest.raises(TypeError, match=r"no keyword 'xyzzy': there are .*until.*framing"):
        sim.run(programs(), fabric, xyzzy=1)


def test_run_knows_the_keywords_of_a_world() -> None:
    stub = ast.parse((ROOT / "src/verbena/sim/_world.pyi").read_text())
    world = next(one for one in stub.body if getattr(one, "name", "") == "World")
    assert isinstance(world, ast.ClassDef)
    made = next(one for one in world.body if getattr(one, "name", "") == "__init__")
    assert isinstance(made, ast.FunctionDef)
    assert {one.arg for one in made.args.kwonlyargs} == set(WORLD)


def test_a_list_of_programs_is_refused() -> None:
    wrong: Any = [1]
    with pytest.raises(TypeError, match=r"programs is .1., and not a dictionary, by host"):
        sim.run(wrong, fabrics.one_switch(2))


def test_a_scenario_that_there_is_not_names_the_ready_ones() -> None:
    with pytest.raises(FileNotFoundError, match=r"no ready scenario \(is 'incast' meant\?\): bad"):
        Scenario.load("incats")


def test_a_column_that_there_is_not_names_the_others() -> None:
    table = sim.sweep(Scenario.parse(DOWN), seeds=[1], workers=1, quiet=True)
    with pytest.raises(KeyError, match=r"no column 'p95': there are seed, .*p99"):
        table["p95"]


def test_a_result_is_printed_in_a_line() -> None:
    result = Scenario.parse(DOWN, name="down").run()
    assert repr(result).startswith("<ScenarioResult of 'down', seed ")
    assert "2 flows, 6 links" in repr(result)
    assert len(repr(result)) < 150


def test_a_failure_names_the_link_that_the_scenario_took_down() -> None:
    (line,) = (one for one in Scenario.parse(DOWN).run().summary().splitlines() if "FAILED" in one)
    assert line.startswith("  FAILED: 1 of 2 flows: RETRY_EXC_ERR, no answer within")
    assert line.endswith(" (h0-s0 went down at 20 us)")


def test_without_networkx_the_extra_is_named() -> None:
    program = "import sys; sys.modules['networkx'] = None; import verbena.fabrics"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "verbena.fabrics needs networkx: pip install '.[sim]'" in done.stderr
