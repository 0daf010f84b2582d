# SPDX-License-Identifier: Apache-2.0
"""The exceptions of programs on simulated hosts, which ``sim.run`` and its event loop raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Result

__all__ = ["Deadlock", "Interrupted", "NotSimulated", "ProgramEnded", "WorldEnded"]


class NotSimulated(NotImplementedError):
    """A program on a simulated host used something that only a real machine has: a socket, a
    thread."""


class Deadlock(RuntimeError):
    """No event is left in the world, and tasks still wait. The text lists the tasks."""


class ProgramEnded(RuntimeError):
    """The process of a program ended before the program had returned. The text says how."""


class WorldEnded(RuntimeError):
    """The process that has the world ended, so that no time passes any more."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during ``verbena.sim.run``. ``result`` has what was measured until then."""

    def __init__(self, result: Result, seconds: float) -> None:
        super().__init__(
            f"the run was interrupted after {seconds:g} simulated seconds: catch"
            " verbena.sim.Interrupted, whose result has what was measured until then"
        )
        self.result = result
