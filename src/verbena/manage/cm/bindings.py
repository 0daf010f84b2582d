# SPDX-License-Identifier: Apache-2.0
"""Which identifier has which port: the bind lists of Linux's rdma_cm (cma.c of Linux 6.1).

``RdmaCm`` binds and releases here. Ports of a port space are apart from those of another, and from
TCP's and UDP's. Rules that surprise: a wildcard in the way is EADDRNOTAVAIL and not EADDRINUSE, and
of two REUSEADDR identifiers of one port only one may listen, and only alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from .addresses import CmAddress
from .refusals import CmError, CmRefusal

__all__ = ["BindingTable", "PortHolder"]


class PortHolder(Protocol):
    """An identifier, as far as ports are concerned."""

    source: CmAddress
    destination: CmAddress | None
    reuse_address: bool
    af_only: bool

    @property
    def is_listening(self) -> bool:
        """Whether it takes requests."""


class BindingTable:
    """The ports of one network namespace. ``random`` returns a number of so many bits.

    Ephemeral ports are ``low`` to ``high``, both included (ip_local_port_range).
    """

    def __init__(self, random: Callable[[int], int], low: int = 32768, high: int = 60999) -> None:
        self._random = random
        self._low, self._high = low, high
        self._holders: dict[tuple[int, int], list[PortHolder]] = {}
        self._last_port = 0  # not given out again at once

    def holders(self, space: int, port: int) -> Iterator[PortHolder]:
        """Yield who has a port, the latest first, as Linux asks them."""
        return reversed(self._holders.get((space, port), []))

    def bind(self, holder: PortHolder, space: int, may_bind: Callable[[int], bool]) -> int:
        """Give a holder the port of its source, or an ephemeral one, and return it.

        ``may_bind`` says whether the program may have a port below 1024. Raises CmError.
        """
        port = holder.source.port
        if not port:
            port = self._ephemeral(holder, space)
        else:
            if port < 1024 and not may_bind(port):
                raise CmError(CmRefusal.PRIVILEGED_PORT, str(holder.source))
            self._check(holder, space, port, holder.reuse_address)
        self._holders.setdefault((space, port), []).append(holder)
        return port

    def check_listener(self, holder: PortHolder, space: int) -> None:
        """Raise CmError unless a bound holder with REUSEADDR may listen."""
        self._check(holder, space, holder.source.port, reuses=False)

    def release(self, holder: PortHolder, space: int, port: int) -> None:
        """Take a port back."""
        holders = self._holders.get((space, port), [])
        holders[:] = [other for other in holders if other is not holder]
        if not holders:
            self._holders.pop((space, port), None)

    def _check(self, holder: PortHolder, space: int, port: int, reuses: bool) -> None:
        for other in self.holders(space, port):
            if other is holder:
                continue
            if reuses and other.reuse_address and not other.is_listening:
                continue
            own, theirs = holder.source, other.source
            if holder.af_only and other.af_only and own.family != theirs.family:
                continue
            if own.is_any or theirs.is_any:
                raise CmError(CmRefusal.WILDCARD_IN_USE, str(own))
            if own.is_same_host(theirs):
                raise CmError(CmRefusal.PORT_IN_USE, str(own))

    def _ephemeral(self, holder: PortHolder, space: int) -> int:
        """Return a port that is free, or whose holders all have other addresses or peers."""
        count = self._high - self._low + 1
        first = self._random(32) % count
        for offset in range(count):
            port = self._low + (first + offset) % count
            if port == self._last_port:
                continue
            if all(_is_apart(holder, other) for other in self.holders(space, port)):
                self._last_port = port
                return port
        raise CmError(CmRefusal.NO_PORT_LEFT, str(holder.source))


def _is_apart(holder: PortHolder, other: PortHolder) -> bool:
    """Whether two connections from one port differ in an address or in the peer's port."""
    source, theirs = holder.source, other.source
    destination, their_destination = holder.destination, other.destination
    if destination is not None and their_destination is not None:
        ports = destination.port, their_destination.port
        if all(ports) and ports[0] != ports[1]:
            return True
    if not source.is_any and not theirs.is_any and not source.is_same_host(theirs):
        return True
    return (
        destination is not None
        and their_destination is not None
        and not destination.is_any
        and not their_destination.is_any
        and not destination.is_same_host(their_destination)
    )
