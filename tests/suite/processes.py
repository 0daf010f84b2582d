# SPDX-License-Identifier: Apache-2.0
"""Programs over Verbena, for the fixtures of tests/conftest.py and where no test is around."""

from __future__ import annotations

import os
import subprocess

from tests.support import verbena_command


def run(
    *program: str,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; stdout and stderr are one text."""
    return subprocess.run(
        verbena_command("run", *options, "--", *program),
        env=os.environ | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )


def start(
    *program: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts it in a group of its own, which whoever calls this ends (end_group)."""
    return subprocess.Popen(
        verbena_command("run", *options, "--", *program),
        env=os.environ | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
