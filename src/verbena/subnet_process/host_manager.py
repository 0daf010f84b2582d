# SPDX-License-Identifier: Apache-2.0
"""The connection manager of one host of a live fabric: ``RdmaCm`` over MADs to QP 1.

``FabricManagers`` makes one when the first program of the host, or of a peer, needs it. What comes
from the subnet is put into a queue of ``FabricManagers``, so nothing is called from within another.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verbena.agent.host_addresses import may_bind
from verbena.agent.rdma_cm_device import RdmaCmDevices
from verbena.manage.agents import MadPacket, PortEvent
from verbena.manage.attribute_ids import Method
from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.host import (
    AddressAnswer,
    JoinGroup,
    LocalInterface,
    QueryPath,
    ResolveAddress,
)
from verbena.manage.cm.rdma_cm import RdmaCm
from verbena.manage.cm.routes import CmDatagram, CmDevice, CmPort, MadArrival
from verbena.manage.cm.settings import LIVE_SETTINGS
from verbena.manage.codes import PortState
from verbena.manage.mad import GENERAL_QKEY, SaMad
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import McMemberRecord, PathRecord

from .data_flows import DataWay, judge, loss_sentence
from .mad_port import MadAgent, RegistrationRefused
from .memberships import JOIN_MS, Memberships
from .port_records import port_gids
from .sa_requester import SaRequester

if TYPE_CHECKING:
    from verbena.manage.agents import NodeAgent, NodePort
    from verbena.manage.cm.host import CmRequest
    from verbena.manage.cm.identifier import RdmaId
    from verbena.manage.cm.settings import CmSettings

    from .ip_plan import IpPlan
    from .live_subnet import LiveSubnet

__all__ = ["HostManager"]

COMMUNICATION, VERSION, SEND = 0x07, 2, 0x03
CONNECTED = 2  # IBV_QPT_RC, whose answers come back
IPOIB_MTU = 2044
BROADCAST_QKEY = 0x0B1B
ENDS_MEMBERSHIPS = (PortEvent.LID, PortEvent.SM, PortEvent.CLIENT_REREGISTER)
Later = Callable[[Callable[[], None]], None]


class HostManager:
    """A host's connection manager, which programs reach by ``devices``.

    ``later`` takes what is to be done after the present call; ``meet`` is told the LID to which
    something is sent. It is the ``CmHost`` and the ``CmSystem`` of its ``RdmaCm``.
    """

    def __init__(
        self,
        live: LiveSubnet,
        node: NodeAgent,
        plan: IpPlan,
        clock: Callable[[], float],
        later: Later,
        meet: Callable[[int], None],
        settings: CmSettings | None = None,
    ) -> None:
        self._live, self._node, self._plan = live, node, plan
        self._clock, self._later, self._meet = clock, later, meet
        ends = node.end_ports()
        self._ports = {end.number: live.mad_port(node, end.number) for end in ends}
        self._register()
        self._clients = {number: SaRequester(port) for number, port in self._ports.items()}
        self.cm = RdmaCm(
            self._device(), self, random.SystemRandom().getrandbits, settings or LIVE_SETTINGS,
            now=clock(),
        )  # fmt: skip
        self.devices = RdmaCmDevices(self.cm, self, self._send, clock)
        self.devices.explain = self._explain
        self._groups = Memberships(self._ask_sa, self._groups_lost, clock)

    def _register(self) -> None:
        """Take the messages of the class at every port. Raises RegistrationRefused."""
        made: list[MadAgent] = []
        for port in self._ports.values():
            agent = MadAgent(
                port, 1, self._arrived, mgmt_class=COMMUNICATION, version=VERSION, methods=1 << SEND
            )
            try:
                port.register(agent)
            except RegistrationRefused:
                for each in made:
                    each.close()
                raise
            made.append(agent)

    def refresh(self, end: NodePort, event: PortEvent) -> None:
        """Something has happened to a port: LIDs, GIDs or P_Keys may have changed."""
        self.cm.set_device(self._device())
        is_down = event is PortEvent.STATE and end.state == PortState.DOWN
        if is_down or event in ENDS_MEMBERSHIPS:
            self._groups.ended(end.number)

    def _groups_lost(self, port: int) -> None:
        self.cm.groups_lost(port)
        self.devices.settle()

    def _device(self) -> CmDevice:
        return CmDevice(self._node.guid, tuple(map(_cm_port, self._node.end_ports())))

    def _explain(self, of: RdmaId) -> str:
        """Return where the fabric loses what is sent to the peer, or nothing."""
        route = of.route
        if route is None:
            return ""
        end = self._node.end_port(route.port)
        index = _cm_port(end).p_key_index(route.p_key) or 0
        way = DataWay(end.number, route.dlid, route.sl, 0, index, CONNECTED, 0, route.dgid, 1, 1)
        verdict = judge(end, way)
        if verdict.problem is None and not verdict.loss:
            return ""
        live = self._live
        text = loss_sentence(live.subnet, end, way, verdict, live.fabric.name)
        return f" {text[:1].upper()}{text[1:]}."

    # ---- MADs ----------------------------------------------------------------------------------

    def _arrived(self, mad: bytes, packet: MadPacket) -> None:
        self._later(lambda: self._receive(mad, packet))

    def _receive(self, mad: bytes, packet: MadPacket) -> None:
        arrival = MadArrival(packet.port, False, slid=packet.slid, sl=packet.sl, p_key=packet.p_key)
        self.cm.receive(mad, arrival, self._clock())
        self.devices.settle()

    def _send(self, datagram: CmDatagram) -> None:
        to = datagram.to
        end = self._node.end_port(to.port)
        index = _cm_port(end).p_key_index(to.p_key) or 0
        p_key = int.from_bytes(end.p_keys[2 * index : 2 * index + 2], "big")
        self._meet(to.dlid)
        packet = MadPacket(
            datagram.mad, end.number, to.dlid, end.lid, 1, 1, to.sl, p_key, GENERAL_QKEY
        )
        self._live.send(self._ports[end.number], packet)

    # ---- CmHost --------------------------------------------------------------------------------

    def interface_of(self, address: CmAddress) -> LocalInterface | None:
        """Return the port that has an address, if it is one of this host's."""
        owner = self._plan.owner(address.host)
        if owner is None or owner.node is not self._node:
            return None
        return _interface(owner)

    def reaches(self, local: CmAddress, peer: CmAddress, port: int) -> bool:
        """Whether ``local`` is an address of the port, and ``peer`` one of the fabric's."""
        interface = self.interface_of(local)
        return interface is not None and interface.port == port and self._gid_of(peer) is not None

    def may_bind(self, port: int) -> bool:
        """Whether programs of this user may bind a port below 1024."""
        return may_bind(port)

    def route_error(self, source: CmAddress, destination: CmAddress) -> int:
        """Whether somebody has the address ``ask`` finds out."""
        return 0

    # ---- CmSystem ------------------------------------------------------------------------------

    def ask(self, request: CmRequest, cm: RdmaCm, now: float) -> None:
        """Answer a request."""
        if isinstance(request, ResolveAddress):
            cm.address_resolved(request.id, self._resolved(request))
        elif isinstance(request, QueryPath):
            self._find_path(request)
        elif isinstance(request, JoinGroup):
            self._find_broadcast(request)
        else:
            self._groups.left(request.group)

    def next_deadline(self) -> float | None:
        """Return when groups are to be joined again."""
        return self._groups.next_deadline()

    def tick(self, now: float) -> None:
        """Join groups again."""
        self._groups.tick(now)

    def _resolved(self, request: ResolveAddress) -> AddressAnswer | int:
        family = request.destination.family
        if family not in (CmFamily.IPV4, CmFamily.IPV6):
            return errno.EHOSTUNREACH
        own = self._own_port(request.source)
        gid = port_gids(own)[0] if request.destination.is_any else self._gid_of(request.destination)
        if gid is None:
            return errno.EHOSTUNREACH
        address = self._plan.of(own, ipv6=family == CmFamily.IPV6)
        source = replace(request.source, family=family, host=address)
        return AddressAnswer(source, _interface(own), gid, hop_limit=1)

    def _own_port(self, source: CmAddress) -> NodePort:
        """The port of the source or, of a wildcard, the first one that is ACTIVE."""
        given = self._plan.owner(source.host)
        if given is not None and given.node is self._node:
            return given
        ends = self._node.end_ports()
        return next((end for end in ends if end.state == PortState.ACTIVE), ends[0])

    def _gid_of(self, address: CmAddress) -> bytes | None:
        """The GID behind an address; of a group, which needs none yet, zeros."""
        first = address.host[0]
        if first == 0xFF if address.family == CmFamily.IPV6 else first & 0xF0 == 0xE0:
            return bytes(16)
        owner = self._plan.owner(address.host)
        return None if owner is None else port_gids(owner)[0]

    # ---- questions to the SA -------------------------------------------------------------------

    def _ask_sa(
        self,
        port: int,
        method: Method,
        query: SaQuery[Any],
        timeout_ms: int,
        answered: Callable[[SaMad | int], None],
    ) -> None:
        def take(answer: SaMad | int) -> None:
            def act() -> None:
                answered(answer)
                self.devices.settle()

            self._later(act)

        self._clients[port].ask(method, query, timeout_ms, take)

    def _find_path(self, request: QueryPath) -> None:
        def answered(answer: SaMad | int) -> None:
            found = answer if isinstance(answer, int) else answer.attribute(PathRecord)
            self.cm.path_resolved(request.id, found)

        self._ask_sa(request.port, Method.GET, request.query, request.timeout_ms, answered)

    def _find_broadcast(self, request: JoinGroup) -> None:
        """A group has the SL, flow label and traffic class of IPoIB's broadcast group."""
        query = request.query
        assert query is not None

        def answered(answer: SaMad | int) -> None:
            if isinstance(answer, int) and answer < 0:
                self.cm.group_joined(request.group, answer)
            elif isinstance(answer, int):  # there is none
                self._join(request, query)
            else:
                found = answer.attribute(McMemberRecord)
                made = query.record.replace(
                    sl=found.sl, flow_label=found.flow_label, traffic_class=found.traffic_class
                )
                self._join(request, SaQuery(made, query.mask))

        wanted = SaQuery.of(McMemberRecord, mgid=request.broadcast)
        self._ask_sa(request.port, Method.GET, wanted, JOIN_MS, answered)

    def _join(self, request: JoinGroup, query: SaQuery[McMemberRecord]) -> None:
        def answered(answer: SaMad | int) -> None:
            if isinstance(answer, int):
                self.cm.group_joined(request.group, answer)
                return
            record = answer.attribute(McMemberRecord)
            self._groups.joined(request.group, request.port, query, record)
            self.cm.group_joined(request.group, record)

        self._ask_sa(request.port, Method.SET, query, JOIN_MS, answered)


def _cm_port(end: NodePort) -> CmPort:
    keys = bytes(end.p_keys)
    return CmPort(
        gids=tuple(filter(None, port_gids(end))),
        number=end.number,
        is_ethernet=False,
        lid=end.lid,
        p_keys=tuple(int.from_bytes(keys[at : at + 2], "big") for at in range(0, len(keys), 2)),
    )


def _interface(end: NodePort) -> LocalInterface:
    """The port as an interface of IPoIB, in the partition of the first P_Key."""
    p_key = int.from_bytes(end.p_keys[:2], "big") | 0x8000
    broadcast = b"\xff\x12\x40\x1b" + p_key.to_bytes(2, "big") + bytes(6) + b"\xff\xff\xff\xff"
    return LocalInterface(
        end.number,
        port_gids(end)[0],
        IPOIB_MTU,
        p_key=p_key,
        broadcast=broadcast,
        broadcast_qkey=BROADCAST_QKEY,
    )
