# SPDX-License-Identifier: Apache-2.0
"""Finds the package's native libraries, and the libraries that must be preloaded before them.

verbena.launch, verbena.capture and verbena.verbs call this.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

PARTS: list[str] = sys.modules["verbena"].__path__  # type: ignore[assignment]


@cache
def library_dir() -> Path:
    """Return the folder with libibverbs.so.1 and the preload libraries.

    An editable installation spreads the package over the source tree and site-packages, so every
    part is searched. Raises FileNotFoundError when Verbena is not built.
    """
    for part in PARTS:
        folder = Path(part) / "lib"
        if (folder / "libibverbs.so.1").exists():
            return folder.resolve()
    looked = ", ".join(f"{part}/lib" for part in PARTS)
    raise FileNotFoundError(
        f"Verbena's libibverbs.so.1 is in none of: {looked}. "
        "Install the package (pip install .) instead of running from its sources."
    )


def library(name: str) -> Path:
    """Return the path of a native library, such as library("libverbena_paths.so")."""
    path = library_dir() / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing. Install Verbena again: pip install .")
    return path


@cache
def core() -> ctypes.CDLL:
    """Load libibverbs.so.1, for those of Verbena's own functions that need no device."""
    import ctypes  # here, since most commands start a program without it

    return ctypes.CDLL(str(library("libibverbs.so.1")))


def sanitized() -> bool:
    """Return whether VERBENA_SANITIZE says that the libraries are built with AddressSanitizer."""
    return os.environ.get("VERBENA_SANITIZE", "0") not in ("", "0")


@cache
def sanitizer_preload() -> tuple[str, ...]:
    """Return the libraries that LD_PRELOAD must name before Verbena's: the sanitizer's, or none."""
    if not sanitized():
        return ()
    import subprocess

    command = ["gcc", "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return (found,)
