# SPDX-License-Identifier: Apache-2.0
"""What a command says of a file that it cannot use, and folders that it makes before its work.

step, compare and sim call these.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def unusable(error: OSError) -> str:
    """The error in words: the file, why it cannot be used, and what helps if that is known."""
    if error.filename is None:
        return str(error)
    path = Path(error.filename)
    said = str(error.strerror)
    knows = "cannot be written" in said or "cannot be made" in said
    text = f"{path}: {said}" if knows else f"{path} cannot be used: {said}"
    is_said = "there is no folder" in said
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir() and not is_said:
        return f"{text} (there is no folder {path.parent}: make it first)"
    return text


def make_folder(folder: Path) -> None:
    """Makes a folder for results, unless it is there. Raises OSError, which names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder cannot be made: {error.strerror}"
        raise OSError(error.errno, what, str(folder)) from None
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, "nothing can be written there", str(folder))


def prepare_file(path: Path) -> None:
    """Makes the folder of a file that will be written. Raises OSError if it cannot be."""
    make_folder(path.parent)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
