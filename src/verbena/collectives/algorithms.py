# SPDX-License-Identifier: Apache-2.0
"""The algorithms: rings, recursive doubling, trees, and exchanges by pairs.

``Group`` calls them with dense arrays that were checked. Each takes the links and works in place;
an array of parts has one row of bytes, or one part of a vector, for each rank. ``combine`` is given
the operands in the order of ranks wherever the order could show.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .links import Links
from .operators import combine

__all__ = [
    "all_gather_doubling",
    "all_gather_ring",
    "all_reduce_doubling",
    "all_to_all_doubling",
    "all_to_all_pairwise",
    "barrier",
    "bounds_of",
    "broadcast_scatter_ring",
    "broadcast_tree",
    "gather_linear",
    "gather_tree",
    "reduce_scatter_ring",
    "reduce_tree",
    "scatter_linear",
    "scatter_tree",
]

Vector = NDArray[Any]
Rows = NDArray[np.uint8]
_NOTHING = np.empty(0, np.uint8)


def fill(target: NDArray[Any], data: NDArray[np.uint8]) -> None:
    """Copy the bytes that have arrived into a dense array."""
    if target.nbytes:
        target.reshape(-1).view(np.uint8)[:] = data


def fold(op: np.ufunc, target: Vector, other_first: bool, data: NDArray[np.uint8]) -> None:
    """Combine the vector that has arrived with ``target``."""
    combine(op, target, data.view(target.dtype), other_first)


def ignore(data: NDArray[np.uint8]) -> None:
    """Nothing is done with an empty part."""


def bounds_of(length: int, parts: int) -> list[int]:
    """Return where the parts of a vector begin, and its end."""
    return [length * part // parts for part in range(parts + 1)]


async def barrier(links: Links) -> None:
    """Dissemination: after step k each rank knows of 2 ** (k + 1) ranks."""
    rank, size = links.rank, links.size
    step = 1
    while step < size:
        await links.exchange((rank + step) % size, _NOTHING, (rank - step) % size, 0, ignore)
        step *= 2


# ---- one rank to all -----------------------------------------------------------------------------


async def broadcast_tree(links: Links, array: Vector, root: int) -> None:
    """A binomial tree: log2(size) steps, each with the whole array."""
    rank, size = links.rank, links.size
    place = (rank - root) % size  # the root's is 0
    step = 1
    while step < size and not place & step:
        step *= 2
    if place:
        await links.receive((rank - step) % size, array.nbytes, partial(fill, array))
    while step > 1:
        step //= 2
        if place + step < size:
            await links.send((rank + step) % size, array)


async def broadcast_scatter_ring(links: Links, array: Vector, root: int) -> None:
    """The root scatters parts by a tree, which then go around a ring: each rank receives the array
    once in all, and the root sends it twice."""
    data = array.reshape(-1).view(np.uint8)
    starts = bounds_of(len(data), links.size)
    await _scatter_parts(links, data, starts, root)
    # The part of place p is at the rank (root + p) % size.
    await _ring(links, data, starts, root)


async def _scatter_parts(links: Links, data: Rows, starts: list[int], root: int) -> None:
    rank, size = links.rank, links.size
    place = (rank - root) % size
    step = 1
    while step < size and not place & step:
        step *= 2
    if place:
        part = data[starts[place] : starts[min(place + step, size)]]
        await links.receive((rank - step) % size, part.nbytes, partial(fill, part))
    while step > 1:
        step //= 2
        if place + step < size:
            part = data[starts[place + step] : starts[min(place + 2 * step, size)]]
            await links.send((rank + step) % size, part)


async def _ring(links: Links, data: Vector, starts: list[int], root: int) -> None:
    """Each rank has the part of its place, and gets all others from its left neighbour."""
    rank, size = links.rank, links.size
    place = (rank - root) % size
    for step in range(size - 1):
        sent, got = (place - step) % size, (place - step - 1) % size
        part = data[starts[got] : starts[got + 1]]
        await links.exchange(
            (rank + 1) % size,
            data[starts[sent] : starts[sent + 1]],
            (rank - 1) % size,
            part.nbytes,
            partial(fill, part),
        )


async def scatter_linear(links: Links, rows: Rows | None, own: Rows, root: int) -> None:
    """The root sends each rank its part."""
    if links.rank != root:
        await links.receive(root, own.nbytes, partial(fill, own))
        return
    assert rows is not None
    for distance in range(1, links.size):
        rank = (root + distance) % links.size
        await links.send(rank, rows[rank])
    own[:] = rows[root]


async def scatter_tree(links: Links, rows: Rows | None, own: Rows, root: int) -> None:
    """A binomial tree: each rank hands the parts of its subtree on."""
    rank, size = links.rank, links.size
    place = (rank - root) % size
    if rows is None:
        step = 1
        while not place & step:
            step *= 2
        mine = np.empty((min(place + step, size) - place, own.nbytes), np.uint8)
        await links.receive((rank - step) % size, mine.nbytes, partial(fill, mine))
    else:
        mine = np.concatenate([rows[root:], rows[:root]])
        step = 1 << (size - 1).bit_length()
    while step > 1:
        step //= 2
        if place + step < size:
            await links.send((rank + step) % size, mine[step : 2 * step])
    own[:] = mine[0]


# ---- all ranks to one ----------------------------------------------------------------------------


async def reduce_tree(links: Links, array: Vector, op: np.ufunc, root: int) -> None:
    """A binomial tree towards the root; ``array`` has the result there, and parts elsewhere."""
    rank, size = links.rank, links.size
    place = (rank - root) % size
    step = 1
    while step < size:
        if place & step:
            await links.send((rank - step) % size, array)
            return
        if place + step < size:
            source = (rank + step) % size
            use = partial(fold, op, array, source < rank)
            await links.receive(source, array.nbytes, use)
        step *= 2


async def gather_linear(links: Links, own: Rows, rows: Rows | None, root: int) -> None:
    """Each rank sends its part to the root."""
    if rows is None:
        await links.send(root, own)
        return
    rows[root] = own
    for distance in range(1, links.size):
        rank = (root + distance) % links.size
        await links.receive(rank, own.nbytes, partial(fill, rows[rank]))


async def gather_tree(links: Links, own: Rows, rows: Rows | None, root: int) -> None:
    """A binomial tree towards the root."""
    rank, size = links.rank, links.size
    place = (rank - root) % size
    step = 1
    while step < size and not place & step:
        step *= 2
    mine = np.empty((min(place + step, size) - place, own.nbytes), np.uint8)
    mine[0] = own
    reached = 1
    while reached < step and place + reached < size:
        part = mine[reached : 2 * reached]
        await links.receive((rank + reached) % size, part.nbytes, partial(fill, part))
        reached *= 2
    if place:
        await links.send((rank - step) % size, mine)
    elif rows is not None:
        rows[root:] = mine[: size - root]
        rows[:root] = mine[size - root :]


# ---- all ranks to all ----------------------------------------------------------------------------


async def all_reduce_doubling(links: Links, array: Vector, op: np.ufunc) -> None:
    """Recursive doubling: log2(size) steps, each with the whole array.

    Beyond a power of two, ranks first give their array to a neighbour, and get the result at last.
    """
    rank, size = links.rank, links.size
    power = 1 << (size.bit_length() - 1)
    extra = size - power
    if rank < 2 * extra and rank % 2:
        await links.send(rank - 1, array)
        await links.receive(rank - 1, array.nbytes, partial(fill, array))
        return
    if rank < 2 * extra:
        await links.receive(rank + 1, array.nbytes, partial(fold, op, array, False))
    place = rank // 2 if rank < 2 * extra else rank - extra
    step = 1
    while step < power:
        partner = place ^ step
        other = 2 * partner if partner < extra else partner + extra
        # The combination must not change what the exchange still sends.
        arrived = np.empty_like(array)
        await links.exchange(other, array, other, array.nbytes, partial(fill, arrived))
        combine(op, array, arrived, other < rank)
        step *= 2
    if rank < 2 * extra:
        await links.send(rank + 1, array)


async def reduce_scatter_ring(
    links: Links, vector: Vector, starts: list[int], op: np.ufunc
) -> None:
    """A ring of size - 1 steps; part r of ``vector`` has the result at rank r."""
    rank, size = links.rank, links.size
    for step in range(size - 1):
        sent, got = (rank - step - 1) % size, (rank - step - 2) % size
        part = vector[starts[got] : starts[got + 1]]
        await links.exchange(
            (rank + 1) % size,
            vector[starts[sent] : starts[sent + 1]],
            (rank - 1) % size,
            part.nbytes,
            partial(fold, op, part, True),
        )


async def all_gather_ring(links: Links, vector: Vector, starts: list[int]) -> None:
    """A ring of size - 1 steps; each rank begins with part r, and ends with all."""
    await _ring(links, vector, starts, 0)


async def all_gather_doubling(links: Links, rows: Rows) -> None:
    """Bruck's form of recursive doubling, for any number of ranks: row r is there at rank r."""
    rank, size = links.rank, links.size
    turned = np.empty_like(rows)  # row i is that of the rank + i
    turned[0] = rows[rank]
    have = 1
    while have < size:
        count = min(have, size - have)
        part = turned[have : have + count]
        await links.exchange(
            (rank - have) % size,
            turned[:count],
            (rank + have) % size,
            part.nbytes,
            partial(fill, part),
        )
        have += count
    rows[rank:] = turned[: size - rank]
    rows[:rank] = turned[size - rank :]


async def all_to_all_pairwise(links: Links, rows: Rows, result: Rows) -> None:
    """size - 1 steps; in each every rank exchanges with two others."""
    rank, size = links.rank, links.size
    result[rank] = rows[rank]
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        use = partial(fill, result[source])
        await links.exchange(to, rows[to], source, rows[to].nbytes, use)


async def all_to_all_doubling(links: Links, rows: Rows, result: Rows) -> None:
    """Bruck's algorithm: log2(size) steps, each with half of the rows."""
    rank, size = links.rank, links.size
    turned = np.concatenate([rows[rank:], rows[:rank]])  # row i is for the rank + i
    step = 1
    while step < size:
        moved = [row for row in range(size) if row & step]
        arrived = np.empty((len(moved), rows.shape[1]), np.uint8)
        await links.exchange(
            (rank + step) % size,
            turned[moved],
            (rank - step) % size,
            arrived.nbytes,
            partial(fill, arrived),
        )
        turned[moved] = arrived
        step *= 2
    for row in range(size):  # row i has come from the rank - i
        result[(rank - row) % size] = turned[row]
