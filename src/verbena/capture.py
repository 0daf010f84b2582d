# SPDX-License-Identifier: Apache-2.0
"""Makes the file of a capture, which programs started with ``verbena run --capture`` write."""

from __future__ import annotations

import ctypes
import os

from verbena import _native

__all__ = ["begin"]


def begin(file: str | os.PathLike[str]) -> None:
    """Make an empty capture in ``file``, in place of an earlier capture.

    Raises OSError when the file cannot be written, and when it exists and is not a capture of
    Verbena's; such a file is not changed.
    """
    error = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(len(error))
    code = _native.core().verbena_begin_capture(os.fsencode(file), error, size)
    if code:
        raise OSError(-code, error.value.decode("utf-8", "replace"), os.fspath(file))
