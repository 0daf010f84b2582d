# SPDX-License-Identifier: Apache-2.0
"""Link rates: the data rate of a link after its line code. Fabrics and scenarios call ``rate``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from .errors import FabricError

__all__ = ["Rate", "ethernet", "infiniband", "names", "rate"]

GIGA = 10**9
PS_PER_S = 10**12
MAX_PS = 2**31  # for a byte: the limit of the event core's arithmetic
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
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*"
_ETHERNET = re.compile(rf"{_NUMBER}(?:GE|GbE)", re.IGNORECASE)
_BITS = re.compile(rf"{_NUMBER}(?:G|([kKMGT]?)(?:b/s|bit/s|bps))")
# Other spellings, and bytes: the error says what to write.
_OTHER = re.compile(rf"{_NUMBER}([KMGT]?)(b(?:yte|ytes|it|its)?(?:/s|ps)|)", re.IGNORECASE)
PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Rate:
    """A link's rate. ``bits_per_second`` is exact; ``name`` is for texts."""

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

    def __hash__(self) -> int:
        # A Fraction's own hash takes ten times as long, and each cable of a fabric needs one.
        return hash(self.name)


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


def rate(value: str | Rate) -> Rate:
    """Parse a rate.

    "4xHDR", "EDR" (4x is meant), "100GbE", or "37.5 Gb/s", "800 Mb/s" (any rate). Raises
    FabricError for other texts, for a rate of zero or less or more than 1000000 Gb/s, for bytes
    ("100 GB/s": rates are in bits), and for a number alone, which may mean bits or gigabits per
    second.
    """
    given: object = value
    if isinstance(given, int | float | np.number) and not isinstance(given, bool):
        raise FabricError(
            f'{given} is a number without a unit: write "{_digits(given)} Gb/s", or "100GbE"'
        )
    if not isinstance(given, str | Rate):
        raise FabricError(f"{value!r} is no rate: write 4xHDR, 100GbE or 37.5 Gb/s")
    return _rate(given)


def _digits(value: float | np.number[Any]) -> str:
    """Return a number in Gb/s. A large number is taken for bits per second."""
    number = float(value)
    return f"{number / GIGA if number >= MAX_BITS / GIGA else number:g}"


@cache
def _rate(value: str | Rate) -> Rate:
    if isinstance(value, Rate):
        return _checked(value)
    if found := _ETHERNET.fullmatch(value.strip()):
        return ethernet(found[1])
    if found := _BITS.fullmatch(value.strip()):
        prefix = "G" if found[2] is None else found[2].upper()
        exact = Fraction(found[1]) * PREFIXES[prefix]
        return _checked(Rate(f"{float(exact / GIGA):.12g}Gb/s", exact))
    if (found := _OTHER.fullmatch(value.strip())) and (found[2] or found[3]):
        raise FabricError(_in_other_units(value, found))
    found = _INFINIBAND.fullmatch(value.strip())
    if found and (found[1] or found[2].upper() in LANES):
        return infiniband(found[2], int(found[1] or 4))
    raise FabricError(f"{value!r} is no rate: write 4xHDR, 100GbE or 37.5 Gb/s")


def _in_other_units(value: str, found: re.Match[str]) -> str:
    """Return why a text is refused, and how to write the rate in bits that it may mean."""
    number, prefix, unit = Fraction(found[1]), found[2].upper(), found[3]
    if unit.startswith("B") or "yte" in unit.lower():
        return (
            f"{value!r} is in bytes (B), and rates are in bits (b): "
            f'write "{float(8 * number):.12g} {prefix}b/s"'
        )
    return f'{value!r} has an unknown unit: write "{float(number):.12g} {prefix}b/s"'


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
