# SPDX-License-Identifier: Apache-2.0
"""The tables [[partition]] of a scenario, which its subnet manager sets, and the P_Keys of flows.

``Scenario`` reads the tables before the traffic. ``ManagedRun`` gives them to the subnet manager,
and ``flow_keys`` says which P_Key each flow has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from verbena.manage.sm.partitions import DEFAULT_P_KEY, FULL_MEMBER, Membership, Partition
from verbena.sim.document import Section, toml_text
from verbena.sim.settings import MANY, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verbena.fabrics import Fabric

__all__ = ["HostPartition", "flow_keys", "p_key_of", "partitions_for", "read_host_partitions"]

AS_MEMBER = 1 << 16
"""Added to a flow's partition: its source has the membership bit that its own P_Key has."""
WHOLE = (Partition("Default", DEFAULT_P_KEY, everybody=Membership.FULL),)


class _Table(Settings):
    name: str
    pkey: Annotated[int, Meta(ge=1, le=DEFAULT_P_KEY)]
    full: Annotated[list[str], MANY] = field(default_factory=list)
    limited: Annotated[list[str], MANY] = field(default_factory=list)
    others: Literal["full", "limited"] | None = None


@dataclass(frozen=True)
class HostPartition:
    """A partition whose members are hosts by name. ``p_key`` has 15 bits.

    ``others``: what hosts without an entry in ``members`` are, or None.
    """

    name: str
    p_key: int
    members: dict[str, Membership]
    others: Membership | None

    def is_full(self, host: str) -> bool:
        """Whether a host is a full member."""
        return self.members.get(host, self.others) is Membership.FULL


def read_host_partitions(
    sections: list[Section], fabric: Fabric, *, is_bare: bool
) -> tuple[HostPartition, ...]:
    """Return the tables. ``is_bare``: a subnet manager brings the fabric up before the traffic.

    Raises ScenarioError.
    """
    found: list[HostPartition] = []
    for section in sections:
        of = section.read(_Table)
        if not is_bare:
            raise section.error(
                None,
                "is set by a subnet manager before the traffic begins: write"
                ' management.begin = "bare"',
            )
        for key, names in (("full", of.full), ("limited", of.limited)):
            for name in names:
                if name not in fabric.hosts:
                    raise section.error(key, f"= {toml_text(name)}: there is no such host")
        if both := sorted(set(of.full) & set(of.limited)):
            raise section.error("limited", f"has {both[0]}, which is a full member already")
        for other in found:
            if other.name == of.name:
                raise section.error("name", f"= {toml_text(of.name)}: another partition has it")
            if other.p_key == of.pkey:
                raise section.error("pkey", f"= {of.pkey:#x}: that of {other.name}")
        members = dict.fromkeys(of.full, Membership.FULL)
        members |= dict.fromkeys(of.limited, Membership.LIMITED)
        others = None if of.others is None else Membership(of.others)
        found.append(HostPartition(of.name, of.pkey, members, others))
    return tuple(found)


def partitions_for(
    tables: tuple[HostPartition, ...], guid: Callable[[str], int]
) -> tuple[Partition, ...]:
    """Return them for a subnet manager; ``guid`` gives that of a host's port.

    Everybody is in the default partition, unless one of the tables is that.
    """
    made = tuple(
        Partition(
            each.name,
            each.p_key,
            {guid(host): kind for host, kind in each.members.items()},
            each.others,
        )
        for each in tables
    )
    has_default = any(each.p_key == DEFAULT_P_KEY for each in made)
    return made if has_default else WHOLE + made


def p_key_of(value: object, tables: tuple[HostPartition, ...]) -> int:
    """Return the key of flows that a [[traffic]] gives: a P_Key of 16 bits, or a partition's name.

    A name becomes the partition's P_Key with ``AS_MEMBER``. Raises ValueError.
    """
    if isinstance(value, str):
        for each in tables:
            if each.name == value:
                return AS_MEMBER | each.p_key
        names = ", ".join(each.name for each in tables) or "none"
        raise ValueError(f"there is no partition of that name: there is {names}")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not (0 < value < AS_MEMBER and value & DEFAULT_P_KEY):  # type: ignore[operator]
        raise ValueError("write a P_Key of 16 bits, as 0x8001, or the name of a [[partition]]")
    if not tables and value != DEFAULT_P_KEY | FULL_MEMBER:
        raise ValueError("no P_Key but 0xffff is anywhere: add a [[partition]]")
    return int(value)  # type: ignore[call-overload, no-any-return]


def flow_keys(
    keys: NDArray[np.int64],
    sources: NDArray[np.integer],
    hosts: Sequence[str],
    tables: tuple[HostPartition, ...],
) -> NDArray[np.int64]:
    """Return the P_Key of 16 bits of each flow, whose sources are numbers of ``hosts``."""
    made = keys.copy()
    for each in tables:
        chosen = keys == AS_MEMBER | each.p_key
        if chosen.any():
            bits = [FULL_MEMBER * each.is_full(host) for host in hosts]
            made[chosen] = each.p_key | np.array(bits, np.int64)[sources[chosen]]
    return made
