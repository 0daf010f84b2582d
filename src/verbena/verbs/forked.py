# SPDX-License-Identifier: Apache-2.0
"""What a forked child leaves to its parent: the connections, and the loops that watch them.

A child has copies of the parent's descriptors. By a socket it could say goodbye to the parent's
peer, and by the epoll descriptor of a loop it could have the parent watch a socket no more. So each
owner of such a thing is followed, and is told in the child before anything else runs there.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from .here import place

__all__ = ["Followed", "follow"]


class Followed(Protocol):
    """Something that a child must not use, and not close either."""

    def stay_with_parent(self) -> None:
        """Become what is closed already: this is the copy of a forked child. It may not raise."""
        ...


_followed: WeakSet[Followed] = WeakSet()


def follow(owner: Followed) -> None:
    """Tell ``owner`` when it is the copy of a forked child.

    What belongs to a simulated host is memory alone, which a child has for itself.
    """
    if place.get() is None:
        _followed.add(owner)


def _tell() -> None:
    for owner in list(_followed):
        owner.stay_with_parent()
    _followed.clear()


os.register_at_fork(after_in_child=_tell)
