# SPDX-License-Identifier: Apache-2.0
"""The connection managers of simulated hosts: ``verbena.cm`` connects over the simulated wire.

``Host.open_connection_manager`` opens a device for ``verbena.cm``, which gives it the commands of
librdmacm. The first one starts the connection managers of all hosts (``ConnectionManagers``), each
an ``RdmaCm`` whose messages are packets between QP 1 of two hosts, and which has a processing time.
On InfiniBand paths are asked of subnet administration if the world is managed (``ManagedWorld``).
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
import os
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from verbena.agent.messages import AnswerFlag, Hello, ProgramAnswer, ProgramPort, Request, Role
from verbena.agent.rdma_cm_device import RdmaCmDevices
from verbena.agent.ucm_answers import EVENT_BYTES
from verbena.agent.ucm_commands import UcmNumber, pack_command
from verbena.manage.agents import MadPacket
from verbena.manage.attribute_ids import Method, MgmtClass
from verbena.manage.cm import (
    AddressAnswer,
    CmAddress,
    CmDatagram,
    CmDevice,
    CmFamily,
    CmPort,
    CmRequest,
    CmSettings,
    JoinGroup,
    LocalInterface,
    MadArrival,
    QueryPath,
    RdmaCm,
    ResolveAddress,
)
from verbena.manage.codes import IbMtu, IbRate
from verbena.manage.mad import GENERAL_QKEY, MAD_BYTES, SaMad
from verbena.manage.sa_records import PathRecord
from verbena.sim.addresses import GUIDS
from verbena.sim.doors import Mad

if TYPE_CHECKING:
    from verbena.agent.server import DeviceConnection
    from verbena.cm import ConnectionManagerDevice, DeviceAnswer
    from verbena.sim._world import World
    from verbena.sim.hosts import Host, Hosts
    from verbena.sim.managed import ManagedWorld

__all__ = ["PROCESSING", "ConnectionManagers", "SimulatedDevice", "SimulatedHostManager"]

SECOND = 10**12
NETWORK = int(IPv4Address("10.0.0.0"))
PROCESSING = 5_000_000
"""ps that a connection manager takes for a message, or for a request to subnet administration."""
MTU = 4096 + 96  # of an interface: the largest payload and its headers
PACKET_LIFE = 18  # the time code that OpenSM gives
ASKED_AGAIN = SECOND // 10  # after this time subnet administration is asked again
GET_EVENT = pack_command(UcmNumber.GET_EVENT, EVENT_BYTES)
_inodes = itertools.count(1)


def address_number(address: CmAddress) -> int:
    """Return the number of an IPv4 address in the network of the hosts: of host n it is n + 1."""
    if address.family == CmFamily.IPV4:
        return int.from_bytes(address.host, "big") - NETWORK
    mapped = address.host[:12] == bytes(10) + b"\xff\xff"
    return int.from_bytes(address.host[12:], "big") - NETWORK if mapped else -1


class ConnectionManagers:
    """The connection managers of all hosts of a world. ``processing``: see PROCESSING."""

    def __init__(self, hosts: Hosts, settings: CmSettings | None, processing: int) -> None:
        self.world: World = hosts.world
        self.attachments = hosts.attachments
        self.managed: ManagedWorld | None = getattr(hosts, "managed", None)
        self.processing = processing
        self.settings = settings
        self.nodes = _nodes_of_hosts(hosts.world)
        self.node_of_gid = {self.world.address(node).gid: node for node in self.nodes.values()}
        self._owner: dict[int, tuple[SimulatedHostManager, int]] = {}  # by host of the world
        self._of: dict[Host, SimulatedHostManager] = {}
        for host in hosts:
            made = self._of[host] = SimulatedHostManager(self, host)
            for rank, port in enumerate(host.ports):
                self._owner[port] = made, rank

    def of(self, host: Host) -> SimulatedHostManager:
        """Return the connection manager of a host."""
        return self._of[host]

    def owner(self, number: int) -> tuple[SimulatedHostManager, int] | None:
        """Return the manager and the index of the port that a host of the world is, or None."""
        return self._owner.get(number)


class SimulatedHostManager:
    """The connection manager of one host; ``CmHost`` and what else ``RdmaCm`` asks for."""

    def __init__(self, managers: ConnectionManagers, host: Host) -> None:
        self.managers, self.host = managers, host
        self.world = managers.world
        self._nodes = [managers.nodes[port] for port in host.ports]
        self._addresses = [self.world.address(node) for node in self._nodes]
        self._free_at = 0
        self._timer: int | None = None
        self._queries = itertools.count(1)
        self._asked: dict[int, QueryPath] = {}
        random = host.random.getrandbits
        self.cm = RdmaCm(self._device(), self, random, managers.settings, now=self.now)
        self.devices = _HostDevices(self)
        for index, node in enumerate(self._nodes):
            if managers.managed is None:
                self.world.serve_qp1(node, partial(self._arrived, index))
            else:
                port = managers.managed.port_of(node)
                managers.managed.attach(port, partial(self._offered, index))

    @property
    def now(self) -> float:
        """The world's time in seconds."""
        return self.world.now / SECOND

    def _device(self) -> CmDevice:
        return CmDevice(
            self._addresses[0].guid,
            tuple(
                CmPort((each.gid,), rank, is_ethernet=each.ipv4 is not None, lid=each.lid)
                for rank, each in enumerate(self._addresses, 1)
            ),
        )

    @property
    def guid(self) -> int:
        """The GUID of the host's first device."""
        return self._addresses[0].guid

    def refresh(self) -> None:
        """Look at the addresses again: a subnet manager may have changed LIDs."""
        found = [self.world.address(node) for node in self._nodes]
        if found != self._addresses:
            self._addresses = found
            self.cm.set_device(self._device())

    # ---- CmHost ----------------------------------------------------------------------------------

    def _interface(self, rank: int) -> LocalInterface:
        return LocalInterface(rank + 1, self._addresses[rank].gid, MTU, rank + 1)

    def _rank_of(self, address: CmAddress) -> int | None:
        number = address_number(address) - 1
        return self.host.ports.index(number) if number in self.host.ports else None

    def interface_of(self, address: CmAddress) -> LocalInterface | None:
        """Return the interface that has an IP address, or None if there is none."""
        rank = self._rank_of(address)
        return None if rank is None else self._interface(rank)

    def reaches(self, local: CmAddress, peer: CmAddress, port: int) -> bool:
        """Whether ``local`` is an address of the port, and ``peer`` is one of the fabric."""
        known = self.managers.owner(address_number(peer) - 1) is not None
        return self._rank_of(local) == port - 1 and known

    def may_bind(self, port: int) -> bool:
        """Every program may bind any port."""
        return True

    def route_error(self, source: CmAddress, destination: CmAddress) -> int:
        """Whether somebody has the address ``ask`` finds out."""
        return 0

    # ---- requests --------------------------------------------------------------------------------

    def ask(self, request: CmRequest) -> None:
        """Answer what ``RdmaCm`` asks of the system."""
        if isinstance(request, ResolveAddress):
            self.cm.address_resolved(request.id, self._resolve(request))
        elif isinstance(request, QueryPath):
            self._query(request)
        elif isinstance(request, JoinGroup):
            self.cm.group_joined(request.group, errno.EOPNOTSUPP if request.query else 0)

    def _resolve(self, request: ResolveAddress) -> AddressAnswer | int:
        destination = request.destination
        number = self.host.ports[0] if destination.is_any else address_number(destination) - 1
        found = self.managers.owner(number)
        if found is None:
            return errno.EHOSTUNREACH
        there, rank = found
        own = self._rank_of(request.source) if not request.source.is_any else None
        if own is None:
            own = min(rank, len(self.host.ports) - 1)  # the rails have the same numbers
        here, peer = self._addresses[own], there._addresses[rank]
        if (here.ipv4 is None) != (peer.ipv4 is None):
            return errno.ENETUNREACH
        text = str(IPv4Address(NETWORK + self.host.ports[own] + 1))
        source = CmAddress.ip(text, request.source.port)
        hops = 64 if here.ipv4 is not None else 1
        return AddressAnswer(source, self._interface(own), peer.gid, hops)

    def _query(self, request: QueryPath) -> None:
        if self.managers.managed is None:
            self.cm.path_resolved(request.id, self._direct_path(request))
            return
        number = next(self._queries)
        self._asked[number] = request
        self._ask_administration(number)

    def _direct_path(self, request: QueryPath) -> PathRecord | int:
        """Return the path between two hosts of a fabric without subnet administration."""
        dgid = request.query.record.dgid
        here = self._addresses[request.port - 1]
        node = self.managers.node_of_gid.get(dgid)
        if node is None:
            return errno.ENODEV
        return PathRecord(
            dgid=dgid,
            sgid=here.gid,
            dlid=self.world.address(node).lid,
            slid=here.lid,
            reversible=True,
            p_key=0xFFFF,
            mtu=IbMtu.BYTES_4096,
            rate=IbRate.GBPS_100,
            packet_life_time=PACKET_LIFE,
        )

    def _ask_administration(self, number: int) -> None:
        """Send a query to the subnet administration, until it is answered or nobody waits."""
        request, managed = self._asked.get(number), self.managers.managed
        if request is None or managed is None:
            return
        waits = self.cm.next_deadline()
        if waits is None or waits < self.now:
            del self._asked[number]
            return
        port = managed.port_of(self._nodes[request.port - 1])
        mad = request.query.put_into(SaMad(transaction_id=number, method=Method.GET)).pack()
        packet = MadPacket(mad, port.number, port.master_sm_lid, port.lid, 1, 1, q_key=GENERAL_QKEY)
        managed.send(port, [packet])
        managed.after(ASKED_AGAIN, partial(self._ask_administration, number))

    def _take_path(self, mad: bytes) -> None:
        request = self._asked.pop(int.from_bytes(mad[12:16], "big"), None)
        if request is not None:
            status = (mad[4] << 8 | mad[5]) & 0x7FFF
            self.cm.tick(self.now)
            self.cm.path_resolved(request.id, status or PathRecord.unpack(mad, 56))
            self.devices.settle()

    # ---- packets ---------------------------------------------------------------------------------

    def send(self, datagram: CmDatagram) -> None:
        """Send a message from QP 1 of the port that its address names."""
        to, rank = datagram.to, datagram.to.port - 1
        here, node = self._addresses[rank], self._nodes[rank]
        if here.ipv4 is not None:
            slid = int(here.ipv4) - NETWORK
            dlid = int.from_bytes(to.dgid[12:], "big") - NETWORK
            mad = Mad(datagram.mad, 1, dlid, slid, 1, 1, to.sl & 7, to.p_key)
            if self.managers.owner(dlid - 1) is not None:
                self.world.send_qp1(node, mad)
        elif self.managers.managed is not None:
            port = self.managers.managed.port_of(node)
            packet = MadPacket(
                datagram.mad, port.number, to.dlid, port.lid, 1, 1, to.sl, to.p_key, GENERAL_QKEY
            )
            self.managers.managed.send(port, [packet])
        else:
            self.world.send_mad(
                node, Mad(datagram.mad, 1, to.dlid, here.lid, 1, 1, to.sl, to.p_key)
            )

    def _arrived(self, rank: int, world: World, node: int, packet: Mad) -> None:
        """A packet has come to QP 1: it waits until those before it are done with."""
        here = self._addresses[rank]
        if here.ipv4 is not None:
            sgid = bytes(10) + b"\xff\xff" + (NETWORK + packet.slid).to_bytes(4, "big")
            arrival = MadArrival(rank + 1, True, sgid, here.gid, sl=packet.sl, p_key=packet.pkey)
        else:
            arrival = MadArrival(rank + 1, False, slid=packet.slid, sl=packet.sl, p_key=packet.pkey)
        if packet.qp == 1 and _is_of(packet.mad, MgmtClass.COMMUNICATION_MANAGEMENT):
            self._free_at = max(world.now, self._free_at) + self.managers.processing
            world.call_at(self._free_at, lambda world: self._receive(packet.mad, arrival))

    def _offered(self, rank: int, packet: MadPacket) -> bool:
        """The host's agent has a packet for programs, and has taken its time for it."""
        if _is_of(packet.mad, MgmtClass.COMMUNICATION_MANAGEMENT):
            self._receive(
                packet.mad,
                MadArrival(rank + 1, False, slid=packet.slid, sl=packet.sl, p_key=packet.p_key),
            )
            return True
        number = int.from_bytes(packet.mad[12:16], "big")
        mine = number in self._asked and packet.mad[3] == Method.GET_RESP
        if _is_of(packet.mad, MgmtClass.SUBN_ADM) and mine:
            self._take_path(packet.mad)
            return True
        return False

    def _receive(self, mad: bytes, arrival: MadArrival) -> None:
        self.refresh()
        self.cm.receive(mad, arrival, self.now)
        self.devices.settle()

    def arm(self) -> None:
        """Have the world call when something is due."""
        due = self.devices.next_deadline()
        if due is None:
            return
        at = max(self.world.now, math.ceil(due * SECOND))
        if self._timer is None or at < self._timer:
            self._timer = at
            self.world.call_at(at, partial(self._expired, at, due))

    def _expired(self, at: int, due: float, world: World) -> None:
        if self._timer == at:
            self._timer = None
            self.devices.tick(max(self.now, due))

    # ---- devices ---------------------------------------------------------------------------------

    def open(self) -> ConnectionManagerDevice:
        """Open a device, an event channel."""
        self.refresh()
        return SimulatedDevice(self, self.host.devices()[0].guid)


