# SPDX-License-Identifier: Apache-2.0
"""One sweep, or two some time apart, as the rules ask it: what has a port counted, and how fast.

``diagnose`` makes it. With two sweeps a counter is what was added between them, and with one it is
the total since somebody cleared it. A counter that went back was cleared, and counts from zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

from .fabric_snapshot import FabricSnapshot, PortKey, PortView
from .fault_finding import FaultSuspect

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = ["SweepEvidence"]

WORD_BITS = 32
NOT_KNOWN_GBPS = 100.0


class SweepEvidence:
    """``now`` is the last sweep, ``before`` an earlier one or None.

    ``intended`` is the topology that the fabric should have, or None. ``seconds`` between the
    sweeps is None if there is one sweep, or the sources have no times.
    """

    def __init__(
        self,
        now: FabricSnapshot,
        before: FabricSnapshot | None = None,
        intended: Fabric | None = None,
    ) -> None:
        self.now, self.before, self.intended = now, before, intended
        self.seconds: float | None = None
        if before is not None and before.time is not None and now.time is not None:
            self.seconds = max(now.time - before.time, 0.0) or None

    def count(self, key: PortKey, name: str) -> int:
        """Return what a port has counted between the sweeps, or in all if there is one sweep."""
        port = self.now.ports.get(key)
        value = port.counters.get(name, 0) if port else 0
        if self.before is None:
            return value
        known = self.before.ports.get(key)
        earlier = known.counters.get(name) if known is not None else None
        if earlier is None:
            return 0 if self.before.asks_all else value
        return value - earlier if value >= earlier else value

    def has(self, key: PortKey, name: str) -> bool:
        """Whether the source gives this counter of a port."""
        port = self.now.ports.get(key)
        return port is not None and name in port.counters

    def view(self, key: PortKey) -> PortView:
        """Return a port as the last sweep saw it; an unknown one knows nothing."""
        return self.now.ports.get(key) or PortView()

    def gbps(self, key: PortKey) -> float:
        """Return a port's rate in Gb/s, or a guess if the source has none."""
        view = self.view(key)
        return view.gbps or (view.active.gbps if view.active else NOT_KNOWN_GBPS)

    def bits(self, key: PortKey) -> float | None:
        """Return how many bits the link could carry between the sweeps; None without times."""
        return None if self.seconds is None else self.gbps(key) * 1e9 * self.seconds

    def utilisation(self, key: PortKey) -> float | None:
        """Return the share of its rate that a port has sent; None without times."""
        could = self.bits(key)
        return self.count(key, "xmit_data") * WORD_BITS / could if could else None

    def wait_share(self, key: PortKey) -> float:
        """Return the share of time in which a port had something to send and no credits.

        A tick of XmitWait is taken as the time of one word of data. Without times it is the share
        among the words that were sent and the ticks.
        """
        wait = self.count(key, "xmit_wait")
        if not wait:
            return 0.0
        could = self.bits(key)
        if not could and not self.has(key, "xmit_data"):
            return 0.0
        whole = could / WORD_BITS if could else self.count(key, "xmit_data") + wait
        return min(wait / whole, 1.0) if whole else 0.0

    def suspect_at(self, key: PortKey) -> FaultSuspect:
        """Return the cable at a port, or the port if its cable is not known."""
        peer = self.now.peers.get(key)
        return FaultSuspect.cable(key, peer) if peer else FaultSuspect.port(key)

    def node_suspect(self, name: str) -> FaultSuspect:
        """Return a host or switch as a suspect."""
        ports = tuple(key for key in self.ports_of.get(name, ()) if key.number)
        is_switch = self.now.is_switch(name)
        return FaultSuspect.node(name, is_switch=is_switch, ports=() if is_switch else ports)

    @cached_property
    def ports_of(self) -> dict[str, list[PortKey]]:
        """The ports of each node, by number."""
        found: dict[str, list[PortKey]] = {}
        for key in sorted(self.now.ports):
            found.setdefault(key.node, []).append(key)
        return found

    @cached_property
    def tier(self) -> dict[str, int]:
        """The distance of each node to the nearest host, in cables."""
        reached = {name: 0 for name, node in self.now.nodes.items() if not node.is_switch}
        todo = list(reached)
        for name in todo:
            for key in self.ports_of.get(name, ()):
                peer = self.now.peers.get(key)
                if peer is not None and peer.node not in reached:
                    reached[peer.node] = reached[name] + 1
                    todo.append(peer.node)
        return reached

    def usual(self, name: str) -> float:
        """Return the median of a counter over all ports with a cable."""
        values = [self.count(key, name) for key in self.now.peers]
        return median(values) if values else 0.0

    def linked(self) -> Iterator[tuple[PortKey, PortKey, PortView, PortView]]:
        """Yield every cable once, with both views."""
        for one, other in self.now.cables():
            yield one, other, self.view(one), self.view(other)
