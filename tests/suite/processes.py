# SPDX-License-Identifier: Apache-2.0
"""Programs over Verbena, for the fixtures of tests/conftest.py and where no test is around."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from tests.support import verbena_command


def run(
    *program: str,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; stdout and stderr are one text."""
    return subprocess.run(
        verbena_command("run", *options, "--", *program), timeout=timeout, **surroundings(env)
    )


def start(
    *program: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts it in a group of its own, which whoever calls this ends (end_group)."""
    return subprocess.Popen(
        verbena_command("run", *options, "--", *program),
        start_new_session=True,
        **surroundings(env),
    )


def surroundings(env: dict[str, str] | None) -> dict[str, Any]:
    """What a program meets: `env` on top of this environment, no input, one text for its output."""
    return {
        "env": os.environ | (env or {}),
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
