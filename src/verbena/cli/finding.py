# SPDX-License-Identifier: Apache-2.0
"""What `verbena doctor` has to say about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"  # works; something could be had in addition
    SLOW = "slow"  # works, slower than it could
    BAD = "bad"  # Verbena, or a part of it, cannot work


@dataclass(frozen=True)
class Finding:
    """One thing looked at: its name, what was found, and what to do unless it is good."""

    name: str
    verdict: Verdict
    text: str
    advice: str = ""


def good(name: str, text: str) -> Finding:
    return Finding(name, Verdict.GOOD, text)
