# SPDX-License-Identifier: Apache-2.0
"""The file in which a namespace's reservations survive the end of the target's process.

A ``Namespace`` has one if its reservations can persist (NVMe base 1.4, section 8.8: Persist Through
Power Loss). The file is replaced as a whole and made durable before the change that it records
takes effect, so that a process that is killed leaves the old state or the new one.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from .errors import NvmeError
from .reservations import Reservations, ReservationType

__all__ = ["ReservationFile", "ReservationFileError"]

_FORMAT = 1
_MOST_NAME = 50  # characters, of at most four bytes; a file name has 255 bytes
_FILES = uuid.UUID("8f0b1a52-6c1e-4b0b-9e43-2a1f0c6f7b1d")

_Host = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
_Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    """The file as JSON: host identifiers and keys are hexadecimal, keys by host."""

    format: int
    generation: Annotated[int, msgspec.Meta(ge=0)]
    kind: ReservationType
    holder: _Host | None
    keys: dict[_Host, _Key]


class ReservationFileError(NvmeError):
    """A file of reservations cannot be used; the text says why, and what to do."""


class ReservationFile:
    """The reservations of one namespace at ``path``. There is a file only while they persist."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def beside(cls, disk: str | Path) -> ReservationFile:
        """Return the one beside a disk that is a file: its name with ``.reservations``."""
        return cls(f"{os.fspath(disk)}.reservations")

    @classmethod
    def in_folder(cls, folder: str | Path, disk: str | Path) -> ReservationFile:
        """Return the one of a disk in a folder; the name comes from the disk's path."""
        real = os.path.realpath(disk)
        mark = uuid.uuid5(_FILES, real).hex[:12]
        name = os.path.basename(real)[:_MOST_NAME]
        return cls(Path(folder) / f"{name}-{mark}.reservations")

    def load(self) -> Reservations:
        """Return what was saved, or fresh reservations if nothing was.

        Raises ReservationFileError: EINVAL if the content is not what ``save`` writes, and the
        errno of reading it. Starting without it would let hosts write what another has reserved.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return Reservations(can_persist=True)
        except OSError as error:
            raise ReservationFileError(
                error.errno, f"the reservations in {self.path} cannot be read: {error.strerror}"
            ) from error
        try:
            return _reservations(msgspec.json.decode(text, type=_Saved))
        except (msgspec.DecodeError, ValueError) as error:
            raise ReservationFileError(
                errno.EINVAL,
                f"{self.path} has no reservations that this version can read ({error}); restore"
                " it, or remove it if no host relies on a reservation of this disk",
            ) from error

    def save(self, reservations: Reservations) -> None:
        """Make the file durable, or remove it if the reservations do not persist.

        Blocks until the disk has it. Raises OSError; then the file is the old one, or the new one
        if it was replaced and only its folder could not be synchronised.
        """
        if not reservations.persists:
            self.path.unlink(missing_ok=True)
            self._synchronise_folder()
            return
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            with new.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_saved(reservations))) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        self._synchronise_folder()

    def _synchronise_folder(self) -> None:
        """A new or removed name is durable once its folder is."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _saved(reservations: Reservations) -> _Saved:
    holder = reservations.holder
    return _Saved(
        _FORMAT,
        reservations.generation,
        reservations.kind,
        None if holder is None else holder.hex(),
        {host.hex(): f"{key:016x}" for host, key in reservations.keys.items()},
    )


def _reservations(saved: _Saved) -> Reservations:
    """Return the reservations of a file. Raises ValueError if no target can have had them."""
    if saved.format != _FORMAT:
        raise ValueError(f"its format is {saved.format}, and {_FORMAT} is known")
    made = Reservations(can_persist=True)
    made.persists = True
    made.generation = saved.generation
    made.kind = saved.kind
    made.holder = None if saved.holder is None else bytes.fromhex(saved.holder)
    made.keys = {bytes.fromhex(host): int(key, 16) for host, key in saved.keys.items()}
    made.check_consistency()
    return made
