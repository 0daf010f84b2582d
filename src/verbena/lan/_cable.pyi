# SPDX-License-Identifier: Apache-2.0

from collections.abc import Sequence
from typing import Self

class CableState:
    """The stations of one cable or hub. Times are picoseconds."""

    def __new__(
        cls,
        places: Sequence[int],
        *,
        bit_ps: int,
        seed: int,
        slot_bits: int,
        gap_bits: int,
        header_bits: int,
        jam_bits: int,
        fragment_bits: int,
        tries: int,
        doublings: int,
        star: bool,
        ideal: bool,
        log_collisions: bool,
    ) -> Self: ...
    def offer(self, station: int, now: int, born: int, bits: int, token: int) -> bool:
        """Gives a station its next frame, of so many bits behind the header; False: it has one."""
    def source(self, station: int, now: int, bits: int, mean_ps: int) -> bool:
        """Lets a station make frames: always the next one, or a Poisson stream; False: it has."""
    @property
    def next_at(self) -> int | None:
        """When ``run`` has something to work out; None: no station has a frame."""
    def run(self, until: int, frames: int = ...) -> list[tuple[int, int, int, int, int, int]]:
        """Works out what becomes of frames up to ``until``; comes back earlier after ``frames``
        frames were sent, or with about a thousand results, of which the list has (outcome,
        station, start, end, token, collisions)."""
    def run_counting(self, until: int, frames: int) -> None:
        """The same without results: what happens is in the counters."""
    def counters(self, station: int) -> tuple[int, int, int, int, int, int, int, int]:
        """Of one station: sent, sent bits, collisions, deferred, excessive, late, crossed, and the
        picoseconds that frames that were sent waited."""
    @property
    def collisions(self) -> int:
        """Of the whole medium: two stations that collide once are one."""
    @property
    def runs(self) -> int:
        """Sequences of frames that one station sent without another's frame between them."""
    @property
    def last_end(self) -> int:
        """The end of the last frame that was sent."""
