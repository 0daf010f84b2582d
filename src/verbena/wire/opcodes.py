# SPDX-License-Identifier: Apache-2.0
"""The BTH's opcodes by name, with the kinds and headers of each. packet.py and programs use it."""

from __future__ import annotations

from typing import NamedTuple

from . import _wire

__all__ = ["OpcodeInfo", "opcode_info", "opcode_name"]

_OPERATIONS = {
    0x00: "SEND_FIRST",
    0x01: "SEND_MIDDLE",
    0x02: "SEND_LAST",
    0x03: "SEND_LAST_IMM",
    0x04: "SEND_ONLY",
    0x05: "SEND_ONLY_IMM",
    0x06: "WRITE_FIRST",
    0x07: "WRITE_MIDDLE",
    0x08: "WRITE_LAST",
    0x09: "WRITE_LAST_IMM",
    0x0A: "WRITE_ONLY",
    0x0B: "WRITE_ONLY_IMM",
    0x0C: "READ_REQUEST",
    0x0D: "READ_RESP_FIRST",
    0x0E: "READ_RESP_MIDDLE",
    0x0F: "READ_RESP_LAST",
    0x10: "READ_RESP_ONLY",
    0x11: "ACKNOWLEDGE",
    0x12: "ATOMIC_ACK",
    0x13: "CMP_SWAP",
    0x14: "FETCH_ADD",
    0x15: "RESYNC",
    0x16: "SEND_LAST_INV",
    0x17: "SEND_ONLY_INV",
    0x1C: "FLUSH",
    0x1D: "ATOMIC_WRITE",
}
_TRANSPORTS = {0x00: "RC", 0x20: "UC", 0x40: "RD", 0x60: "UD", 0xA0: "XRC"}
_CNP = {0x80: "CNP_IB", 0x81: "CNP"}


class OpcodeInfo(NamedTuple):
    """A row of the opcode table; ``length`` is that of the BTH and the extended headers."""

    name: str
    kinds: tuple[str, ...]
    headers: tuple[str, ...]
    length: int


def opcode_info(opcode: int) -> OpcodeInfo | None:
    """Return an opcode's row of the table, or None if there is no such opcode."""
    row = _wire.opcode_row(opcode)
    return None if row is None else OpcodeInfo(*row)


def opcode_name(opcode: int) -> str:
    """Return a short name such as ``RC_SEND_ONLY_IMM``; ``0xff`` for a number without a name."""
    if opcode_info(opcode) is None:
        return f"{opcode:#04x}"
    return _CNP.get(opcode) or f"{_TRANSPORTS[opcode & 0xE0]}_{_OPERATIONS[opcode & 0x1F]}"
