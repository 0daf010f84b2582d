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


NO_TCP = "the fabric has no TCP yet"

OPEN = (
    Open(
        "V18",
        "TCP Reno's and CUBIC's rate at a given loss",
        "MSS/RTT·√(3/2)/√p; W = 1.054 (RTT/p)^¾ (RFC 9438)",
        NO_TCP,
    ),
    Open(
        "V19",
        "DCTCP's threshold, amplitude and queue",
        "K > C·RTT/7; ½√(2N(C·RTT+K)); K + N packets",
        NO_TCP,
    ),
    Open("V20", "TCP incast after the collapse", "N·S/(N·S/C + RTOmin)", NO_TCP),
    Open("P16", "TCP incast with 1 GbE", "collapse beyond about 8 servers", NO_TCP),
    Open("P17", "DCTCP at 1 and 10 Gb/s", "a queue of about K + N packets", NO_TCP),
)
