# SPDX-License-Identifier: Apache-2.0
"""Totals of a port that performance management reports: events, packets and words since the start.

The agents and ``Subnet`` count here. A live fabric or a simulator has its own numbers and gives
them through ``CounterSource``; the reported ones are the sums of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["MAD_WORDS", "CounterSource", "PortTally"]

MAD_WORDS = 72  # of a packet with a MAD, from LRH to ICRC: 8 + 12 + 8 + 256 + 4 bytes


class CounterSource(Protocol):
    """What somebody else counts at a node's ports."""

    def port_totals(self, port: int) -> Mapping[str, int]:
        """Return totals since the start by the names of ``PortTally``; missing ones are 0.

        They only grow. Data are in words of 4 bytes.
        """
        ...


class PortTally(dict[str, int]):
    """Totals since the start by their names; a name that has not been counted is 0.

    The names are fields of PortCountersExtended, PortRcvErrorDetails and PortXmitDiscardDetails.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return 0

    def count(self, name: str, more: int = 1) -> None:
        """Add to a total."""
        self[name] += more

    def sent(self, packets: int, words: int, multicast: bool = False) -> None:
        """Add packets that were sent, with ``words`` of 4 bytes in all."""
        self["xmit_packets"] += packets
        self["xmit_data"] += words
        self["multicast_xmit_packets" if multicast else "unicast_xmit_packets"] += packets

    def received(self, packets: int, words: int, multicast: bool = False) -> None:
        """Add packets that were received, with ``words`` of 4 bytes in all."""
        self["rcv_packets"] += packets
        self["rcv_data"] += words
        self["multicast_rcv_packets" if multicast else "unicast_rcv_packets"] += packets
