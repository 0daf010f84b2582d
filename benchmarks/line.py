# SPDX-License-Identifier: Apache-2.0
"""The line: a bare ping-pong of one cache line, which shows how the two processors are placed.

Two virtual processors may be two threads of one core at one time and two cores at another, for
minutes each, and every latency through shared memory follows. The runner measures the line before
and after each case, and compares only values of the same phase.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, Program, SkipError, run_alone

SOURCE = Path(__file__).with_name("line.c")
TIMEOUT = 20.0
# Measured: 0.04 to 0.08 µs between threads of one core, 0.10 to 0.21 µs between two cores.
LONGEST_ON_ONE_CORE = 0.1


class Phase(StrEnum):
    """The placement of the two processors, by the time of the line."""

    ONE_CORE = "one core"
    TWO_CORES = "two cores"


def phase_of(line: float | None) -> Phase | None:
    """Return the phase for a time in µs; None if the line was not measured."""
    if line is None:
        return None
    return Phase.ONE_CORE if line < LONGEST_ON_ONE_CORE else Phase.TWO_CORES


@dataclass
class Line:
    """Measures the line when it is called: µs, or None. `problem` is the last reason of a None."""

    cores: Cores
    program: Path | None = None
    problem: str | None = None
    found: list[float] = field(default_factory=list)

    def __call__(self) -> float | None:
        if self.program is None:
            return None
        words = [str(self.program), str(self.cores.first), str(self.cores.second)]
        try:
            said = run_alone(Program(words, os.environ), self.cores.first, TIMEOUT)
        except MeasureError as error:
            self.problem = str(error)
            return None
        self.found.append(float(said))
        return self.found[-1]


def text(line: Line) -> str:
    """Return the result as text for the report."""
    parts = []
    for phase in Phase:
        of_phase = [value for value in line.found if phase_of(value) is phase]
        if of_phase:
            parts.append(f"{statistics.median(of_phase):.3f} µs on {phase} ({len(of_phase)} times)")
    if line.problem:
        parts.append(f"not measured, so phases are not told apart: {line.problem}")
    return "; ".join(parts)


@contextmanager
def prepared(cores: Cores) -> Iterator[Line]:
    """Build the line's program; if that fails, the Line's `problem` says why."""
    with TemporaryDirectory(prefix="verbena-line-") as folder:
        try:
            yield Line(cores, build(Path(folder), cores))
        except SkipError as error:
            yield Line(cores, problem=str(error))


def build(folder: Path, cores: Cores) -> Path:
    """Compile the program. Raises SkipError."""
    if not cores.distinct:
        raise SkipError("there is only one processor")
    compiler = shutil.which("cc")
    if compiler is None:
        raise SkipError("cc is not installed: sudo apt-get install gcc")
    program = folder / "line"
    words = [compiler, "-std=gnu11", "-O2", "-pthread", "-o", str(program), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SkipError(f"{SOURCE.name} does not compile: {done.stderr.strip()[-200:]}")
    return program
