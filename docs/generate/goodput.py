# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/goodput.md from what the program goodput measured in virtual time.

goodput | python docs/generate/goodput.py
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import marks

PAGE = Path(__file__).parent.parent / "goodput.md"
BEGIN = "<!-- table: made by generate/goodput.py -->\n"
END = "<!-- end of table -->"
ATOMIC = 8  # bytes: reported as operations per second, since there is hardly a payload


@dataclass(frozen=True)
class Result:
    """One workload over one channel, all seeds together."""

    workload: str
    channel: str
    requests: int
    useful: int
    sent: int
    ns: int

    def cell(self) -> str:
        if self.useful == ATOMIC * self.requests:
            return f"{1000 * self.requests / self.ns:.2f} M/s"
        return f"{8 * self.useful / self.ns:.1f} ({100 * self.useful / self.sent:.0f} %)"


def parse(lines: Iterable[str]) -> list[Result]:
    """What goodput printed."""
    numbers = ("requests", "useful", "sent", "ns")
    return [
        Result(row["workload"], row["channel"], *(int(row[name]) for name in numbers))
        for row in csv.DictReader(lines)
    ]


def table(results: list[Result]) -> str:
    """A row for each workload, a column for each channel."""
    channels = list(dict.fromkeys(result.channel for result in results))
    workloads = list(dict.fromkeys(result.workload for result in results))
    cells = {(result.workload, result.channel): result.cell() for result in results}
    rows = [[name, *(cells[name, channel] for channel in channels)] for name in workloads]
    lines = [["", *channels], ["---", *("--:" for _ in channels)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def replaced(page: str, made: str) -> str:
    return marks.replaced(page, BEGIN, END, made)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(), table(parse(sys.stdin))))
