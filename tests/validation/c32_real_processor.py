# SPDX-License-Identifier: Apache-2.0
"""C32: random programs on the interpreter, on the processor of this machine, and as recorded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from tests.host import recorded
from tests.host.real_processor import is_available
from tests.support import ROOT
from tests.validation.row import Confidence, Figure, Row, Scope, equal

PROGRAMS = 100_000
FIRST = 1_000_000  # not the seeds that the tests use


def differing(first: int, count: int, *options: str) -> int:
    """In a process of its own, since a program that faults would end it."""
    seeds = (str(first), str(first + count))
    command = [sys.executable, "-m", "tests.host.compared", *seeds, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(rf"{count} programs, (\d+) differ", done.stdout)
    if found is None:
        raise RuntimeError(f"the comparison ended with {done.returncode}: {done.stderr[-300:]}")
    return int(found[1])


def measure(scope: Scope) -> Iterator[Figure]:
    if is_available():
        count = scope.pick(400, PROGRAMS)
        wrong = differing(FIRST * scope.seed, count)
        yield equal(f"of {count} programs, differ", wrong, 0)
    count = scope.pick(400, recorded.PROGRAMS)
    wrong = differing(0, count, "--recorded")
    yield equal(f"of {count} that were recorded, differ", wrong, 0)


ROW = Row(
    number="C32",
    title="The interpreter and a real processor",
    setup="100,000 random programs of 25 instructions of the interpreter's subset, with random "
    "registers, flags and memory, on the interpreter and on the x86-64 processor of the machine, "
    "if it has one; and 4,000 that a processor ran before, of which hashes are recorded.",
    expected="the same registers, flags (but for those that the manuals leave undefined) and "
    "memory behind each program.",
    fails="one bit differs.",
    meaning="What a lesson shows of an instruction is what a processor does.",
    measure=measure,
    confidence=Confidence.PROGRAM,
    tested="`tests/host/test_processor.py`",
)
