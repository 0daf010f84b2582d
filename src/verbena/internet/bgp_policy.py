# SPDX-License-Identifier: Apache-2.0
"""Policies of autonomous systems: which routes are taken, which is preferred, who is told.

A speaker asks its policy for each route that a neighbouring system offers, and before it offers one
itself. ``GaoRexford`` is what keeps the whole stable (Gao and Rexford, "Stable Internet routing
without global coordination", IEEE/ACM Transactions on Networking 9(6), 2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from verbena._arguments import checked_arguments, checked_class, is_whole
from verbena.internet.errors import InternetError, InternetTypeError

MOST_PREFERENCE = 0xFFFFFFFF


class Relation(IntEnum):
    """What a neighbouring system is to one's own; the value marks routes within a system."""

    CUSTOMER = 1
    PEER = 2
    PROVIDER = 3

    @property
    def reverse(self) -> Relation:
        """What one's own system is to the neighbour."""
        return Relation(4 - self)


class Policy(Protocol):
    """``prefer``: the local preference of a path that a neighbour offers, 0 to 2**32 - 1, or None
    to refuse it. The speaker raises InternetError for anything else.

    ``offers``: whether a route that was learnt from such a system, or from none, is offered to a
    system of another kind.
    """

    def prefer(self, relation: Relation, path: tuple[int, ...]) -> int | None: ...

    def offers(self, learnt: Relation | None, to: Relation) -> bool: ...


def check_preference(preference: object, where: str) -> None:
    """Raises InternetError unless a local preference fits into its attribute (RFC 4271, 4.3)."""
    if not is_whole(preference) or not 0 <= preference <= MOST_PREFERENCE:  # type: ignore[operator]
        raise InternetError(
            f"{where} {preference!r}: a local preference is a whole number, 0 to {MOST_PREFERENCE}"
        )


@checked_class(InternetTypeError, but=("offers", "prefer"))
@dataclass(frozen=True)
class GaoRexford:
    """Customers' routes before peers', those before providers'; and only customers are told what
    comes from peers and providers, so that nobody carries traffic for which nobody pays."""

    customer: int = 200
    peer: int = 150
    provider: int = 100

    def __post_init__(self) -> None:
        """Raises InternetError."""
        for name in ("customer", "peer", "provider"):
            check_preference(getattr(self, name), f"{name} is")

    def prefer(self, relation: Relation, path: tuple[int, ...]) -> int | None:
        return (self.customer, self.peer, self.provider)[relation - 1]

    def offers(self, learnt: Relation | None, to: Relation) -> bool:
        return learnt in (None, Relation.CUSTOMER) or to is Relation.CUSTOMER


class Leak(GaoRexford):
    """The mistake of a route leak (RFC 7908): everybody is told everything."""

    def offers(self, learnt: Relation | None, to: Relation) -> bool:
        return True


@checked_class(InternetTypeError, but=("offers", "prefer"))
class RankedPaths:
    """Takes only paths of a list, the first one most gladly, and tells everybody. With an empty
    list it takes nothing from others.

    This is a node of the stable paths problem (Griffin, Shepherd and Wilfong, "The stable paths
    problem and interdomain routing", IEEE/ACM Transactions on Networking 10(2), 2002).
    """

    def __init__(self, paths: Sequence[Sequence[int]]) -> None:
        count = len(paths)
        self._ranks: Mapping[tuple[int, ...], int] = {
            tuple(path): 100 + count - at for at, path in enumerate(paths)
        }

    def prefer(self, relation: Relation, path: tuple[int, ...]) -> int | None:
        return self._ranks.get(path)

    def offers(self, learnt: Relation | None, to: Relation) -> bool:
        return True


@checked_arguments(InternetTypeError)
def is_valley_free(steps: Sequence[Relation]) -> bool:
    """Whether a way goes up to providers, over at most one peer, and down to customers.

    ``steps`` say what each next system is to the one before.
    """
    order = (Relation.PROVIDER, Relation.PEER, Relation.CUSTOMER)
    ranks = [order.index(step) for step in steps]
    return ranks == sorted(ranks) and steps.count(Relation.PEER) <= 1
