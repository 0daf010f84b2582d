# SPDX-License-Identifier: Apache-2.0
"""What ``transport.get_extra_info("socket")`` returns for a simulated connection: options and
addresses, and no I/O. ``tcp_sockets.TcpConnection`` makes one for each end.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from .transport_parts import LINGER, has_no_linger

if TYPE_CHECKING:
    from .tcp_sockets import TcpConnection

__all__ = ["ConnectionSocket"]

QUICK_ACK = getattr(socket, "TCP_QUICKACK", 12)
CONGESTION = getattr(socket, "TCP_CONGESTION", 13)
_STORED = {  # options without an effect here
    (socket.SOL_SOCKET, socket.SO_REUSEADDR),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    LINGER,  # close and abort ask has_no_linger
}


class ConnectionSocket:
    """The methods of ``socket.socket`` that programs call on a connected asyncio transport.

    Options with an effect: TCP_NODELAY (set from the beginning, as by asyncio), TCP_QUICKACK,
    TCP_CONGESTION ("reno", "cubic", "dctcp") and SO_SNDBUF. Any other raises OSError
    (ENOPROTOOPT), but for SO_REUSEADDR and SO_KEEPALIVE; SO_LINGER of 0 s makes the end a RST.
    """

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(self, connection: TcpConnection) -> None:
        self._connection = connection
        self._values: dict[tuple[int, int], int | bytes] = {}
        connection.network.core.set_no_delay(connection.number, True)
        self._values[socket.IPPROTO_TCP, socket.TCP_NODELAY] = 1  # as asyncio's own transports

    @property
    def has_no_linger(self) -> bool:
        """Whether the program has set SO_LINGER to 0 s."""
        return has_no_linger(self._values.get(LINGER, 0))

    def getsockname(self) -> tuple[str, int]:
        return self._connection.here

    def getpeername(self) -> tuple[str, int]:
        return self._connection.there

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        connection = self._connection
        core, number = connection.network.core, connection.number
        key = (level, option)
        if connection.gone:
            raise OSError(errno.EBADF, "the connection is closed")
        if key == (socket.IPPROTO_TCP, socket.TCP_NODELAY):
            core.set_no_delay(number, bool(value))
        elif key == (socket.IPPROTO_TCP, QUICK_ACK):
            core.set_ack_delay(number, 0 if value else connection.network.ack_delay)
        elif key == (socket.IPPROTO_TCP, CONGESTION):
            name = value.decode() if isinstance(value, bytes) else str(value)
            if name not in ("reno", "cubic", "dctcp"):
                raise OSError(errno.ENOENT, f"there are reno, cubic and dctcp, and no {name}")
            core.set_control(number, name)
        elif key == (socket.SOL_SOCKET, socket.SO_SNDBUF):
            if not isinstance(value, int) or value < 1:
                raise OSError(errno.EINVAL, f"SO_SNDBUF is {value!r}, and not a number of bytes")
            connection.send_buffer = 2 * value  # as Linux
        elif key not in _STORED:
            raise OSError(errno.ENOPROTOOPT, f"option {option} of level {level} is not simulated")
        self._values[key] = value

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            return 0
        if (level, option) == (socket.SOL_SOCKET, socket.SO_SNDBUF):
            return self._connection.send_buffer
        value: int | bytes = self._values.get((level, option), 0)
        return value
