# SPDX-License-Identifier: Apache-2.0
"""The pictures of management: of the subnet manager. Called by pictures.py."""

from __future__ import annotations

from pen import Pen

# Phases of a sweep, what each asks or sets, and MADs with 648 hosts and 54 switches of 36 ports.
MOST = 5997  # MADs of the largest phase
PHASES: tuple[tuple[str, str, int | None, str], ...] = (
    ("DISCOVER", "Get NodeInfo, NodeDescription, PortInfo, ...", MOST, "verbs"),
    ("MANAGERS", "Get SMInfo where a manager runs", 0, "verbs"),
    ("DECIDE", "master, standby, or hand over", None, "plain"),
    ("CLEAR", "Set SwitchInfo: PortStateChange", 54, "memory"),
    ("PARTITIONS", "Set P_KeyTable, where it differs", 0, "memory"),
    ("LIDS", "Set PortInfo: LIDs, limits, ARMED", 702, "memory"),
    ("SWITCHES", "Set SwitchInfo: top of the tables", 54, "memory"),
    ("LINEAR", "Set LinearForwardingTable", 594, "memory"),
    ("MULTICAST", "Set MulticastForwardingTable", 0, "memory"),
    ("LANES", "Set VL arbitration and SLtoVL", 0, "memory"),
    ("ARM", "Set PortInfo of switches: ARMED", 1944, "memory"),
    ("ACTIVATE", "Set PortInfo: ACTIVE", 2592, "memory"),
)


def sweep_phases() -> Pen:
    pen = Pen(
        860,
        470,
        "The phases of a heavy sweep from DISCOVER to ACTIVATE, with the MADs of each for 648 "
        "hosts: discovery takes half of them, and ports are armed and activated last.",
    )
    pen.word(24, 32, "phase", "small")
    pen.word(170, 32, "requests", "small")
    pen.word(520, 32, "MADs for 648 hosts and 54 switches", "small")
    y = 44
    for number, (name, says, count, kind) in enumerate(PHASES):
        pen.box(24, y, 122, 26, kind)
        pen.word(36, y + 18, name, "text")
        pen.word(170, y + 18, says, "text")
        width = (count or 0) / MOST * 250
        if count:
            pen.box(520, y + 5, max(width, 2), 16, kind, radius=2)
        shown = "none" if count is None else f"{count:,}" if count else "only if needed"
        pen.word(530 + width, y + 18, shown, "small")
        if number + 1 < len(PHASES):
            pen.line((85, y + 26), (85, y + 35))
        y += 35
    return pen


PICTURES = (sweep_phases,)
