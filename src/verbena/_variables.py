# SPDX-License-Identifier: Apache-2.0
"""The names of Verbena's variables (docs/running.md), for hints about a misspelt one.

verbena.cli calls misspelt(). The library has the same names in dropin/settings.c; a test compares
the two lists and the page.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFIX = "VERBENA_"
KNOWN = frozenset(
    PREFIX + name
    for name in ("LOG", "CARRIER", "SPIN_US", "NETDEV", "LINK_LAYER", "PKEYS", "PORTS", "DEVICES",
                 "PORT_RECORDS", "PART_ID", "SHARED_HEAP_MIN", "HEAP_SIZE", "COPY", "FAULT",
                 "FAULT_RECORDS", "CAPTURE", "CAPTURE_DIRECT", "CAPTURE_BYTES", "COMMAND",
                 "LIBRARY", "SIM", "RUN", "SANITIZE", "AGENT", "MANAGES",
                 "FABRIC", "HOST", "RANK", "SIZE", "ADDRESS")
)  # fmt: skip


def misspelt(names: Iterable[str]) -> list[str]:
    """Return a line for each name that is like one of Verbena's variables and is none.

    Other names with the prefix may be a program's own, and are no reason for a line.
    """
    lines = []
    for name in sorted(names):
        if not name.startswith(PREFIX) or name in KNOWN:
            continue
        import difflib

        known = [each.removeprefix(PREFIX) for each in sorted(KNOWN)]
        near = difflib.get_close_matches(name.removeprefix(PREFIX), known, 1)
        lines += [f"{name} is not known; did you mean {PREFIX}{each}?" for each in near]
    return lines
