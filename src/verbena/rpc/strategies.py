# SPDX-License-Identifier: Apache-2.0
"""How requests and responses travel: the strategies, and which one a size gets.

Clients and servers ask ``request_way`` and ``response_way``; ``explain_strategy`` and
``explain_response`` say why. The defaults follow from ``verbena bench rpc``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "EXPLANATIONS",
    "RequestWay",
    "ResponseWay",
    "Strategies",
    "explain_response",
    "explain_strategy",
    "request_way",
    "response_way",
    "wants_memory",
]


class RequestWay(StrEnum):
    """How a request travels."""

    INLINE = "inline"
    RING = "ring"
    RENDEZVOUS = "rendezvous"
    DATAGRAM = "datagram"


class ResponseWay(StrEnum):
    """How a response travels."""

    INLINE = "inline"
    WRITE = "write"
    RENDEZVOUS = "rendezvous"


EXPLANATIONS = {
    "inline": "a SEND with the bytes in it, copied into a receive that the peer has posted; more"
    " than a slot goes in several SENDs",
    "ring": "a WRITE into a slot of the client's ring in the server's memory, which the server"
    " polls: no receive and no completion at the server, and a word that each client more costs",
    "rendezvous": "a SEND with the address and the key of the bytes; the receiver fetches them by"
    " READ when it has room, and they are copied once",
    "write": "a WRITE into memory that the request named, and then a SEND on the same queue pair",
    "datagram": "a UD SEND: the server has one queue pair for all clients; what is lost is sent"
    " again, and runs once",
}
"""What each strategy is, by its name."""


@dataclass(frozen=True, slots=True)
class Strategies:
    """Which strategies a side uses; ``"auto"`` chooses by the size.

    ``request`` is "inline", "ring", "rendezvous" or "datagram", for clients; ``response`` is
    "inline", "write" or "rendezvous", for servers. ``inline_most`` is up to how many bytes "auto"
    sends inline. A strategy that cannot carry a message (a ring slot that is too small) leaves it
    to "auto".
    """

    request: str = "auto"
    response: str = "auto"
    inline_most: int = 16 << 10

    def __post_init__(self) -> None:
        for name, given, ways in (
            ("request", self.request, RequestWay),
            ("response", self.response, ResponseWay),
        ):
            known = ["auto", *ways]
            if given not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, and not {given!r}")
        if isinstance(self.inline_most, bool) or not isinstance(self.inline_most, int):
            raise TypeError(f"inline_most is a number of bytes, and not {self.inline_most!r}")
        if self.inline_most < 0:
            raise ValueError(f"inline_most is 0 or more bytes, and not {self.inline_most}")


def request_way(plan: Strategies, size: int, ring_room: int, datagram_room: int) -> RequestWay:
    """Return how a request of a size travels. A room is 0 where there is no such way."""
    if plan.request == "ring" and size <= ring_room:
        return RequestWay.RING
    if plan.request == "datagram" and size <= datagram_room:
        return RequestWay.DATAGRAM
    if plan.request in ("inline", "rendezvous") and size:
        return RequestWay(plan.request)
    return RequestWay.INLINE if size <= plan.inline_most else RequestWay.RENDEZVOUS


def response_way(plan: Strategies, size: int, reply_room: int, room: int = 0) -> ResponseWay:
    """Return how a response of ``size`` bytes travels.

    ``reply_room`` is what the request named; ``room`` is what one SEND carries.
    """
    if not size:
        return ResponseWay.INLINE
    if plan.response in ("inline", "rendezvous"):
        return ResponseWay(plan.response)
    if plan.response == "auto" and size <= max(plan.inline_most, room):
        return ResponseWay.INLINE
    if size <= reply_room:
        return ResponseWay.WRITE
    return ResponseWay.INLINE if size <= room else ResponseWay.RENDEZVOUS


def wants_memory(plan: Strategies, size: int, room: int) -> bool:
    """Return whether a request names memory for a response that will have so many bytes.

    ``plan`` is the server's, and ``room`` what one SEND carries.
    """
    return size > room and response_way(plan, size, size, room) is ResponseWay.WRITE


def explain_strategy(plan: Strategies, size: int, ring_room: int, datagram_room: int) -> str:
    """Say how a request of a size travels, and why."""
    way = request_way(plan, size, ring_room, datagram_room)
    if plan.request == way:
        why = "as it was chosen"
    elif plan.request != "auto":
        why = f"since {plan.request!r} cannot carry {size} bytes here"
    elif way is RequestWay.INLINE:
        why = f"since it has at most inline_most={plan.inline_most} bytes"
    else:
        why = f"since it has more than inline_most={plan.inline_most} bytes"
    return f"{way}, {why}: {EXPLANATIONS[way]}"


def explain_response(plan: Strategies, size: int, room: int, reply_room: int) -> str:
    """Say how a response of a size travels, and why; ``plan`` is the server's.

    ``room`` is what one SEND carries, and ``reply_room`` what each request names. Those of a method
    that has returned as many bytes name memory for them if ``wants_memory`` says so.
    """
    first = response_way(plan, size, reply_room, room)
    said = _said_of_response(plan, first, size, room)
    if first is ResponseWay.WRITE or not wants_memory(plan, size, room):
        return said
    later = _said_of_response(plan, ResponseWay.WRITE, size, room)
    return f"{said}; later ones of the method: {later}"


def _said_of_response(plan: Strategies, way: ResponseWay, size: int, room: int) -> str:
    if plan.response == way:
        why = "as the server chose it"
    elif way is ResponseWay.WRITE:
        why = "since the request names memory for it"
    elif size <= room:
        why = f"since one SEND carries {room} bytes"
    elif plan.response == "write":
        why = "since the request names no memory for as much"
    elif way is ResponseWay.INLINE:
        why = f"since it has at most inline_most={plan.inline_most} bytes"
    else:
        why = f"since it has more than inline_most={plan.inline_most} bytes"
    return f"{way}, {why}: {EXPLANATIONS[way]}"
