# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with programs on simulated hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Result

__all__ = ["Deadlock", "Interrupted", "NotSimulated"]


class NotSimulated(NotImplementedError):
    """A program on a simulated host asked for what only a real machine has: a socket, a thread…"""


class Deadlock(RuntimeError):
    """Nothing is left to happen in the world, and tasks still wait: the text names them."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during ``verbena.sim.run``: ``result`` is what there was up to then."""

    result: Result
