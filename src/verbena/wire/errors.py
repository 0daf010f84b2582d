# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a packet."""

from __future__ import annotations

__all__ = ["FieldError", "PacketError", "UnseenError", "WireError"]


class WireError(ValueError):
    """Bytes that are no packet, or a packet that cannot be bytes."""


class PacketError(WireError):
    """Bytes are no packet: ``name`` is the check that failed, ``offset`` the byte it looked at."""

    def __init__(self, text: str, name: str, offset: int) -> None:
        super().__init__(f"byte {offset}: {text} ({name})")
        self.name = name
        self.offset = offset


class UnseenError(WireError):
    """A datagram's ICRC, at byte ``offset``, is wrong whatever the IPv4 identification was."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(f"byte {offset}: {text}")
        self.offset = offset


class FieldError(WireError):
    """A field of a ``Packet`` has a value that does not fit: ``field`` is its name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
