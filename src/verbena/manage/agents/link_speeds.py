# SPDX-License-Identifier: Apache-2.0
"""Widths and speeds of links, and what two ports negotiate when their link trains (IBA 7.2.2).

PortInfo has speeds in three sets: the base one (SDR, DDR, QDR), the extended one (FDR to NDR) and
the second extended one (XDR); FDR10 is in a vendor's attribute. ``LinkRate`` is a topology's text
such as "4xHDR" in these codes, and ``LinkSettings`` is what a port can do and is allowed to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ..errors import MadError

__all__ = ["LinkRate", "LinkSettings", "link_rate", "negotiate"]

# From slow to fast. Gb/s of a lane are nominal, as path records count them.
SPEEDS = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
LANE_GBPS = dict(zip(SPEEDS, (2.5, 5, 10, 10, 14, 25, 50, 100, 200), strict=True))
BASE = {"SDR": 1, "DDR": 2, "QDR": 4}
EXTENDED = {"FDR": 1, "EDR": 2, "HDR": 4, "NDR": 8}
WIDTHS = {1: 1, 2: 16, 4: 2, 8: 4, 12: 8}  # the code of each number of lanes
FASTEST_BASE = 4

_TEXT = re.compile(r"(\d+)x([A-Z]+(?:10)?)")


@dataclass(frozen=True)
class LinkRate:
    """A number of lanes and the speed of each."""

    lanes: int
    speed: str

    @property
    def gbps(self) -> float:
        """The nominal rate in Gb/s."""
        return self.lanes * LANE_GBPS[self.speed]

    @property
    def data_bps(self) -> float:
        """Bits of packets in a second: up to QDR the line code takes a fifth."""
        return self.gbps * (8e8 if self.speed in BASE else 1e9)

    def __str__(self) -> str:
        return f"{self.lanes}x{self.speed}"


@cache
def link_rate(text: str) -> LinkRate:
    """Return the rate of a text such as "4xEDR". Raises MadError for another text."""
    found = _TEXT.fullmatch(text)
    if not found or found[2] not in SPEEDS or int(found[1]) not in WIDTHS:
        raise MadError(
            f"{text!r} is no rate of InfiniBand: write 4xEDR; speeds are {', '.join(SPEEDS)}"
        )
    return LinkRate(int(found[1]), found[2])


@dataclass(frozen=True)
class LinkSettings:
    """Codes of PortInfo for widths and speeds: a set of what is possible, or one that is active.

    ``extended2`` is 1 for XDR, ``fdr10`` 1 for FDR10.
    """

    width: int
    base: int
    extended: int = 0
    extended2: int = 0
    fdr10: int = 0

    @classmethod
    @cache
    def up_to(cls, rate: LinkRate) -> LinkSettings:
        """Return all speeds up to this one, over as many lanes or a single one."""
        speeds = SPEEDS[: SPEEDS.index(rate.speed) + 1]
        return cls(
            width=WIDTHS[1] | WIDTHS[rate.lanes],
            base=sum(BASE.get(speed, 0) for speed in speeds),
            extended=sum(EXTENDED.get(speed, 0) for speed in speeds),
            extended2=int("XDR" in speeds),
            fdr10=int("FDR10" in speeds),
        )

    def __and__(self, other: LinkSettings) -> LinkSettings:
        return LinkSettings(
            self.width & other.width,
            self.base & other.base,
            self.extended & other.extended,
            self.extended2 & other.extended2,
            self.fdr10 & other.fdr10,
        )

    @property
    def rate(self) -> LinkRate | None:
        """The fastest of these, or None if no width or no speed is left."""
        lanes = max((lanes for lanes, code in WIDTHS.items() if self.width & code), default=0)
        speeds = [speed for speed, code in BASE.items() if self.base & code]
        speeds += ["FDR10"] * bool(self.fdr10)
        speeds += [speed for speed, code in EXTENDED.items() if self.extended & code]
        speeds += ["XDR"] * bool(self.extended2)
        return LinkRate(lanes, speeds[-1]) if lanes and speeds else None


def negotiate(ours: LinkSettings, theirs: LinkSettings) -> LinkSettings | None:
    """Return the active width and speed of a link, the fastest that both ends are allowed.

    While a speed of an extended set or FDR10 is active, the base set shows its fastest, as
    hardware does. None: they have nothing in common and the link does not come up.
    """
    return _active((ours & theirs).rate)


@cache
def _active(rate: LinkRate | None) -> LinkSettings | None:
    if rate is None:
        return None
    return LinkSettings(
        width=WIDTHS[rate.lanes],
        base=BASE.get(rate.speed, FASTEST_BASE),
        extended=EXTENDED.get(rate.speed, 0),
        extended2=int(rate.speed == "XDR"),
        fdr10=int(rate.speed == "FDR10"),
    )
