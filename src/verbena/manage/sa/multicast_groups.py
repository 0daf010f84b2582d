# SPDX-License-Identifier: Apache-2.0
"""Multicast groups of a subnet: who makes, joins and leaves them (IBA 15.2.5.17).

``SubnetAdministration`` passes MCMemberRecord requests on, and the subnet manager reads the members
for its trees. A group lives while it has a full member, unless it is permanent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..attribute_ids import SaStatus
from ..codes import IbMtu, IbRate, gid_from, gid_text
from ..sa_query import SaQuery
from ..sa_records import JoinState, McMemberRecord, Selector
from ..sm.discovered import DiscoveredSubnet, SubnetPort
from ..sm.multicast_routing import FIRST_MLID
from ..sm.partitions import DEFAULT_P_KEY, FULL_MEMBER, Partition
from .path_metrics import RATE_ORDER, link_rate_code, rate_place
from .path_records import selected
from .refusal import SaRefusal

__all__ = ["GroupMember", "MulticastGroup", "MulticastGroups", "ipoib_broadcast_mgid"]

LAST_MLID = 0xFFFE
_NEEDED = ("qkey", "traffic_class", "p_key", "sl", "flow_label")
_SAME = ("qkey", "traffic_class", "sl", "flow_label", "hop_limit", "scope")
_DEFAULT_LIFE = 18
# MGIDs that the SA makes: transient, with the signature that IBA keeps for the SA.
_SA_SIGNATURE = 0xA01B


def ipoib_broadcast_mgid(p_key: int, scope: int = 2) -> bytes:
    """Return the MGID of IPv4 broadcast on a partition (RFC 4391, section 4)."""
    head = bytes((0xFF, 0x10 | scope, 0x40, 0x1B)) + (p_key | FULL_MEMBER).to_bytes(2, "big")
    return head + bytes(6) + b"\xff\xff\xff\xff"


@dataclass
class GroupMember:
    """A member: its port, how it belongs, and whether another port joined for it."""

    port: SubnetPort
    join_state: JoinState
    proxy: bool = False


@dataclass
class MulticastGroup:
    """A group. ``record`` has its parameters, without a member; members are by port GUID."""

    record: McMemberRecord
    members: dict[int, GroupMember] = field(default_factory=dict)
    permanent: bool = False

    @property
    def mgid(self) -> bytes:
        """The group's GID."""
        return self.record.mgid

    @property
    def mlid(self) -> int:
        """The group's LID."""
        return self.record.mlid

    def member_record(self, member: GroupMember, prefix: int) -> McMemberRecord:
        """Return the record of one membership."""
        return self.record.replace(
            port_gid=gid_from(prefix, member.port.guid),
            join_state=member.join_state,
            proxy_join=member.proxy,
        )


