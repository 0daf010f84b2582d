# SPDX-License-Identifier: Apache-2.0
"""Reads a program's ELF headers to see whether the dynamic linker will preload libraries into it.

`verbena run` and `verbena pair` call obstacle() before they start a program, and sanitizers() to
find runtimes that have to be loaded first.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from pathlib import Path
from typing import NamedTuple

HEADER = struct.Struct("<4sBB10xHHIQQQIHHH")  # Elf64_Ehdr as far as e_phnum
SEGMENT = struct.Struct("<IIQQQQ")  # Elf64_Phdr as far as p_filesz
CLASS_64, LITTLE_ENDIAN, INTERPRETER = 2, 1, 3
MACHINES = {"x86_64": 62, "aarch64": 183}
MAX_SCRIPTS = 4  # the kernel follows as many `#!` lines


class Obstacle(NamedTuple):
    """Why a program cannot run over Verbena, and what to do."""

    reason: str
    advice: str


def obstacle(path: Path) -> Obstacle | None:
    """Return what keeps Verbena's libraries out of the program at `path`, or None.

    For a script its interpreter counts; the kernel ignores set-user-ID bits of a script. Raises
    OSError when the file cannot be read.
    """
    for _ in range(MAX_SCRIPTS):
        gain = privilege(path)
        if gain and not os.access(path, os.R_OK):
            return gain
        with path.open("rb") as file:
            head = file.read(4096)
            if not head.startswith(b"#!"):
                return gain or binary(head, file.fileno())
        words = head[2:].split(b"\n", 1)[0].split()
        if not words:
            return None
        path = Path(os.fsdecode(words[0]))
    return None


def privilege(path: Path) -> Obstacle | None:
    """Return an Obstacle for a program that gains rights when it starts: LD_PRELOAD is ignored."""
    status = path.stat()
    gains = (status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()) or (
        status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
    )
    if not (gains or has_capabilities(path)) or os.statvfs(path).f_flag & os.ST_NOSUID:
        return None
    return Obstacle(
        "it gains rights when it starts (set-user-ID, set-group-ID or file capabilities), "
        "so the system keeps added libraries out of it",
        f"Become the user that it needs first (sudo verbena run -- {path.name} ...), "
        "or run a copy without these rights.",
    )


def has_capabilities(path: Path) -> bool:
    if os.geteuid() == 0:  # root has them anyway: nothing is gained
        return False
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def binary(head: bytes, descriptor: int) -> Obstacle | None:
    """Return the obstacle that an ELF file's headers show. Other files are left to the kernel."""
    if not head.startswith(b"\x7fELF") or len(head) < HEADER.size:
        return None
    _, word, order, _, machine, *_ = HEADER.unpack_from(head)
    if (word, order) != (CLASS_64, LITTLE_ENDIAN) or machine != MACHINES.get(os.uname().machine):
        return Obstacle(
            f"it is not a 64-bit program for {os.uname().machine}, as Verbena's libraries are",
            "Use a build of it for this machine.",
        )
    loader = interpreter(head, descriptor)
    if loader is None:
        return Obstacle(
            "it is statically linked: it carries its own libibverbs, or none",
            "Use a dynamically linked build. If it only starts other programs, "
            "put `verbena run` in front of those.",
        )
    if "musl" in loader:
        return Obstacle(
            f"it is linked for the C library musl ({loader}), and Verbena's libraries for glibc",
            "Use a build of it for glibc.",
        )
    return None


SANITIZER = re.compile(r"lib(clang_rt\.)?(asan|hwasan|tsan|lsan|ubsan)\b.*\.so")
LOADED, DYNAMIC = 1, 2  # kinds of segments
NEEDED, STRINGS = 1, 5  # tags in the dynamic one


def sanitizers(path: Path) -> list[str]:
    """Return the sanitizers' runtime libraries that a program needs (DT_NEEDED).

    They have to be loaded before every other library. The list is empty for a script, for a file
    that cannot be read, and for a program into which the runtime was linked statically, as clang
    does: there it comes first anyway.
    """
    try:
        with path.open("rb") as file:
            return [name for name in needed(file.fileno()) if SANITIZER.match(name)]
    except (OSError, struct.error):
        return []


def needed(descriptor: int) -> list[str]:
    """Return the libraries that a 64-bit ELF program names (DT_NEEDED)."""
    head = os.pread(descriptor, HEADER.size, 0)
    if len(head) < HEADER.size or not head.startswith(b"\x7fELF"):
        return []
    *_, offset, _, _, _, size, count = HEADER.unpack(head)
    table = os.pread(descriptor, size * count, offset)
    segments = [SEGMENT.unpack_from(table, size * each) for each in range(count)]
    tags: list[tuple[int, int]] = []
    for kind, _, at, _, _, length in segments:
        if kind == DYNAMIC:
            tags = list(struct.iter_unpack("<qQ", os.pread(descriptor, length // 16 * 16, at)))
    strings = dict(tags).get(STRINGS, 0)
    for kind, _, at, address, _, length in segments:
        if kind == LOADED and address <= strings < address + length:
            names = os.pread(descriptor, length, at)[strings - address :]
            return [
                names[value : names.index(b"\0", value)].decode(errors="replace")
                for tag, value in tags
                if tag == NEEDED
            ]
    return []


def interpreter(head: bytes, descriptor: int) -> str | None:
    """Return the dynamic linker that a 64-bit ELF program names, or None when it is static."""
    *_, offset, _, _, _, size, count = HEADER.unpack_from(head)
    table = os.pread(descriptor, size * count, offset)
    for start in range(0, len(table) - SEGMENT.size + 1, max(size, SEGMENT.size)):
        kind, _, at, _, _, length = SEGMENT.unpack_from(table, start)
        if kind == INTERPRETER:
            return os.pread(descriptor, length, at).rstrip(b"\0").decode(errors="replace")
    return None
