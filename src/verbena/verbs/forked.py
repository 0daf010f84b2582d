# SPDX-License-Identifier: Apache-2.0
"""What a forked child leaves to its parent: the connections, and the loops that watch them.

A child has copies of the parent's descriptors. By a socket it could say goodbye to the parent's
peer, and by the epoll descriptor of a loop it could have the parent watch a socket no more. So each
owner of such a thing is followed, and is told in the child before anything else runs there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from .here import place

__all__ = ["Followed", "follow", "let_go"]


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


def let_go(descriptor: int) -> None:
    """Have a child's descriptor be /dev/null, so that what it was ends with the parent.

    It is not closed, since its owner here will close it, and the number could be another one's.
    """
    with suppress(OSError), open(os.devnull, "r+b", buffering=0) as null:
        os.dup2(null.fileno(), descriptor, inheritable=False)


def _tell() -> None:
    for owner in list(_followed):
        owner.stay_with_parent()
    _followed.clear()


os.register_at_fork(after_in_child=_tell)
