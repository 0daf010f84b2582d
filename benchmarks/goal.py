# SPDX-License-Identifier: Apache-2.0
"""A row of the report: what is measured, the peer, and the bound on their ratio.

goals.py, python_goals.py and simulation_goals.py list the rows, report.py prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from verbena.measure.case import Case, Unit

TIMES = "\N{MULTIPLICATION SIGN}"


class Section(Enum):
    """Parts of the report, in order."""

    SHARED = "C programs with `verbena run --shared-heap`"
    OWN = "C programs with their own memory"
    PYTHON = "From Python"
    PACKETS = "RoCE v2 packets over loopback"
    WAITING = "Waiting"
    FABRIC = "Simulated fabrics, one thread"
    COMPUTERS = "Simulated computers and cables, one thread"
    MANAGE = "Subnet management"
    CONNECTIONS = "Connections by librdmacm"
    COLLECTIVES = "Collective calls, two ranks"
    DASK = "Dask"
    RPC = "RPC: a call and its answer"
    DISKS = "Disks over RDMA"
    REFERENCE = "For reference, without a goal"


class Better(Enum):
    """Whether lower or higher values are better."""

    LOWER = "≤"
    HIGHER = "≥"


@dataclass(frozen=True)
class Goal:
    """A row: ours should be `better` than `bound`, times the peer's value if there is a peer.

    Without a bound the row only informs. `quick` rows are those of `--quick`.
    """

    section: Section
    name: str
    ours: Case
    peer: Case | None = None
    bound: float | None = None
    better: Better = Better.HIGHER
    quick: bool = False

    def cases(self) -> Iterator[Case]:
        yield self.ours
        if self.peer:
            yield self.peer

    @property
    def latency(self) -> bool:
        """Return whether the row is a message's latency, so that line.py's time is its scale."""
        named = "latency" in self.name or "half round trip" in self.name
        return named and self.ours.unit is Unit.MICROSECONDS

    def met(self, ours: float, peer: float | None) -> bool | None:
        """Whether the goal is met; None when there is none.

        A ratio is rounded to two digits, as it is printed; more are below the clock's resolution.
        """
        if self.bound is None:
            return None
        value = ours if self.peer is None or peer is None else round(ours / peer, 2)
        return value <= self.bound if self.better is Better.LOWER else value >= self.bound

    def text(self) -> str:
        """Return the goal as text for the report."""
        if self.bound is None:
            return f"beside {self.peer.label}" if self.peer else ""
        times = f" {TIMES} {self.peer.label}" if self.peer else f" {self.ours.unit}"
        return f"{self.better.value} {self.bound:,.9g}{times}"

    def matches(self, pattern: str) -> bool:
        """Whether `pattern`, a part of it or a shell pattern, is the row's section and name."""
        text = f"{self.section.value}: {self.name}".replace("`", "").lower()
        return pattern.lower() in text or fnmatchcase(text, pattern.lower())
