# SPDX-License-Identifier: Apache-2.0
"""Chooses the libibverbs that this process uses.

* under ``verbena run``: the one that is preloaded, because a process has one adapter;
* ``library="packaged"`` (the default): the one in ``verbena/lib``;
* ``library="system"``: the machine's, which drives its real adapters;
* anything else: a path.

Without the argument, the environment's ``VERBENA_LIBRARY`` decides, with the same values.
"""

from __future__ import annotations

import errno
import os
import subprocess

from verbena import _fault_rules, _native, _ports

from ._verbs import Library, library_in_front
from .errors import VerbsError

__all__ = ["SONAME", "find", "load", "packaged_path"]

SONAME = "libibverbs.so.1"


def load(library: str | None = None) -> Library:
    """Load the libibverbs that ``library`` names (see this module).

    The same library gives the same object. Raises VerbsError as ``find``.
    """
    _fault_rules.put_beside(os.environ)
    _ports.put_beside(os.environ)
    return Library.open(find(library))


def find(library: str | None = None) -> str:
    """Return the path (or the soname) that ``load`` would open.

    Raises VerbsError: EEXIST for the system's library under ``verbena run``, ENOENT when there is
    no such library.
    """
    choice = library or os.environ.get("VERBENA_LIBRARY") or "packaged"
    if choice == "system":
        return _system_path()
    if choice == "packaged":
        return library_in_front() or packaged_path()
    return choice


def packaged_path() -> str:
    """Return the path of this package's libibverbs. Raises VerbsError(ENOENT) if it was not
    built."""
    try:
        return str(_native.library(SONAME))
    except FileNotFoundError as error:
        raise VerbsError(
            errno.ENOENT, f"{error} Or name a library: VERBENA_LIBRARY=system or =PATH"
        ) from error


def _system_path() -> str:
    in_front = library_in_front()
    if in_front:
        raise VerbsError(
            errno.EEXIST,
            f"the system's libibverbs cannot be used under `verbena run`, which put {in_front}"
            " in its place: start the program without it",
        )
    return _from_loader_cache() or SONAME


def _from_loader_cache() -> str | None:
    """Return the full path of the system's library, because the loader would resolve the bare name
    to a Verbena that is already loaded."""
    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if os.path.exists(ldconfig):
            listing = subprocess.run(
                [ldconfig, "-p"], capture_output=True, text=True, check=False
            ).stdout
            paths = [
                line.rpartition("=> ")[2]
                for line in listing.splitlines()
                if line.split()[:1] == [SONAME]
            ]
            return next(iter(paths), None)
    return None
