# SPDX-License-Identifier: Apache-2.0
"""PathRecord and MultiPathRecord queries: which paths lead from whom to whom (IBA 15.2.5.16).

``SubnetAdministration`` calls ``PathBook.answer`` and ``answer_multi``. MTU and rate are those of
the path's slowest links; the lifetime is the settings' packet life time, as with OpenSM, and 0
from a port to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from ..attribute_ids import SaStatus
from ..codes import gid_from, gid_text
from ..sa_query import SaQuery
from ..sa_records import McMemberRecord, MultiPathRecord, PathRecord, Selector
from ..sm.discovered import SubnetPort
from ..sm.partitions import DEFAULT_P_KEY, FULL_MEMBER, common_p_key
from .path_metrics import RATE_ORDER, PathMetrics, rate_place
from .path_table import path_table
from .refusal import SaRefusal

__all__ = ["GroupLookup", "PathBook", "PathLimits"]

LINK_LOCAL_PREFIX = 0xFE80_0000_0000_0000
_MULTICAST = 0xFF
# PathRecord as bytes, since a table has a hundred thousand of them: behind ServiceID the GIDs and
# LIDs, behind FlowLabel and TClass Reversible, P_Key, SL, and MTU, rate and life with selectors.
_PATH = Struct("!8x16s16sHH5xBHHBBB7x")
_REVERSIBLE = 0x80
_EXACTLY = int(Selector.EXACTLY) << 6
_MOST_PATHS = 127
_FEW = 256  # paths, below which a table by columns is not faster


class GroupLookup(Protocol):
    """Who knows multicast groups by their MGID."""

    def group_record(self, mgid: bytes) -> McMemberRecord | None:
        """Return the record of a group, without a member."""
        ...


@dataclass(frozen=True)
class PathLimits:
    """What a path is to be: selectors and values, None where the query does not say."""

    mtu: tuple[int, int] | None = None
    rate: tuple[int, int] | None = None
    life: tuple[int, int] | None = None
    p_key: int | None = None
    sl: int | None = None
    reversible: bool = False

    @classmethod
    def of(cls, query: SaQuery[PathRecord] | SaQuery[MultiPathRecord]) -> PathLimits:
        """Return the limits of a query."""
        record = query.record

        def pair(name: str) -> tuple[int, int] | None:
            if not query.has(name, f"{name}_selector"):
                return None
            return int(getattr(record, f"{name}_selector")), int(getattr(record, name))

        return cls(
            pair("mtu"),
            pair("rate"),
            pair("packet_life_time"),
            record.p_key if query.has("p_key") else None,
            record.sl if query.has("sl") else None,
            query.has("reversible") and record.reversible,
        )


def selected(found: int, wanted: tuple[int, int] | None) -> int | None:
    """Return what a path of at most ``found`` offers to a query, or None if it does not fit.

    Numbers are ordered: MTU codes, or places of rates. A path can be used below its limit, so that
    EXACTLY and LESS_THAN give what was asked.
    """
    if wanted is None:
        return found
    selector, value = wanted
    if selector == Selector.GREATER_THAN:
        return found if found > value else None
    if selector == Selector.LESS_THAN:
        return min(found, value - 1) if value - 1 >= 0 else None
    if selector == Selector.EXACTLY:
        return value if found >= value else None
    return found


class PathBook:
    """Paths of a subnet after a sweep.

    ``ports`` are the end ports by LID and by GUID; ``prefix`` is the subnet's, and ``life_time``
    the code of PacketLifeTime.
    """

    def __init__(
        self,
        metrics: PathMetrics | None,
        by_lid: dict[int, SubnetPort],
        by_guid: dict[int, SubnetPort],
        prefix: int,
        life_time: int,
        most_records: int,
    ) -> None:
        self._metrics, self._by_lid, self._by_guid = metrics, by_lid, by_guid
        self._prefix, self._life_time, self._most_records = prefix, life_time, most_records
        self._ports = list(by_guid.values())
        self._keys: dict[SubnetPort, list[int]] = {}
        self._gids: dict[SubnetPort, bytes] = {}

    # ---- queries -------------------------------------------------------------------------------

    def answer(
        self, query: SaQuery[PathRecord], groups: GroupLookup, *, several: bool
    ) -> list[PathRecord]:
        """Return the paths that a query asks for. ``several``: it is a GetTable.

        Raises SaRefusal.
        """
        record = query.record
        if query.has("dgid") and record.dgid[0] == _MULTICAST:
            return self._to_group(query, groups)
        sources, slid = self._ends(query, "sgid", "slid")
        targets, dlid = self._ends(query, "dgid", "dlid")
        limits = PathLimits.of(query)
        most = record.numb_path if query.has("numb_path") and record.numb_path else 0
        most = min(most or _MOST_PATHS, _MOST_PATHS) if several else 1
        if len(sources) * len(targets) > self._most_records:
            raise SaRefusal(
                SaStatus.NO_RESOURCES,
                f"the query asks for {len(sources) * len(targets)} paths, and one answer has at"
                f" most {self._most_records}",
            )
        found: list[PathRecord] = []
        for source in sources:
            for target in targets:
                found += self.between(source, target, limits, slid, dlid, most)
        return found

    def table(self, query: SaQuery[PathRecord]) -> bytes | None:
        """Return the answer to a GetTable as bytes, if that does not choose among paths.

        Raises SaRefusal.
        """
        if query.has("dgid") and query.record.dgid[0] == _MULTICAST:
            return None
        (sources, slid), (targets, dlid) = (
            self._ends(query, *names) for names in (("sgid", "slid"), ("dgid", "dlid"))
        )
        many = len(sources) * len(targets)
        is_plain = slid is None and dlid is None and PathLimits.of(query) == PathLimits()
        if self._metrics is None or not is_plain or not _FEW <= many <= self._most_records:
            return None
        return path_table(
            self._metrics, sources, targets, self._gid_of, self._keys_of, self._life_time
        )

    def answer_multi(self, query: SaQuery[MultiPathRecord]) -> list[PathRecord]:
        """Return the paths of a GetMulti. Raises SaRefusal."""
        record = query.record
        count = record.sgid_count + record.dgid_count
        if not record.sgid_count or not record.dgid_count or count > 11:
            raise SaRefusal(
                SaStatus.INSUFFICIENT_COMPONENTS,
                f"MultiPathRecord has {record.sgid_count} sources and {record.dgid_count}"
                " destinations, and needs at least one of each and at most 11 together",
            )
        gids = [number.to_bytes(16, "big") for number in record.gids[:count]]
        ports = [self._by_gid(gid) for gid in gids]
        limits = PathLimits.of(query)
        most = record.numb_path if query.has("numb_path") and record.numb_path else 1
        found: list[PathRecord] = []
        for source in ports[: record.sgid_count]:
            for target in ports[record.sgid_count :]:
                found += self.between(source, target, limits, None, None, most)
        return found[:_MOST_PATHS]

    def _ends(
        self, query: SaQuery[PathRecord], gid_name: str, lid_name: str
    ) -> tuple[list[SubnetPort], int | None]:
        """The ports that a query allows at one end, and the LID that it demands there."""
        gid, lid = getattr(query.record, gid_name), getattr(query.record, lid_name)
        chosen: SubnetPort | None = None
        demanded: int | None = None
        if query.has(lid_name):
            chosen = self._by_lid.get(lid)
            demanded = lid
            if chosen is None:
                raise SaRefusal(SaStatus.NO_RECORDS, f"no port has the LID {lid}")
        if query.has(gid_name):
            by_gid = self._by_gid(gid)
            if chosen is not None and by_gid is not chosen:
                raise SaRefusal(
                    SaStatus.NO_RECORDS, f"LID {lid} and GID {gid_text(gid)} are of two ports"
                )
            chosen = by_gid
        return (self._ports if chosen is None else [chosen]), demanded

    def _by_gid(self, gid: bytes) -> SubnetPort:
        prefix, guid = int.from_bytes(gid[:8], "big"), int.from_bytes(gid[8:], "big")
        port = self._by_guid.get(guid)
        if prefix not in (self._prefix, LINK_LOCAL_PREFIX) or port is None:
            raise SaRefusal(SaStatus.INVALID_GID, f"the GID {gid_text(gid)} is not in the subnet")
        return port

    # ---- one pair ------------------------------------------------------------------------------

    def between(
        self,
        source: SubnetPort,
        target: SubnetPort,
        limits: PathLimits,
        slid: int | None,
        dlid: int | None,
        most: int,
    ) -> Iterator[PathRecord]:
        """Return at most ``most`` paths between two ports, one for each pair of LIDs."""
        key = self._p_key(source, target, limits.p_key)
        if key is None:
            return
        made = 0
        for source_lid, target_lid in _lid_pairs(source, target, slid, dlid):
            record = self._record(source, target, source_lid, target_lid, limits, key)
            if record is not None:
                yield record
                made += 1
                if made >= most:
                    return

    def _p_key(self, source: SubnetPort, target: SubnetPort, wanted: int | None) -> int | None:
        ours, theirs = self._keys_of(source), self._keys_of(target)
        if wanted is not None:
            ours = [key for key in ours if (key ^ wanted) & DEFAULT_P_KEY == 0]
        if source is target:
            return ours[0] if ours else None
        return common_p_key(ours, theirs)

    def _keys_of(self, port: SubnetPort) -> list[int]:
        found = self._keys.get(port)
        if found is None:
            found = self._keys[port] = port.all_p_keys
        return found

    def _gid_of(self, port: SubnetPort) -> bytes:
        found = self._gids.get(port)
        if found is None:
            found = self._gids[port] = gid_from(self._prefix, port.guid)
        return found

    def _record(
        self,
        source: SubnetPort,
        target: SubnetPort,
        slid: int,
        dlid: int,
        limits: PathLimits,
        p_key: int,
    ) -> PathRecord | None:
        metrics = self._metrics
        found = None if metrics is None else metrics.of(source, target, dlid)
        if metrics is None and source is target:
            found = source.info[41] & 15, len(RATE_ORDER) - 1
        if found is None:
            return None
        mtu = selected(found[0], limits.mtu)
        wanted_rate = limits.rate and (limits.rate[0], rate_place(limits.rate[1]))
        rate = selected(found[1], wanted_rate)
        life = self._life(source, target, limits.life)
        if mtu is None or mtu < 1 or rate is None or rate < 0 or life is None:
            return None
        sl = 0 if metrics is None else metrics.sl(source, target)
        if limits.sl is not None and limits.sl != sl:
            return None
        back = metrics is None or metrics.of(target, source, slid) is not None
        if limits.reversible and not back:
            return None
        raw = _PATH.pack(
            self._gid_of(target),
            self._gid_of(source),
            dlid,
            slid,
            _REVERSIBLE if back else 0,
            p_key,
            sl,
            _EXACTLY | mtu,
            _EXACTLY | RATE_ORDER[rate],
            _EXACTLY | life,
        )
        return PathRecord.unpack(raw)

    def _life(
        self, source: SubnetPort, target: SubnetPort, wanted: tuple[int, int] | None
    ) -> int | None:
        """PacketLifeTime: an upper bound that is not the path's to change."""
        life = 0 if source is target else self._life_time
        if wanted is None:
            return life
        selector, value = wanted
        fits = {
            int(Selector.GREATER_THAN): life > value,
            int(Selector.LESS_THAN): life < value,
            int(Selector.EXACTLY): life == value,
        }
        return life if fits.get(selector, True) else None

    def _to_group(self, query: SaQuery[PathRecord], groups: GroupLookup) -> list[PathRecord]:
        """Return the path from ports to a multicast group: the group's parameters."""
        group = groups.group_record(query.record.dgid)
        if group is None:
            raise SaRefusal(SaStatus.NO_RECORDS, f"there is no group {gid_text(query.record.dgid)}")
        sources, slid = self._ends(query, "sgid", "slid")
        return [
            PathRecord(
                dgid=group.mgid,
                sgid=gid_from(self._prefix, source.guid),
                dlid=group.mlid,
                slid=slid if slid is not None else source.lid,
                flow_label=group.flow_label,
                hop_limit=group.hop_limit,
                traffic_class=group.traffic_class,
                p_key=group.p_key,
                sl=group.sl,
                mtu=group.mtu,
                rate=group.rate,
                packet_life_time=group.packet_life_time,
            )
            for source in sources
            if _is_member(source.all_p_keys, group.p_key)
        ]


def _is_member(keys: Iterable[int], p_key: int) -> bool:
    return any(key & ~FULL_MEMBER == p_key & ~FULL_MEMBER for key in keys)


def _lid_pairs(
    source: SubnetPort, target: SubnetPort, slid: int | None, dlid: int | None
) -> Iterator[tuple[int, int]]:
    """Return the LIDs of each path: number k of the one port with number k of the other."""
    ours = source.lids if slid is None else range(slid, slid + 1)
    theirs = target.lids if dlid is None else range(dlid, dlid + 1)
    if not len(ours) or not len(theirs):
        return
    for number in range(max(len(ours), len(theirs))):
        yield ours[number % len(ours)], theirs[number % len(theirs)]
