# SPDX-License-Identifier: Apache-2.0
"""What one sweep of a fabric has seen: ports with their settings and counters, cables, tables.

The sources (``mad_sweep``, ``saved_output``, ``simulated_run``) fill a ``FabricSnapshot``, and the
rules read it through ``SweepEvidence``. What a source does not know is None or missing, and no
rule may take it for a zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..agents.link_speeds import LinkRate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FabricSnapshot", "FlowTrouble", "NodeView", "PortKey", "PortView"]


class PortKey(NamedTuple):
    """A port by its node's name and its number; its text is "e0[3]"."""

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}[{self.number}]"


@dataclass
class PortView:
    """A port. ``state`` and ``physical`` are codes of PortInfo; None: the source does not say.

    ``active``, ``enabled`` and ``supported`` are the fastest rates of each set; ``gbps`` is the
    rate of a link that is none of InfiniBand. MTUs are in bytes, lanes are counts. ``counters``
    have the names of ``PortTally``, data in words of 4 bytes.
    ``full`` names counters that have reached their largest value.
    """

    state: int | None = None
    physical: int | None = None
    active: LinkRate | None = None
    enabled: LinkRate | None = None
    supported: LinkRate | None = None
    gbps: float | None = None
    mtu: int | None = None
    mtu_cap: int | None = None
    lanes: int | None = None
    lanes_cap: int | None = None
    lane_of_sl: tuple[int, ...] | None = None
    p_keys: frozenset[int] | None = None
    diag_code: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)


@dataclass
class NodeView:
    """A node. ``tables`` is a switch's linear forwarding table by LID; 255 is no path.

    ``is_kind_known`` is false if the source does not say whether it is a switch. ``lids`` has
    those of its end ports by port number; of a switch port 0. ``reports`` are
    sentences that the source gives of the node's power, fans or temperature.
    """

    name: str
    is_switch: bool
    guid: int = 0
    lids: dict[int, range] = field(default_factory=dict)
    table: bytes | None = None
    reports: list[str] = field(default_factory=list)
    is_kind_known: bool = True


@dataclass(frozen=True)
class FlowTrouble:
    """What a pair of hosts has lost: ``lost`` of ``sent`` packets were sent again, or never came.

    Hosts count this (retransmissions, packet sequence errors, acknowledge time-outs).
    """

    source: str
    target: str
    lost: int
    sent: int


@dataclass
class FabricSnapshot:
    """All that one sweep saw. ``time`` is in seconds on any clock; None: not known.

    ``peers`` has each cable from both ends. ``duplicates`` are sentences on GUIDs that two nodes
    have, with the ports behind which they are. ``silent`` are ports behind which nothing answers.
    ``asks_all``: every counter was asked for, so that a missing one is unknown, and not a zero that
    the source has left out. ``asker`` is the host's port through which a sweep went.
    ``lacks`` are sentences on what the sources do not say and the rules need; ``can_judge`` is
    false if there is nothing that a rule could look at.
    """

    time: float | None = None
    asks_all: bool = False
    nodes: dict[str, NodeView] = field(default_factory=dict)
    ports: dict[PortKey, PortView] = field(default_factory=dict)
    peers: dict[PortKey, PortKey] = field(default_factory=dict)
    duplicates: list[tuple[str, tuple[PortKey, ...]]] = field(default_factory=list)
    silent: list[PortKey] = field(default_factory=list)
    flows: list[FlowTrouble] = field(default_factory=list)
    asker: PortKey | None = None
    lacks: list[str] = field(default_factory=list)
    can_judge: bool = True

    def add_node(self, name: str, *, is_switch: bool, guid: int = 0) -> NodeView:
        """Return the node of a name, which is added if it is not there."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = NodeView(name, is_switch, guid)
        return found

    def port(self, key: PortKey) -> PortView:
        """Return a port's view, which is added if it is not there."""
        found = self.ports.get(key)
        if found is None:
            found = self.ports[key] = PortView()
        return found

    def connect(self, one: PortKey, other: PortKey) -> None:
        """Note a cable between two ports."""
        self.peers[one] = other
        self.peers[other] = one

    def cables(self) -> list[tuple[PortKey, PortKey]]:
        """Return every cable once."""
        return [(one, other) for one, other in self.peers.items() if one < other]

    def is_switch(self, node: str) -> bool:
        """Whether a node is known as a switch."""
        found = self.nodes.get(node)
        return found is not None and found.is_switch

    def output_of(self, switch: str, lid: int) -> int:
        """Return the output port that a switch has for a LID, or 255."""
        table = self.nodes[switch].table
        return table[lid] if table is not None and lid < len(table) else 255

    def add_counters(self, key: PortKey, counters: Mapping[str, int]) -> None:
        """Note counters of a port; a larger value of one that is known already replaces it."""
        known = self.port(key).counters
        for name, value in counters.items():
            known[name] = max(value, known.get(name, 0))
