# SPDX-License-Identifier: Apache-2.0
"""How files lie on a disk: two superblocks, an index, extents, and which blocks are free.

``Volume`` reads and writes what these functions pack and parse. The superblock with the higher
generation counts; it is written after all that it names, into the place of the older one. So the
disk has the files of before a change, or those of after it, at whatever write a host stops.

The index is JSON: {"directories": [path], "files": {path: [size, created, modified, generation,
extents]}, "changes": {writer: generation}}, with extents as [offset, length] in bytes; times are
seconds since 1970. The changes are the last one of each writer, so that one whose connection was
lost finds out whether its change is there.
"""

from __future__ import annotations

import errno
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from verbena.whole_files import FileTree

__all__ = [
    *("DATA_BEGIN", "SUPERBLOCK_BYTES", "Changes", "DiskFile", "Extent", "Superblock"),
    *("add_change", "allocate", "is_made", "newest", "pack_index", "parse_index", "slot_of"),
]

SUPERBLOCK_BYTES = 4096
DATA_BEGIN = 2 * SUPERBLOCK_BYTES
_MAGIC = b"VERBENAF"
_VERSION = 1
_FIELDS = struct.Struct("<8sIQQQI")
_CHECKSUM = struct.Struct("<I")
Extent = tuple[int, int]


@dataclass
class DiskFile:
    """A file: where it lies, and its times. ``size`` may be less than its extents have.

    ``generation`` is that in which it was written, so no two files with it have the same extents.
    """

    size: int
    created: float
    modified: float
    generation: int
    extents: tuple[Extent, ...]

    def has_bytes_of(self, other: DiskFile) -> bool:
        """Whether it is the same file, but for its times."""
        return (self.generation, self.extents) == (other.generation, other.extents)


@dataclass(frozen=True)
class Superblock:
    """Names the index, by offset, length and CRC-32; ``generation`` counts changes, from 1."""

    generation: int
    offset: int
    length: int
    crc: int

    def pack(self) -> bytes:
        """Return its block, with a checksum of its own."""
        fields = _FIELDS.pack(_MAGIC, _VERSION, self.generation, self.offset, self.length, self.crc)
        return (fields + _CHECKSUM.pack(zlib.crc32(fields))).ljust(SUPERBLOCK_BYTES, b"\0")


def slot_of(generation: int) -> int:
    """Return the offset of the superblock of a generation."""
    return generation % 2 * SUPERBLOCK_BYTES


def newest(blocks: bytes) -> Superblock | None:
    """Return the superblock that counts, of the disk's first 8 KiB; None where there is none.

    One whose checksum is wrong was being written. Raises OSError for a version that is not known.
    """
    found = [_parse(blocks[at : at + SUPERBLOCK_BYTES]) for at in (0, SUPERBLOCK_BYTES)]
    return max((each for each in found if each), key=lambda each: each.generation, default=None)


def _parse(block: bytes) -> Superblock | None:
    magic, version, generation, offset, length, crc = _FIELDS.unpack_from(block)
    (checksum,) = _CHECKSUM.unpack_from(block, _FIELDS.size)
    if magic != _MAGIC or checksum != zlib.crc32(block[: _FIELDS.size]):
        return None
    if version != _VERSION:
        raise OSError(
            errno.EPROTONOSUPPORT,
            f"the disk's files are of format {version}, and this Verbena knows {_VERSION}: use the"
            " release that wrote them",
        )
    return Superblock(generation, offset, length, crc)


# ---- the index -----------------------------------------------------------------------------------


Changes = dict[str, int]
"""The generation of the last change of each writer."""
_MOST_WRITERS = 64


def add_change(changes: Changes, writer: str, generation: int) -> Changes:
    """Return the changes with one more, of the writers that made the last ones."""
    added = sorted({**changes, writer: generation}.items(), key=lambda each: -each[1])
    return dict(added[:_MOST_WRITERS])


def is_made(changes: Changes, writer: str, generation: int) -> bool | None:
    """Return whether the last change of a writer was made; None if that cannot be known, as so
    many other writers have made theirs since."""
    if writer in changes:
        return changes[writer] == generation
    is_forgotten = len(changes) == _MOST_WRITERS and min(changes.values()) > generation
    return None if is_forgotten else False


def pack_index(tree: FileTree[DiskFile], changes: Changes) -> bytes:
    """Return the index of a tree."""
    files = {
        path: (each.size, each.created, each.modified, each.generation, each.extents)
        for path, each in tree.files.items()
    }
    text = json.dumps({"directories": sorted(tree.directories), "files": files, "changes": changes})
    return text.encode("ascii")


def parse_index(data: bytes) -> tuple[FileTree[DiskFile], Changes]:
    """Return the tree and the changes of an index whose checksum was right."""
    found = json.loads(data)
    tree: FileTree[DiskFile] = FileTree()
    tree.directories.update(found["directories"])
    for path, (size, created, modified, generation, extents) in found["files"].items():
        places = tuple((offset, length) for offset, length in extents)
        tree.files[path] = DiskFile(size, created, modified, generation, places)
    return tree, found.get("changes", {})


# ---- free blocks ---------------------------------------------------------------------------------


def allocate(
    used: Iterable[Extent], length: int, block: int, size: int, in_one: bool = False
) -> tuple[Extent, ...]:
    """Return free extents of whole blocks for ``length`` bytes, the first that there are.

    ``size`` is the disk's; what is used may lie beyond it, on a disk that was made smaller. With
    ``in_one`` there is one extent. Raises OSError (ENOSPC).
    """
    wanted = left = -(-length // block) * block
    found: list[Extent] = []
    at, stop = DATA_BEGIN, size // block * block
    for offset, count in [*sorted(used), (stop, 0)]:
        room = min(offset, stop) - at
        if left and room >= (left if in_one else block):
            found.append((at, min(room, left)))
            left -= found[-1][1]
        at = max(at, -(-(offset + count) // block) * block)
    if left:
        raise OSError(
            errno.ENOSPC,
            f"the disk has no room for {wanted} bytes{' in one piece' if in_one else ''}: remove"
            " files",
        )
    return tuple(found)