def _nodes_of_hosts(world: World) -> dict[int, int]:
    """Return the node of each host of the world, whose GUID says its number."""
    guids = {world.address(node).guid: node for node in range(world.nodes)}
    return {host: guids[GUIDS | host + 1] for host in range(world.hosts)}


def _is_of(mad: bytes, kind: MgmtClass) -> bool:
    return len(mad) == MAD_BYTES and mad[0] == 1 and mad[1] == kind


class _HostSystem:
    """The ``CmSystem`` of a host: it answers at once, or when an answer has come over the wire."""

    def __init__(self, manager: SimulatedHostManager) -> None:
        self._manager = manager

    def ask(self, request: CmRequest, cm: RdmaCm, now: float) -> None:
        """Answer a request."""
        self._manager.ask(request)

    def next_deadline(self) -> None:
        """Nothing waits."""

    def tick(self, now: float) -> None:
        """Nothing is due."""


class _HostDevices(RdmaCmDevices):
    """Carries out the commands of a host's devices."""

    FETCHES_EVENTS = True

    def __init__(self, manager: SimulatedHostManager) -> None:
        super().__init__(manager.cm, _HostSystem(manager), manager.send, lambda: manager.now)
        self._manager = manager

    def command(self, device: DeviceConnection, request: Request) -> bytes:
        """Carry a command out, do what follows of it, and return its answer."""
        answer = super().command(device, request)
        self.answered(device)
        return answer

    def answered(self, device: DeviceConnection) -> None:
        """Send and ask what follows of a command, and tell the program whether it has events."""
        super().answered(device)
        self.tell(device)

    def settle(self) -> None:
        """Send and ask what is to be sent and asked, and arm the timer."""
        super().settle()
        self._manager.arm()

    def tell(self, device: DeviceConnection) -> None:
        """Wake the program, which fetches the events."""
        device.signal(self.cm.pending(device.channel) > 0)  # type: ignore[attr-defined]


