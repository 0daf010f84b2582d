# SPDX-License-Identifier: Apache-2.0
"""Traffic as arrays: source, target, size and start of each flow, and which flows it waits for.

Patterns and collectives make workloads, ``World.add_flows`` and scenarios run them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import FabricError

__all__ = ["FLOW", "PART", "Workload", "few", "flows", "need", "read_csv", "write_csv"]

# Hosts by number, bytes, and picoseconds since the beginning.
FLOW = np.dtype([("src", np.uint32), ("dst", np.uint32), ("bytes", np.uint64), ("start", np.int64)])
# The data of a flow of a collective operation: their offset in the buffer, and whether the receiver
# adds them to its own data or overwrites those.
PART = np.dtype([("offset", np.int64), ("adds", np.bool_)])
COLUMNS = ("source", "destination", "bytes", "start_ps", "after")
MAX_FLOWS = 100_000_000


def _none_after() -> NDArray[np.int64]:
    return np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Workload:
    """``flows`` [n] of dtype FLOW, and their order.

    ``after`` [m, 2] int64: flow ``after[i, 1]`` begins when flow ``after[i, 0]``, and every other
    flow that it waits for, has been received. ``start`` is an absolute time for a flow without a
    predecessor, and a delay after the last predecessor's end otherwise.

    ``parts`` [n] of dtype PART, for collective operations alone: which bytes each flow carries. A
    part that exceeds the buffer's end continues at its beginning.
    """

    name: str
    flows: NDArray[Any]
    after: NDArray[np.int64] = field(default_factory=_none_after)
    parts: NDArray[np.void] | None = None

    def __len__(self) -> int:
        return len(self.flows)

    @property
    def bytes(self) -> int:
        """The sum of all flows' bytes."""
        return int(self.flows["bytes"].sum())

    def check(self, hosts: int, names: Sequence[str] = ()) -> None:
        """Raise FabricError, which names the flow, if a fabric of ``hosts`` hosts cannot run this.

        The text of the error has the hosts' ``names``, or their numbers without them.
        """
        self._first(
            (self.flows["src"] >= hosts) | (self.flows["dst"] >= hosts), "no such host", names
        )
        self._first(self.flows["src"] == self.flows["dst"], "from a host to itself", names)
        self._first(self.flows["bytes"] == 0, "of no bytes", names)
        self._first(self.flows["start"] < 0, "begins before the beginning", names)
        if self.after.size and not (self.after.min() >= 0 and self.after.max() < len(self)):
            raise FabricError(f"{self.name}: a flow waits for one that is not there")
        self._check_order()

    def _first(self, wrong: NDArray[np.bool_], why: str, names: Sequence[str]) -> None:
        if wrong.any():
            index = int(np.argmax(wrong))
            src, dst, size, start = self.flows[index].tolist()
            src, dst = (names[end] if 0 <= end < len(names) else end for end in (src, dst))
            raise FabricError(
                f"{self.name}: flow {index} ({src} to {dst}, {size} bytes at {start} ps): {why}"
            )

    def _check_order(self) -> None:
        """Check by a topological sort that no flow waits, directly or indirectly, for itself."""
        before, after = self.after[:, 0], self.after[:, 1]
        while len(before):
            waits = np.zeros(len(self), bool)
            waits[after] = True
            keep = waits[before]
            if keep.all():
                raise FabricError(f"{self.name}: flow {after[0]} waits for itself, through others")
            before, after = before[keep], after[keep]

    def __add__(self, other: Workload) -> Workload:
        """Return both workloads together; the other's flows are numbered after these.

        Parts are kept if both workloads have them.
        """
        known = self.parts is not None and other.parts is not None
        return Workload(
            f"{self.name} + {other.name}",
            np.concatenate([self.flows, other.flows]),
            np.concatenate([self.after, other.after + len(self)]),
            np.concatenate([self.parts, other.parts]) if known else None,
        )


