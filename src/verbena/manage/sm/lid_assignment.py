# SPDX-License-Identifier: Apache-2.0
"""Which LIDs ports get: those that they had, if nobody else has them, and else free ones.

A sweep calls ``assign_lids``. The map from GUID to LID that it returns is the memory of a subnet
manager: a program keeps it, and gives it to the next manager as ``SmSettings.guid_to_lid``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import MadError
from .discovered import DiscoveredSubnet, SubnetPort
from .settings import SmSettings

__all__ = ["assign_lids", "read_guid_to_lid", "write_guid_to_lid"]


def assign_lids(
    subnet: DiscoveredSubnet, settings: SmSettings, known: Mapping[int, int]
) -> dict[int, int]:
    """Set ``lid`` and ``lmc`` of every end port, and return the map from GUID to first LID.

    ``known`` is the map of earlier sweeps. The SM's own port chooses first, then CAs and routers,
    then switches, each in the order in which it was found, as with OpenSM. A LID in ``known`` stays
    reserved while its port is not in the subnet, unless all LIDs are in use. Raises MadError if
    there are more ports than LIDs.
    """
    ports = _in_order(subnet)
    taken = bytearray(0x10000)
    waiting = []
    here = {port.guid for port in ports}
    for port in ports:
        port.lmc = settings.lmc if _has_lmc(port) else 0
        if not _take(taken, known.get(port.guid, 0), port, settings):
            waiting.append(port)
    again = []
    for port in waiting:
        current = port.info[16] << 8 | port.info[17] if port.info and settings.keep_lids else 0
        if not _take(taken, current, port, settings):
            again.append(port)
    made = dict(known)
    reserved = bytearray(taken)
    for guid, lid in known.items():
        if guid not in here:
            for each in range(lid, min(lid + (1 << settings.lmc), 0xC000)):
                reserved[each] = 1
    for port in again:
        free = _free(reserved, port.lmc, settings)
        if free is None:
            # The LIDs of ports that are away are the last reserve.
            free = _free(taken, port.lmc, settings)
            if free is None:
                raise MadError(
                    f"all LIDs from {settings.first_lid} to {settings.last_lid} are in use:"
                    f" {port!r} gets none"
                )
            made = {guid: each for guid, each in made.items() if each != free}
        _enter(taken, free, port)
        _enter(reserved, free, port)
    for port in ports:
        made[port.guid] = port.lid
    return made


def _in_order(subnet: DiscoveredSubnet) -> list[SubnetPort]:
    own = subnet.own_port
    first = [own] if own is not None else []
    adapters = [port for port in subnet.end_ports if not port.node.is_switch and port is not own]
    switches = [port for port in subnet.end_ports if port.node.is_switch and port is not own]
    return first + adapters + switches


def _has_lmc(port: SubnetPort) -> bool:
    """Whether a port may have several LIDs: an enhanced port 0 does, and no base port 0."""
    return not port.node.is_switch or port.node.switch.enhanced_port_0


def _take(taken: bytearray, lid: int, port: SubnetPort, settings: SmSettings) -> bool:
    """Give a port this LID if it is a good one that is free."""
    count = 1 << port.lmc
    if not settings.first_lid <= lid <= settings.last_lid + 1 - count or lid % count:
        return False
    if any(taken[lid : lid + count]):
        return False
    _enter(taken, lid, port)
    return True


def _enter(taken: bytearray, lid: int, port: SubnetPort) -> None:
    port.lid = lid
    for each in port.lids:
        taken[each] = 1


def _free(taken: bytearray, lmc: int, settings: SmSettings) -> int | None:
    """Return the first LID of the lowest free range for an LMC, or None."""
    count = 1 << lmc
    if count == 1:
        lid = taken.find(0, settings.first_lid, settings.last_lid + 1)
        return lid if lid >= 0 else None
    start = -(-settings.first_lid // count) * count
    for lid in range(start, settings.last_lid + 2 - count, count):
        if not any(taken[lid : lid + count]):
            return lid
    return None


def write_guid_to_lid(known: Mapping[int, int], lmc: int = 0) -> str:
    """Return the text of OpenSM's file ``guid2lid``: a GUID, its first and its last LID."""
    last = (1 << lmc) - 1
    lines = (
        f"0x{guid:016x} 0x{lid:04x} 0x{lid + last:04x}\n\n" for guid, lid in sorted(known.items())
    )
    return "".join(lines)


def read_guid_to_lid(text: str) -> dict[int, int]:
    """Read OpenSM's file ``guid2lid``. Raises MadError, which names the line."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            guid, first, last = (int(word, 16) for word in words)
        except ValueError:
            raise MadError(f"line {number}: {line.strip()!r} is not a GUID and two LIDs") from None
        if not 1 <= first <= last <= 0xBFFF:
            raise MadError(f"line {number}: {first:#x} to {last:#x} are no unicast LIDs")
        found[guid] = first
    return found