class SimulatedDevice:
    """An event channel of a simulated host (``ConnectionManagerDevice``)."""

    def __init__(self, manager: SimulatedHostManager, guid: int) -> None:
        self._manager = manager
        self.inode = next(_inodes)
        ports = tuple(
            ProgramPort(0, rank, guid, True, 0, "")
            for rank in range(1, len(manager.host.ports) + 1)
        )
        self.hello = Hello(1, Role.DEVICE, self.inode, ports)
        self.pid = 0
        self.channel = -1
        self.is_signalled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: Callable[[], None] | None = None
        self._closed = False
        manager.devices.opened(self)  # type: ignore[arg-type]

    # ---- what RdmaCmDevices calls ----

    def signal(self, has_events: bool) -> None:
        """Have the program see whether there are events."""
        if has_events and not self.is_signalled and self._loop is not None and self._ready:
            self._loop.call_soon(self._ready)
            self._manager.managers.attachments.wake()
        self.is_signalled = has_events

    # ---- what verbena.cm calls ----

    def execute(self, command: bytes, option: bytes = b"") -> DeviceAnswer:
        """Carry out a command. Raises OSError."""
        return self._execute(Request(self.inode, 0, command + option))

    def _execute(self, request: Request) -> DeviceAnswer:
        from verbena.cm import DeviceAnswer
        from verbena.cm.agent_device import refusal_of

        self._manager.refresh()
        self._manager.cm.tick(self._manager.now)
        packed = self._manager.devices.command(self, request)  # type: ignore[arg-type]
        answers = ProgramAnswer.parse(packed)
        answer = answers[0]
        if answer.error:
            raise refusal_of(answers)
        if answer.flags & AnswerFlag.NO_EVENT:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return DeviceAnswer(answer.data, answer.gid_index_at, answer.gid)

    def migrate(self, number: int, old: ConnectionManagerDevice) -> None:
        """Move an identifier to this event channel from that of ``old``. Raises OSError."""
        assert isinstance(old, SimulatedDevice)
        command = pack_command(UcmNumber.MIGRATE_ID, 4, id=number, descriptor=0)
        self._execute(Request(self.inode, old.inode, command))

    def next_event(self) -> DeviceAnswer | None:
        """Return the answer to a GET_EVENT, or None if there is no event. Raises OSError."""
        if not self.is_signalled:
            return None
        try:
            return self.execute(GET_EVENT)
        except BlockingIOError:
            return None

    def watch(self, ready: Callable[[], None]) -> None:
        """Have the running loop call this whenever there may be events."""
        self._loop, self._ready = asyncio.get_running_loop(), ready
        if self.is_signalled:
            self._loop.call_soon(ready)

    def unwatch(self) -> None:
        """Call it no more."""
        self._loop = self._ready = None

    def wait(self, seconds: float | None) -> None:
        """Blocking waits are for programs in processes of their own (far_connections)."""
        raise OSError(
            errno.EOPNOTSUPP,
            "a program of sim.run connects by verbena.cm, with asyncio; one in a process of its own"
            " (sim.run_processes) may use verbena.cm.sync",
        )

    def close(self) -> None:
        """Destroy every identifier."""
        if not self._closed:
            self._closed = True
            self.unwatch()
            self._manager.devices.closed(self)  # type: ignore[arg-type]
