# SPDX-License-Identifier: Apache-2.0
"""Ethernet frames and MAC addresses (IEEE 802.3 clause 3).

A frame is the bytes from the destination address to the end of the payload. Preamble, padding and
check sequence belong to the medium: it adds their time, and a frame arrives padded to 60 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verbena._arguments import checked_arguments, checked_class
from verbena.lan.errors import LanError, LanTypeError

HEADER = 14
MTU = 1500
LEAST = 60
MOST = HEADER + MTU
CHECK = 4
"""Bytes of the frame check sequence."""
PREAMBLE = 8
"""Bytes of preamble and start delimiter."""

BROADCAST = b"\xff" * 6

_MAC = re.compile(r"[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}")


def _six_bytes(address: bytes) -> bytes:
    if len(address) != 6:
        raise LanError(f"a MAC address has 6 bytes, and not {len(address)}: {address.hex(':')}")
    return bytes(address)


@checked_arguments(LanTypeError)
def mac_address(text: str | bytes) -> bytes:
    """The six bytes of an address, given as ``02:00:00:00:00:01`` or as bytes."""
    if not isinstance(text, str):
        return _six_bytes(text)
    if not _MAC.fullmatch(text):
        raise LanError(f"{text!r} is no MAC address; one is 02:00:00:00:00:01")
    return bytes.fromhex(text.replace("-", ":").replace(":", ""))


@checked_arguments(LanTypeError)
def mac_text(address: bytes) -> str:
    """``02:00:00:00:00:01``."""
    return _six_bytes(address).hex(":")


def is_group(address: bytes) -> bool:
    """Whether an address is a multicast or the broadcast address."""
    return bool(address[0] & 1)


@checked_class(LanTypeError)
@dataclass(frozen=True)
class Frame:
    """The parts of a frame; ``ethertype`` below 1536 is a length (802.3 3.2.6)."""

    destination: bytes
    source: bytes
    ethertype: int
    payload: bytes

    def pack(self) -> bytes:
        """The bytes of the frame, without padding. Raises LanError."""
        if not 0 <= self.ethertype <= 0xFFFF:
            raise LanError(f"an EtherType has 16 bits: {self.ethertype:#x} has more")
        ends = _six_bytes(self.destination), _six_bytes(self.source)
        return checked(frame_of(*ends, self.ethertype, self.payload))

    @classmethod
    def parse(cls, data: bytes) -> Frame:
        """The parts of a frame; the payload has its padding. Raises LanError."""
        return cls(*parts_of(checked(data)))


def frame_of(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    """The bytes of a frame of good parts, without padding, also for media with a larger MTU."""
    return destination + source + ethertype.to_bytes(2, "big") + payload


def parts_of(frame: bytes) -> tuple[bytes, bytes, int, bytes]:
    """Destination, source, EtherType, and payload with its padding, of at least a header."""
    return frame[:6], frame[6:12], int.from_bytes(frame[12:14], "big"), frame[14:]


def checked(frame: bytes) -> bytes:
    """The frame, if Ethernet carries it. Raises LanError."""
    if len(frame) < HEADER:
        raise LanError(
            f"a frame of {len(frame)} bytes is too short: it begins with {HEADER} bytes of "
            "destination, source and type"
        )
    if len(frame) > MOST:
        raise LanError(
            f"a frame of {len(frame)} bytes is too long: Ethernet carries {MOST} "
            f"({HEADER} of header, {MTU} of payload)"
        )
    return frame


def padded(frame: bytes) -> bytes:
    """The frame as it arrives: with zeros up to 60 bytes."""
    return frame.ljust(LEAST, b"\0")


def frame_bits(frame: bytes) -> int:
    """Bits from the destination address to the end of the check sequence, with padding."""
    return 8 * (max(len(frame), LEAST) + CHECK)
