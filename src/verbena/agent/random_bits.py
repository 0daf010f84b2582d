# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the system, read in large pieces: numbers of connections and their PSNs.

running.py gives ``RandomBits`` to the connection manager, which asks five times for a connection. A
system call for each takes longer than all else that is done with the number.
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["RandomBits"]


class RandomBits:
    """``getrandbits`` of ``random.SystemRandom``, with one call of ``read`` for ``size`` bytes.

    A forked child would repeat its parent's numbers; the agent does not fork.
    """

    def __init__(self, read: Callable[[int], bytes] = os.urandom, size: int = 4096) -> None:
        self._read = read
        self._size = size
        self._piece = b""
        self._at = 0

    def __call__(self, count: int) -> int:
        """Return a number of ``count`` bits, from 1 to eight times ``size``."""
        at = self._at
        end = self._at = at + (count + 7 >> 3)
        if end > len(self._piece):
            self._piece = self._read(self._size)
            at, end = 0, end - at
            self._at = end
        return int.from_bytes(self._piece[at:end], "big") >> (-count & 7)
