# SPDX-License-Identifier: Apache-2.0
"""What programs in processes of their own say to each other beside the fabric, and to the world.

A letter is a message of the control network, or one between a program and ``processes.Processes``,
which delivers all of them at their times. ``remote`` writes and reads them in the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

__all__ = ["VARIABLE", "WHOLE", "Kind", "Letter"]

_HEADER = Struct("<QBIIIII")
WHOLE = 1 << 15
"""The most bytes of a letter's text."""

VARIABLE = "VERBENA_SIM"
"""The environment's variable that has the descriptors of the segment and the lifeline."""


class Kind(IntEnum):
    """What a letter is."""

    BEGIN = 0  # from the world: the settings of the run (JSON)
    OPEN = 1  # connect to a port; `own` is the caller's stream
    ACCEPTED = 2
    REFUSED = 3
    DATA = 4
    EOF = 5
    RETURNED = 6  # to the world: what the program returned (pickle)
    OVER = 7  # from the world: all programs have returned
    ASK = 8  # to the world: a call of a device of the connection manager (far_connections)
    ANSWER = 9  # from the world, to the last ASK, CHARGE or REGISTERED
    EVENTS = 10  # from the world: the device `own` has events
    STUCK = 11  # to the world: what of the program waits, while nothing is left to happen
    CHARGE = 12  # to the world: the program computes (JSON); ANSWER has the end, or why not
    REGISTERED = 13  # to the world: the program has registered memory (JSON); ANSWER is empty


@dataclass(frozen=True)
class Letter:
    """``due``: ps. ``source`` and ``target``: numbers of hosts; ``own`` and ``peer``: numbers of
    streams there."""

    due: int
    kind: Kind
    source: int = 0
    target: int = 0
    own: int = 0
    peer: int = 0
    port: int = 0
    text: bytes = b""

    def pack(self) -> bytes:
        numbers = (self.due, self.kind, self.source, self.target, self.own, self.peer, self.port)
        return _HEADER.pack(*numbers) + self.text

    @classmethod
    def read(cls, packed: bytes) -> Letter:
        due, kind, source, target, own, peer, port = _HEADER.unpack_from(packed)
        return cls(due, Kind(kind), source, target, own, peer, port, packed[_HEADER.size :])
