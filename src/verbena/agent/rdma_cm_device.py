# SPDX-License-Identifier: Apache-2.0
"""The commands of /dev/infiniband/rdma_cm, carried out by ``RdmaCm``.

``RdmaCmDevices`` is the agent's command handler: it translates structures of the kernel's interface
(ucm_commands.py, ucm_answers.py), sends what the connection manager wants to send through QP 1, and
tells programs of events.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from verbena.agent import ucm_answers
from verbena.agent.advance_answers import (
    ADVANCE_ROOM,
    addresses_in_advance,
    attributes_in_advance,
    event_with_advance,
    path_in_advance,
)
from verbena.agent.event_delivery import EventDelivery
from verbena.agent.messages import (
    SENTENCE,
    AnswerFlag,
    ProgramPort,
    Request,
    answer,
    message,
)
from verbena.agent.sentences import backlog_sentence, event_sentence, refusal_sentence
from verbena.agent.server import DeviceConnection
from verbena.agent.ucm_commands import (
    CONN_PARAM_VALID_AT,
    ConnParam,
    UcmCommand,
    UcmError,
    UcmNumber,
    parse_command,
)
from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.identifier import IdState, RdmaId
from verbena.manage.cm.qp_attributes import QpAttributes, QpTarget
from verbena.manage.cm.rdma_cm import RdmaCm
from verbena.manage.cm.rdma_events import RdmaConnectionParameters, RdmaEvent, RdmaEventKind
from verbena.manage.cm.refusals import CmError
from verbena.manage.cm.routes import CmDatagram, CmRoute, MadAddress

if TYPE_CHECKING:
    from verbena.manage.cm.host import CmRequest

__all__ = ["CmSystem", "RdmaCmDevices"]


class CmSystem(Protocol):
    """What answers the requests of the connection manager: the host's network, or a fabric."""

    def ask(self, request: CmRequest, cm: RdmaCm, now: float) -> None:
        """Answer a request, at once or later, by the call of ``cm`` that it names."""

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do."""

    def tick(self, now: float) -> None:
        """Do what is due."""


@dataclass(slots=True, frozen=True)
class _Answer:
    """What a command gives: bytes for the program, and a GID whose index belongs into them.

    ``event`` is what GET_EVENT has read, and ``line`` is for the program's log.
    """

    data: bytes = b""
    gid_index_at: int = 0
    gid: bytes = bytes(16)
    port: int = 0
    flags: int = 0
    event: RdmaEvent | None = None
    line: bytes = b""


_DONE = _Answer()
_Carry = Callable[["RdmaCmDevices", DeviceConnection, UcmCommand], _Answer]


class RdmaCmDevices:
    """Carries out commands. ``send`` takes datagrams; ``clock`` is in seconds."""

    FETCHES_EVENTS = False
    """Whether programs ask for each event by GET_EVENT, as those of simulated hosts do."""

    def __init__(
        self,
        cm: RdmaCm,
        system: CmSystem,
        send: Callable[[CmDatagram], None],
        clock: Callable[[], float],
    ) -> None:
        self.cm = cm
        self.system = system
        self._send = send
        self._clock = clock
        self.explain: Callable[[RdmaId], str] | None = None
        """Returns what the log says more of an identifier whose peer does not answer."""
        self._channels: dict[int, tuple[int, DeviceConnection]] = {}  # by inode
        self._devices: dict[int, DeviceConnection] = {}  # by channel
        self._told: dict[int, tuple[RdmaId, int]] = {}  # with the uid, by number
        self._delivery = EventDelivery(cm, self._event_message)
        cm.call_before_refusing(self._note_reads)

    # ---- what the server calls ----

    def opened(self, device: DeviceConnection) -> None:
        """A program has opened the device: it gets an event channel."""
        channel = device.channel = self.cm.open_channel()
        self._channels[device.hello.inode] = channel, device
        self._devices[channel] = device

    def closed(self, device: DeviceConnection) -> None:
        """The last descriptor was closed: its identifiers end as DESTROY_ID ends them."""
        self.cm.set_time(self._clock())
        channel, _ = self._channels.pop(device.hello.inode)
        self.cm.close_channel(channel)
        del self._devices[channel]
        self.settle()

    def command(self, device: DeviceConnection, request: Request) -> bytes:
        """Carry a command out, and return its answer. What follows of it ``answered`` does."""
        self.cm.set_time(self._clock())
        number, serial = None, 0
        try:
            command = parse_command(request.command)
            number = command.number
            if number in _QUERIES:
                return self._packed(device, _CARRY[number](self, device, command), command.room)
            serial = self._delivery.next_serial()
            if number in _TAKE_BACK and (flags := self._take_back(device, command, request.other)):
                return answer(flags=flags)
            if number is UcmNumber.MIGRATE_ID:
                made = self._migrate(device, command, request.other)
            else:
                made = _CARRY[number](self, device, command)
        except (UcmError, CmError) as error:
            refused = answer(error.errno or errno.EINVAL)
            return message([refused, _line(refusal_sentence(number, error))])
        if made.event is not None:
            return self._fetched(device, made, made.event, command.room, serial)
        if number in _OF_NO_ID:
            return answer(0, made.data[: command.room], made.flags, serial=serial)
        about, flags, context = command.id, made.flags | _CHANGED, 0
        if number in _BINDS:
            remember, context = self._remember(number, about)
            flags |= remember
        elif number is UcmNumber.DESTROY_ID:
            self._told.pop(about, None)
            flags |= _FORGET
        data = made.data and made.data[: command.room]
        first = answer(0, data, flags, number=about, context=context, serial=serial)
        return message([first, made.line]) if made.line else first

    def answered(self, device: DeviceConnection) -> None:
        """Send and ask what follows of a command, and tell who has events."""
        self.settle()

    def _fetched(
        self, device: DeviceConnection, made: _Answer, event: RdmaEvent, room: int, serial: int
    ) -> bytes:
        """Return what GET_EVENT gives."""
        about = event.id
        flags, context = self._remember(UcmNumber.GET_EVENT, about)
        first = self._packed(device, made, room, flags | _CHANGED, about, context, serial)
        advance = self._in_advance(device, event)
        return message([first, advance]) if advance else first

    def has_room(self, device: DeviceConnection) -> None:
        """There is room again for messages with events."""
        self._delivery.deliver(device)

    def _packed(
        self,
        device: DeviceConnection,
        made: _Answer,
        room: int,
        flags: int = 0,
        number: int = 0,
        context: int = 0,
        serial: int = 0,
    ) -> bytes:
        at = 0 if device.hello.host else made.gid_index_at  # a fabric's port has one GID, number 0
        port = self._program_port(device, made.port) if at else None
        # fmt: off
        return answer(
            0, made.data[:room], flags | made.flags, at, made.gid, port.device if port else 0,
            made.port, number=number, context=context, serial=serial,
        )
        # fmt: on

    def next_deadline(self) -> float | None:
        """Return when something is due."""
        due = (self.cm.next_deadline(), self.system.next_deadline())
        return min((each for each in due if each is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.system.tick(now)
        self.cm.tick(now)
        self.settle()

    def is_idle(self) -> bool:
        """Whether no connection is still to be ended."""
        return self.cm.next_deadline() is None

    def describe(self) -> dict[str, Any]:
        """Return who uses the agent and for what, for `verbena info`."""
        ids = self.cm.identifiers()
        listening = [each for each in ids if each.state is IdState.LISTEN]
        return {
            "programs": sorted({device.pid for device in self._devices.values()}),
            "identifiers": len(ids),
            "listening": sorted(f"{each.space.name} {each.source}" for each in listening),
            "listening_programs": sorted({self._devices[each.channel].pid for each in listening}),
            "full_backlogs": {
                f"{each.space.name} {each.source}": each.turned_away
                for each in listening
                if each.turned_away
            },
            "groups": sorted(
                f"{group.address} {'joined' if group.is_joined else 'asked for'}"
                for each in ids
                for group in each.groups
            ),
            "connections": sum(each.state is IdState.CONNECT for each in ids),
            "messages": {name: n for name, n in self.cm.counters.files().items() if n},
        }

    # ---- what the connection manager wants ----

    def settle(self) -> None:
        """Send and ask what the connection manager has asked for, and tell who has events."""
        cm = self.cm
        while requests := cm.take_requests():
            for request in requests:
                self.system.ask(request, cm, self._clock())
        for datagram in cm.take_datagrams():
            self._send(datagram)
        for channel in cm.take_changed():
            device = self._devices.get(channel)
            if device is not None:
                self.tell(device)

    def tell(self, device: DeviceConnection) -> None:
        """Have a program know of its events."""
        self._delivery.deliver(device)

    def _note_reads(self, channel: int) -> None:
        device = self._devices.get(channel)
        if device is not None and not self.FETCHES_EVENTS:
            self._delivery.note_reads(device)

    def _take_back(self, device: DeviceConnection, command: UcmCommand, other: int) -> int:
        """See EventDelivery: MIGRATE_ID is about the events in the device that it names."""
        if self.FETCHES_EVENTS:
            return 0
        old = self._channels.get(other) if command.number is UcmNumber.MIGRATE_ID else None
        holder = device if old is None else old[1]
        is_group = command.number is UcmNumber.LEAVE_MCAST
        return self._delivery.take_back(holder, command.id, command.rest, is_group)

    # ---- helpers of commands ----

    def _by_lid(self, device: DeviceConnection, to: MadAddress) -> MadAddress | None:
        """Return the address for a program whose port is InfiniBand; None for Ethernet's.

        Such a port reaches this host's alone, which have its LID if nothing else was set.
        """
        port = self._program_port(device, to.port)
        if port is None or port.is_ethernet:
            return None
        return MadAddress(port=to.port, has_grh=False, dlid=port.lid, sl=to.sl)

    def _id(self, device: DeviceConnection, number: int) -> RdmaId:
        found = self.cm.find_id(number)
        if found is None:
            found = self.cm.id(number)  # which refuses it
        if found.channel != device.channel:
            raise UcmError(errno.EINVAL)
        return found

    def _route(self, device: DeviceConnection, of: RdmaId) -> CmRoute | None:
        if of.route is None:
            return None
        port = self._program_port(device, of.route.port)
        by_lid = None
        if port is not None and not port.is_ethernet:
            by_lid = self._by_lid(device, of.route.address())
        if by_lid is None:
            return of.route
        lid = by_lid.dlid
        return replace(of.route, is_ethernet=False, dlid=lid, slid=lid, hop_limit=0)

    def _program_port(self, device: DeviceConnection, port: int) -> ProgramPort | None:
        for each in device.hello.ports:
            if each.number == port:
                return each
        return device.hello.ports[0] if device.hello.ports else None

    def _guid(self, device: DeviceConnection, of: RdmaId) -> int:
        if of.interface is None or not of.interface.port:
            return 0
        port = self._program_port(device, of.interface.port)
        return port.guid if port else self.cm.cm.device.ca_guid

    def _migrate(self, device: DeviceConnection, command: UcmCommand, other: int) -> _Answer:
        """The command is written to the new descriptor and names the old one."""
        old = self._channels.get(other)
        moved = self.cm.id(command.id)
        if old is None or moved.channel != old[0]:
            raise UcmError(errno.EINVAL)
        count = self.cm.migrate(command.id, device.channel)
        return _Answer(struct.pack("=I", count))

    def _remember(self, number: UcmNumber, about: int) -> tuple[int, int]:
        """Have the program's side know which identifiers are bound to a device.

        Returns the flags for its message, and the uid that goes with AnswerFlag.REMEMBER.
        """
        of = self.cm.find_id(about)
        if of is None or not of.context or of.interface is None or not of.interface.port:
            return 0, 0
        told = self._told.get(about)
        is_told = told is not None and told[0] is of and told[1] == of.context
        if is_told and number is not UcmNumber.MIGRATE_ID:
            return 0, 0
        self._told[about] = of, of.context
        return _REMEMBER, of.context

    # ---- answers in advance ----

    def _in_advance(self, device: DeviceConnection, event: RdmaEvent) -> bytes:
        """Return the answers to what librdmacm asks next, once it has read this event."""
        following = _NEXT.get(event.kind)
        if following is None:
            return self._explained(event)
        of = self.cm.find_id(event.id)
        if of is None or event.group is not None:
            return b""
        made = []
        if following.addresses:
            port, p_key = (of.interface.port, of.interface.p_key) if of.interface else (0, 0)
            guid = self._guid(device, of)
            both = _sockaddrs(of), _gid_sockaddrs(of)
            made.append(addresses_in_advance(of.number, guid, p_key, port, *both))
        if following.path:
            route = self._route(device, of)
            if route is not None:
                made.append(path_in_advance(of.number, ucm_answers.path_record(route)))
        for target in following.targets:
            try:
                attributes = self._attributes(device, of, target)
            except CmError:
                continue
            to = attributes.address
            has_index = not device.hello.host and to is not None and to.has_grh
            port_of = self._program_port(device, to.port) if to is not None and has_index else None
            made.append(
                attributes_in_advance(
                    of.number, attributes, port_of.device if port_of else 0, has_index
                )
            )
        if event.listener is not None and (line := self._backlog_line(event.listener, twice=True)):
            while sum(map(len, made)) + len(line) > ADVANCE_ROOM:
                made.pop()  # the program asks for it
            made.append(line)
        return b"".join(made)

    def _backlog_line(self, number: int, *, twice: bool = False) -> bytes:
        """Return the line about a listener whose backlog was full since the last line, or nothing.

        With ``twice`` it says so only when the count has doubled, so that a log has few lines.
        """
        of = self.cm.find_id(number)
        if of is None or of.turned_away <= of.turned_away_told * (1 + twice):
            return b""
        of.turned_away_told = of.turned_away
        line = _line(backlog_sentence(of))
        return line + bytes(-len(line) % 8)

    def _explained(self, event: RdmaEvent) -> bytes:
        """Return the line for the program's log about an event that reports a failure."""
        of = self.cm.find_id(event.id)
        sentence = event_sentence(event, of.destination if of else None)
        if sentence is None:
            return b""
        if of and self.explain and event.status == -errno.ETIMEDOUT:
            sentence += self.explain(of)
        return _line(sentence)

    # ---- identifiers ----

    def create_id(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        number = self.cm.create_id(
            device.channel,
            command["port_space"],
            command["qp_type"],
            command["uid"],
        )
        return _Answer(struct.pack("=I", number))

    def destroy_id(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        line = self._backlog_line(command.id)
        return _Answer(struct.pack("=I", self.cm.destroy_id(command.id)), line=line)

    def bind_ip(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        self.cm.bind(command.id, parse_sockaddr(command["address"]))
        return _DONE

    def bind(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        self.cm.bind(command.id, parse_sockaddr(command["address"][: command["length"]]))
        return _DONE

    def resolve_ip(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        return self._resolve(device, command, command["source"], command["destination"])

    def resolve_addr(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        source = command["source"][: command["source_length"]]
        return self._resolve(device, command, source, command["destination"][: command["length"]])

    def _resolve(
        self, device: DeviceConnection, command: UcmCommand, source: bytes, destination: bytes
    ) -> _Answer:
        self._id(device, command.id)
        given = parse_sockaddr(source) if any(source[:2]) else None
        self.cm.resolve_address(
            command.id, parse_sockaddr(destination), given, command["timeout_ms"]
        )
        return _DONE

    def resolve_route(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        if not command["timeout_ms"]:
            raise UcmError(errno.EINVAL)
        self.cm.resolve_route(command.id, command["timeout_ms"])
        return _DONE

    def set_option(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        if len(command.rest) != command["length"]:
            raise UcmError(errno.EINVAL)
        self.cm.set_option(command.id, command["level"], command["name"], command.rest)
        return _DONE

    # ---- queries ----

    def query_route(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        of = self._id(device, command.id)
        port = of.interface.port if of.interface else 0
        route = self._route(device, of)
        paths = [ucm_answers.user_path(route)] if route else []
        source, destination = _sockaddrs(of)
        return _Answer(
            ucm_answers.query_route(self._guid(device, of), paths, source, destination, port)
        )

    def query(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        of = self._id(device, command.id)
        option = command["option"]
        if option != ucm_answers.QUERY_PATH and command.room < ucm_answers.QUERY_ADDR_BYTES:
            raise UcmError(errno.ENOSPC)
        return self._queried(device, of, option, command.room)

    def _queried(self, device: DeviceConnection, of: RdmaId, option: int, room: int) -> _Answer:
        if option == ucm_answers.QUERY_PATH:
            route = self._route(device, of)
            records = [ucm_answers.path_record(route)] if route else []
            return _Answer(ucm_answers.query_path(records, room))
        if option == ucm_answers.QUERY_ADDR:
            addresses = _sockaddrs(of)
        elif option == ucm_answers.QUERY_GID:
            addresses = _gid_sockaddrs(of)
        else:
            raise UcmError(errno.ENOSYS)
        port = of.interface.port if of.interface else 0
        p_key = of.interface.p_key if of.interface else 0
        return _Answer(ucm_answers.query_addr(self._guid(device, of), p_key, *addresses, port))

    def init_qp_attr(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        of = self._id(device, command.id)
        return self._qp_attributes(device, of, command["qp_state"])

    def _qp_attributes(self, device: DeviceConnection, of: RdmaId, target: int) -> _Answer:
        attributes = self._attributes(device, of, target)
        data, to = ucm_answers.qp_attr(attributes), attributes.address
        if to is None or not to.has_grh:
            return _Answer(data)
        return _Answer(data, ucm_answers.QP_ATTR_GID_INDEX_AT, to.sgid, to.port)

    def _attributes(self, device: DeviceConnection, of: RdmaId, target: int) -> QpAttributes:
        """Return the attributes, with an address by LID for a program whose port has one."""
        attributes = self.cm.qp_attributes(of.number, target)
        if attributes.address is not None:
            by_lid = self._by_lid(device, attributes.address)
            if by_lid is not None:
                return replace(attributes, address=by_lid)
        return attributes

    # ---- connections ----

    def listen(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        self.cm.listen(command.id, command["backlog"])
        return _DONE

    def connect(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        param = _parameters(command["conn_param"])
        if param is None:
            raise UcmError(errno.EINVAL)
        self.cm.connect(command.id, param, command["ece_vendor"], command["ece_options"])
        return _DONE

    def accept(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        param = _parameters(command["conn_param"])
        self.cm.accept(
            command.id,
            param,
            None if param is None else command["uid"],
            command["ece_vendor"],
            command["ece_options"],
        )
        return _DONE

    def reject(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        private = command["private_data"][: command["private_data_length"]]
        self.cm.reject(command.id, private, command["reason"] or 28)
        return _DONE

    def disconnect(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        self.cm.disconnect(command.id)
        return _DONE

    def notify(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, command.id)
        self.cm.notify(command.id, command["event"])
        return _DONE

    # ---- groups ----

    def join_ip_mcast(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        return self._join_mcast(device, command, parse_sockaddr(command["address"]), 0)

    def join_mcast(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        address = parse_sockaddr(command["address"][: command["length"]])
        return self._join_mcast(device, command, address, command["join_flags"])

    def _join_mcast(
        self, device: DeviceConnection, command: UcmCommand, address: CmAddress, flags: int
    ) -> _Answer:
        self._id(device, command.id)
        handle = self.cm.join_multicast(command.id, address, command["uid"], flags)
        return _Answer(struct.pack("=I", handle))

    def leave_mcast(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        self._id(device, self.cm.id_of_group(command.id).number)
        return _Answer(struct.pack("=I", self.cm.leave_multicast(command.id)))

    # ---- events ----

    def get_event(self, device: DeviceConnection, command: UcmCommand) -> _Answer:
        """A program of a simulated host asks for its next event; others get theirs sent."""
        if not self.FETCHES_EVENTS:
            raise UcmError(errno.EINVAL)
        event = self.cm.read_event(device.channel)
        if event is None:
            return _Answer(flags=_NO_EVENT)
        return self._event(device, event, command.room)

    def _event_message(self, device: DeviceConnection, event: RdmaEvent, serial: int) -> bytes:
        about = event.id
        flags = context = 0
        if event.kind is RdmaEventKind.ADDR_RESOLVED:
            flags, context = self._remember(UcmNumber.GET_EVENT, about)
        fields, at, gid, port = self._event_fields(device, event)
        owner = self._program_port(device, port) if at and not device.hello.host else None
        return event_with_advance(
            flags | _CHANGED,
            serial,
            (about, context),
            (at if owner else 0, gid, owner.device if owner else 0, port),
            fields,
            self._in_advance(device, event),
        )

    def _event(self, device: DeviceConnection, event: RdmaEvent, room: int) -> _Answer:
        fields, at, gid, port = self._event_fields(device, event)
        uid, number, kind, status, param, *ece = fields
        data = ucm_answers.event(uid, number, kind, status, param, (ece[0], ece[1]), room)
        return _Answer(data, at, gid, port, event=event)

    def _event_fields(
        self, device: DeviceConnection, event: RdmaEvent
    ) -> tuple[tuple[int, int, int, int, bytes, int, int], int, bytes, int]:
        """Return the fields of event_with_advance, and where which GID's index of which port is."""
        param, at, gid, port = b"", 0, _NO_GID, 0
        if event.connection is not None:
            param = ucm_answers.conn_event_param(event.connection)
        elif event.datagram is not None:
            datagram, to = event.datagram, event.datagram.address
            by_lid = None if to is None else self._by_lid(device, to)
            param = ucm_answers.ud_event_param(
                datagram if by_lid is None else replace(datagram, address=by_lid)
            )
            if to is not None and by_lid is None:
                at, gid, port = ucm_answers.UD_EVENT_GID_INDEX_AT, to.sgid, to.port
        number = event.id if event.group is None else event.group
        of = (event.context, number, event.kind, event.status, param, event.vendor_id)
        return (*of, event.options), at, gid, port


_CARRY: dict[UcmNumber, _Carry] = {
    UcmNumber.CREATE_ID: RdmaCmDevices.create_id,
    UcmNumber.DESTROY_ID: RdmaCmDevices.destroy_id,
    UcmNumber.BIND_IP: RdmaCmDevices.bind_ip,
    UcmNumber.RESOLVE_IP: RdmaCmDevices.resolve_ip,
    UcmNumber.RESOLVE_ROUTE: RdmaCmDevices.resolve_route,
    UcmNumber.QUERY_ROUTE: RdmaCmDevices.query_route,
    UcmNumber.CONNECT: RdmaCmDevices.connect,
    UcmNumber.LISTEN: RdmaCmDevices.listen,
    UcmNumber.ACCEPT: RdmaCmDevices.accept,
    UcmNumber.REJECT: RdmaCmDevices.reject,
    UcmNumber.DISCONNECT: RdmaCmDevices.disconnect,
    UcmNumber.INIT_QP_ATTR: RdmaCmDevices.init_qp_attr,
    UcmNumber.GET_EVENT: RdmaCmDevices.get_event,
    UcmNumber.SET_OPTION: RdmaCmDevices.set_option,
    UcmNumber.NOTIFY: RdmaCmDevices.notify,
    UcmNumber.JOIN_IP_MCAST: RdmaCmDevices.join_ip_mcast,
    UcmNumber.LEAVE_MCAST: RdmaCmDevices.leave_mcast,
    UcmNumber.QUERY: RdmaCmDevices.query,
    UcmNumber.BIND: RdmaCmDevices.bind,
    UcmNumber.RESOLVE_ADDR: RdmaCmDevices.resolve_addr,
    UcmNumber.JOIN_MCAST: RdmaCmDevices.join_mcast,
}


_REMEMBER = int(AnswerFlag.REMEMBER)
_FORGET = int(AnswerFlag.FORGET)
_CHANGED = int(AnswerFlag.CHANGED)
_NO_EVENT = int(AnswerFlag.NO_EVENT)
_BINDS = {
    *(UcmNumber.BIND_IP, UcmNumber.BIND, UcmNumber.RESOLVE_IP, UcmNumber.RESOLVE_ADDR),
    *(UcmNumber.LISTEN, UcmNumber.ACCEPT, UcmNumber.MIGRATE_ID),
}
"""Commands after which an identifier may be bound to a device, or to another descriptor."""
_QUERIES = {UcmNumber.QUERY_ROUTE, UcmNumber.QUERY, UcmNumber.INIT_QP_ATTR}
_TAKE_BACK = {UcmNumber.DESTROY_ID, UcmNumber.MIGRATE_ID, UcmNumber.LEAVE_MCAST}
_OF_NO_ID = {UcmNumber.CREATE_ID, UcmNumber.GET_EVENT, UcmNumber.LEAVE_MCAST}
_NO_GID = bytes(16)


@dataclass(frozen=True)
class _Following:
    """What librdmacm asks after an event: QUERY of addresses and GIDs, QUERY of the path, and
    INIT_QP_ATTR for states."""

    addresses: bool
    path: bool
    targets: tuple[QpTarget, ...]


_NEXT: dict[RdmaEventKind, _Following] = {
    RdmaEventKind.ADDR_RESOLVED: _Following(True, False, ()),
    RdmaEventKind.ROUTE_RESOLVED: _Following(False, True, (QpTarget.INIT,)),
    RdmaEventKind.CONNECT_REQUEST: _Following(True, True, tuple(QpTarget)),
    RdmaEventKind.CONNECT_RESPONSE: _Following(False, False, tuple(QpTarget)),
}


# ---- structures --------------------------------------------------------------------------------


def _line(sentence: str) -> bytes:
    return answer(data=sentence.encode(), command=SENTENCE)


_IN = struct.Struct(">H4s")


def parse_sockaddr(data: bytes) -> CmAddress:
    """Return the address of a sockaddr_in, sockaddr_in6 or sockaddr_ib. Raises UcmError."""
    family = int.from_bytes(data[:2].ljust(2, b"\0"), "little")
    try:
        if family == socket.AF_INET:
            port, host = _IN.unpack_from(data, 2)
            return CmAddress(CmFamily.IPV4, host, port)
        if family == socket.AF_INET6:
            port, _ = struct.unpack_from(">HI", data, 2)
            (scope,) = struct.unpack_from("=I", data, 24)
            return CmAddress(CmFamily.IPV6, data[8:24], port, scope)
        if family == ucm_answers.AF_IB:
            p_key, _ = struct.unpack_from(">HI", data, 2)
            service, mask = struct.unpack_from(">QQ", data, 24)
            return CmAddress.ib(data[8:24], service, mask, p_key)
    except (struct.error, ValueError):
        raise UcmError(errno.EINVAL) from None
    raise UcmError(errno.EAFNOSUPPORT)


def _sockaddrs(of: RdmaId) -> tuple[bytes, bytes]:
    has_source = of.bound or of.destination is not None  # of a request: where it came to
    source = ucm_answers.sockaddr(of.source) if has_source else b""
    return source, ucm_answers.sockaddr(of.destination) if of.destination else b""


def _gid_sockaddrs(of: RdmaId) -> tuple[bytes, bytes]:
    """The addresses as GIDs, with the service IDs of their ports."""
    source_gid = of.interface.gid if of.interface else bytes(16)
    service = int(of.space) << 16
    to_port = of.destination.port if of.destination else 0
    return (
        ucm_answers.gid_sockaddr(source_gid, service | of.source.port),
        ucm_answers.gid_sockaddr(of.destination_gid, service | to_port),
    )


def _parameters(conn_param: bytes) -> RdmaConnectionParameters | None:
    """Return struct rdma_ucm_conn_param as the connection manager has it; None: not valid."""
    if not conn_param[CONN_PARAM_VALID_AT]:
        return None
    param = ConnParam.unpack(conn_param)
    return RdmaConnectionParameters(
        param.qp_num,
        param.private_data,
        param.responder_resources,
        param.initiator_depth,
        param.flow_control != 0,
        param.retry_count,
        param.rnr_retry_count,
        param.srq != 0,
        param.qkey,
    )
