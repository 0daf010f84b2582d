# SPDX-License-Identifier: Apache-2.0
"""A process of target_child.py: what it is told, and its end and its next start."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod


class KilledAndRestarted(ABC):
    """A target in a process of its own, which ``_start`` starts."""

    process: subprocess.Popen[str]

    @abstractmethod
    def _start(self) -> subprocess.Popen[str]:
        """Start the process, and wait until it serves."""

    def tell(self, line: str) -> int:
        """Give a command; returns the number of queues."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        self.process.communicate()

    def restart(self) -> None:
        self.process = self._start()
