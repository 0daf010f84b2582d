# SPDX-License-Identifier: Apache-2.0
"""Verbena: a software RDMA adapter, and the verbs to program it.

Programs import the modules from here; each is loaded at its first use, so that `import verbena`
alone loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio, capture, collectives, fabrics, fault, peers, rpc, sim, verbs, wire
    from .peers import connect, listen
    from .verbs.connect import connect_rc

    __version__: str

__all__ = [
    "__version__",
    "aio",
    "capture",
    "collectives",
    "connect",
    "connect_rc",
    "fabrics",
    "fault",
    "listen",
    "peers",
    "rpc",
    "sim",
    "verbs",
    "wire",
]

_MODULES = (
    "aio",
    "capture",
    "collectives",
    "fabrics",
    "fault",
    "peers",
    "rpc",
    "sim",
    "verbs",
    "wire",
)


def __getattr__(name: str) -> Any:
    """Import a module, or a function, at its first use."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in ("connect", "listen"):
        return getattr(import_module(f"{__name__}.peers"), name)
    if name == "connect_rc":
        from .verbs.connect import connect_rc

        return connect_rc
    if name == "__version__":
        from .version import version

        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
