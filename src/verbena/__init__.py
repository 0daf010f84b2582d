# SPDX-License-Identifier: Apache-2.0
"""Verbena: RDMA without the hardware, and the verbs to program it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("verbena")
except PackageNotFoundError:  # imported from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
