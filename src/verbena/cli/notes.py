# SPDX-License-Identifier: Apache-2.0
"""Notes by which programs tell `verbena run` and `verbena pair` what they used.

The programs share a memory file with one byte for each fact, as that one of them has looked for a
device. The libraries find the file by the variable VERBENA_RUN (port/run_note.h).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress

VARIABLE = "VERBENA_RUN"
DEVICE, NETWORK, NOTES = 0, 1, 2  # port/run_note.h
LEAST_DESCRIPTOR = 100  # programs may rely on getting the first ones


def keep(environment: dict[str, str]) -> int | None:
    """Make a file for the notes of the programs that get this environment.

    Returns the file's descriptor, which they inherit. Returns None if the file cannot be made
    because of a limit or a system call filter; opening the device, which needs more, reports that.
    """
    environment.pop(VARIABLE, None)
    with suppress(OSError):
        made = os.memfd_create("verbena-run", os.MFD_CLOEXEC)
        try:
            os.write(made, bytes(NOTES))
            kept = fcntl.fcntl(made, fcntl.F_DUPFD, LEAST_DESCRIPTOR)
        finally:
            os.close(made)
        environment[VARIABLE] = f"{os.getpid()}:{kept}:{os.fstat(kept).st_ino}"
        return kept
    return None


def set_inherited(environment: Mapping[str, str], note: int) -> None:
    """Set a note in the file of the command under which this process runs, if there is one."""
    with suppress(OSError, ValueError):
        process, kept, inode = map(int, environment.get(VARIABLE, "").split(":"))
        how = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # it may be another file now
        opened = os.open(f"/proc/{process}/fd/{kept}", how)
        try:
            if os.fstat(opened).st_ino == inode:
                os.pwrite(opened, b"1", note)
        finally:
            os.close(opened)


def is_set(descriptor: int | None, note: int) -> bool | None:
    """Return whether a program has set the note; None if there is no file for notes."""
    return None if descriptor is None else os.pread(descriptor, 1, note) == b"1"
