# SPDX-License-Identifier: Apache-2.0
"""What programs that run over Verbena note of themselves, for `verbena run` and `verbena pair`.

Processes share a memory file, with one byte for each thing that any of them has done; the libraries
find it by the variable VERBENA_RUN (port/run_note.h).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

VARIABLE = "VERBENA_RUN"
DEVICE, NETWORK, NOTES = 0, 1, 2  # port/run_note.h
LEAST_DESCRIPTOR = 100  # out of the way of programs that count on the first ones


def keep(environment: dict[str, str]) -> int | None:
    """Have the programs of this environment note what they do.

    Returns the file's descriptor, which they inherit; None where it cannot be made: a limit or a
    filter, which the device, which needs more, names as it opens.
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


def is_set(descriptor: int | None, note: int) -> bool | None:
    """Whether any of the programs has done it; None where nobody could have noted it."""
    return None if descriptor is None else os.pread(descriptor, 1, note) == b"1"
