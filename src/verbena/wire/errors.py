# SPDX-License-Identifier: Apache-2.0
"""The exceptions of verbena.wire."""

from __future__ import annotations

__all__ = ["FieldError", "PacketError", "UnseenError", "WireError"]


class WireError(ValueError):
    """Bytes that are not a valid packet, or a packet that cannot be written as bytes."""


class PacketError(WireError):
    """Bytes are not a packet: ``name`` is the check that failed, ``offset`` the checked byte."""

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
