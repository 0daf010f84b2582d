# SPDX-License-Identifier: Apache-2.0
"""What the asyncio transports of simulated sockets share: the limits of their write buffer, how a
protocol is given bytes, and what its errors do. ``tcp_sockets``, ``internet_streams`` and
``network`` have it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import Any

__all__ = [
    "HIGH_WATER", "LINGER", "CallsProtocol", "PlainSocket", "WriteLimits", "announce",
    "check_bytes_like", "give", "has_no_linger",
]  # fmt: skip

LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_STREAM_OPTIONS = {
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,  # as asyncio sets it
    (socket.IPPROTO_TCP, getattr(socket, "TCP_QUICKACK", 12)): 0,
    (socket.IPPROTO_TCP, getattr(socket, "TCP_CONGESTION", 13)): 0,
    (socket.SOL_SOCKET, socket.SO_REUSEADDR): 0,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 0,
    (socket.SOL_SOCKET, socket.SO_SNDBUF): 0,
    LINGER: 0,
}
_DATAGRAM_OPTIONS = {
    (socket.SOL_SOCKET, socket.SO_REUSEADDR): 0,
    (socket.SOL_SOCKET, socket.SO_SNDBUF): 0,
    (socket.SOL_SOCKET, socket.SO_RCVBUF): 0,
}

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


class PlainSocket:
    """What ``get_extra_info("socket")`` returns where no option has an effect: for datagrams, for a
    host's connection to itself, and beside the fabric. Options that connections have elsewhere are
    taken; any other raises OSError (ENOPROTOOPT)."""

    family = socket.AF_INET

    def __init__(
        self, type_: socket.SocketKind, here: tuple[str, int], there: tuple[str, int] | None
    ) -> None:
        is_stream = type_ is socket.SOCK_STREAM
        self.type = type_
        self.proto = socket.IPPROTO_TCP if is_stream else socket.IPPROTO_UDP
        self._here, self._there = here, there
        self._values: dict[tuple[int, int], int | bytes] = {
            **(_STREAM_OPTIONS if is_stream else _DATAGRAM_OPTIONS)
        }

    def getsockname(self) -> tuple[str, int]:
        return self._here

    def getpeername(self) -> tuple[str, int]:
        """Raises OSError (ENOTCONN) for datagrams without a peer."""
        if self._there is None:
            raise OSError(errno.ENOTCONN, "the endpoint is not connected")
        return self._there

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        if (level, option) not in self._values:
            raise OSError(errno.ENOPROTOOPT, f"option {option} of level {level} is not simulated")
        self._values[level, option] = value

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        return self._values.get((level, option), 0)


class CallsProtocol:
    """Calls a protocol of a stream. What it raises ends the connection, as in asyncio."""

    _protocol: Any

    def _force_close(self, error: BaseException | None) -> None:
        """Forget what was not sent, and end the connection; connection_lost gets the error."""
        raise NotImplementedError

    def _call(self, loop: asyncio.AbstractEventLoop, what: str, call: Any, *args: Any) -> Any:
        """Return what a call of the protocol's method ``what`` returns, or None if it fails: the
        loop's exception handler gets the error, unless it is an OSError."""
        try:
            return call(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not isinstance(error, OSError):
                loop.call_exception_handler(
                    {
                        "message": f"Fatal error: protocol.{what}() call failed.",
                        "exception": error,
                        "transport": self,
                        "protocol": self._protocol,
                    }
                )
            self._force_close(error)
            return None

    def _give(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        buffered = isinstance(self._protocol, asyncio.BufferedProtocol)
        what = "buffer_updated" if buffered else "data_received"
        self._call(loop, what, give, self._protocol, data)


def announce(loop: asyncio.AbstractEventLoop, protocol: Any, transport: Any) -> None:
    """Call connection_made. What it raises is for the loop's exception handler, and the connection
    lives on, as in asyncio."""
    try:
        protocol.connection_made(transport)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        message = f"Exception in callback {type(protocol).__qualname__}.connection_made()"
        loop.call_exception_handler({"message": message, "exception": error, "protocol": protocol})


def has_no_linger(value: int | bytes) -> bool:
    """Return whether a value of SO_LINGER says that the end of a connection is a RST."""
    if not isinstance(value, bytes) or len(value) != 8:
        return False
    on, seconds = struct.unpack("ii", value)
    return bool(on) and seconds == 0


def check_bytes_like(data: object) -> None:
    """Raise TypeError for what ``write`` does not take."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")


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
