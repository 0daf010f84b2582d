# SPDX-License-Identifier: Apache-2.0
"""What a command says of a file that it cannot read or write; step and compare call it."""

from __future__ import annotations

from pathlib import Path


def unusable(error: OSError) -> str:
    """The error in words: the file, why it cannot be used, and what helps if that is known."""
    if error.filename is None:
        return str(error)
    path = Path(error.filename)
    said = str(error.strerror)
    text = f"{path}: {said}" if "cannot be written" in said else f"{path} cannot be used: {said}"
    is_said = "there is no folder" in said
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir() and not is_said:
        return f"{text} (there is no folder {path.parent}: make it first)"
    return text
