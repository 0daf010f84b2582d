# SPDX-License-Identifier: Apache-2.0

from typing import Any

def opcode_row(
    opcode: int,
) -> tuple[str, tuple[str, ...], tuple[str, ...], int] | None:
    """(name, kinds, headers, length of BTH and headers) of an opcode, or None if there is none."""

def dissect(
    data: bytes, layer: int
) -> tuple[int, dict[str, int], dict[str, dict[str, Any]], dict[str, bytes]]:
    """(stack, BTH, headers by name, rest) of a packet; PacketError."""

def assemble(
    stack: int,
    bth: dict[str, int],
    headers: dict[str, dict[str, Any]],
    rest: dict[str, bytes],
) -> bytes:
    """The bytes of what ``dissect`` returns; every value has been checked to fit its field."""

def icrc(data: bytes, layer: int) -> bytes:
    """The four bytes of ICRC that a packet should have; PacketError if it is none."""

def vcrc(data: bytes) -> bytes:
    """The two bytes of VCRC over ``data``: from the LRH to the ICRC, or to a raw packet's end."""

def crc32(data: bytes, register: int) -> int:
    """The running register after ``data``, by the way that this CPU uses."""

def unseen(
    source: bytes,
    target: bytes,
    source_port: int,
    transport: bytes,
    guess: tuple[int, bool],
) -> tuple[int, bool]:
    """(identification, don't fragment) that explain a datagram's ICRC; UnseenError if none do."""
