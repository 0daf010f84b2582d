# SPDX-License-Identifier: Apache-2.0
"""The forwarding tables of a world's switches, in the form that the core reads.

A ``World`` sets tables here, when it is built, and whenever routes or single blocks change. The
core looks up each packet in the arrays (src/native/event/table.h), which must not move while it
runs: an array that is too small is replaced, and the World gives the core the new one's address.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "NO_PORT", "PORT_SET", "Blocks", "Table", "port_entries", "spread"]

BLOCK = 64  # entries of a block, as in a LinearForwardingTable (IBA 14.2.5.6)
NO_PORT, PORT_SET = 0xFFFF, 0x8000
MOST_SETS = PORT_SET - 1
FIRST_BLOCKS = 64
Entries = NDArray[np.uint16]


def _odd(count: int) -> NDArray[np.uint64]:
    """Return multipliers for hashes, which are always the same."""
    random = np.random.Generator(np.random.PCG64(1))
    return random.integers(1 << 63, size=count, dtype=np.uint64) | np.uint64(1)


def _groups(rows: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the index of one row of each kind, and for each row its kind.

    Rows are compared by a hash first, since sorting whole rows takes ten times as long.
    """
    hashes = (rows * _odd(rows.shape[1])).sum(axis=1, dtype=np.uint64)
    _, first, kind = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first[kind]], rows):
        _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


class Blocks:
    """The blocks of all tables of a world; equal blocks are one, and have a number.

    ``entries`` [room, 64] has them by number.
    """

    def __init__(self) -> None:
        self.entries: Entries = np.zeros((FIRST_BLOCKS, BLOCK), np.uint16)
        self._number: dict[bytes, int] = {}
        self._users: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._number)

    def take(self, blocks: Entries) -> NDArray[np.uint32]:
        """Return the numbers of blocks, each of which gets one more user."""
        first, kind = _groups(blocks.view(np.uint64))
        counts = np.bincount(kind, minlength=len(first)).tolist()
        numbers = [self._take(blocks[at], count) for at, count in zip(first, counts, strict=True)]
        return np.array(numbers, np.uint32)[kind]

    def _take(self, block: Entries, users: int) -> int:
        key = block.tobytes()
        number = self._number.get(key)
        if number is None:
            number = self._free.pop() if self._free else len(self._users)
            if number == len(self._users):
                self._users.append(0)
            if number == len(self.entries):
                self.entries = np.concatenate([self.entries, np.zeros_like(self.entries)])
            self.entries[number] = block
            self._number[key] = number
        self._users[number] += users
        return number

    def give(self, numbers: NDArray[np.uint32]) -> None:
        """Take a user from each of these blocks; a block without users is free."""
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            self._users[number] -= int(count)
            if not self._users[number]:
                del self._number[self.entries[number].tobytes()]
                self._free.append(int(number))


@dataclass
class Table:
    """The table of one switch. ``numbers`` are its blocks, for ``targets`` addresses from 0 on.

    An entry is a port, ``NO_PORT``, or ``PORT_SET`` + the number of a set of ports; ``starts`` has
    the begin of each set in ``members``, and the end of the last.
    """

    blocks: Blocks
    numbers: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    targets: int = 0
    starts: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(1, np.uint32))
    members: Entries = field(default_factory=lambda: np.zeros(0, np.uint16))

    def entries(self) -> Entries:
        """Return a copy of all entries."""
        return self.blocks.entries[self.numbers].reshape(-1)[: self.targets]

    def set(self, entries: Entries) -> None:
        """Replace all entries."""
        padded = np.full(-(-len(entries) // BLOCK) * BLOCK, NO_PORT, np.uint16)
        padded[: len(entries)] = entries
        before = self.numbers
        self.numbers = self.blocks.take(padded.reshape(-1, BLOCK))
        self.blocks.give(before)
        self.targets = len(entries)

    def set_block(self, number: int, entries: Entries) -> None:
        """Replace one block, and make the table longer if it has no such block yet."""
        missing = number + 1 - len(self.numbers)
        if missing > 0:
            empty = self.blocks.take(np.full((missing, BLOCK), NO_PORT, np.uint16))
            self.numbers = np.concatenate([self.numbers, empty])
        self.targets = max(self.targets, (number + 1) * BLOCK)
        taken = self.blocks.take(np.ascontiguousarray(entries).reshape(1, BLOCK))
        self.blocks.give(self.numbers[number : number + 1].copy())
        self.numbers[number] = taken[0]

    def first_ports(self, entries: Entries) -> Entries:
        """Return the entries with the first port of each set in place of the set."""
        is_set = (entries >= PORT_SET) & (entries != NO_PORT)
        found = entries.copy()
        found[is_set] = self.members[self.starts[entries[is_set] - PORT_SET]]
        return found


def port_entries(
    ports: NDArray[np.int32],
) -> tuple[Entries, NDArray[np.uint32], Entries]:
    """Return entries for rows of ports [rows, width], and the sets of ports (``Table``).

    A row ends with its first -1. Raises ValueError for more than 32767 different rows with several
    ports.
    """
    first = np.where(ports[:, 0] < 0, NO_PORT, ports[:, 0]).astype(np.uint16)
    if ports.shape[1] == 1:
        return first, np.zeros(1, np.uint32), np.zeros(0, np.uint16)
    is_there = np.logical_and.accumulate(ports >= 0, axis=1)
    counts = is_there.sum(axis=1)
    several = np.flatnonzero(counts > 1)
    rows = np.where(is_there[several], ports[several], -1).astype(np.uint64)
    if not len(several):
        return first, np.zeros(1, np.uint32), np.zeros(0, np.uint16)
    of_set, kind = _groups(rows)
    if len(of_set) > MOST_SETS:
        raise ValueError(
            f"there are {len(of_set)} different sets of ports, and a switch has at most {MOST_SETS}"
        )
    first[several] = PORT_SET + kind
    chosen = several[of_set]
    starts = np.concatenate([[0], np.cumsum(counts[chosen])]).astype(np.uint32)
    return first, starts, ports[chosen][is_there[chosen]].astype(np.uint16)


def spread(
    entries: Entries, addresses: NDArray[np.int64], lmcs: NDArray[np.uint8], before: Entries
) -> Entries:
    """Return a table by address from one entry for each host; ``before`` has the other addresses'.

    Host h has 2**lmcs[h] addresses from addresses[h] on.
    """
    size = int((addresses + (1 << lmcs.astype(np.int64))).max(initial=1))
    made = np.full(max(size, len(before)), NO_PORT, np.uint16)
    made[: len(before)] = before
    for path in range(1 << int(lmcs.max(initial=0))):
        has = path >> lmcs == 0
        made[addresses[has] + path] = entries[has]
    return made
