# SPDX-License-Identifier: Apache-2.0
"""What an error says when a file or folder of results cannot be written.

Functions of all rooms that write what their caller has named, as captures, timelines and tables,
open it within ``writing``. The error keeps its class and number, and its text says what helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(path: Path, what: str) -> Iterator[None]:
    """Raises the OSError of the block again with a sentence about ``what``, as "the capture"."""
    try:
        yield
    except OSError as error:
        text = f"{what} cannot be written: {_reason(error, path)}"
        raise OSError(error.errno, text, str(path)) from error


def _no_folder(path: Path) -> str:
    return f"there is no folder {path.parent}: make it first"


def _reason(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        return _no_folder(path)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file has the name of a folder that is needed"
    if isinstance(error, IsADirectoryError):
        return "it is a folder, so name a file in it"
    return error.strerror or str(error)
