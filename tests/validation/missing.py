# SPDX-License-Identifier: Apache-2.0
"""Rows that nothing measures yet, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Open:
    number: str
    title: str
    expected: str
    why: str


NO_CURVES = "its figures are curves known from memory only"

OPEN = (
    Open(
        "V21",
        "A routing loop with PFC",
        "deadlock if, and only if, more than n·B/TTL is sent into it",
        "packets have no hop limit, and flows over a loop are refused before the run",
    ),
    Open(
        "P4",
        "DCQCN's stability in the number of flows",
        "not monotonic: an unstable band at about 10 flows and 85 µs",
        NO_CURVES,
    ),
    Open(
        "P5",
        "HPCC beside DCQCN on 320 servers",
        "flow completion times up to 95 % shorter",
        "there is no HPCC (in-band telemetry) here",
    ),
    Open(
        "P6",
        "DCQCN's thresholds in production",
        "Kmin = 100 KB · B/25 G, Kmax = 400 KB · B/25 G, Pmax = 20 %",
        "these are parameters, which `mark=(…)` takes as they are; there is no result to compare",
    ),
    Open(
        "P8",
        "A pause storm, and a deadlock by flooding",
        "the whole fabric stops; a watchdog clears it",
        "adapters do not break in this way here, and switches neither flood nor watch",
    ),
    Open(
        "P18",
        "Parsimon and m4: hours of ns-3 in minutes",
        "1 to 2 minutes, the 99th percentile within 9 %",
        "there is no estimate without packets here",
    ),
)
