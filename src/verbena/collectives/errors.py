# SPDX-License-Identifier: Apache-2.0
"""Exceptions of verbena.collectives.

Each is an OSError, and names the rank at which a collective call failed. ``Fault`` is how ranks
tell each other; links.py sends it.
"""

from __future__ import annotations

import errno
from enum import IntEnum

__all__ = [
    "Fault",
    "GroupError",
    "MismatchedCall",
    "RankDied",
    "RankGaveUp",
    "RankLeft",
    "RanksAbsent",
    "error_of",
]


class GroupError(OSError):
    """A collective call failed; ``rank`` is the rank at fault, or None.

    The group cannot be used any more, at any rank.
    """

    def __init__(self, text: str, rank: int | None = None, code: int = errno.ECONNRESET) -> None:
        super().__init__(code, text)
        self.rank = rank


class RankDied(GroupError):
    """A rank has ended without leaving the group, or cannot be reached."""


class RankLeft(GroupError):
    """A rank has left the group, and a call needs it."""


class RankGaveUp(GroupError):
    """A call was cancelled at a rank, or raised there, so that the others cannot complete it."""


class MismatchedCall(GroupError):
    """Two ranks called different things."""


class RanksAbsent(GroupError, TimeoutError):
    """Not all ranks came in time."""


class Fault(IntEnum):
    """What a rank tells the others about the rank at fault."""

    DIED = 1
    LEFT = 2
    GAVE_UP = 3
    MISMATCHED = 4


def error_of(fault: Fault, rank: int, calls: str = "") -> GroupError:
    """Return the exception for what was told, or seen, of a rank.

    ``calls`` says which calls do not match, for a mismatch.
    """
    if fault is Fault.DIED:
        return RankDied(
            f"rank {rank} has ended without leaving the group, or cannot be reached: see what"
            " became of it, and start all ranks again",
            rank,
        )
    if fault is Fault.LEFT:
        return RankLeft(
            f"rank {rank} has left the group, and this call needs it: every rank has to make every"
            " call",
            rank,
            errno.ENOTCONN,
        )
    if fault is Fault.GAVE_UP:
        return RankGaveUp(
            f"rank {rank} gave up a call that others are in (it was cancelled, or raised): see the"
            " exception there",
            rank,
            errno.ECANCELED,
        )
    return MismatchedCall(
        f"{calls}: every rank has to make the same calls in the same order, with arrays of one"
        " dtype and shape",
        rank,
        errno.EPROTO,
    )