class MulticastGroups:
    """All groups, by MGID. ``created`` and ``deleted`` are MGIDs for traps 66 and 67 to take."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self.groups: dict[bytes, MulticastGroup] = {}
        self.created: list[bytes] = []
        self.deleted: list[bytes] = []
        self._mlids: dict[int, bytes] = {}
        self._next_mgid = 1

    # ---- what others ask -----------------------------------------------------------------------

    def group_record(self, mgid: bytes) -> McMemberRecord | None:
        """Return the record of a group, without a member."""
        group = self.groups.get(mgid)
        return group.record if group else None

    def members_by_mlid(self, subnet: DiscoveredSubnet) -> Mapping[int, Iterable[tuple[int, int]]]:
        """Return the members that get packets, as node GUID and port number, by MLID.

        Senders that do not receive are members of the tree as well, since a switch forwards a
        packet along the tree only.
        """
        here = subnet.by_port_guid()
        found: dict[int, list[tuple[int, int]]] = {}
        for mlid, mgid in self._mlids.items():
            members = self.groups[mgid].members
            ports = [here[guid] for guid in members if guid in here]
            found[mlid] = [(port.node.guid, port.number) for port in ports]
        return found

    def records(self, *, all_members: bool) -> Iterable[McMemberRecord]:
        """Return a record for each membership, or for each group without naming members."""
        for group in self.groups.values():
            if not all_members or not group.members:
                state = JoinState.FULL if group.members else JoinState(0)
                yield group.record.replace(join_state=state)
                continue
            for member in group.members.values():
                yield group.member_record(member, self.prefix)

    # ---- joining and leaving -------------------------------------------------------------------

    def join(
        self,
        query: SaQuery[McMemberRecord],
        port: SubnetPort,
        subnet: DiscoveredSubnet,
        proxy: bool,
    ) -> McMemberRecord:
        """Let a port join, and make the group if need be. Raises SaRefusal."""
        record = query.record
        if not query.has("join_state") or not record.join_state & 15:
            raise SaRefusal(
                SaStatus.INSUFFICIENT_COMPONENTS, "a join needs a JoinState that is not 0"
            )
        mgid = record.mgid if query.has("mgid") else bytes(16)
        group = self.groups.get(mgid)
        if group is None:
            group = self._create(query, mgid, port, subnet)
        else:
            self._check_fits(query, group)
            self._check_able(group.record, port)
        member = group.members.setdefault(port.guid, GroupMember(port, JoinState(0), proxy))
        member.join_state |= JoinState(record.join_state & 15)
        return group.member_record(member, self.prefix)

    def leave(self, query: SaQuery[McMemberRecord], port: SubnetPort) -> McMemberRecord:
        """Take away kinds of membership from a port. Raises SaRefusal."""
        group = self.groups.get(query.record.mgid)
        if group is None:
            mgid = gid_text(query.record.mgid)
            raise SaRefusal(SaStatus.REQUEST_INVALID, f"there is no group {mgid}")
        member = group.members.get(port.guid)
        leaving = JoinState(query.record.join_state & 15)
        if member is None or not leaving or leaving & ~member.join_state:
            raise SaRefusal(
                SaStatus.REQUEST_INVALID,
                f"{port!r} is not a member of {gid_text(group.mgid)} in this way",
            )
        answer = group.member_record(member, self.prefix).replace(join_state=leaving)
        member.join_state &= ~leaving
        if not member.join_state:
            del group.members[port.guid]
        self._close(group)
        return answer

    def subnet_changed(self, subnet: DiscoveredSubnet) -> bool:
        """Forget members whose port has left the subnet; return whether there were some."""
        here = subnet.by_port_guid()
        changed = False
        for group in list(self.groups.values()):
            for guid, member in list(group.members.items()):
                port = here.get(guid)
                if port is None:
                    del group.members[guid]
                    changed = True
                else:
                    member.port = port
            self._close(group)
        return changed

    def make_permanent(self, partition: Partition, subnet: DiscoveredSubnet) -> None:
        """Make the IPv4 broadcast group of a partition, which stays without members."""
        mgid = ipoib_broadcast_mgid(partition.p_key)
        if mgid in self.groups:
            return
        record = McMemberRecord(
            mgid=mgid,
            qkey=0x0B1B,
            mlid=self._free_mlid(subnet),
            mtu=IbMtu(partition.mtu),
            p_key=partition.p_key | FULL_MEMBER,
            rate=IbRate(partition.rate),
            packet_life_time=_DEFAULT_LIFE,
            sl=partition.sl,
            scope=2,
        )
        self._enter(MulticastGroup(record, permanent=True))

    def clear(self) -> None:
        """Forget all groups."""
        self.groups.clear()
        self._mlids.clear()

    # ---- details -------------------------------------------------------------------------------

    def _create(
        self,
        query: SaQuery[McMemberRecord],
        mgid: bytes,
        port: SubnetPort,
        subnet: DiscoveredSubnet,
    ) -> MulticastGroup:
        record = query.record
        missing = [name for name in _NEEDED if not query.has(name)]
        if missing:
            raise SaRefusal(
                SaStatus.INSUFFICIENT_COMPONENTS,
                f"the group {gid_text(mgid)} does not exist, and making it needs"
                f" {', '.join(missing)}",
            )
        if not record.join_state & (JoinState.FULL | JoinState.SEND_ONLY_FULL):
            raise SaRefusal(SaStatus.REQUEST_INVALID, "only a full member makes a group")
        if any(mgid) and not _is_valid_mgid(mgid):
            raise SaRefusal(SaStatus.REQUEST_INVALID, f"{gid_text(mgid)} is no MGID for a group")
        own_mtu, own_rate = _abilities(port)
        mtu = _chosen(query, "mtu", own_mtu, record.mtu)
        rate = _chosen(query, "rate", own_rate, rate_place(record.rate))
        if not _shares(port, record.p_key):
            raise SaRefusal(
                SaStatus.REQUEST_INVALID, f"{port!r} is not in the partition {record.p_key:#x}"
            )
        if not any(mgid):
            mgid = self._new_mgid(record.p_key)
        life = record.packet_life_time
        has_life = query.has("packet_life_time", "packet_life_time_selector")
        made = McMemberRecord(
            mgid=mgid,
            qkey=record.qkey,
            mlid=self._free_mlid(subnet),
            mtu=IbMtu(mtu),
            traffic_class=record.traffic_class,
            p_key=record.p_key,
            rate=RATE_ORDER[rate],
            packet_life_time=life if has_life else _DEFAULT_LIFE,
            sl=record.sl,
            flow_label=record.flow_label,
            hop_limit=record.hop_limit if query.has("hop_limit") else 0,
            scope=mgid[1] & 15,
        )
        group = MulticastGroup(made)
        self._enter(group)
        return group

    def _enter(self, group: MulticastGroup) -> None:
        self.groups[group.mgid] = group
        self._mlids[group.mlid] = group.mgid
        self.created.append(group.mgid)

    def _close(self, group: MulticastGroup) -> None:
        """Delete a group without a full member."""
        full = JoinState.FULL | JoinState.SEND_ONLY_FULL
        if group.permanent or any(each.join_state & full for each in group.members.values()):
            return
        if group.mgid in self.groups:
            del self.groups[group.mgid]
            del self._mlids[group.mlid]
            self.deleted.append(group.mgid)

    def _check_fits(self, query: SaQuery[McMemberRecord], group: MulticastGroup) -> None:
        """Raise SaRefusal if what a join says about the group is not so."""
        record, has = query.record, group.record
        wrong = [
            name
            for name in _SAME
            if query.has(name) and getattr(record, name) != getattr(has, name)
        ]
        if query.has("p_key") and (record.p_key ^ has.p_key) & DEFAULT_P_KEY:
            wrong.append("p_key")
        if query.has("mlid") and record.mlid != has.mlid:
            wrong.append("mlid")
        places: dict[str, tuple[int, int]] = {"mtu": (has.mtu, record.mtu)}
        places["rate"] = rate_place(has.rate), rate_place(record.rate)
        places["packet_life_time"] = has.packet_life_time, record.packet_life_time
        for name, (ours, theirs) in places.items():
            if query.has(name, f"{name}_selector"):
                selector = getattr(record, f"{name}_selector")
                fits = {
                    int(Selector.GREATER_THAN): ours > theirs,
                    int(Selector.LESS_THAN): ours < theirs,
                    int(Selector.EXACTLY): ours == theirs,
                }
                if not fits.get(int(selector), True):
                    wrong.append(name)
        if wrong:
            raise SaRefusal(
                SaStatus.REQUEST_INVALID,
                f"the group {gid_text(group.mgid)} has another {', '.join(wrong)}",
            )

    @staticmethod
    def _check_able(record: McMemberRecord, port: SubnetPort) -> None:
        """Raise SaRefusal if a port is in another partition, or too slow, or has a smaller MTU."""
        mtu, rate = _abilities(port)
        if not _shares(port, record.p_key):
            raise SaRefusal(
                SaStatus.REQUEST_INVALID, f"{port!r} is not in the partition {record.p_key:#x}"
            )
        if mtu < record.mtu or rate < rate_place(record.rate):
            raise SaRefusal(
                SaStatus.REQUEST_INVALID,
                f"{port!r} has an MTU of {IbMtu(mtu).payload} and {RATE_ORDER[rate].gbps:g} Gb/s,"
                f" and the group needs {record.mtu.payload} and {record.rate.gbps:g} Gb/s",
            )

    def _free_mlid(self, subnet: DiscoveredSubnet) -> int:
        """Return the lowest MLID that is free and that all switches have room for."""
        room = [
            node.switch_info[4] << 8 | node.switch_info[5]
            for node in subnet.switches
            if node.switch_info
        ]
        last = min(LAST_MLID, FIRST_MLID + min(room, default=LAST_MLID) - 1)
        for mlid in range(FIRST_MLID, last + 1):
            if mlid not in self._mlids:
                return mlid
        raise SaRefusal(
            SaStatus.NO_RESOURCES,
            f"all {last - FIRST_MLID + 1} multicast LIDs of the switches are in use",
        )

    def _new_mgid(self, p_key: int) -> bytes:
        while True:
            head = bytes((0xFF, 0x12)) + _SA_SIGNATURE.to_bytes(2, "big") + p_key.to_bytes(2, "big")
            mgid = head + self._next_mgid.to_bytes(10, "big")
            self._next_mgid += 1
            if mgid not in self.groups:
                return mgid


def _is_valid_mgid(mgid: bytes) -> bool:
    """A multicast GID whose scope is not reserved, and which the SA does not give itself."""
    return mgid[0] == 0xFF and mgid[1] & 15 not in (0, 15) and mgid[1] >> 4 in (0, 1)


def _abilities(port: SubnetPort) -> tuple[int, int]:
    """The largest MTU code of a port's link, and the place of its rate."""
    info = port.info
    mtu = info[36] >> 4 or info[41] & 15
    return mtu, rate_place(link_rate_code(info))


def _shares(port: SubnetPort, p_key: int) -> bool:
    return any((key ^ p_key) & DEFAULT_P_KEY == 0 for key in port.all_p_keys)


def _chosen(query: SaQuery[McMemberRecord], name: str, own: int, value: int) -> int:
    """Return the MTU code or the rate's place of a new group."""
    wanted = None
    if query.has(name, f"{name}_selector"):
        wanted = int(getattr(query.record, f"{name}_selector")), value
    found = selected(own, wanted)
    if found is None or found < (1 if name == "mtu" else 0):
        raise SaRefusal(SaStatus.REQUEST_INVALID, f"the port cannot have the {name} of the group")
    return found
