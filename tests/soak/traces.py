# SPDX-License-Identifier: Apache-2.0
"""What a process holds, and what Verbena's processes leave on the host."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from dataclasses import asdict, dataclass
from pathlib import Path

KIB = 1024


@dataclass(frozen=True)
class Traces:
    """Counts of a process.

    ``anonymous_kib`` is its own memory, ``file_kib`` what its segment and its heap hold.
    """

    descriptors: int
    memory_files: int
    mappings: int
    threads: int
    anonymous_kib: int
    file_kib: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def own_traces() -> Traces:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Traces(
        descriptors=len(os.listdir("/proc/self/fd")),
        memory_files=sum("memfd:" in line for line in maps),
        mappings=len(maps),
        threads=len(os.listdir("/proc/self/task")),
        anonymous_kib=_anonymous_kib(),
        file_kib=_file_kib(),
    )


def open_files() -> list[str]:
    """What the process's descriptors lead to."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(names)


def _anonymous_kib() -> int:
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    values = {row.split(":")[0]: int(row.split()[1]) for row in rows}
    return values["Anonymous"]


def _file_kib() -> int:
    sizes = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "memfd:verbena" in os.readlink(f"/proc/self/fd/{number}"):
                status = os.fstat(int(number))
                sizes[status.st_ino] = status.st_blocks // 2
    return sum(sizes.values())


def named_sockets() -> set[str]:
    """The inodes of all sockets that have a name of Verbena's."""
    rows = Path("/proc/net/unix").read_text().splitlines()[1:]
    split = [row.split(maxsplit=7) for row in rows]
    return {row[6] for row in split if len(row) == 8 and row[7].startswith("@verbena/")}


def sockets_of(pid: int) -> set[str]:
    """The inodes of a process's sockets that have a name of Verbena's."""
    own = set()
    with contextlib.suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    own.add(target[len("socket:[") : -1])
    return own & named_sockets()


def shared_files() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*verbena*")}
