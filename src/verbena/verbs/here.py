# SPDX-License-Identifier: Apache-2.0
"""The place where a program runs: this machine, or a host of a simulated fabric (``verbena.sim``).

``verbena.sim`` sets it, ``verbena.verbs`` reads it. A program on a simulated host finds that host's
adapter, and no other, by every function that lists or opens devices. The place is a context
variable, so that tasks inherit it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ._verbs import Device

__all__ = ["Place", "place"]


class Place(Protocol):
    """The functions of a simulated host that verbena.verbs calls."""

    def devices(self) -> list[Device]:
        """Return the adapters of the host."""
        ...

    def registered(self, length: int, pinned: bool) -> None:
        """A program has registered so many bytes; ``pinned``: their pages are, all at once."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes, from the world's seed, so that a run can be repeated."""
        ...


place: ContextVar[Place | None] = ContextVar("verbena_place", default=None)
"""None: this machine."""
