# SPDX-License-Identifier: Apache-2.0
"""Reads the rate that somebody gives a link of a running fabric: ``--rate LINK=RATE``.

``FabricControl`` and the command line call ``link_limits``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena.manage.agents.link_speeds import SPEEDS, link_rate
from verbena.manage.errors import MadError

if TYPE_CHECKING:
    from verbena.manage.agents.link_speeds import LinkRate

__all__ = ["FULL", "link_limits"]

FULL = "full"
LEAST, MOST = 1e6, 4e12  # bits in a second


def link_limits(text: str) -> tuple[float, LinkRate | None]:
    """Return how many bits of data a link's ends take in a second, and to what it trains.

    0 and None are no limits. Raises MadError, which says what to write.
    """
    if text == FULL:
        return 0.0, None
    from verbena.fabrics import FabricError, rate

    try:
        found = rate(text)
    except FabricError as error:
        raise MadError(f"{error} ({FULL} ends a limit)") from None
    if found.name.partition("x")[2] in SPEEDS:
        return 0.0, link_rate(found.name)
    bits = float(found.bits_per_second)
    if not LEAST <= bits <= MOST:
        raise MadError(f"a link is held to 1 Mb/s to 4000 Gb/s, and not to {text}")
    return bits, None
