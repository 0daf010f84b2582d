# SPDX-License-Identifier: Apache-2.0
"""``Callbacks``: calls functions that programs give, as the ``report`` of a target.

An exception of such a function must not harm the connection that it was told of. It is logged at
its first time, and the function is called again with what comes next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec

__all__ = ["Callbacks"]

P = ParamSpec("P")
_log = logging.getLogger("verbena.nvmeof")


class Callbacks:
    """The functions that somebody has been given, by their names."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def call(
        self, name: str, function: Callable[P, object], *words: P.args, **named: P.kwargs
    ) -> None:
        """Call a function; if it raises an Exception for the first time, log that."""
        try:
            function(*words, **named)
        except Exception:
            if name not in self._failed:
                self._failed.add(name)
                _log.exception("%s raised an exception; others of it are not logged", name)
