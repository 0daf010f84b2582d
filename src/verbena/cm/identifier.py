# SPDX-License-Identifier: Apache-2.0
"""``Id``: an identifier of the connection manager, step by step, as rdma_cm_id of librdmacm.

``connect``, ``listen``, ``resolve_datagram`` and ``join`` are made of these steps. A step gives its
command and waits for its event; an event that no step waits for is ``next_event``'s.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import math
import os
import struct
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Self

from verbena import launch
from verbena.agent.ucm_answers import QUERY_ADDR, QUERY_ADDR_BYTES, sockaddr
from verbena.agent.ucm_commands import ConnParam, UcmNumber, pack_command
from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.rdma_events import RdmaConnectionParameters, RdmaEventKind
from verbena.manage.cm.refusals import CmRefusal
from verbena.manage.errors import MadError
from verbena.subnet_process.client import control_fabric
from verbena.verbs import PD, QP, QPState, QPType
from verbena.verbs.here import place

from .arguments import check_timeout, limited
from .channel import Channel
from .device import DeviceAnswer
from .errors import (
    ConnectionManagerError,
    ConnectTimeout,
    ManagerEnded,
    NoSuchAddress,
    Unreachable,
    call_refused,
    event_error,
)
from .manager import Manager
from .program_abi import IdAddresses, IdEvent, ProgramAttributes, parse_addresses, parse_attributes
from .queues import bring_to

__all__ = ["Address", "Id", "PortSpace", "first_address"]

_MOST_MILLISECONDS = 0x7FFFFFFF
STEP_SECONDS = 2.0  # for an address or a route, where the caller has no limit; as rping's
_CONSUMER_REJECT = 0  # the device puts the number of consumer reject
_ATTRIBUTE_BYTES = 144
_EVENT_TYPES = frozenset(RdmaEventKind)
_SILENCES = {
    RdmaEventKind.ADDR_RESOLVED: "nobody on the network answers for the address",
    RdmaEventKind.ROUTE_RESOLVED: "subnet administration has not answered",
    RdmaEventKind.CONNECT_RESPONSE: (
        "the peer has not answered: check its host, and that its program accepts, or wait longer; "
        "one that reads requests too slowly loses those for which its backlog has no room"
    ),
}
_FAILURES = frozenset(
    {
        RdmaEventKind.ADDR_ERROR,
        RdmaEventKind.ROUTE_ERROR,
        RdmaEventKind.CONNECT_ERROR,
        RdmaEventKind.UNREACHABLE,
        RdmaEventKind.REJECTED,
        RdmaEventKind.DISCONNECTED,
        RdmaEventKind.DEVICE_REMOVAL,
        RdmaEventKind.MULTICAST_ERROR,
    }
)


class PortSpace:
    """Port spaces of rdma_cm."""

    TCP = 0x0106
    UDP = 0x0111


class Address(NamedTuple):
    """The address of a side; an IPv6 address of one link has its %scope."""

    host: str
    port: int


def public_address(address: CmAddress | None) -> Address | None:
    """Return an address as programs have it."""
    if address is None:
        return None
    scope = f"%{address.scope_id}" if address.scope_id else ""
    return Address(f"{ipaddress.ip_address(address.host)}{scope}", address.ip_port)


class Id:
    """An identifier with its event channel. ``await Id.create()`` makes one; close it.

    ``datagram`` chooses UD and the port space UDP. Raises ConnectionManagerError.
    """

    def __init__(self, manager: Manager, datagram: bool = False) -> None:
        self.manager = manager
        self.channel = manager.channel
        self.datagram = datagram
        self.qp_type = QPType.UD if datagram else QPType.RC
        self.waiters: list[asyncio.Future[None]] = []
        self.events: deque[IdEvent] = deque()
        """Events that nobody has taken yet."""
        self.on_event: Callable[[IdEvent], None] | None = None
        self.about = "the connection"
        """What errors name."""
        self.uid = 0
        self.number = 0
        self.ended: OSError | None = None
        self.closed = False
        self._is_wildcard = False
        self._addresses: IdAddresses | None = None

    # ---- making and ending ----

    @classmethod
    async def make(
        cls, manager: Manager, datagram: bool = False, deadline: float | None = None
    ) -> Id:
        """Return a new identifier; the manager has one user more until it is closed.

        ``deadline`` is when the manager's device must be open.
        """
        await manager.enter(deadline)
        try:
            made = cls(manager, datagram)
            made._create()
        except BaseException:
            manager.leave()
            raise
        return made

    def _create(self) -> None:
        self.uid = self.channel.new_uid(self)
        space = PortSpace.UDP if self.datagram else PortSpace.TCP
        try:
            answer = self.command(
                UcmNumber.CREATE_ID, 4, uid=self.uid, port_space=space, qp_type=int(self.qp_type)
            )
        except BaseException:
            self.channel.receivers.pop(self.uid, None)
            raise
        (self.number,) = struct.unpack_from("=I", answer.data)

    @classmethod
    async def adopt(cls, manager: Manager, number: int, datagram: bool) -> Id:
        """Return the identifier of a request, which the device has made."""
        await manager.enter()
        made = cls(manager, datagram)
        made.number = number
        made.uid = made.channel.new_uid(made)
        return made

    async def move_to(self, manager: Manager) -> None:
        """Move it to the event channel of another manager."""
        await manager.enter()
        try:
            manager.channel.device.migrate(self.number, self.channel.device)
        except BaseException:
            manager.leave()
            raise
        self.channel.receivers.pop(self.uid, None)
        self.manager.leave()
        self.manager, self.channel = manager, manager.channel
        self.uid = self.channel.new_uid(self)

    def close(self) -> None:
        """Destroy it. A connection on the way is refused, and one that is made is ended."""
        if self.closed:
            return
        self.closed = True
        self.channel.receivers.pop(self.uid, None)
        self.end(ConnectionManagerError(errno.ECANCELED, f"{self.about}: it was closed here"))
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        requests = [
            each.number for each in self.events if each.kind is RdmaEventKind.CONNECT_REQUEST
        ]
        try:
            for number in (*requests, self.number):
                if self.channel.ended is None:
                    self._execute(UcmNumber.DESTROY_ID, 4, id=number)
        except OSError:
            pass  # the device has ended, or is gone
        finally:
            self.manager.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    # ---- commands ----

    def _execute(self, number: UcmNumber, room: int, **fields: Any) -> DeviceAnswer:
        return self.channel.device.execute(pack_command(number, room, **fields))

    def command(self, number: UcmNumber, room: int = 0, **fields: Any) -> DeviceAnswer:
        """Give a command. Raises ConnectionManagerError."""
        if self.closed:
            raise ConnectionManagerError(errno.EBADF, f"{self.about}: it was closed here")
        if self.ended is not None:
            raise self.ended
        try:
            return self._execute(number, room, **fields)
        except OSError as error:
            raise self._refused(number, error, fields) from None

    def _refused(
        self, number: UcmNumber, error: OSError, fields: dict[str, Any]
    ) -> ConnectionManagerError:
        private = fields.get("private_data", b"")
        if "conn_param" in fields:
            private = ConnParam.unpack(fields["conn_param"]).private_data
        wildcard = number in (UcmNumber.BIND, UcmNumber.LISTEN) and self._is_wildcard
        return call_refused(number, error, self.about, private, wildcard)

    def set_option(self, level: int, name: int, value: bytes) -> None:
        """Set an option, as rdma_set_option(3)."""
        command = pack_command(
            UcmNumber.SET_OPTION,
            id=self.number,
            value_at=0,
            level=level,
            name=name,
            length=len(value),
        )
        try:
            self.channel.device.execute(command, value)
        except OSError as error:
            raise call_refused(UcmNumber.SET_OPTION, error, self.about) from None

    # ---- events ----

    def take(self, event: IdEvent) -> None:
        """Called by the channel."""
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def end(self, error: OSError) -> None:
        """Called by the channel when its device ends."""
        if self.ended is None:
            self.ended = error

    async def next_event(
        self, timeout: float | None = None, kinds: Collection[RdmaEventKind] = _EVENT_TYPES
    ) -> IdEvent:
        """Return the next event of these kinds. Raises ConnectTimeout, ManagerEnded."""
        return await self._next(kinds, self.deadline(timeout))

    def deadline(self, timeout: float | None) -> float | None:
        """Return when so many seconds are over, by the channel's clock.

        Raises TypeError and ValueError for what is no number of seconds.
        """
        check_timeout(timeout)
        seconds = limited(timeout)
        return None if seconds is None else self.channel.time() + seconds

    def left(self, deadline: float | None) -> float | None:
        """Return the seconds until a deadline. Raises ConnectTimeout if it has passed."""
        if deadline is None:
            return None
        seconds = deadline - self.channel.time()
        if seconds <= 0:
            raise self.time_is_over()
        return seconds

    def step_seconds(self, deadline: float | None, timeout: float | None) -> float:
        """Return how long an address or a route may take.

        Until the deadline, but at most STEP_SECONDS unless the caller gave a timeout. Raises
        ConnectTimeout if the deadline has passed.
        """
        left = self.left(deadline)
        if left is None:
            return STEP_SECONDS
        return left if timeout is not None else min(left, STEP_SECONDS)

    async def _next(self, kinds: Collection[RdmaEventKind], deadline: float | None) -> IdEvent:
        if not self.channel.is_async:
            self.channel.pump()
        while True:
            for event in self.events:
                if event.kind in kinds:
                    self.events.remove(event)
                    return event
            if self.ended is not None:
                raise self._why_ended()
            if deadline is not None and self.channel.time() >= deadline:
                raise self.time_is_over()
            await self.channel.wait(self, deadline)

    def time_is_over(self, silence: str = "") -> ConnectTimeout:
        """Return the error for a deadline that has passed; ``silence`` says who did not answer."""
        why = f"; {silence}" if silence else ""
        return ConnectTimeout(errno.ETIMEDOUT, f"{self.about}: the time is over{why}")

    def _why_ended(self) -> OSError:
        if isinstance(self.ended, ManagerEnded):
            return ManagerEnded()
        assert self.ended is not None
        return self.ended

    async def expect(self, kind: RdmaEventKind, deadline: float | None = None) -> IdEvent:
        """Wait for an event of a kind. Raises the error of an event that tells of a failure."""
        try:
            event = await self._next(_FAILURES | {kind}, deadline)
        except ConnectTimeout as error:
            raise self.time_is_over(_SILENCES.get(kind, "")) from error.__cause__
        if event.kind is kind:
            return event
        datagram = self.datagram or event.kind is RdmaEventKind.MULTICAST_ERROR
        is_about_peer = event.kind in (RdmaEventKind.REJECTED, RdmaEventKind.UNREACHABLE)
        private = b""
        if is_about_peer:
            private = (event.datagram if self.datagram else event.connection).private_data
        raise event_error(event.kind, event.status, private, self.about, datagram)

    # ---- addresses ----

    def bind(self, address: CmAddress) -> None:
        """Bind it to an address of this host."""
        self._is_wildcard = address.is_any
        packed = sockaddr(address)
        self.command(UcmNumber.BIND, id=self.number, length=len(packed), address=packed)

    async def resolve_addr(
        self, destination: CmAddress, source: CmAddress | None = None, timeout: float | None = None
    ) -> None:
        """Find the interface and the device that lead to an address."""
        packed, own = sockaddr(destination), b"" if source is None else sockaddr(source)
        deadline = self.deadline(timeout)
        self.command(
            UcmNumber.RESOLVE_ADDR,
            id=self.number,
            timeout_ms=_milliseconds(timeout),
            source_length=len(own),
            length=len(packed),
            source=own,
            destination=packed,
        )
        await self.expect(RdmaEventKind.ADDR_RESOLVED, deadline)

    async def resolve_route(self, timeout: float | None = None) -> None:
        """Find the path to the address that was resolved."""
        deadline = self.deadline(timeout)
        self.command(UcmNumber.RESOLVE_ROUTE, id=self.number, timeout_ms=_milliseconds(timeout))
        await self.expect(RdmaEventKind.ROUTE_RESOLVED, deadline)

    def addresses(self) -> IdAddresses:
        """Return both sides' addresses, and the GUID and the port of the device.

        They are asked for once when there is a destination, since they do not change then.
        """
        if self._addresses is not None:
            return self._addresses
        answer = self.command(UcmNumber.QUERY, QUERY_ADDR_BYTES, id=self.number, option=QUERY_ADDR)
        found = parse_addresses(answer.data)
        if found.destination is not None and found.guid:
            self._addresses = found
        return found

    @property
    def local_address(self) -> Address | None:
        """This side's address."""
        return public_address(self.addresses().source)

    @property
    def remote_address(self) -> Address | None:
        """The peer's address."""
        return public_address(self.addresses().destination)

    # ---- the device and the queue pair ----

    def default_pd(self, given: PD | None) -> PD:
        """Return the caller's protection domain, or that of the device. Raises Unreachable."""
        guid = self.addresses().guid
        if given is None:
            return self.manager.devices.pd_of(guid)
        if given.context.device.guid != guid:
            raise Unreachable(
                errno.ENODEV,
                f"{self.about}: the way there leads by another device than that of the pd",
            )
        return given

    def qp_attributes(self, state: QPState) -> ProgramAttributes:
        """Return the attributes for a state of the queue pair (INIT_QP_ATTR)."""
        answer = self.command(
            UcmNumber.INIT_QP_ATTR, _ATTRIBUTE_BYTES, id=self.number, qp_state=int(state)
        )
        return parse_attributes(answer)

    def bring(self, qp: QP, *states: QPState, **changes: int) -> None:
        """Bring a queue pair to states, one after the other, by their attributes.

        ``changes`` are attributes, by ibverbs' names, with other values than the device has.
        """
        for state in states:
            bring_to(qp, state, self.qp_attributes(state), changes)

    # ---- connections ----

    def listen(self, backlog: int = 0) -> None:
        """Listen; 0: as many requests may wait as the device allows."""
        self.command(UcmNumber.LISTEN, id=self.number, backlog=backlog)

    async def get_request(self, timeout: float | None = None) -> IdEvent:
        """Return the next CONNECT_REQUEST; ``adopt`` makes an Id of its ``number``."""
        return await self.expect(RdmaEventKind.CONNECT_REQUEST, self.deadline(timeout))

    def connect(self, parameters: RdmaConnectionParameters) -> None:
        """Send a REQ, or for datagrams a SIDR_REQ."""
        self.command(
            UcmNumber.CONNECT,
            conn_param=_conn_param(parameters),
            id=self.number,
            ece_vendor=0,
            ece_options=0,
        )

    def accept(self, parameters: RdmaConnectionParameters | None = None) -> None:
        """Answer a request. Without parameters: send the RTU, after CONNECT_RESPONSE."""
        self.command(
            UcmNumber.ACCEPT,
            uid=self.uid,
            conn_param=_conn_param(parameters),
            id=self.number,
            ece_vendor=0,
            ece_options=0,
        )

    def reject(self, private_data: bytes = b"") -> None:
        """Refuse a request."""
        _check_private_data(private_data)
        self.command(
            UcmNumber.REJECT,
            id=self.number,
            private_data_length=len(private_data),
            reason=_CONSUMER_REJECT,
            private_data=private_data,
        )

    def disconnect(self) -> None:
        """Send a DREQ, or the DREP that the peer waits for."""
        self.command(UcmNumber.DISCONNECT, id=self.number)

    # ---- groups ----

    def join_multicast(self, uid: int, group: CmAddress, send_only: bool) -> int:
        """Join a group and return its handle; the event has ``uid``."""
        packed = sockaddr(group)
        answer = self.command(
            UcmNumber.JOIN_MCAST,
            4,
            uid=uid,
            id=self.number,
            length=len(packed),
            join_flags=int(send_only),
            address=packed,
        )
        (handle,) = struct.unpack_from("=I", answer.data)
        return int(handle)

    def leave_multicast(self, handle: int) -> None:
        """Leave the group of a handle."""
        self.command(UcmNumber.LEAVE_MCAST, 4, id=handle)


