# SPDX-License-Identifier: Apache-2.0
"""Verbena: RDMA without the hardware, and the verbs to program it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .verbs.connect import connect_rc

    __version__: str

__all__ = ["__version__", "connect_rc"]


def __getattr__(name: str) -> Any:
    """Both are looked up when asked for: an import pays for neither."""
    if name == "connect_rc":
        from .verbs.connect import connect_rc

        return connect_rc
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("verbena")
    except PackageNotFoundError:  # imported from a source tree that is not installed
        return "0+unknown"
