# SPDX-License-Identifier: Apache-2.0
"""The result of one check of `verbena doctor`. checks.py and host.py make them, doctor.py
prints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"  # works; something optional is missing
    SLOW = "slow"  # works, slower than it could
    BAD = "bad"  # Verbena, or a part of it, cannot work


@dataclass(frozen=True)
class Finding:
    """One check: its name, what was found, and what to do unless the verdict is GOOD."""

    name: str
    verdict: Verdict
    text: str
    advice: str = ""


def good(name: str, text: str) -> Finding:
    return Finding(name, Verdict.GOOD, text)
