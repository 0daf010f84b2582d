# SPDX-License-Identifier: Apache-2.0
"""Functions of Python that two fresh processes run: one measures, the other one is its partner.

`verbena demo` and the benchmarks call `run`, or have a `Script` among their cases. A function takes
its Side first, and is found by its module's name: it has to be at the first level of a module that
the new processes can import.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, Program, python_environment, run_together

TIMEOUT = 60.0

Function = Callable[..., Any]


@dataclass(frozen=True)
class Script:
    """The case of a function's result in the first process; `arguments` are (name, value) pairs."""

    function: Function
    label: str
    unit: Unit
    arguments: tuple[tuple[str, Any], ...] = ()

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        arguments = {"seconds": effort.seconds, **dict(self.arguments)}
        return Sample(float(run(self.function, cores, **arguments)))


def run(
    function: Function, cores: Cores, environment: dict[str, str] | None = None, **arguments: Any
) -> Any:
    """Run `function` in two processes; return the result of the first one.

    `environment` is added to this process's. A list `fds` among the arguments is inherited by both.
    Raises MeasureError.
    """
    text = json.dumps(arguments)
    fds = tuple(arguments.get("fds", ()))
    with linked() as (a, b):
        first, second = (
            worker(function, role, fd, text, fds, environment or {})
            for role, fd in (("first", a), ("second", b))
        )
        said, _ = run_together(first, second, cores, TIMEOUT)
    try:
        return json.loads(said.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise MeasureError(f"{function.__name__} printed no result: {said[-200:]!r}") from error


@contextmanager
def linked() -> Iterator[tuple[int, int]]:
    """The descriptors of a socket pair."""
    a, b = socket.socketpair()
    with a, b:
        yield a.fileno(), b.fileno()


def worker(
    function: Function,
    role: str,
    fd: int,
    arguments: str,
    fds: tuple[int, ...],
    environment: dict[str, str],
) -> Program:
    found = [function.__module__, function.__name__]
    words = [sys.executable, "-m", "verbena.measure.worker", *found, role, str(fd), arguments]
    return Program(words, python_environment() | environment, (fd, *fds))
