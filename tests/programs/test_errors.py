# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs with wrong settings: with VERBENA_LOG=errors they hear what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Run, Start
from tests.programs.pairs import start_pair

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
TOLD = ("--log", "errors")


def told(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("verbena:")]


def test_a_queue_that_is_too_deep(verbena_run: Run, debian_program: Find) -> None:
    program = debian_program("ibv_rc_pingpong")
    done = verbena_run(program, "-g", "1", "-r", "40000", options=TOLD)
    assert done.returncode != 0
    (line,) = told(done.stdout)
    assert "ibv_create_qp failed: Invalid argument; max_recv_wr is 40000" in line


def test_without_the_option_nothing_is_told(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ibv_rc_pingpong"), "-g", "1", "-r", "40000")
    assert done.returncode != 0
    assert told(done.stdout) == []


def test_a_pingpong_without_a_gid(verbena_start: Start, debian_program: Find) -> None:
    running = start_pair(verbena_start, debian_program("ibv_rc_pingpong"), options=TOLD)
    done = running.finish(10)
    assert all(side.status != 0 for side in done.sides)
    lines = [line for side in done.sides for line in told(side.output)]
    assert lines, str(done)
    assert all("RoCE needs a GID" in line and "-g 1" in line for line in lines)


def test_a_program_that_works_hears_nothing(verbena_start: Start, debian_program: Find) -> None:
    program = debian_program("ibv_rc_pingpong")
    done = start_pair(verbena_start, program, "-g", "1", "-n", "20", options=TOLD).finish()
    assert [side.status for side in done.sides] == [0, 0], str(done)
    assert [told(side.output) for side in done.sides] == [[], []]
