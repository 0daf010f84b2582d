# SPDX-License-Identifier: Apache-2.0
"""Connections of unmodified programs by librdmacm: Debian's ``cmtime`` over the agent.

goals.py has its rows. The agent is started for a measurement and has a core of its own; both sides
of ``cmtime`` share the other one, and mostly wait for it.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verbena import launch
from verbena.agent.client import describe_agent
from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.perftest import find
from verbena.measure.processes import (
    MeasureError,
    Process,
    Program,
    SkipError,
    free_port,
    python_environment,
    running,
    wait_until,
)

TIMEOUT, READY_WITHIN = 90.0, 15.0
ESTABLISHING = ("resolve addr", "resolve route", "create qp", "connect")
STEP = re.compile(r"^(\w[\w ]*?) *: +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", re.MULTILINE)
STARTS = 5
LOOK = 0.002  # seconds


@dataclass(frozen=True)
class ConnectionTime:
    """Microseconds of a connection from resolving its address until it is established.

    With ``rate``: connections a second, from their creation to their destruction. ``count`` are
    made at once; a listener's backlog takes 1,024, and the rest waits for repeated requests.
    """

    count: int = 1000
    rate: bool = False
    label: str = "cmtime"

    @property
    def unit(self) -> Unit:
        return Unit.PER_SECOND if self.rate else Unit.MICROSECONDS

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        steps = step_times(run_cmtime(self.count, cores))
        if self.rate:
            return Sample(1e3 * self.count / sum(steps.values()))
        return Sample(1e3 * sum(steps[name] for name in ESTABLISHING) / self.count)


@dataclass(frozen=True)
class AgentStart:
    """Seconds from the start of an agent's process until it answers; the least of several.

    The first one compiles the modules, where no installation has, into a cache for the others.
    """

    label: str = "python -m verbena.agent"
    unit: Unit = field(default=Unit.SECONDS, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        times = []
        with tempfile.TemporaryDirectory() as cache:
            environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache}
            for _ in range(STARTS):
                begun = time.perf_counter()
                with started_agent(cores.first, environment):
                    times.append(time.perf_counter() - begun)
        return Sample(min(times))


@contextmanager
def started_agent(core: int, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Run an agent. Raises SkipError if this user has one in the network namespace."""
    if asked_agent() is not None:
        raise SkipError("an agent runs already; it ends 10 s after the last program that uses it")
    agent = Program(
        [sys.executable, "-m", "verbena.agent"], python_environment() | dict(environment or {})
    )
    with running(agent, core) as process:
        deadline = time.monotonic() + READY_WITHIN
        while asked_agent() is None:
            if process.popen.poll() is not None or time.monotonic() > deadline:
                raise MeasureError(f"the agent does not answer{process.tail()}")
            time.sleep(LOOK)
        yield process


def asked_agent() -> dict[str, Any] | None:
    """Return the agent's description, or None if it does not answer yet."""
    try:
        return describe_agent()
    except TimeoutError:
        return None  # it is starting, on a busy machine


def run_cmtime(count: int, cores: Cores) -> str:
    """Return what the client says of ``count`` connections."""
    port = free_port()
    words = [find("cmtime"), "-p", str(port)]
    environment = launch.environment()
    with started_agent(cores.first), running(Program(words, environment), cores.second) as server:
        wait_until(lambda: listens_by_librdmacm(port), server, READY_WITHIN)
        client = Program([*words, "-s", "127.0.0.1", "-c", str(count)], environment)
        with running(client, cores.second) as process:
            return process.wait(TIMEOUT)


def listens_by_librdmacm(port: int) -> bool:
    """Whether a program listens on a port of rdma_cm."""
    found = asked_agent() or {"listening": []}
    return any(each.endswith(f":{port}") for each in found["listening"])


def step_times(said: str) -> dict[str, float]:
    """Return the milliseconds that all connections took, by step. Raises MeasureError."""
    steps = {match[1]: float(match[2]) for match in STEP.finditer(said)}
    if not set(ESTABLISHING) <= set(steps):
        raise MeasureError(f"cmtime says nothing of its steps: {said[-200:]!r}")
    return steps
