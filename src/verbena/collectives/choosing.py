# SPDX-License-Identifier: Apache-2.0
"""Which algorithm a call uses, by the bytes of its array and the number of ranks.

The group asks at each call. All ranks give the same answer, since they have arrays of one size. The
limits are where the curves of the algorithms cross for processes of one machine.
"""

from __future__ import annotations

__all__ = ["ALGORITHMS", "choose"]

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "barrier": ("dissemination",),
    "broadcast": ("tree", "scatter_ring"),
    "reduce": ("tree", "ring"),
    "all_reduce": ("recursive_doubling", "ring", "tree"),
    "reduce_scatter": ("ring", "recursive_doubling"),
    "all_gather": ("recursive_doubling", "ring"),
    "gather": ("tree", "linear"),
    "scatter": ("tree", "linear"),
    "all_to_all": ("recursive_doubling", "pairwise"),
}
"""The algorithms of each call."""

_SMALL = 32 << 10  # bytes of the array up to which the number of steps counts, and not the bytes
_LIMITS = {  # the call: (for small arrays, for others)
    "barrier": ("dissemination", "dissemination"),
    "broadcast": ("tree", "scatter_ring"),
    "reduce": ("tree", "ring"),
    "all_reduce": ("recursive_doubling", "ring"),
    "reduce_scatter": ("recursive_doubling", "ring"),
    "all_gather": ("recursive_doubling", "ring"),
    "gather": ("tree", "linear"),
    "scatter": ("tree", "linear"),
    "all_to_all": ("recursive_doubling", "pairwise"),
}


def choose(call: str, nbytes: int, size: int, algorithm: str | None) -> str:
    """Return the algorithm for a call with arrays of so many bytes. Raises ValueError."""
    if algorithm is not None:
        if algorithm not in ALGORITHMS[call]:
            names = ", ".join(ALGORITHMS[call])
            raise ValueError(f"{call} has the algorithms {names}, and not {algorithm!r}")
        return algorithm
    small, large = _LIMITS[call]
    if size == 2 and call in ("broadcast", "reduce"):
        return small
    return small if nbytes <= _SMALL else large
