# SPDX-License-Identifier: Apache-2.0
"""Writes what links carry to a pcapng file, which Wireshark and tshark read.

Each link is an interface of the file, with its name. Times are nanoseconds of the agenda: when a
frame has arrived at the far end of its line.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from verbena._arguments import checked_class
from verbena._files import writing
from verbena.internet.errors import InternetTypeError
from verbena.internet.links import Link, Tap

SECTION, DESCRIPTION, PACKET = 0x0A0D0D0A, 1, 6
LINKTYPE_ETHERNET, LINKTYPE_RAW = 1, 101
OPTION_NAME, OPTION_RESOLUTION = 2, 9
NANOSECONDS = 9


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


@checked_class(InternetTypeError)
class NetworkCapture:
    """A capture of some links, to be closed; also a context manager."""

    def __init__(self, file: str | os.PathLike[str], links: Iterable[Link]) -> None:
        """Raises OSError when the file cannot be written."""
        with writing(Path(os.fsdecode(file)), "the capture"):
            self._file: BinaryIO = open(file, "wb")  # noqa: SIM115
        self._file.write(_block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
        self._taps: list[tuple[Link, Tap]] = []
        self.frames = 0
        for number, link in enumerate(links):
            self._describe(link)
            self._tap(number, link)

    def close(self) -> None:
        for link, tap in self._taps:
            link.taps.remove(tap)
        self._taps.clear()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _describe(self, link: Link) -> None:
        kind = LINKTYPE_ETHERNET if link.is_ethernet else LINKTYPE_RAW
        options = _option(OPTION_NAME, link.name.encode())
        options += _option(OPTION_RESOLUTION, bytes([NANOSECONDS])) + bytes(4)
        self._file.write(_block(DESCRIPTION, struct.pack("<HHI", kind, 0, 0) + options))

    def _tap(self, number: int, link: Link) -> None:
        def tap(frame: bytes) -> None:
            at = link.agenda.now // 1000
            head = struct.pack("<IIIII", number, at >> 32, at & 0xFFFFFFFF, len(frame), len(frame))
            self._file.write(_block(PACKET, head + _padded(frame)))
            self.frames += 1

        link.taps.append(tap)
        self._taps.append((link, tap))
