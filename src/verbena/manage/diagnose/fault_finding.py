# SPDX-License-Identifier: Apache-2.0
"""What a diagnosis says: the kind of fault, who is suspected, how sure, why, and what to do.

The rules make ``FaultFinding``; ``verbena diagnose`` prints them. A suspect names ports, so that a
test can compare it with the place of a planted fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from .fabric_snapshot import PortKey

__all__ = ["FaultFinding", "FaultKind", "FaultSeverity", "FaultSuspect", "SuspectKind"]


class FaultSeverity(IntEnum):
    """How much it matters. A NOTE is no fault and makes no exit status."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


class SuspectKind(Enum):
    """What is to be looked at or replaced."""

    CABLE = "cable"
    PORT = "port"
    HOST = "host"
    SWITCH = "switch"
    TOPOLOGY = "topology"


class FaultKind(Enum):
    """The kinds of fault; the value is a short name for tables and JSON."""

    BAD_CABLE = "bad cable"
    ONE_DIRECTION = "errors in one direction"
    LINK_RETRAINS = "link recovers again and again"
    LINK_FLAPS = "link goes down and comes back"
    LINK_ONCE_DOWN = "link went down once"
    LINK_DOWN = "had a link and has none"
    DISABLED = "port is disabled"
    ASKER_DOWN = "the port that asks has no link"
    LINK_LOST = "link has gone"
    NODE_LOST = "node has gone"
    LINK_INTEGRITY = "link integrity errors"
    BUFFER_OVERRUN = "buffer overruns"
    SILENT_LOSS = "packets vanish on a link"
    PATH_LOSS = "hosts lose packets on a common link"
    NARROW_LINK = "link is narrower than it can be"
    SLOW_LINK = "link is slower than it can be"
    RATE_LIMITED = "a setting limits the link's rate"
    SLOWER_THAN_PEERS = "slower than its peers"
    NOT_ACTIVE = "link is up and not ACTIVE"
    MTU = "MTU differs"
    LANES = "virtual lanes differ"
    P_KEY = "P_Key is wrong"
    PARTITION_DROPS = "packets dropped for their P_Key"
    DUPLICATE_GUID = "two nodes have one GUID"
    NODE_REPORT = "node reports a fault"
    SLOW_RECEIVER = "slow receiver"
    CREDIT_LOOP = "credit loop"
    HOT_PORT = "hot port"
    DOWN_DISCARDS = "discards of a link that was down"
    SLOW_SWITCH = "switch gives credits late"
    ANOTHER_TOPOLOGY = "the intended topology is another one"
    SWAPPED = "cables are swapped"
    WRONG_PORT = "cable is in a wrong port"
    WRONG_CABLE = "cable leads to a wrong node"
    CABLE_MISSING = "cable is missing"
    CABLE_ADDED = "cable that is not intended"
    NODE_MISSING = "node is missing"
    NODE_ADDED = "node that is not intended"
    NO_ROUTE = "no route to a LID"
    ROUTE_LOOP = "tables form a loop"
    UNBALANCED = "routes are unbalanced"
    COUNTER_FULL = "counter is full"


@dataclass(frozen=True)
class FaultSuspect:
    """Who is suspected. ``ports`` are its ports: both ends of a cable, or the only one."""

    kind: SuspectKind
    name: str
    ports: tuple[PortKey, ...] = ()

    @classmethod
    def cable(cls, one: PortKey, other: PortKey) -> FaultSuspect:
        """The cable between two ports."""
        one, other = sorted((one, other))
        return cls(SuspectKind.CABLE, f"{one}-{other}", (one, other))

    @classmethod
    def port(cls, key: PortKey) -> FaultSuspect:
        """One port."""
        return cls(SuspectKind.PORT, str(key), (key,))

    @classmethod
    def node(cls, name: str, *, is_switch: bool, ports: tuple[PortKey, ...] = ()) -> FaultSuspect:
        """A host or a switch."""
        return cls(SuspectKind.SWITCH if is_switch else SuspectKind.HOST, name, ports)

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True)
class FaultFinding:
    """One finding. ``reason`` and ``advice`` are sentences, ``numbers`` the evidence.

    ``others`` are suspects that cannot be told from the first, or belong to it.
    """

    kind: FaultKind
    severity: FaultSeverity
    suspect: FaultSuspect
    reason: str
    advice: str
    numbers: dict[str, float | int | str] = field(default_factory=dict)
    others: tuple[FaultSuspect, ...] = ()

    @property
    def all_ports(self) -> set[PortKey]:
        """The ports of all suspects."""
        return {key for each in (self.suspect, *self.others) for key in each.ports}

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "kind": self.kind.name.lower(),
            "severity": self.severity.name.lower(),
            "suspect": {"kind": self.suspect.kind.value, "name": self.suspect.name},
            "others": [str(each) for each in self.others],
            "reason": self.reason,
            "advice": self.advice,
            "evidence": self.numbers,
        }
