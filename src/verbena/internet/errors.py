# SPDX-License-Identifier: Apache-2.0
"""What the internet layer raises."""

from __future__ import annotations


class InternetError(Exception):
    """A mistake in the description of an internet, or a request that it cannot carry out."""


class InternetTypeError(InternetError, TypeError):
    """An argument of a type that the parameter does not take, one too many, or one missing."""


class AddressError(InternetError):
    """An address, a prefix or a name that is malformed, used twice, or in the wrong network."""


class PacketError(InternetError):
    """Bytes that are no packet of their protocol: too short, a wrong checksum, a wrong version."""


class NoRouteError(InternetError):
    """The sender's table has no route to the destination, or the route's interface is down."""


class MessageTooLongError(InternetError):
    """A datagram that must not be fragmented exceeds the path's MTU, which is ``mtu`` bytes."""

    def __init__(self, message: str, mtu: int) -> None:
        super().__init__(message)
        self.mtu = mtu


class NotConvergedError(InternetError):
    """The routes still change at the end of the time that was allowed."""
