# SPDX-License-Identifier: Apache-2.0
"""How a directed-route SMP passes a node: its hop pointer, hop count and paths (IBA 14.2.2).

A node of a simulated or real fabric calls ``leave_by_route``, ``arrive_by_route`` and
``return_by_route`` for each hop. A ``Subnet`` computes the end of a route at once and must agree
with these. MADs are 256 bytes; the functions return changed copies.
"""

from __future__ import annotations

from ..attribute_ids import MgmtClass
from ..mad import RETURNING

__all__ = [
    "MOST_HOPS",
    "arrive_by_route",
    "is_directed",
    "leave_by_route",
    "return_by_route",
]

MOST_HOPS = 63
STATUS, POINTER, COUNT = 4, 6, 7  # bytes of the header
INITIAL_PATH, RETURN_PATH = 128, 192  # a byte for each hop, from 1
DIRECTED = int(MgmtClass.SUBN_DIRECTED_ROUTE)
D_BIT = RETURNING >> 8


def is_directed(mad: bytes) -> bool:
    """Whether a MAD is a directed-route SMP."""
    return mad[1] == DIRECTED


def leave_by_route(mad: bytes) -> tuple[int, bytes] | None:
    """Return the first port of a request's route, and the SMP as it leaves its sender by it.

    Port 0 means the sender itself: there is no hop. None: the route is not possible.
    """
    count = mad[COUNT]
    if mad[POINTER] or count > MOST_HOPS or mad[STATUS] & D_BIT:
        return None
    if not count:
        return 0, mad
    header = bytearray(mad)
    header[POINTER] = 1
    port = header[INITIAL_PATH + 1]
    return (port, bytes(header)) if port else None


def arrive_by_route(mad: bytes, port: int, *, switch: bool) -> tuple[int, bytes] | None:
    """Return where an SMP goes that came by ``port``: the output port, and the SMP as it leaves.

    Port 0 means that it is for this node. None: the route is not possible, or leads through a node
    that is no switch, and the packet is discarded.
    """
    pointer, count = mad[POINTER], mad[COUNT]
    if count > MOST_HOPS:
        return None
    header = bytearray(mad)
    if mad[STATUS] & D_BIT:
        if pointer == 1:
            header[POINTER] = 0
            return 0, bytes(header)
        if not 1 < pointer <= count:
            return None
        onward = header[RETURN_PATH + pointer - 1]
        header[POINTER] = pointer - 1
    else:
        if not 0 < pointer <= count:
            return None
        header[RETURN_PATH + pointer] = port
        header[POINTER] = pointer + 1
        if pointer == count:
            return 0, bytes(header)
        onward = header[INITIAL_PATH + pointer + 1]
    return (onward, bytes(header)) if switch and onward else None


def return_by_route(mad: bytes) -> tuple[int, bytes] | None:
    """Return the port by which a response leaves its sender, and the SMP as it leaves.

    ``mad`` has the direction bit, and the pointer as the request had it when it arrived. Port 0
    means that it was asked on this node. None: the pointer or the path is not possible.
    """
    pointer, count = mad[POINTER], mad[COUNT]
    if not mad[STATUS] & D_BIT or count > MOST_HOPS:
        return None
    if not count:
        return 0, mad
    if pointer != count + 1:
        return None
    header = bytearray(mad)
    header[POINTER] = count
    port = header[RETURN_PATH + count]
    return (port, bytes(header)) if port else None
