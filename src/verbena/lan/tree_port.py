# SPDX-License-Identifier: Apache-2.0
"""The states of a switch's port in the spanning tree (IEEE 802.1D-1998, 8.4 and 8.5.5).

``TRANSITIONS`` is the state machine: which event takes a port from which state to which.
``spanning_tree.py`` decides on the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from verbena.lan.errors import LanError


class PortState(StrEnum):
    DISABLED = "disabled"
    BLOCKING = "blocking"
    LISTENING = "listening"
    LEARNING = "learning"
    FORWARDING = "forwarding"

    @property
    def learns(self) -> bool:
        """Whether source addresses of frames that arrive are learnt."""
        return self in (PortState.LEARNING, PortState.FORWARDING)


class PortEvent(StrEnum):
    ENABLED = "the link came"
    GONE = "the link went"
    CHOSEN = "the port became root port or designated"
    REJECTED = "another port is the way"
    DELAYED = "the forward delay is over"


S, E = PortState, PortEvent
TRANSITIONS: dict[tuple[PortState, PortEvent], PortState] = {
    (S.DISABLED, E.ENABLED): S.BLOCKING,
    (S.BLOCKING, E.CHOSEN): S.LISTENING,
    (S.LISTENING, E.DELAYED): S.LEARNING,
    (S.LEARNING, E.DELAYED): S.FORWARDING,
    (S.LISTENING, E.REJECTED): S.BLOCKING,
    (S.LEARNING, E.REJECTED): S.BLOCKING,
    (S.FORWARDING, E.REJECTED): S.BLOCKING,
    (S.BLOCKING, E.GONE): S.DISABLED,
    (S.LISTENING, E.GONE): S.DISABLED,
    (S.LEARNING, E.GONE): S.DISABLED,
    (S.FORWARDING, E.GONE): S.DISABLED,
    # What changes nothing.
    (S.DISABLED, E.GONE): S.DISABLED,
    (S.DISABLED, E.REJECTED): S.DISABLED,
    (S.BLOCKING, E.REJECTED): S.BLOCKING,
    (S.LISTENING, E.CHOSEN): S.LISTENING,
    (S.LEARNING, E.CHOSEN): S.LEARNING,
    (S.FORWARDING, E.CHOSEN): S.FORWARDING,
}

COSTS = {10: 100, 16: 62, 100: 19, 1000: 4, 10_000: 2}
"""Of a path, by rate in Mb/s (802.1D-1998, table 8-5); other rates take that of the next lower."""


def path_cost(rate_mbps: float) -> int:
    """The cost of a port with this rate."""
    below = [cost for rate, cost in COSTS.items() if rate <= rate_mbps]
    return below[-1] if below else round(1000 / rate_mbps)


@dataclass
class TreePort:
    """What the spanning tree knows of a port. ``heard`` is the best configuration on its LAN:
    (root, cost, designated bridge, designated port)."""

    number: int
    cost: int
    heard: tuple[bytes, int, bytes, int]
    priority: int = 128
    state: PortState = PortState.DISABLED
    owes_acknowledgement: bool = False
    holds_configuration: bool = False

    @property
    def identifier(self) -> int:
        """Priority and number, the lower the better."""
        return self.priority << 8 | self.number

    def step(self, event: PortEvent) -> None:
        """Takes the port to its next state. Raises LanError if that cannot happen."""
        if (self.state, event) not in TRANSITIONS:
            raise LanError(f"port {self.number} is {self.state.value}, and {event.value}")
        self.state = TRANSITIONS[self.state, event]
