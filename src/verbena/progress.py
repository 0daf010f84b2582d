# SPDX-License-Identifier: Apache-2.0
"""What is said on stderr while something runs: one line of a terminal that is kept up to date, or,
where stderr is no terminal, a line after ten seconds and after twice as long each time.

``verbena sim`` and ``verbena.sim.sweep`` use this.
"""

from __future__ import annotations

import sys
import time

__all__ = ["Line"]

FIRST = 10.0  # s until the first line where there is no terminal
WIDTH = 110


class Line:
    """What is said on stderr while something runs."""

    def __init__(self, quiet: bool = False, who: str = "verbena sim") -> None:
        self.who = who
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self._begin = time.monotonic()
        self._next = FIRST

    def say(self, text: str) -> None:
        """Shows it if it is time to."""
        if self.quiet:
            return
        if self.terminal:
            print(f"\r{text:<{WIDTH}.{WIDTH}}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._begin >= self._next:
            self._next *= 2
            print(f"{self.who}: {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.terminal and not self.quiet:
            print("\r" + " " * WIDTH + "\r", end="", file=sys.stderr, flush=True)
