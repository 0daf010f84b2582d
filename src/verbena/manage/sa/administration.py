# SPDX-License-Identifier: Apache-2.0
"""Subnet administration (SA, IBA chapter 15): answers to queries, from the subnet manager's view.

Whoever has the port of a ``SubnetManager`` gives it every packet of class SubnAdm, and sends what
comes back; ``tick`` and ``next_deadline`` are as the manager's. Answers beyond one MAD go out by
RMPP. ``answer`` takes and returns whole messages instead, for a requester on the same host.

    administration = SubnetAdministration(manager)
    packets = administration.receive(packet, now)

Only a master answers; any other manager is silent. A requester sees ports with which it shares a
partition, and a request that is refused leaves its sentence in ``refusals``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar

from ..agents.packets import MadPacket
from ..attribute_ids import Method, MgmtClass, SaAttribute, SaStatus, StatusCode, response_method
from ..class_port_info import ClassPortInfo, SaCapability
from ..codes import SmState, gid_from, gid_text
from ..errors import MadError
from ..mad import GENERAL_QKEY, MAD_BYTES, SaMad
from ..notices import GidTrap, Notice, ProducerType, TrapNumber, trap_notice
from ..record import Record
from ..rmpp import is_rmpp
from ..rmpp_transfers import RmppOutcome, RmppTransfers
from ..sa_query import SaQuery, components
from ..sa_records import (
    SA_RECORDS,
    InformInfo,
    McMemberRecord,
    MultiPathRecord,
    PathRecord,
    PortInfoRecord,
    ServiceRecord,
    SmInfoRecord,
    pack_table,
    record_stride,
)
from ..sm.discovered import DiscoveredSubnet, SubnetPort
from ..sm.partitions import common_p_key
from ..sm.subnet_manager import SubnetManager
from .multicast_groups import MulticastGroups
from .path_metrics import PathMetrics
from .path_records import PathBook
from .refusal import SaRefusal
from .services import ServiceBook
from .subnet_records import PortRecord, records_of
from .subscriptions import Subscriptions
from .trace_records import trace_records

__all__ = ["SubnetAdministration"]

HEADER_BYTES = 56
MOST_RECORDS = 200_000
_CAPABILITIES = (
    SaCapability.TRAP
    | SaCapability.OPTIONAL_RECORDS
    | SaCapability.UD_MULTICAST
    | SaCapability.MULTI_PATH
    | SaCapability.PORT_INFO_CAPABILITY_MATCH
)
_QUERIES = (int(Method.GET), int(Method.GET_TABLE))
_CAPABILITY_MATCH = 0x80
_MODIFIER_MATCH = 1 << 31  # the same, of older versions of the SA
_RESPONSE_TIME = 18


class _Request:
    """A request with its sender."""

    __slots__ = ("mad", "now", "packet", "port")

    def __init__(self, mad: SaMad, packet: MadPacket, port: SubnetPort, now: float) -> None:
        self.mad, self.packet, self.port, self.now = mad, packet, port, now

    @property
    def several(self) -> bool:
        """A table is asked for."""
        return self.mad.method != Method.GET


_Source = Callable[["SubnetAdministration", _Request], Iterable[Record]]
_Handler = Callable[["SubnetAdministration", _Request], bytes]


class SubnetAdministration:
    """The SA of a subnet manager, whose ``groups``, ``on_sweep`` and ``on_notice`` it takes.

    ``refusals`` has the last sentences about refused requests, with the requester's LID.
    ``requests`` counts what was asked.
    """

    def __init__(self, manager: SubnetManager, *, most_records: int = MOST_RECORDS) -> None:
        self.manager = manager
        self.groups = MulticastGroups(manager.settings.gid_prefix)
        self.services = ServiceBook()
        self.subscriptions = Subscriptions(manager.port)
        self.refusals: deque[str] = deque(maxlen=64)
        self.requests = 0
        self._most_records = most_records
        self._transfers = RmppTransfers()
        self._peers: dict[Hashable, MadPacket] = {}
        self._out: list[MadPacket] = []
        self._now = 0.0
        self._paths: PathBook | None = None
        self._metrics: PathMetrics | None = None
        self._by_lid: dict[int, SubnetPort] = {}
        self._records: dict[int, list[PortRecord]] = {}
        manager.groups = self.groups
        manager.on_sweep = self._swept
        manager.on_notice = self._noticed
        manager.on_master = self._begun

    # ---- packets -------------------------------------------------------------------------------

    def receive(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Take a packet of class SubnAdm and return those to send. Others are ignored."""
        self._now = now
        mad = packet.mad
        if len(mad) == MAD_BYTES and mad[1] == MgmtClass.SUBN_ADM and mad[0] == 1:
            if is_rmpp(mad):
                peer = packet.slid, packet.source_qp
                self._peers.setdefault(peer, packet)
                self._take(self._transfers.receive(peer, mad, now))
            elif mad[3] == Method.REPORT_RESP:
                transaction = int.from_bytes(mad[8:16], "big")
                self.subscriptions.answered(transaction, packet.slid)
            else:
                self._request(packet, mad)
        return self._sent()

    def tick(self, now: float) -> list[MadPacket]:
        """Repeat what has had no response, and end leases; return the packets to send."""
        self._now = now
        self._out += self.subscriptions.due(now)
        self.services.expire(now)
        timer = self._transfers.timer()
        if timer is not None and timer <= now:
            self._take(self._transfers.expire(now))
        return self._sent()

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, or None."""
        if self._out:
            return self._now
        times = (
            self.subscriptions.next_deadline(),
            self.services.next_expiry(),
            self._transfers.timer(),
        )
        return min((time for time in times if time is not None), default=None)

    def _sent(self) -> list[MadPacket]:
        sent, self._out = self._out, []
        return sent

    def _request(self, packet: MadPacket, message: bytes) -> None:
        answer = self.answer(message, packet, self._now)
        if answer is None:
            return
        if answer[3] in (Method.GET_TABLE_RESP, Method.GET_MULTI_RESP) and not (
            answer[4] or answer[5]
        ):
            peer = packet.slid, packet.source_qp
            self._peers[peer] = packet
            try:
                self._take(self._transfers.send(peer, answer, self._now))
            except MadError:
                return  # the requester repeats a request that is being answered
        else:
            whole = answer[:MAD_BYTES].ljust(MAD_BYTES, b"\0")
            self._out.append(packet.answer(whole)._replace(port=self.manager.port))

    def _take(self, outcome: RmppOutcome) -> None:
        for peer, mad in outcome.packets:
            origin = self._peers.get(peer)
            if origin is not None:
                answer = origin.answer(mad)._replace(q_key=GENERAL_QKEY)
                self._out.append(answer._replace(port=self.manager.port))
        for peer, message in outcome.received:
            origin = self._peers.get(peer)
            if origin is not None:
                self._request(origin, message)
        in_use = {key.peer for key in self._transfers.keys()}  # noqa: SIM118
        if len(self._peers) > 4 * len(in_use) + 1024:
            self._peers = {peer: each for peer, each in self._peers.items() if peer in in_use}

    # ---- requests ------------------------------------------------------------------------------

    def answer(self, message: bytes, packet: MadPacket, now: float) -> bytes | None:
        """Return the whole answer to a request, or None if there is none.

        ``packet`` is the request's, for its addresses. An answer is the headers, 56 bytes, and the
        data behind them: 200 bytes, or as many as a table has.
        """
        self._now = now
        if self.manager.state != SmState.MASTER or len(message) < HEADER_BYTES:
            return None
        try:
            mad = SaMad.unpack(message[:MAD_BYTES].ljust(MAD_BYTES, b"\0"))
        except MadError:
            return None
        if mad.is_response or mad.method in (Method.TRAP, Method.REPORT, Method.SEND):
            return None
        self.requests += 1
        try:
            port = self._by_lid.get(packet.slid)
            if port is None:
                raise SaRefusal(
                    SaStatus.REQUEST_INVALID, f"the SA knows no port with LID {packet.slid}"
                )
            return self._handle(_Request(mad, packet, port, now))
        except SaRefusal as refusal:
            self.refusals.append(f"LID {packet.slid}: {refusal}")
            answered = mad.replace(method=response_method(mad.method), status=refusal.status)
            return answered.pack()
        except MadError as error:
            self.refusals.append(f"LID {packet.slid}: {error}")
            status = SaStatus.REQUEST_INVALID.status
            return mad.replace(method=response_method(mad.method), status=status).pack()

    def _handle(self, request: _Request) -> bytes:
        mad = request.mad
        if mad.class_version != 2:
            raise SaRefusal(
                StatusCode.BAD_VERSION, f"ClassVersion is {mad.class_version}, and the SA has 2"
            )
        key = int(mad.method), int(mad.attribute_id)
        special = self._special.get(key)
        if special is not None:
            return special(self, request)
        if key[0] in _QUERIES and (key[1] in SA_RECORDS or key[1] in self._sources):
            return self._query(request)
        known = key[1] in SA_RECORDS or key[1] == SaAttribute.CLASS_PORT_INFO
        status = StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED if known else StatusCode.INVALID_VALUE
        raise SaRefusal(
            status, f"the SA does not support {mad.method.name} of attribute {key[1]:#06x}"
        )

    def _query(self, request: _Request) -> bytes:
        attribute = request.mad.attribute_id
        kind = SA_RECORDS[attribute]
        query: SaQuery[Record] = SaQuery.of_mad(kind, request.mad)
        source = self._sources.get(attribute)
        if source is not None:
            found = [each for each in source(self, request) if query.matches(each)]
            return self._table(request, kind, found)
        records = self._records_of(attribute)
        if records is None:
            raise SaRefusal(
                StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED,
                f"the SA has no records of attribute {attribute:#06x}",
            )
        mask = 0
        if kind is PortInfoRecord and isinstance(query.record, PortInfoRecord):
            match = bool(request.mad.attribute_modifier & _MODIFIER_MATCH)
            query, mask = _capability_match(query, query.record, match)
        keys = request.port.all_p_keys
        visible: dict[int, bool] = {}
        found = []
        for port, record in records:
            if not query.matches(record):
                continue
            if mask and not _has_capabilities(record, mask):
                continue
            shown = visible.get(port.guid)
            if shown is None:
                shown = port is request.port or common_p_key(keys, port.all_p_keys) is not None
                visible[port.guid] = shown
            if shown:
                found.append(record)
        return self._table(request, kind, found)

    def _records_of(self, attribute: int) -> list[PortRecord] | None:
        known = self._records.get(attribute)
        if known is None:
            made = records_of(attribute, self.manager.subnet)
            if made is None:
                return None
            known = list(made)
            # Multicast tables change between sweeps.
            if attribute != SaAttribute.MULTICAST_FORWARDING_RECORD:
                self._records[attribute] = known
        return known

    def _table(self, request: _Request, kind: type[Record], found: list[Record]) -> bytes:
        """Return the answer with these records."""
        if request.several:
            if len(found) > self._most_records:
                raise SaRefusal(
                    SaStatus.NO_RESOURCES,
                    f"{len(found)} records match, and one answer has at most {self._most_records}",
                )
            return self._table_header(request, kind) + pack_table(found)
        if not found:
            raise SaRefusal(SaStatus.NO_RECORDS, f"no {kind.__name__} matches")
        if len(found) > 1:
            raise SaRefusal(
                SaStatus.TOO_MANY_RECORDS,
                f"{len(found)} of {kind.__name__} match, and Get is for one",
            )
        return self._single(request, found[0])

    @staticmethod
    def _table_header(request: _Request, kind: type[Record]) -> bytes:
        mad = request.mad
        header = mad.replace(
            method=response_method(mad.method),
            status=0,
            sm_key=0,
            attribute_offset=record_stride(kind) // 8,
            attribute_id=kind.ATTRIBUTE or mad.attribute_id,
        )
        return header.pack()[:HEADER_BYTES]

    @staticmethod
    def _single(request: _Request, record: Record) -> bytes:
        answered = request.mad.response(record)
        stride = record_stride(type(record)) // 8
        return answered.replace(sm_key=0, attribute_offset=stride).pack()

    # ---- one attribute each --------------------------------------------------------------------

    def _class_port_info(self, request: _Request) -> bytes:
        info = ClassPortInfo(
            class_version=2, capability_mask=_CAPABILITIES, resp_time_value=_RESPONSE_TIME
        )
        return request.mad.response(info).pack()

    def _path_records(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(PathRecord, request.mad)
        table = self._path_book.table(query) if request.several else None
        if table is not None:
            return self._table_header(request, PathRecord) + table
        found = self._path_book.answer(query, self.groups, several=request.several)
        return self._table(request, PathRecord, list(found))

    def _multi_path(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(MultiPathRecord, request.mad)
        return self._table(request, PathRecord, list(self._path_book.answer_multi(query)))

    def _trace(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(PathRecord, request.mad)
        paths = self._path_book.answer(query, self.groups, several=True)
        if len(paths) != 1 or self._metrics is None:
            raise SaRefusal(
                SaStatus.TOO_MANY_RECORDS if paths else SaStatus.NO_RECORDS,
                f"a trace is for one path, and the query is for {len(paths)}",
            )
        source = self._by_lid[paths[0].slid]
        prefix = self.manager.settings.gid_prefix
        found = trace_records(paths[0], source, self._metrics, prefix, self.manager.sweeps)
        return self._table(request, type(found[0]), list(found))

    @property
    def _path_book(self) -> PathBook:
        if self._paths is None:
            raise SaRefusal(StatusCode.BUSY, "the subnet is not swept yet")
        return self._paths

    def _member_port(self, request: _Request, query: SaQuery[McMemberRecord]) -> SubnetPort:
        """The port that joins or leaves: the requester, or another one that it may speak for."""
        if not query.has("port_gid"):
            raise SaRefusal(SaStatus.INSUFFICIENT_COMPONENTS, "PortGID is needed")
        gid = query.record.port_gid
        guid = int.from_bytes(gid[8:], "big")
        port = self.manager.subnet.by_port_guid().get(guid)
        if port is None:
            raise SaRefusal(SaStatus.INVALID_GID, f"the GID {gid_text(gid)} is not in the subnet")
        if port is not request.port and not self._is_trusted(request):
            shared = common_p_key(request.port.all_p_keys, port.all_p_keys)
            if not query.record.proxy_join or shared is None:
                raise SaRefusal(
                    SaStatus.DENIED, f"{request.port!r} cannot join or leave for {port!r}"
                )
        return port

    def _join(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(McMemberRecord, request.mad)
        port = self._member_port(request, query)
        subnet = self.manager.subnet
        record = self.groups.join(query, port, subnet, port is not request.port)
        self._groups_changed()
        return self._single(request, record)

    def _leave(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(McMemberRecord, request.mad)
        if not query.has("mgid", "join_state"):
            raise SaRefusal(
                SaStatus.INSUFFICIENT_COMPONENTS, "leaving a group needs MGID and JoinState"
            )
        record = self.groups.leave(query, self._member_port(request, query))
        self._groups_changed()
        return self._single(request, record)

    def _set_service(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(ServiceRecord, request.mad)
        return self._single(request, self.services.offer(query, request.now))

    def _delete_service(self, request: _Request) -> bytes:
        query = SaQuery.of_mad(ServiceRecord, request.mad)
        return self._single(request, self.services.delete(query))

    def _subscribe(self, request: _Request) -> bytes:
        inform = request.mad.attribute(InformInfo)
        gid = gid_from(self.manager.settings.gid_prefix, request.port.guid)
        return self._single(request, self.subscriptions.subscribe(inform, request.packet, gid))

    def _is_trusted(self, request: _Request) -> bool:
        key = self.manager.settings.sm_key
        return key != 0 and request.mad.sm_key == key

    def _member_records(self, request: _Request) -> Iterable[Record]:
        return self.groups.records(all_members=self._is_trusted(request))

    def _service_records(self, request: _Request) -> Iterable[Record]:
        return self.services.records(request.now)

    def _association_records(self, request: _Request) -> Iterable[Record]:
        return self.services.associations(request.now)

    def _subscription_records(self, request: _Request) -> Iterable[Record]:
        return self.subscriptions.records()

    def _manager_records(self, request: _Request) -> Iterable[Record]:
        yield SmInfoRecord(lid=self.manager.lid, sm_info=self.manager.sm_info().replace(sm_key=0))
        here = self.manager.subnet.by_port_guid()
        for info in self.manager.other_managers:
            port = here.get(info.guid)
            if port is not None:
                yield SmInfoRecord(lid=port.lid, sm_info=info.replace(sm_key=0))

    _sources: ClassVar[dict[int, _Source]] = {
        SaAttribute.MC_MEMBER_RECORD: _member_records,
        SaAttribute.SERVICE_RECORD: _service_records,
        SaAttribute.SERVICE_ASSOCIATION_RECORD: _association_records,
        SaAttribute.INFORM_INFO_RECORD: _subscription_records,
        SaAttribute.SM_INFO_RECORD: _manager_records,
    }
    _special: ClassVar[dict[tuple[int, int], _Handler]] = {
        (Method.GET, SaAttribute.CLASS_PORT_INFO): _class_port_info,
        (Method.GET, SaAttribute.PATH_RECORD): _path_records,
        (Method.GET_TABLE, SaAttribute.PATH_RECORD): _path_records,
        (Method.GET_TRACE_TABLE, SaAttribute.PATH_RECORD): _trace,
        (Method.GET_MULTI, SaAttribute.MULTI_PATH_RECORD): _multi_path,
        (Method.SET, SaAttribute.MC_MEMBER_RECORD): _join,
        (Method.DELETE, SaAttribute.MC_MEMBER_RECORD): _leave,
        (Method.SET, SaAttribute.SERVICE_RECORD): _set_service,
        (Method.DELETE, SaAttribute.SERVICE_RECORD): _delete_service,
        (Method.SET, SaAttribute.INFORM_INFO): _subscribe,
    }

    # ---- what the manager tells ----------------------------------------------------------------

    def _begun(self) -> None:
        """The manager becomes the master: clients are asked to register again."""
        for part in (self.groups, self.services, self.subscriptions):
            part.clear()

    def _swept(self, before: DiscoveredSubnet) -> None:
        """The manager has finished a heavy sweep."""
        manager, settings = self.manager, self.manager.settings
        subnet, routes = manager.subnet, manager.routes
        self._by_lid = subnet.by_lid()
        by_guid = subnet.by_port_guid()
        self._metrics = None if routes is None else PathMetrics(subnet, routes)
        self._paths = PathBook(
            self._metrics,
            self._by_lid,
            by_guid,
            settings.gid_prefix,
            settings.packet_life_time,
            self._most_records,
        )
        self._records.clear()
        for partition in settings.partitions.partitions:
            if partition.ipoib:
                self.groups.make_permanent(partition, subnet)
        gone = [port.guid for port in before.end_ports if port.guid not in by_guid]
        known = before.by_port_guid()
        came = [guid for guid in by_guid if guid not in known] if known else []
        if self.groups.subnet_changed(subnet):
            manager.multicast_changed()
        self.services.remove_gids({gid_from(settings.gid_prefix, guid) for guid in gone})
        self.subscriptions.remove_lids(set(self._by_lid))
        for number, guids in (
            (TrapNumber.GID_IN_SERVICE, came),
            (TrapNumber.GID_OUT_OF_SERVICE, gone),
        ):
            for guid in guids:
                self._report(number, gid_from(settings.gid_prefix, guid))
        self._report_groups()

    def _groups_changed(self) -> None:
        self.manager.multicast_changed()
        self._report_groups()

    def _report_groups(self) -> None:
        for number, mgids in (
            (TrapNumber.MULTICAST_GROUP_CREATED, self.groups.created),
            (TrapNumber.MULTICAST_GROUP_DELETED, self.groups.deleted),
        ):
            for mgid in mgids:
                self._report(number, mgid)
            mgids.clear()

    def _report(self, number: int, gid: bytes) -> None:
        """Report a notice of the SM itself."""
        lid, prefix = self.manager.lid, self.manager.settings.gid_prefix
        notice = trap_notice(
            number, GidTrap(gid=gid), issuer_lid=lid, producer=ProducerType.CLASS_MANAGER
        )
        issuer = gid_from(prefix, self.manager.guid)
        self._out += self.subscriptions.report(notice, issuer, lid, self._now)

    def _noticed(self, notice: Notice, packet: MadPacket) -> None:
        """The manager has got a trap."""
        port = self._by_lid.get(notice.issuer_lid)
        prefix = self.manager.settings.gid_prefix
        gid = bytes(16) if port is None else gid_from(prefix, port.guid)
        self._out += self.subscriptions.report(notice, gid, self.manager.lid, self._now)


def _has_capabilities(record: Record, mask: int) -> bool:
    return isinstance(record, PortInfoRecord) and not mask & ~record.port_info.capability_mask


def _capability_match(
    query: SaQuery[Record], record: PortInfoRecord, match: bool
) -> tuple[SaQuery[Record], int]:
    """Return the query without CapabilityMask, and the bits that all have to be there.

    The record's options ask for that, or the AttributeModifier (``match``), as in saquery -s.
    """
    if query.has("options") and record.options & _CAPABILITY_MATCH:
        match = True
    if not (match and query.has("capability_mask")):
        return query, 0
    table = components(PortInfoRecord)
    left = query.mask & ~(table["options"].mask | table["capability_mask"].mask)
    return SaQuery(query.record, left), int(record.port_info.capability_mask)
