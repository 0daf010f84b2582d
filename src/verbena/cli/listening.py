# SPDX-License-Identifier: Apache-2.0
"""Whether a program listens: looked up in /proc, since a connection would be taken for a client's.

`verbena pair` asks it before it starts the client. A program is a process group, so that what a
shell script starts counts too. Verbena's own sockets, by which processes meet, do not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TCP_LISTEN = "0A"  # include/net/tcp_states.h
ACCEPTS = 0x10000  # __SO_ACCEPTCON in the flags of /proc/net/unix
OURS = "@verbena/"


def group_listens(group: int) -> bool:
    """Whether a process of the process group waits for connections, by TCP or a Unix socket."""
    return any(process_listens(Path("/proc") / str(pid)) for pid in members(group))


def members(group: int) -> Iterator[int]:
    """The processes of a process group that are there at the moment."""
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and os.getpgid(int(name)) == group:
                yield int(name)


def process_listens(process: Path) -> bool:
    """`process` is its folder in /proc. False when it has ended, or is another user's."""
    try:
        own = sockets(process / "fd")
        return bool(own) and not own.isdisjoint(listening(process / "net"))
    except OSError:
        return False


def sockets(folder: Path) -> set[str]:
    """The inodes of the sockets among a process's descriptors."""
    found = set()
    for descriptor in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            kind, _, inode = os.readlink(descriptor).partition(":")
            if kind == "socket":
                found.add(inode.strip("[]"))
    return found


def listening(net: Path) -> Iterator[str]:
    """The inodes of all sockets of a network namespace that wait for connections."""
    for table in ("tcp", "tcp6"):
        for row in rows(net / table):
            if row[3] == TCP_LISTEN:
                yield row[9]
    for row in rows(net / "unix"):
        path = row[7] if len(row) > 7 else ""
        if int(row[3], 16) & ACCEPTS and not path.startswith(OURS):
            yield row[6]


def rows(table: Path) -> list[list[str]]:
    """The columns of a table in /proc/net; no rows where the kernel has no such table."""
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except FileNotFoundError:
        return []