def flows(src: ArrayLike, dst: ArrayLike, size: ArrayLike, start: ArrayLike = 0) -> NDArray[Any]:
    """Return an array of dtype FLOW with these columns; a number is broadcast to a whole column."""
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(c)) for c in (src, dst, size, start)))
    if len(columns[0]) > MAX_FLOWS:
        raise FabricError(f"{len(columns[0])} flows are more than {MAX_FLOWS}")
    made = np.zeros(len(columns[0]), FLOW)
    for name, column in zip(("src", "dst", "bytes", "start"), columns, strict=True):
        if column.size and column.min() < 0:
            raise FabricError(f"a flow with {name} {column.min()}")
        if column.size and column.max() > np.iinfo(FLOW[name]).max:
            raise FabricError(f"a flow with {name} {column.max()}")
        made[name] = column
    return made


def need(name: str, **numbers: int) -> None:
    """Raise FabricError, which names the argument, unless all are whole numbers from 1 on."""
    for what, value in numbers.items():
        if not isinstance(value, int | np.integer):
            raise FabricError(f"{name}: {what} is {value!r}, and not a whole number")
        if value < 1:
            raise FabricError(f"{name}: too few or too small: {what}")


def few(name: str, count: int) -> None:
    """Raise FabricError for more flows than the simulator allows."""
    if count > MAX_FLOWS:
        raise FabricError(f"{name}: {count} flows are more than {MAX_FLOWS}")


def read_csv(path: str | Path, hosts: dict[str, int] | None = None) -> Workload:
    """Read a trace: a header and lines ``source,destination,bytes,start_ps``, optionally ``after``.

    Hosts are numbers, or names if ``hosts`` maps names to numbers. ``after`` has the numbers of the
    flows to wait for, with spaces between; the first line after the header is flow 0. Raises
    FabricError, which names the line.
    """
    path = Path(path)
    rows: list[tuple[int, int, int, int]] = []
    waits: list[tuple[int, int]] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = _rows(path.name, file)
        head = [name.strip() for name in next(reader, ("", []))[1]]
        if tuple(head) not in (COLUMNS, COLUMNS[:4]):
            raise FabricError(f"{path.name}, line 1: the head is not {','.join(COLUMNS)}")
        for where, row in reader:
            if not row:
                continue
            if len(row) != len(head):
                raise FabricError(f"{where}: {len(row)} columns, not {len(head)}")
            src, dst = (_host(where, name.strip(), hosts) for name in row[:2])
            numbers = _whole(where, row[2]), _whole(where, row[3])
            waits += [(_whole(where, n), len(rows)) for n in (row[4].split() if row[4:] else [])]
            rows.append((src, dst, *numbers))
    table = np.array(rows, np.int64).reshape(-1, 4)
    after = np.array(waits, np.int64).reshape(-1, 2)
    return Workload(path.stem, flows(*table.T), after)


def _rows(name: str, file: TextIO) -> Iterator[tuple[str, list[str]]]:
    """Yield each row with its place, as "trace.csv, line 3"."""
    reader = csv.reader(file)
    try:
        for row in reader:
            yield f"{name}, line {reader.line_num}", row
    except csv.Error as error:
        raise FabricError(f"{name}, line {reader.line_num}: {error}") from None
    except UnicodeDecodeError:
        raise FabricError(f"{name}, after line {reader.line_num}: it is not UTF-8") from None


def write_csv(workload: Workload, path: str | Path) -> None:
    """Write a workload as a trace for ``read_csv``."""
    waits: dict[int, list[int]] = {}
    for before, after in workload.after.tolist():
        waits.setdefault(after, []).append(before)
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for index, row in enumerate(workload.flows.tolist()):
            writer.writerow([*row, " ".join(map(str, waits.get(index, [])))])


def _host(where: str, name: str, hosts: dict[str, int] | None) -> int:
    if hosts is not None and name in hosts:
        return hosts[name]
    if name.isdecimal() and len(name) < 12 and int(name) <= np.iinfo(FLOW["src"]).max:
        return int(name)
    raise FabricError(f"{where}: no host {name!r}")


def _whole(where: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 40 or int(text) >= 1 << 63:
        raise FabricError(f"{where}: {text.strip()!r} is no whole number from 0 on")
    return int(text)
