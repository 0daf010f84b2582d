# SPDX-License-Identifier: Apache-2.0
"""The exceptions of programs on simulated hosts, which ``sim.run`` and its event loop raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Result

__all__ = ["Deadlock", "Interrupted", "NotSimulated"]


class NotSimulated(NotImplementedError):
    """A program on a simulated host used something that only a real machine has: a socket, a
    thread."""


class Deadlock(RuntimeError):
    """No event is left in the world, and tasks still wait. The text lists the tasks."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during ``verbena.sim.run``. ``result`` has what was measured until then."""

    result: Result