def _milliseconds(timeout: float | None) -> int:
    """Return a time for a command, as much as that can hold (24 days)."""
    seconds = STEP_SECONDS if timeout is None else timeout
    return max(1, math.ceil(min(seconds * 1000, _MOST_MILLISECONDS)))


def _check_private_data(data: bytes) -> None:
    if len(data) > 255:
        refused = ConnectionManagerError(errno.EINVAL, CmRefusal.PRIVATE_DATA.sentence)
        refused.reason = CmRefusal.PRIVATE_DATA
        raise refused


def _conn_param(parameters: RdmaConnectionParameters | None) -> bytes:
    if parameters is None:
        return bytes(272)
    _check_private_data(parameters.private_data)
    return ConnParam(
        qp_num=parameters.qpn,
        qkey=parameters.qkey,
        private_data=parameters.private_data,
        srq=int(parameters.srq),
        responder_resources=parameters.responder_resources,
        initiator_depth=parameters.initiator_depth,
        flow_control=int(parameters.flow_control),
        retry_count=parameters.retry_count,
        rnr_retry_count=parameters.rnr_retry_count,
        valid=1,
    ).pack()


# ---- names ---------------------------------------------------------------------------------------


async def all_addresses(
    channel: Channel, host: str, port: int, deadline: float | None = None
) -> list[CmAddress]:
    """Return the addresses of a host name, or of a text. Raises NoSuchAddress, ConnectTimeout."""
    try:
        return [CmAddress.ip(host, port)]
    except MadError:
        pass  # it is a name, or has the name of an interface
    fabric = os.environ.get(launch.FABRIC)
    if fabric and place.get() is None and host != "localhost":
        return [CmAddress.ip(each, port) for each in _of_fabric(fabric, host)]
    try:
        found = await channel.look_up(host, port, deadline)
    except TimeoutError:
        raise ConnectTimeout(errno.ETIMEDOUT, f"{host}: the time is over") from None
    addresses = [_from_sockaddr(each[4]) for each in found]
    return list(dict.fromkeys(addresses))


def _of_fabric(fabric: str, host: str) -> list[str]:
    """The addresses of a host of the live fabric to one of whose hosts this program is attached."""
    try:
        found = control_fabric(fabric, {"do": "host", "host": host})
    except OSError as error:
        raise NoSuchAddress(errno.EADDRNOTAVAIL, str(error)) from None
    return list(found["addresses"])


async def first_address(
    channel: Channel, host: str, port: int = 0, deadline: float | None = None
) -> CmAddress:
    """Return the first address of a host name. Raises NoSuchAddress, ConnectTimeout."""
    return (await all_addresses(channel, host, port, deadline))[0]


def _from_sockaddr(address: tuple[Any, ...]) -> CmAddress:
    host, port, *rest = address
    scope = int(rest[1]) if len(rest) > 1 else 0
    return CmAddress.ip(str(host).partition("%")[0], int(port), scope)


def any_address(family: CmFamily, port: int) -> CmAddress:
    """Return the address that stands for every one of this host."""
    return CmAddress.wildcard(family).with_port(port)
