# SPDX-License-Identifier: Apache-2.0
"""Link rates: how many bits of packets a link carries in a second, after its line code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from .errors import FabricError

__all__ = ["Rate", "ethernet", "infiniband", "names", "rate"]

GIGA = 10**9
PS_PER_S = 10**12
MAX_PS = 2**31  # of a byte: what fits the event core's arithmetic
MAX_BITS = 10**15  # in a second, for the same reason

# Gb/s of one InfiniBand lane that packets can use (IBA volume 2, chapters 5 and 6). SDR to QDR are
# 8b/10b, FDR10 to EDR 64b/66b. From HDR on, the signalling rates of 53.125, 106.25 and 212.5 Gb/s
# carry 256b/257b blocks in an RS(544,514) code: 53.125 * 514/544 * 256/257 is 50.
LANES = {
    "SDR": Fraction(5, 2) * Fraction(8, 10),
    "DDR": Fraction(5) * Fraction(8, 10),
    "QDR": Fraction(10) * Fraction(8, 10),
    "FDR10": Fraction(165, 16) * Fraction(64, 66),
    "FDR": Fraction(225, 16) * Fraction(64, 66),
    "EDR": Fraction(825, 32) * Fraction(64, 66),
    "HDR": Fraction(425, 8) * Fraction(514, 544) * Fraction(256, 257),
    "NDR": Fraction(425, 4) * Fraction(514, 544) * Fraction(256, 257),
    "XDR": Fraction(425, 2) * Fraction(514, 544) * Fraction(256, 257),
}
WIDTHS = (1, 2, 4, 8, 12)
# Gb/s of the MAC, as IEEE 802.3 names its interfaces: the line code is already taken off.
ETHERNET = ("1", "2.5", "5", "10", "25", "40", "50", "100", "200", "400", "800")

_INFINIBAND = re.compile(r"(?:(\d+)x\s*)?([A-Z]+(?:10)?)", re.IGNORECASE)
_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(?:GE|GbE|G|Gb/s|Gbit/s|Gbps)", re.IGNORECASE)


@dataclass(frozen=True)
class Rate:
    """A link's rate. ``bits_per_second`` is exact; ``name`` is what one reads."""

    name: str
    bits_per_second: Fraction

    @property
    def gbps(self) -> float:
        """In Gb/s."""
        return float(self.bits_per_second / GIGA)

    @property
    def ps_per_byte(self) -> Fraction:
        """Picoseconds that one byte takes; a whole number for most rates, but not for FDR."""
        return 8 * PS_PER_S / self.bits_per_second

    def __str__(self) -> str:
        return self.name


def infiniband(speed: str, width: int = 4) -> Rate:
    """The rate of ``width`` lanes (1, 2, 4, 8 or 12) of "SDR" to "XDR". Raises FabricError."""
    lane = LANES.get(speed.upper())
    if lane is None or width not in WIDTHS:
        raise FabricError(
            f"no InfiniBand rate {width}x{speed}: speeds are {', '.join(LANES)}, "
            f"widths {', '.join(f'{w}x' for w in WIDTHS)}"
        )
    return Rate(f"{width}x{speed.upper()}", lane * width * GIGA)


def ethernet(gbps: str | float) -> Rate:
    """Ethernet of 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400 or 800 Gb/s. Raises FabricError."""
    text = f"{float(gbps):g}"
    if text not in ETHERNET:
        raise FabricError(f"no Ethernet of {text} Gb/s: there are {', '.join(ETHERNET)}")
    return Rate(f"{text}GbE", Fraction(text) * GIGA)


def rate(value: str | float | Rate) -> Rate:
    """A rate from what a user writes.

    "4xHDR", "EDR" (4x is meant), "100GbE", "37.5 Gb/s" (any rate), or a number of Gb/s. Raises
    FabricError for what is none of them, and for a rate of zero or less or more than 1000000 Gb/s.
    """
    given: object = value
    if isinstance(given, np.floating | np.integer):
        given = float(given)
    if isinstance(given, bool) or not isinstance(given, str | int | float | Rate):
        raise FabricError(f"{value!r} is no rate: write 4xHDR, 100GbE or 37.5 Gb/s")
    return _rate(given)


@cache
def _rate(value: str | float | Rate) -> Rate:
    if isinstance(value, Rate):
        return _checked(value)
    if isinstance(value, int | float):
        if not 0 < value < float("inf"):
            what = "is no number" if value == float("inf") else "carries nothing"
            raise FabricError(f"a rate of {value:g} Gb/s {what}")
        return _checked(Rate(f"{value:.12g}Gb/s", Fraction(str(value)) * GIGA))
    if found := _PLAIN.fullmatch(value.strip()):
        return ethernet(found[1]) if value.strip().upper().endswith("E") else rate(float(found[1]))
    found = _INFINIBAND.fullmatch(value.strip())
    if found and (found[1] or found[2].upper() in LANES):
        return infiniband(found[2], int(found[1] or 4))
    raise FabricError(f"{value!r} is no rate: write 4xHDR, 100GbE or 37.5 Gb/s")


def names() -> list[str]:
    """Every named rate."""
    lanes = [f"{width}x{speed}" for speed in LANES for width in WIDTHS]
    return [*lanes, *(f"{gbps}GbE" for gbps in ETHERNET)]


def _checked(value: Rate) -> Rate:
    if value.bits_per_second <= 0:
        raise FabricError(f"a rate of {value.name} carries nothing")
    if value.bits_per_second > MAX_BITS:
        raise FabricError(f"a rate of {value.name} is more than {MAX_BITS / GIGA:.0f} Gb/s")
    if value.ps_per_byte > MAX_PS:
        raise FabricError(f"a rate of {value.name} is too slow: a byte takes more than 2 ms")
    return value
