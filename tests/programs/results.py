# SPDX-License-Identifier: Apache-2.0
"""What perftest and the pingpongs print when all went well."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.programs.pairs import Pair, assert_good


@dataclass(frozen=True)
class Row:
    """One line of perftest's table: messages per microsecond, or microseconds for one (latency)."""

    size: int
    iterations: int
    measured: float


# What printf makes of %lf: on a busy machine perftest's standard deviation is sometimes -nan,
# beside latencies that are right.
NUMBER = r"-?(?:[\d.]+|inf|nan)"
ROW = re.compile(rf"^ (\d+)[ \t]+(\d+)((?:[ \t]+{NUMBER})+)[ \t]*$", re.MULTILINE)


# perftest times its cycle counter against the clock, five times in a row; on a busy emulated
# machine the five disagree, it says so, also at the end of a row, and every figure that it prints
# afterwards is 0.00.
NO_CLOCK = "Correlation coefficient r^2"
NOTE = re.compile(re.escape(NO_CLOCK) + r": [\d.]+ < [\d.]+\n?")


def rows(output: str) -> list[Row]:
    """The table that follows a line of headings."""
    column = 2 if "BW average" in output else 3  # MB/s of a few slow bytes are 0.00
    _, _, table = NOTE.sub("\n", output).partition("#bytes")
    return [
        Row(int(size), int(iterations), float(numbers.split()[column]))
        for size, iterations, numbers in ROW.findall(table)
    ]


def assert_measured(pair: Pair, sizes: Iterable[int], iterations: int) -> None:
    """Both ended well; the client measured each size with all iterations."""
    assert_good(pair)
    table = rows(pair.client.output)
    assert [(row.size, row.iterations) for row in table] == [
        (size, iterations) for size in sizes
    ], str(pair)
    if NO_CLOCK not in pair.client.output:
        assert all(row.measured > 0 and math.isfinite(row.measured) for row in table), str(pair)


def assert_exchanged(pair: Pair, size: int, iterations: int) -> None:
    """Both ended well and counted what was asked for, there and back."""
    assert_good(pair)
    for side in pair.sides:
        assert f"\n{2 * size * iterations} bytes in " in side.output, str(pair)
        assert f"\n{iterations} iters in " in side.output, str(pair)
