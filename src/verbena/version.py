# SPDX-License-Identifier: Apache-2.0
"""Verbena's version, with the commit of the source where that is known.

``verbena --version`` and ``verbena info`` print it, and results of simulations record it. The
commit is known for a package that pip installed from a repository, for an editable installation of
a checkout, and for a package that was built from a checkout (cmake/VerbenaCommit.cmake).
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

__all__ = ["full_version", "version"]

DIGITS = 12  # of a commit's name
BUILT = Path(__file__).with_name("commit.txt")


@cache
def full_version() -> str:
    """Return "0.1.0", or "0.1.0 (0123456789ab)"; "-dirty" follows if files differ from the
    commit."""
    commit = _commit(_source())
    return f"{version()} ({commit})" if commit else version()


def version() -> str:
    """Return the release, as "0.1.0"."""
    try:
        return metadata.version("verbena")
    except metadata.PackageNotFoundError:  # imported from a source tree that is not installed
        return "0+unknown"


def _source() -> dict[str, Any]:
    """Return where pip found the package (direct_url.json, PEP 610); empty if that is not known."""
    try:
        text = metadata.distribution("verbena").read_text("direct_url.json")
        found = json.loads(text) if text else {}
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _commit(source: dict[str, Any]) -> str:
    """Return the abbreviated commit, or an empty string."""
    if commit := source.get("vcs_info", {}).get("commit_id"):
        return str(commit)[:DIGITS]
    if not source.get("dir_info", {}).get("editable"):
        return _built()
    words = ["git", "-C", unquote(urlparse(source.get("url", "")).path), "describe"]
    words += ["--always", "--dirty", "--exclude=*", f"--abbrev={DIGITS}"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _built() -> str:
    """Return the commit of the checkout from which this was built, or an empty string."""
    try:
        return BUILT.read_text().strip()
    except OSError:
        return ""
