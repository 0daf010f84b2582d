# SPDX-License-Identifier: Apache-2.0
"""What the asyncio transports of simulated sockets share: the limits of their write buffer, and how
a protocol is given bytes. ``tcp_sockets`` and ``internet_streams`` have it.
"""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["HIGH_WATER", "WriteLimits", "check_bytes_like", "give"]

HIGH_WATER = 64 << 10  # bytes of the transport's buffer: asyncio's own default


class WriteLimits:
    """Above ``_high`` bytes in the buffer the protocol is to pause, and from ``_low`` on to go on;
    the limits are set as ``asyncio.WriteTransport`` has it."""

    _high, _low = HIGH_WATER, HIGH_WATER // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low


def check_bytes_like(data: object) -> None:
    """Raise TypeError for what ``write`` does not take."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__}")


def give(protocol: Any, data: bytes) -> None:
    """Give a protocol bytes that have arrived. Raises RuntimeError for a buffer without room."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        protocol.data_received(data)
        return
    left = memoryview(data)
    while left:
        buffer = memoryview(protocol.get_buffer(len(left)))
        size = min(len(buffer), len(left))
        if not size:
            raise RuntimeError("get_buffer() returned an empty buffer")
        buffer[:size] = left[:size]
        protocol.buffer_updated(size)
        left = left[size:]
