# SPDX-License-Identifier: Apache-2.0
"""Times, sizes and rates as people write them, and back.

Scenarios, their errors and the summaries use these. Internally times are in ps and sizes in bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["bytes_of", "gigabits_text", "picoseconds", "size_text", "time_text"]

TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12}
SIZES = {
    "B": 1,
    **{f"{prefix}B": 1000 ** (n + 1) for n, prefix in enumerate("kMGT")},
    **{f"{prefix}iB": 1024 ** (n + 1) for n, prefix in enumerate("KMGT")},
    "KB": 1000,
}
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)\s*([a-zµ]+)", re.IGNORECASE)


def picoseconds(value: object) -> int:
    """Return a time in ps, given as "10 us" or "1.5ms"; 0 needs no unit. Raises ValueError."""
    if value == 0 and not isinstance(value, bool):
        return 0
    return _quantity(value, TIMES, 'a time, as in "10 us" or "1.5 ms"', "ps, ns, us, ms, s")


def bytes_of(value: object) -> int:
    """Return a size in bytes, given as "64 KiB" or "1.5 MB" or as a whole number. Raises
    ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _quantity(
        value, SIZES, 'a size, as in "64 KiB" or 65536', "B, KB, MB, GB, KiB, MiB, GiB"
    )


def _quantity(value: object, units: dict[str, int], what: str, known: str) -> int:
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None and isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"needs a unit: it is to be {what}")
    if found is None:
        raise ValueError(f"is not {what}")
    if found[2] not in units:
        unit = found[2]
        raise ValueError(f'has the unit "{unit}", which is not one of {known}{_bits(unit)}')
    exact = Fraction(found[1]) * units[found[2]]
    if exact.denominator != 1 and exact > 1000:
        exact = Fraction(round(exact))
    if exact.denominator != 1:
        raise ValueError(f"is no whole number of {'ps' if units is TIMES else 'bytes'}")
    return int(exact)


def _bits(unit: str) -> str:
    """Return what to add for "Kb" and "Mbit", where bytes are required."""
    return ": b are bits, and B bytes" if re.fullmatch(r"[kKMGT]?i?b(its?)?", unit) else ""


def time_text(ps: float) -> str:
    """Return a time in ps with three digits and a unit: "1.74 ms"."""
    for unit, factor in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if ps >= factor:
            return (
                f"{ps / factor:.3g} {unit}" if ps < 999.5 * factor else f"{ps / factor:.0f} {unit}"
            )
    return f"{ps:.0f} ps"


def gigabits_text(bits: float) -> str:
    """Return bits per second with three digits, or as a whole number: "97.9 Gb/s", "3858 Gb/s"."""
    rate = bits / 1e9
    return f"{rate:.3g} Gb/s" if rate < 999.5 else f"{rate:.0f} Gb/s"


def size_text(count: float) -> str:
    """Return bytes in units of 1024: "63.9 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
