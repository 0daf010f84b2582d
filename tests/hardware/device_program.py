# SPDX-License-Identifier: Apache-2.0
"""Says which devices and libraries a program has, and how it is told of what the driver lacks."""

from __future__ import annotations

from pathlib import Path

from verbena import verbs
from verbena.peers import sync


def libraries() -> list[str]:
    """Return the libraries of verbs that this process has loaded."""
    words = set(Path("/proc/self/maps").read_text().split())
    return sorted(word for word in words if "libibverbs.so" in word or "rxe-" in word)


def register_for_flush() -> None:
    with verbs.open_device() as ctx:
        access = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.FLUSH_GLOBAL
        try:
            ctx.alloc_pd().alloc(64, access)
        except verbs.VerbsError as error:
            print(error)


def connect_by_loopback() -> None:
    try:
        sync.connect("127.0.0.1:7300")
    except OSError as error:
        print(type(error).__name__, error)


if __name__ == "__main__":
    print([device.name for device in verbs.get_device_list()])
    print(libraries())
    register_for_flush()
    connect_by_loopback()
