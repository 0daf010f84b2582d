# SPDX-License-Identifier: Apache-2.0
"""How one case of a suite, one mode of a program, or one program ended."""

from __future__ import annotations

from dataclasses import dataclass

from tests.programs.pairs import Pair, complaints


@dataclass(frozen=True)
class Outcome:
    """`status` is passed, skipped or failed; `reason` is why, for the last two."""

    status: str
    reason: str = ""
    output: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}\n{self.output}" if self.reason else self.status


def passed() -> Outcome:
    return Outcome("passed")


def of_pair(pair: Pair, problem: str = "") -> Outcome:
    """Passed when both programs ended well and said nothing of trouble, and there is no problem."""
    said = [line.strip() for side in pair.sides for line in complaints(side.output)]
    statuses = [side.status for side in pair.sides]
    if statuses == [0, 0] and not said and not problem:
        return passed()
    reason = said[0] if said else problem or f"exit status {statuses[0]} and {statuses[1]}"
    return Outcome("failed", reason, str(pair))
