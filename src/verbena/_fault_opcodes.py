# SPDX-License-Identifier: Apache-2.0
"""The names by which fault rules select packets, and the opcodes that each stands for.

verbena._fault_rules calls this. The opcodes come, through verbena.wire, from the table that the
library uses itself (wire/opcode.c).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

# Kinds of an Acknowledge packet, by its AETH: enum vb_fault_answer in wrap/fault_rules.h.
ACK, RNR, NAK = 1, 2, 4
ALL_ANSWERS = ACK | RNR | NAK
DATA = frozenset({"payload", "atomicacketh"})  # responses that are more than an Acknowledge
CNP = 0x80  # bits 7:5


class _Class(NamedTuple):
    """The packets whose kinds and headers include all of `having` and none of `lacking`."""

    having: frozenset[str]
    lacking: frozenset[str] = frozenset()
    answers: int = 0


def _with(*having: str) -> frozenset[str]:
    return frozenset(having)


CLASSES = {
    "send": _Class(_with("send")),
    "write": _Class(_with("write")),
    "read": _Class(_with("read")),
    "atomic": _Class(_with("atomic")),
    "read-response": _Class(_with("response", "payload")),
    "atomic-response": _Class(_with("response", "atomicacketh")),
    "ack": _Class(_with("response"), DATA, ACK),
    "nak": _Class(_with("response"), DATA, NAK),
    "rnr": _Class(_with("response"), DATA, RNR),
    "request": _Class(_with(), _with("response")),
    "response": _Class(_with("response"), answers=ALL_ANSWERS),
}


@dataclass
class Chosen:
    """A set of opcodes, bit N for opcode N; `answers` selects among Acknowledge packets."""

    opcodes: int = 0
    answers: int = 0

    def add_number(self, opcode: int) -> None:
        self.opcodes |= 1 << opcode
        self.answers |= ALL_ANSWERS

    def add_name(self, name: str) -> bool:
        """Add a class ("read-response") or an opcode by its name. Returns False for an unknown
        name."""
        if name in CLASSES:
            opcodes, answers = _members(name), CLASSES[name].answers
        else:
            opcodes, answers = _own_names().get(name, 0), ALL_ANSWERS
        if opcodes:
            self.opcodes |= opcodes
            self.answers |= answers
        return bool(opcodes)

    def words(self) -> Iterator[int]:
        """Return the set as four numbers of 64 bits, the lowest opcodes first."""
        return (self.opcodes >> at & (1 << 64) - 1 for at in range(0, 256, 64))


def names() -> list[str]:
    """Return all names that a rule may use."""
    return [*CLASSES, *_own_names()]


def _members(name: str) -> int:
    wanted = CLASSES[name]
    return sum(
        1 << opcode
        for opcode, (_, has) in _table().items()
        if not _is_cnp(opcode) and wanted.having <= has and not wanted.lacking & has
    )


@cache
def _own_names() -> dict[str, int]:
    """Return opcodes by name: "RC SEND Only" is rc-send-only, and both CNPs are cnp."""
    found: dict[str, int] = {}
    for opcode, (title, _) in _table().items():
        name = "cnp" if _is_cnp(opcode) else title.lower().replace(" ", "-")
        found[name] = found.get(name, 0) | 1 << opcode
    return found


def _is_cnp(opcode: int) -> bool:
    return opcode & 0xE0 == CNP


@cache
def _table() -> dict[int, tuple[str, frozenset[str]]]:
    """Return each opcode's title, and its kinds and headers."""
    # Imported here, since that takes 20 ms, which rules without opcodes save.
    from verbena.wire import opcode_info

    rows = {opcode: opcode_info(opcode) for opcode in range(256)}
    return {n: (row.name, frozenset({*row.kinds, *row.headers})) for n, row in rows.items() if row}
