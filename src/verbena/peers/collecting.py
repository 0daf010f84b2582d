# SPDX-License-Identifier: Apache-2.0
"""Whether Python collects cycles of objects now, in the calling thread.

An object whose last reference goes ends at that moment, which is the same in each run of a program.
One in a cycle ends when Python collects, and a simulation must not depend on when that is.
"""

from __future__ import annotations

import gc
import threading

__all__ = ["COLLECTIONS", "Collections"]


class Collections:
    """Follows the collections of this process."""

    def __init__(self) -> None:
        self._collector: int | None = None  # the thread that collects
        gc.callbacks.append(self._on_phase)

    @property
    def are_running(self) -> bool:
        """Whether the calling thread collects."""
        return self._collector == threading.get_ident()

    def _on_phase(self, phase: str, info: dict[str, int]) -> None:
        del info
        self._collector = threading.get_ident() if phase == "start" else None


COLLECTIONS = Collections()
"""The collections of this process."""
