# SPDX-License-Identifier: Apache-2.0
"""The processes of this user that have the device open now, and what each has counted.

Each process's library answers on the abstract socket of its slot (`src/native/direct/query.c`), so
that neither a registry nor a device of one's own is needed. A process that is stopped is left out.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Counters = dict[str, dict[str, int]]
"""By part ("direct", "engine", "udp", "reuseport"), then by name."""

_SLOT = re.compile(r"@verbena/slot/([0-9a-f]{3})$", re.MULTILINE)
_MAGIC = 0x56455242454E4131
_COUNTERS = 10
_NO_LAYOUT = 0xFFFFFFFF
# The head of struct vb_message, and of the hello in it, which every layout has in this place.
_QUESTION = struct.pack("=IIII8xQII", _COUNTERS, 0, 0, 0, _MAGIC, _NO_LAYOUT, 0)
_PATIENCE_S = 0.2
_ANSWER_BYTES = 1 << 16


@dataclass(frozen=True)
class Running:
    """A process that has the device open. `program` is the kernel's name for it."""

    device: str
    pid: int
    program: str
    counters: Counters


def _slots() -> list[int]:
    with suppress(OSError):
        listed = Path("/proc/net/unix").read_text(errors="replace")
        return sorted({int(slot, 16) for slot in _SLOT.findall(listed)})
    return []


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return "?"


def _ask(slot: int) -> Running | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.settimeout(_PATIENCE_S)
        try:
            asked.connect(f"\0verbena/slot/{slot:03x}")
            credentials = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            asked.send(_QUESTION)
            answer = json.loads(asked.recv(_ANSWER_BYTES))
        except (OSError, ValueError):
            return None
    pid, uid, _ = struct.unpack("3i", credentials)
    if uid != os.geteuid() or answer.pop("slot", None) != slot:
        return None
    return Running(f"verbena{answer.pop('device', 0)}", pid, _program(pid), answer)


def running() -> Iterator[Running]:
    """All but the calling process, in the order of their slots."""
    for slot in _slots():
        found = _ask(slot)
        if found and found.pid != os.getpid():
            yield found


def total(processes: list[Running]) -> Counters:
    """The sums over these processes.

    >>> one = Running("verbena0", 1, "a", {"direct": {"sends": 2}})
    >>> total([one, Running("verbena0", 2, "b", {"direct": {"sends": 3}, "udp": {"sent": 1}})])
    {'direct': {'sends': 5}, 'udp': {'sent': 1}}
    """
    sums: Counters = {}
    for process in processes:
        for part, counters in process.counters.items():
            into = sums.setdefault(part, {})
            for name, value in counters.items():
                into[name] = into.get(name, 0) + value
    return sums
