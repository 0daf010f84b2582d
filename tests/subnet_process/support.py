# SPDX-License-Identifier: Apache-2.0
"""A live fabric of `verbena fabric` for a test, and programs that are attached to its hosts."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.support import clean_environment, end_group, runs, verbena_command
from verbena.subnet_process.client import control_fabric

READY_WITHIN = 30.0
_numbers = count()


class RunningFabric:
    """A fabric that runs; ``hosts`` of it run programs."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    def command(self, host: str, *program: str) -> list[str]:
        """The command line by which a program is attached to a host."""
        return verbena_command("run", "--fabric", self.name, "--host", host, "--", *program)

    def run(
        self,
        host: str,
        *program: str,
        env: Mapping[str, str] | None = None,
        timeout: float = 30,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program at a host to its end."""
        return subprocess.run(
            self.command(host, *program),
            env=clean_environment() | dict(env or {}),
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    def start(
        self, host: str, *program: str, env: Mapping[str, str] | None = None, **how: Any
    ) -> subprocess.Popen[str]:
        """Start a program at a host, in a process group of its own."""
        return subprocess.Popen(
            self.command(host, *program),
            env=clean_environment() | dict(env or {}),
            start_new_session=True,
            text=True,
            **how,
        )

    def control(self, **request: Any) -> dict[str, Any]:
        """Ask it as the command line does."""
        return control_fabric(self.name, request)


@contextmanager
def running_fabric(topology: str, folder: Path, *options: str) -> Iterator[RunningFabric]:
    """Run a fabric until the block ends. It must not have failed by then."""
    name = f"test{os.getpid()}-{next(_numbers)}"
    log = folder / f"{name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            verbena_command("fabric", topology, "--name", name, *options),
            env=clean_environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
    try:
        deadline = time.monotonic() + READY_WITHIN
        while "is ready" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        made = RunningFabric(name, process, log)
        yield made
        if runs(process.pid):
            assert made.control(do="status")["failures"] == 0, log.read_text()
    finally:
        end_group(process)


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parsed(output: str) -> Any:
    """The last line of a program's output, which is JSON."""
    return json.loads(output.strip().splitlines()[-1])
