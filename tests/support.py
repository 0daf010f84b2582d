# SPDX-License-Identifier: Apache-2.0
"""Facts and small functions that tests import; fixtures are in conftest.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SANITIZED = os.environ.get("VERBENA_SANITIZE", "0") not in ("", "0")


def plain_environment() -> dict[str, str]:
    """The environment for compilers and other tools: nothing preloaded, no Verbena variables."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH") and not name.startswith("VERBENA_")
    }


def verbena_command(*arguments: str) -> list[str]:
    """The command line of the `verbena` program of the environment that runs the tests."""
    return [str(Path(sys.executable).parent / "verbena"), *arguments]


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a process that was started in a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
