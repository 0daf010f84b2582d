# SPDX-License-Identifier: Apache-2.0
"""Where a program runs: on this machine, or on a host of a simulated fabric (``verbena.sim``).

A simulated host's program finds that host's adapter, and no other, whatever way it asks for
devices. The place is a context variable, so that it follows a program into its tasks.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ._verbs import Device

__all__ = ["Place", "place"]


class Place(Protocol):
    """What a program asks of the place where it runs."""

    def devices(self) -> list[Device]:
        """The adapters that are plugged in there."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """As many; from the world's seed, so that a run can be repeated."""
        ...


place: ContextVar[Place | None] = ContextVar("verbena_place", default=None)
"""None: this machine."""
