# SPDX-License-Identifier: Apache-2.0
"""Memory of the program's own that can be unmapped under a region.

Nothing is pinned: what is mapped later at an address under a region is reached through the region.
So each block has an address that nothing else in the process will ever have.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os

_MAP_FIXED_NOREPLACE = 0x100000
_FIRST = 0x2000_0000_0000  # far from where the kernel puts mappings by itself
_STEP = 1 << 24

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_places = itertools.count(_FIRST, _STEP)


class Block:
    """``size`` bytes of zeros, until ``unmap``."""

    def __init__(self, size: int) -> None:
        assert size <= _STEP
        self.size = size
        self.addr = next(_places)
        self.mapped = True
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        if _libc.mmap(self.addr, size, protection, flags, -1, 0) != self.addr:
            raise OSError(ctypes.get_errno(), "mmap")

    def unmap(self) -> None:
        if self.mapped:
            self.mapped = False
            if _libc.munmap(self.addr, self.size):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
