# SPDX-License-Identifier: Apache-2.0
"""Partitions: which ports are members of which P_Keys, and OpenSM's file of them.

A sweep asks ``Partitions.p_keys_of`` for each port, and the SA which partition two ports share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..errors import MadError

__all__ = [
    "DEFAULT_P_KEY",
    "FULL_MEMBER",
    "Membership",
    "Partition",
    "Partitions",
    "common_p_key",
    "read_partitions",
]

FULL_MEMBER = 0x8000  # of a P_Key: bit 15
DEFAULT_P_KEY = 0x7FFF  # the default partition, without the membership bit


class Membership(Enum):
    """How a port belongs to a partition (IBA 10.9.1). Two limited members cannot communicate."""

    FULL = "full"
    LIMITED = "limited"
    BOTH = "both"


@dataclass(frozen=True)
class Partition:
    """A partition: its P_Key without the membership bit, and its members by port GUID.

    ``everybody`` is the membership of end ports without an entry in ``members``, or None; ``sm`` is
    that of the subnet manager's port, and ``switches`` that of the ports 0 of switches, if they
    differ. With ``ipoib`` the SA makes the IPv4 broadcast group, with this MTU code, rate code and
    SL.
    """

    name: str
    p_key: int
    members: Mapping[int, Membership] = field(default_factory=dict)
    everybody: Membership | None = None
    sm: Membership | None = None
    switches: Membership | None = None
    ipoib: bool = False
    mtu: int = 4
    rate: int = 3
    sl: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.p_key <= DEFAULT_P_KEY:
            raise MadError(f"partition {self.name}: {self.p_key:#x} is no P_Key of 15 bits")

    def membership(self, guid: int, is_sm: bool, is_switch: bool) -> Membership | None:
        """Return how a port belongs to the partition, or None."""
        found = self.members.get(guid)
        if found is None and is_sm:
            found = self.sm
        if found is None and is_switch:
            found = self.switches
        return found or self.everybody


_WHOLE_SUBNET = (Partition("Default", DEFAULT_P_KEY, everybody=Membership.FULL),)


@dataclass(frozen=True)
class Partitions:
    """All partitions of a subnet; by default every port is a full member of the default one.

    Raises MadError if two partitions have one P_Key.
    """

    partitions: tuple[Partition, ...] = _WHOLE_SUBNET

    def __post_init__(self) -> None:
        keys = [each.p_key for each in self.partitions]
        for key in keys:
            if keys.count(key) > 1:
                raise MadError(f"two partitions have the P_Key {key:#x}")

    def p_keys_of(self, guid: int, *, is_sm: bool = False, is_switch: bool = False) -> list[int]:
        """Return the P_Keys of a port, as its table is to have them: the default one first.

        The SM's port always is a full member of the default partition, since it could not answer
        queries otherwise.
        """
        found = []
        for partition in self.partitions:
            membership = partition.membership(guid, is_sm, is_switch)
            if membership in (Membership.FULL, Membership.BOTH):
                found.append(partition.p_key | FULL_MEMBER)
            if membership in (Membership.LIMITED, Membership.BOTH):
                found.append(partition.p_key)
        if is_sm and DEFAULT_P_KEY | FULL_MEMBER not in found:
            found.append(DEFAULT_P_KEY | FULL_MEMBER)
        if len(found) > 1:
            found.sort(key=lambda key: key & DEFAULT_P_KEY != DEFAULT_P_KEY)
        return found

    def named(self, p_key: int) -> Partition | None:
        """Return the partition with a P_Key, whatever its membership bit."""
        for partition in self.partitions:
            if partition.p_key == p_key & DEFAULT_P_KEY:
                return partition
        return None


def common_p_key(one: Iterable[int], other: Iterable[int]) -> int | None:
    """Return the first P_Key by which two ports can communicate, or None.

    Both have the key, and at least one of them as a full member (IBA 10.9.3). The result has the
    membership bit of ``one``, as packets of that port carry it.
    """
    theirs = set(other)
    for key in one:
        if key & FULL_MEMBER:
            if key in theirs or key & DEFAULT_P_KEY in theirs:
                return key
        elif key and key | FULL_MEMBER in theirs:
            return key
    return None


_HEADER = re.compile(
    r"\s*(?:(?P<name>[^=,:\s]+)\s*)?(?:=\s*(?P<key>\w+)\s*)?(?P<flags>(?:,[^:]*)?)"
)
_EVERYBODY = {"ALL", "ALL_CAS"}


def read_partitions(text: str) -> Partitions:
    """Read partitions from the text of a file that OpenSM reads with ``-P``.

    An entry is ``Name = 0xKEY, flags : member, member ;``. Flags are ``ipoib``, ``mtu=``,
    ``rate=``, ``sl=`` and ``defmember=full|limited|both``; members are port GUIDs, ``ALL``,
    ``ALL_CAS``, ``ALL_SWITCHES`` and ``SELF``, each with ``=full``, ``=limited`` or ``=both``.
    Raises MadError, which names the line and the entry, for anything else.
    """
    bare = re.sub(r"#[^\n]*", "", text)
    found: list[Partition] = []
    at = 0
    for entry in bare.split(";"):
        if entry.strip():
            line = bare.count("\n", 0, at + len(entry) - len(entry.lstrip())) + 1
            try:
                found.append(_read_partition(entry, len(found)))
            except MadError as error:
                raise MadError(f"line {line}: {error}") from None
        at += len(entry) + 1
    if all(each.p_key != DEFAULT_P_KEY for each in found):
        default = Partition(
            "Default", DEFAULT_P_KEY, everybody=Membership.LIMITED, sm=Membership.FULL
        )
        found.insert(0, default)
    return Partitions(tuple(found))


def _read_partition(entry: str, number: int) -> Partition:
    head, colon, members = entry.partition(":")
    matched = _HEADER.fullmatch(head)
    if not matched or not colon:
        shown = " ".join(entry.split())
        raise MadError(f"{shown!r} is not 'Name = key, flags : members'; each ends with ;")
    name = matched["name"] or f"partition{number}"
    if matched["key"]:
        whole = _number(name, matched["key"])
        if whole > 0xFFFF:
            raise MadError(f"partition {name}: {whole:#x} is no P_Key of 16 bits")
        key = whole & DEFAULT_P_KEY
    elif name == "Default":
        key = DEFAULT_P_KEY
    else:
        raise MadError(f"partition {name} has no P_Key")
    values: dict[str, int] = {}
    default, ipoib = Membership.LIMITED, False
    for flag in filter(None, (each.strip() for each in matched["flags"].split(","))):
        option, _, value = (each.strip() for each in flag.partition("="))
        if option == "ipoib":
            ipoib = True
        elif option in ("mtu", "rate", "sl"):
            values[option] = _number(name, value)
        elif option == "defmember":
            default = _membership(name, value)
        else:
            raise MadError(f"partition {name}: the flag {flag!r} is not known")
    by_guid, special = _read_members(name, members, default)
    return Partition(name, key, by_guid, ipoib=ipoib, **special, **values)  # type: ignore[arg-type]


def _read_members(
    name: str, members: str, default: Membership
) -> tuple[dict[int, Membership], dict[str, Membership]]:
    by_guid: dict[int, Membership] = {}
    special: dict[str, Membership] = {}
    for member in filter(None, (each.strip() for each in members.split(","))):
        who, _, how = (each.strip() for each in member.partition("="))
        membership = _membership(name, how) if how else default
        if who in _EVERYBODY:
            special["everybody"] = membership
        elif who == "ALL_SWITCHES":
            special["switches"] = membership
        elif who == "SELF":
            special["sm"] = membership
        else:
            by_guid[_number(name, who)] = membership
    return by_guid, special


def _number(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise MadError(f"partition {name}: {text!r} is not a number") from None


def _membership(name: str, text: str) -> Membership:
    try:
        return Membership(text)
    except ValueError:
        raise MadError(f"partition {name}: {text!r} is not full, limited or both") from None
