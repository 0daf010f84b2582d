# SPDX-License-Identifier: Apache-2.0
"""Progress messages on stderr.

On a terminal there is one line, which is overwritten; otherwise a line is printed after ten
seconds, and each further one after twice that time. ``verbena sim`` and ``verbena.sim.sweep`` use
this.
"""

from __future__ import annotations

import sys
import time

__all__ = ["Line"]

FIRST = 10.0  # s until the first line where there is no terminal
WIDTH = 110


class Line:
    """The progress line of one command. ``quiet`` suppresses it; ``who`` begins each line."""

    def __init__(self, quiet: bool = False, who: str = "verbena sim") -> None:
        self.who = who
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self._begin = time.monotonic()
        self._next = FIRST

    def say(self, text: str) -> None:
        """Show the text, unless stderr is no terminal and the next line is not due yet."""
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
