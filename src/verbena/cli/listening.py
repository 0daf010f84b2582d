# SPDX-License-Identifier: Apache-2.0
"""Finds out whether a program listens for connections.

`verbena pair` calls this before it starts the client. The answer comes from /proc, since the
program would take a test connection for its client, and from the agent, which knows who listens by
librdmacm or verbena.cm. A program is a process group, so that processes of a shell script count
too. Verbena's own sockets, by which processes connect, do not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from verbena.agent.client import describe_agent

TCP_LISTEN = "0A"  # include/net/tcp_states.h
ACCEPTS = 0x10000  # __SO_ACCEPTCON in the flags of /proc/net/unix
OURS = "@verbena/"


def group_listens(group: int, fabric: str = "") -> bool:
    """Whether a process of the process group waits for connections: by TCP, a Unix socket, or the
    connection manager, which is that of the fabric to which the program is attached."""
    pids = set(members(group))
    by_socket = any(process_listens(Path("/proc") / str(pid)) for pid in pids)
    return by_socket or not pids.isdisjoint(listening_by_agent(fabric))


def listening_by_agent(fabric: str) -> set[int]:
    """Return the processes that listen by this user's agent or a fabric; none if none runs."""
    try:
        described = describe_agent(fabric)
    except OSError:
        return set()
    if described is None:
        return set()
    managers = described["hosts"].values() if fabric else [described]
    return {pid for each in managers for pid in each.get("listening_programs", ())}


def members(group: int) -> Iterator[int]:
    """Yield the processes that are in a process group at the moment."""
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
    """Return the inodes of the sockets among a process's descriptors."""
    found = set()
    for descriptor in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            kind, _, inode = os.readlink(descriptor).partition(":")
            if kind == "socket":
                found.add(inode.strip("[]"))
    return found


def listening(net: Path) -> Iterator[str]:
    """Yield the inodes of all sockets of a network namespace that wait for connections."""
    for table in ("tcp", "tcp6"):
        for row in rows(net / table):
            if row[3] == TCP_LISTEN:
                yield row[9]
    for row in rows(net / "unix"):
        path = row[7] if len(row) > 7 else ""
        if int(row[3], 16) & ACCEPTS and not path.startswith(OURS):
            yield row[6]


def rows(table: Path) -> list[list[str]]:
    """Return the columns of a table in /proc/net; no rows if the kernel has no such table."""
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except FileNotFoundError:
        return []
