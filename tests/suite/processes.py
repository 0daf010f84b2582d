# SPDX-License-Identifier: Apache-2.0
"""Starting programs over Verbena without a test around them."""

from __future__ import annotations

import os
import subprocess

from tests.support import verbena_command


def start(
    *program: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """As the fixture verbena_start does, but whoever calls this ends the group (end_group)."""
    return subprocess.Popen(
        verbena_command("run", *options, "--", *program),
        env=os.environ | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
