# SPDX-License-Identifier: Apache-2.0
"""A part of what `make compatibility` runs of other programs: ibv_rc_pingpong with every option."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.suite import programs
from tests.suite.programs import Program

pytestmark = pytest.mark.debian

PINGPONGS = [
    program for program in programs.programs() if program.name.startswith("ibv_rc_pingpong -")
]


@pytest.mark.parametrize("program", PINGPONGS, ids=lambda program: program.name)
def test_pingpong(debian_program: Callable[[str], str], program: Program) -> None:
    debian_program(program.needs)
    outcome = programs.outcome(program)
    assert outcome.status == "passed", str(outcome)


def test_a_program_that_is_missing_is_skipped() -> None:
    program = Program("none", "none", "no-such-program", lambda: pytest.fail("it was run"))
    assert programs.outcome(program).reason == "no-such-program is not installed"
