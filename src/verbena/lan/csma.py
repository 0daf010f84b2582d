# SPDX-License-Identifier: Apache-2.0
"""The parameters of CSMA/CD (IEEE 802.3 clause 4), and the limits that follow from them.

``medium.py`` makes the core of ``src/native/cable`` by it, and so do rows of `make validate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verbena._arguments import checked_class
from verbena.lan._cable import CableState
from verbena.lan.errors import LanError, LanTypeError

METRES_PER_S = 2e8


@checked_class(LanTypeError)
@dataclass(frozen=True)
class Csma:
    """Lengths are bit times. ``slot``: a collision so long after the first bit of the preamble is
    late, and backoff counts in it, from the end of the jam, while the gap passes;
    ``fragment``: the least that a station transmits in a collision, with preamble and jam;
    ``doublings``: of the backoff's range, which is 0 to 2**10 - 1 slots at most."""

    rate_mbps: float = 10
    slot: int = 512
    gap: int = 96
    header: int = 64
    jam: int = 32
    fragment: int = 96
    tries: int = 16
    doublings: int = 10

    def __post_init__(self) -> None:
        if not 0.001 <= self.rate_mbps <= 100_000:
            raise LanError(f"a rate of {self.rate_mbps} Mb/s is not between 0.001 and 100000 Mb/s")
        if not 1 <= self.slot <= 1 << 20:
            raise LanError(f"a slot of {self.slot} bits is not between 1 and {1 << 20}")
        if min(self.gap, self.header, self.jam, self.fragment) < 0:
            raise LanError("gap, header, jam and fragment are numbers of bits: none is negative")
        if self.header > self.slot or self.fragment > self.slot + self.jam:
            raise LanError("header and fragment end within the slot: make the slot longer")
        if self.jam == 0 and self.fragment == 0:
            raise LanError("a collision takes time: give jam or fragment some bits")
        if not 1 <= self.tries <= 65535 or not 0 <= self.doublings <= 31:
            raise LanError("tries are 1 to 65535, doublings of the backoff 0 to 31")

    @property
    def bit_ps(self) -> int:
        """One bit's time."""
        return round(1e6 / self.rate_mbps)

    @property
    def longest_m(self) -> float:
        """The longest way between two stations: there and back within a slot, at 2e8 m/s."""
        return self.slot / (self.rate_mbps * 1e6) * METRES_PER_S / 2

    def check_length(self, length_m: float, what: str) -> None:
        """Raises LanError if a collision at the far end could be noticed after the slot."""
        if length_m > self.longest_m:
            back = 2 * length_m / METRES_PER_S * self.rate_mbps * 1e6
            raise LanError(
                f"{what} of {length_m:g} m is too long at {self.rate_mbps:g} Mb/s: a collision is "
                f"noticed after up to {back:.0f} bit times, and the slot has {self.slot}; at most "
                f"{self.longest_m:g} m, or allow it with too_long=True"
            )

    def core(
        self,
        places: Sequence[int],
        *,
        seed: int,
        star: bool = False,
        ideal: bool = False,
        log_collisions: bool = False,
    ) -> CableState:
        """The medium with its stations at these delays."""
        return CableState(
            places,
            bit_ps=self.bit_ps,
            seed=seed,
            slot_bits=self.slot,
            gap_bits=self.gap,
            header_bits=self.header,
            jam_bits=self.jam,
            fragment_bits=self.fragment,
            tries=self.tries,
            doublings=self.doublings,
            star=star,
            ideal=ideal,
            log_collisions=log_collisions,
        )
