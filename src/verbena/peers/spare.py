# SPDX-License-Identifier: Apache-2.0
"""The memory of large messages, which comes from the kernel and goes back there.

It is in huge pages, of which the kernel gives each one cleared. A program that takes one large
array after the other has one of them in hand while the next is fetched: so the process keeps the
memory that came back last for the next message, and need not have it cleared again, which takes as
long as to copy the message. To keep more makes programs slower, where the kernel then gives others
memory that nobody has used for long.

``BufferPool`` calls this. Memory comes back by itself when the last array over it is gone, in
whatever thread that is, and the kernel may take what is kept when it needs memory (MADV_FREE).
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

__all__ = ["SPARE", "SpareMemory", "filling"]

_MOST = 256 << 20  # bytes
_STEP = 1 << 21  # a huge page
_LINE = 64
_WASTE = 4  # memory may be longer by a fourth than what is wanted


class SpareMemory:
    """Gives memory for arrays, and keeps the piece that came back last, of ``most`` bytes at most.

    Arrays end in any thread, also within a call of this: so there is no lock, and each step on the
    deque is one that no other thread can come between.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: deque[mmap.mmap] = deque(maxlen=1)

    @property
    def kept(self) -> int:
        """How many bytes are kept."""
        return sum(map(len, tuple(self._kept)))

    def array(self, nbytes: int, other: int = 0) -> NDArray[np.uint8]:
        """Return an array of so many bytes, of any content. Raises OSError and MemoryError.

        It begins where the address ``other`` does in a line of the cache: the processor copies
        between such places faster by a third than between others.
        """
        size = filling(nbytes) + _LINE
        pages = self._taken(size) or _new_pages(size)
        array = np.frombuffer(pages, np.uint8, nbytes, other % _LINE)
        weakref.finalize(array, self._take_back, pages).atexit = False
        return array

    def _taken(self, size: int) -> mmap.mmap | None:
        for pages in tuple(self._kept):
            if size <= len(pages) <= size + size // _WASTE:
                with suppress(ValueError):  # another thread has taken it
                    self._kept.remove(pages)
                    return pages
        return None

    def _take_back(self, pages: mmap.mmap) -> None:
        if len(pages) <= self._most:
            with suppress(OSError):  # a kernel that cannot take single pages back
                pages.madvise(mmap.MADV_FREE)
            self._kept.append(pages)


def filling(nbytes: int) -> int:
    """Return how long an array of at least so many bytes is that leaves no huge page in part."""
    return -(-(nbytes + _LINE) // _STEP) * _STEP - _LINE


def _new_pages(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


SPARE = SpareMemory(_MOST)
"""The spare memory of this process."""
