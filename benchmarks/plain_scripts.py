# SPDX-License-Identifier: Apache-2.0
"""Measurements of peers other than UCX and TCP: libc's memcpy, and eventfd.

goals.py and python_cases.py name these functions, and verbena.measure.worker calls them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import time

from verbena.measure.case import MIB
from verbena.measure.side import Side


def memcpy_cold(side: Side, seconds: float, total: int) -> float | None:
    """MiB/s of libc's memcpy in calls of 1 MiB that walk over `total` bytes; one process."""
    if not side.first:
        return None
    maps = [anonymous(total), anonymous(total)]
    copy = ctypes.CDLL(None).memcpy
    copy.argtypes, copy.restype = [ctypes.c_void_p] * 2 + [ctypes.c_size_t], None
    source, target = (ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in maps)
    ctypes.memset(source, 1, total)
    ctypes.memset(target, 1, total)
    passes = 0
    start = time.perf_counter()
    while passes < 1 or time.perf_counter() - start < seconds:
        for offset in range(0, total, MIB):
            copy(target + offset, source + offset, MIB)
        passes += 1
    return passes * total / (time.perf_counter() - start) / MIB


def anonymous(nbytes: int) -> mmap.mmap:
    """Private memory, as malloc would give it."""
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def eventfd_latency(side: Side, seconds: float, fds: list[int]) -> float | None:
    """Half a round trip of waking each other by eventfds, in µs."""
    mine, theirs = fds if side.first else reversed(fds)
    side.meet()
    if side.first:
        return eventfd_ping(mine, theirs, seconds)
    while os.eventfd_read(mine) == 1:
        os.eventfd_write(theirs, 1)
    return None


def eventfd_ping(mine: int, theirs: int, seconds: float) -> float:
    times = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        os.eventfd_write(theirs, 1)
        os.eventfd_read(mine)
        times.append(time.perf_counter() - start)
    os.eventfd_write(theirs, 2)
    return statistics.median(times) / 2 * 1e6
