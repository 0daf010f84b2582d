# SPDX-License-Identifier: Apache-2.0
"""How a device reaches peers of its own host, which both ends of a connection must do alike.

``VERBENA_CARRIER=roce`` sends them packets; otherwise they are reached directly, and packets of the
own host are not taken, so that requests in packets are never answered. The exchanges that connect
queue pairs compare the two.
"""

from __future__ import annotations

import errno
from weakref import WeakKeyDictionary

from ._verbs import Context
from .attributes import Gid
from .errors import ConnectError, VerbsError
from .here import place

__all__ = ["check_local_carriers", "sends_local_packets"]

_WAYS = {
    True: "sends packets to peers of its host (VERBENA_CARRIER=roce)",
    False: "reaches peers of its host directly (VERBENA_CARRIER=auto, the default, or direct)",
}


_described: WeakKeyDictionary[Context, bool | None] = WeakKeyDictionary()
"""What contexts have said once: it stays as long as they are open, and asking takes 14 us."""


def sends_local_packets(context: Context) -> bool | None:
    """Return whether a device sends packets to peers of its own host.

    None: it is not Verbena's, or belongs to a simulated host.
    """
    if place.get() is not None or not context.device.library.is_verbena:
        return None
    if context not in _described:
        roce = (context.describe() or {}).get("roce")
        _described[context] = None if roce is None else bool(roce.get("local_peers", False))
    return _described[context]


def check_local_carriers(context: Context, gid: bytes | Gid, theirs: bool | None) -> None:
    """Compare this side's carrier with that of the peer at ``gid``, if that is an address of here.

    Raises ConnectError(EPROTONOSUPPORT) if they differ.
    """
    own = None if theirs is None else sends_local_packets(context)
    if own is None or theirs is None or own == theirs or not _is_here(context, gid):
        return
    raise ConnectError(
        errno.EPROTONOSUPPORT,
        f"this side {_WAYS[own]}, and the peer, on the same host, {_WAYS[theirs]}: set"
        " VERBENA_CARRIER alike for both programs",
    )


def _is_here(context: Context, gid: bytes | Gid) -> bool:
    raw = gid.raw if isinstance(gid, Gid) else gid
    try:
        return any(entry.gid.raw == raw for entry in context.query_gid_table())
    except VerbsError:
        return False
