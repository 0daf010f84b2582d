# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the robustness tests: processes under conditions, and which conditions there are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.robust.child import Child
from tests.verbs.side import RemoteSide, Side

StartChild = Callable[..., Child]
ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0, reason="this process cannot become another user; run the tests as root"
)


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    """start_child(*conditions, prefix=()): a process for Sides, ended with the test."""
    started: list[Child] = []

    def start(*conditions: str, prefix: Sequence[str] = ()) -> Child:
        started.append(Child(*conditions, prefix=prefix))
        return started[-1]

    yield start
    for child in started:
        child.stop()


def connect(near: Side | RemoteSide, far: Side | RemoteSide, **options: Any) -> None:
    near_info, far_info = near.info(), far.info()
    near.connect(far_info, **options)
    far.connect(near_info, **options)


def namespace(*options: str) -> list[str]:
    """The command that starts another in new namespaces; skips where they are forbidden."""
    command = ["unshare", *options, "--"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(
            f"{tried.stderr.strip()}: no new namespace; run the tests as root, or their container"
            " with --privileged given"
        )
    return command
