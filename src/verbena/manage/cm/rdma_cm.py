# SPDX-License-Identifier: Apache-2.0
"""rdma_cm: identifiers with ports, connections and datagram services on ``InfinibandCm``.

The owner, an agent behind /dev/infiniband/rdma_cm or a simulated host, makes calls, passes MADs and
time, and takes datagrams, requests to the system and events. Semantics, order of events and errnos
are those of Linux's cma.c and ucma.c; a call that is refused raises CmError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ip_cm import PortSpace
from ..sa_records import McMemberRecord, PathRecord
from .addresses import CmAddress, CmFamily
from .bindings import BindingTable
from .connecting import Connecting
from .counters import CmCounters
from .groups import Groups
from .host import AddressAnswer, CmHost, CmRequest
from .id_options import set_id_option
from .id_table import IdTable
from .identifier import IdInput, IdState, QpKind, RdmaId
from .infiniband_cm import InfinibandCm
from .qp_attributes import QpAttributes
from .rdma_events import RdmaConnectionParameters, RdmaEvent, RdmaEventKind
from .refusals import CmError, CmRefusal
from .resolving import Resolving
from .routes import CmDatagram, CmDevice, MadArrival
from .settings import CmSettings

__all__ = ["RdmaCm"]

_QP_KINDS = {
    PortSpace.TCP: QpKind.RC,
    PortSpace.UDP: QpKind.UD,
    PortSpace.IPOIB: QpKind.UD,
}


class RdmaCm:
    """The rdma_cm of a host with one device.

    ``random`` returns a number of so many bits. ``ports`` are the first and last ephemeral port.
    ``binds_ipv6_only`` is the system's default for AFONLY. Times are seconds of any origin; calls
    act at the time of the last ``tick`` or ``receive``.
    """

    MAX_BACKLOG = 1024  # /proc/sys/net/rdma_ucm/max_backlog

    def __init__(
        self,
        device: CmDevice,
        host: CmHost,
        random: Callable[[int], int],
        settings: CmSettings | None = None,
        *,
        now: float = 0.0,
        loops_back: bool = True,
        ports: tuple[int, int] = (32768, 60999),
        binds_ipv6_only: bool = False,
    ) -> None:
        self.cm = InfinibandCm(device, random, settings, now=now, loops_back=loops_back)
        self.host = host
        self._table = IdTable(random)
        self._bindings = BindingTable(random, *ports)
        self._binds_ipv6_only = binds_ipv6_only
        self._requests: list[CmRequest] = []
        self._resolving = Resolving(self._table, self.cm, self._requests)
        self._connecting = Connecting(self._table, self.cm, self._bindings, host)
        self._groups = Groups(self._table, self.cm, self._requests)

    # The owner's side: time, MADs, requests.

    @property
    def counters(self) -> CmCounters:
        """Counters of messages, for sysfs."""
        return self.cm.counters

    def set_device(self, device: CmDevice) -> None:
        """The device's addresses have changed."""
        self.cm.device = device

    def receive(self, data: bytes, arrival: MadArrival, now: float) -> CmRefusal | None:
        """Handle a MAD of QP 1. Return why it changed nothing, or None."""
        refusal = self.cm.receive(data, arrival, now)
        self._resolving.expire(now)
        self._connecting.settle()
        return refusal

    def set_time(self, now: float) -> None:
        """Say what time it is, before a command: what it waits for is not older than that."""
        if now > self.cm.now:
            self.cm.now = now

    def tick(self, now: float) -> None:
        """Do what is due at ``now``."""
        self.cm.tick(now)
        self._resolving.expire(now)
        self._connecting.settle()

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do, or None."""
        found = [self.cm.next_deadline(), self._resolving.next_deadline()]
        return min((each for each in found if each is not None), default=None)

    def take_datagrams(self) -> list[CmDatagram]:
        """Return what is to be sent, in order, and forget it."""
        if self.cm.looped or self.cm.events:
            self._connecting.settle()
        return self.cm.take_datagrams()

    def take_requests(self) -> list[CmRequest]:
        """Return what the system is asked for, in order, and forget it."""
        if not self._requests:
            return []
        taken = list(self._requests)
        self._requests.clear()
        return taken

    def remove_device(self) -> None:
        """The device is gone: every identifier that uses it is told so."""
        for each in self._table.ids.values():
            if each.interface is not None or each.connection is not None:
                each.state = IdState.DEVICE_REMOVAL
                kind = RdmaEventKind.DEVICE_REMOVAL
                self._table.report(each, RdmaEvent(kind, each.number, each.context))

    def address_changed(self, gid: bytes) -> None:
        """The interface of a GID has another hardware address: its identifiers are told so."""
        for each in self._table.ids.values():
            if each.interface is not None and each.interface.gid == gid:
                kind = RdmaEventKind.ADDR_CHANGE
                self._table.report(each, RdmaEvent(kind, each.number, each.context))

    # Channels and events.

    def open_channel(self) -> int:
        """Return a new event channel."""
        return self._table.open_channel()

    def close_channel(self, channel: int) -> None:
        """Destroy the identifiers of a channel, and then the channel."""
        self._table.known_channel(channel)
        for each in self._table.of_channel(channel):
            if each.number in self._table.ids:  # a listener takes unread new ones with it
                self.destroy_id(each.number)
        self._table.close_channel(channel)

    def pending(self, channel: int) -> int:
        """Return how many events of a channel are unread; it is readable if there are some."""
        if self.cm.looped or self.cm.events:
            self._connecting.settle()
        return self._table.pending(channel)

    def take_changed(self) -> set[int]:
        """Return the channels that have got events or lost some since the last call."""
        if self.cm.looped or self.cm.events:
            self._connecting.settle()
        changed = self._table.changed
        if changed:
            self._table.changed = set()
        return changed

    def identifiers(self) -> list[RdmaId]:
        """Return all identifiers, to be read only."""
        return list(self._table.ids.values())

    def read_event(self, channel: int, at: int = 0) -> RdmaEvent | None:
        """Return the next event of a channel, or the one behind so many; None if there is none.

        Raises CmError.
        """
        if self.cm.looped or self.cm.events:
            self._connecting.settle()
        return self._table.read_event(channel, at)

    def read_events(self, channel: int, count: int) -> None:
        """Count the next events of a channel as read: its program has them already."""
        self._table.read_events(channel, count)

    def unread_events(self, channel: int, at: int, most: int) -> list[RdmaEvent]:
        """Return at most so many events of a channel behind ``at`` others; they stay unread."""
        return self._table.unread_events(channel, at, most)

    def names(self, channel: int, count: int, number: int, is_group: bool = False) -> bool:
        """Whether one of the next events of a channel is an identifier's, or a group's."""
        return self._table.names(channel, count, number, is_group)

    def has_changed(self, channel: int) -> None:
        """Have ``take_changed`` return the channel."""
        self._table.changed.add(channel)

    def call_before_refusing(self, note_reads: Callable[[int], None]) -> None:
        """Have this called with a channel before a request finds its backlog full."""
        self._table.note_reads = note_reads

    def write_event(self, number: int, kind: int, status: int = 0, argument: int = 0) -> None:
        """Queue an event of the program's own (USER) or of its library (INTERNAL).

        ``argument`` are 64 bits for the program (WRITE_CM_EVENT of 2025). Raises CmError.
        """
        of = self._table.id(number)
        if kind not in (RdmaEventKind.USER, RdmaEventKind.INTERNAL):
            raise CmError(CmRefusal.EVENT_KIND, f"event {kind}")
        made = RdmaEventKind(kind)
        event = RdmaEvent(made, of.number, of.context, status, argument=argument)
        self._table.report(of, event)

    # Identifiers.

    def create_id(
        self, channel: int, space: int, qp_kind: int = QpKind.RC, context: int = 1
    ) -> int:
        """Return the number of a new identifier. ``context`` comes with its events; not 0.

        ``qp_kind`` counts in the port space IB; TCP is RC, and UDP and IPOIB are UD.
        """
        try:
            known = PortSpace(space)
        except ValueError:
            raise CmError(CmRefusal.PORT_SPACE) from None
        if known not in (PortSpace.IPOIB, PortSpace.TCP, PortSpace.UDP, PortSpace.IB):
            raise CmError(CmRefusal.PORT_SPACE, f"port space {space:#x}")
        kind = _QP_KINDS.get(known, qp_kind)
        return self._table.new_id(channel, known, kind, context or 1).number

    def id(self, number: int) -> RdmaId:
        """Return an identifier, to be read only: its addresses, state and route. Raises CmError."""
        return self._table.id(number)

    def find_id(self, number: int) -> RdmaId | None:
        """Return an identifier, to be read only, or None."""
        return self._table.ids.get(number)

    def id_of(self, channel: int, number: int) -> RdmaId:
        """Return an identifier of a channel, as a device checks it. Raises CmError."""
        found = self._table.id(number)
        if found.channel != channel:
            raise CmError(CmRefusal.OTHER_CHANNEL, f"identifier {number}")
        return found

    def destroy_id(self, number: int) -> int:
        """End an identifier whatever its state. Return how many of its events were read.

        A connection request is rejected, a connection is ended, and nothing more is reported; the
        messages go on without the identifier.
        """
        gone = self._table.id(number)
        for unheard in self._table.purge(number):
            if unheard in self._table.ids:
                self.destroy_id(unheard)
        for member in list(gone.groups):
            self._groups.leave(member)
        self._connecting.end(gone)
        if gone.bound is not None:
            self._bindings.release(gone, *gone.bound)
        self._table.remove(number)
        self._connecting.settle()
        return gone.events_read

    def migrate(self, number: int, channel: int) -> int:
        """Move an identifier and its unread events to another channel; return its events read."""
        return self._table.migrate(self._table.id(number), channel)

    def bind(self, number: int, address: CmAddress) -> None:
        """Give an identifier a local address; port 0 means an ephemeral one. Raises CmError."""
        if address.family not in (CmFamily.IPV4, CmFamily.IPV6, CmFamily.IB):
            raise CmError(CmRefusal.FAMILY)
        bound = self._table.id(number)
        after = bound.next_state(IdInput.BIND)
        if address.is_link_local and not address.scope_id:
            raise CmError(CmRefusal.NO_SCOPE, str(address))
        before = (bound.source, bound.interface, bound.af_only)
        try:
            if not address.is_any:
                bound.interface = self._resolving.interface_of(address, self.host)
            bound.source = address
            if not bound.is_af_only_set:
                is_v6 = address.family == CmFamily.IPV6 and self._binds_ipv6_only
                bound.af_only = address.family == CmFamily.IPV4 or is_v6
            space = self._resolving.port_space(bound)
            port = self._bindings.bind(bound, space, self.host.may_bind)
        except CmError:
            bound.source, bound.interface, bound.af_only = before
            raise
        bound.source = bound.source.with_port(port)
        bound.bound = (space, port)
        bound.state = after

    def listen(self, number: int, backlog: int = 0) -> None:
        """Take requests. A backlog of 0, or over 1024, means 1024. Raises CmError."""
        listener = self._table.id(number)
        if listener.state is IdState.IDLE:
            self.bind(number, CmAddress.wildcard())
        after = listener.next_state(IdInput.LISTEN)
        if listener.reuse_address:
            assert listener.bound is not None
            self._bindings.check_listener(listener, listener.bound[0])
        if not 0 < backlog <= self.MAX_BACKLOG:
            backlog = self.MAX_BACKLOG
        listener.backlog = listener.backlog_size = backlog
        listener.service_id = listener.source.service_in(listener.space)
        self.cm.listen(listener.service_id)
        listener.state = after

    def resolve_address(
        self,
        number: int,
        destination: CmAddress,
        source: CmAddress | None = None,
        timeout_ms: int = 2000,
    ) -> None:
        """Look for the way to a destination: ADDR_RESOLVED or ADDR_ERROR follows. Raises CmError.

        An identifier without an address is bound first, to ``source`` or to a wildcard. A
        link-local destination may lack its scope: the routes then choose the interface, as Linux's.
        """
        asked = self._table.id(number)
        before = asked.destination
        asked.destination = destination
        try:
            if asked.state is IdState.IDLE:
                self.bind(number, source or self._resolving.wildcard_for(destination))
            if asked.source.family != destination.family:
                raise CmError(CmRefusal.OTHER_FAMILY)
            self._resolving.resolve_address(asked, destination, timeout_ms, self.host)
        except CmError:
            asked.destination = before
            raise

    def address_resolved(self, number: int, answer: AddressAnswer | int) -> None:
        """Answer a ``ResolveAddress``: what was found, or an errno."""
        self._resolving.address_resolved(number, answer)

    def resolve_route(self, number: int, timeout_ms: int = 2000) -> None:
        """Look for a path: ROUTE_RESOLVED or ROUTE_ERROR follows. Raises CmError."""
        self._resolving.resolve_route(self._table.id(number), timeout_ms)

    def path_resolved(self, number: int, answer: PathRecord | int) -> None:
        """Answer a ``QueryPath``: the path, or an errno or the SA's status."""
        self._resolving.path_resolved(number, answer)

    def set_option(self, number: int, level: int, name: int, value: bytes) -> None:
        """Set an option, as rdma_set_option does; numbers are in the machine's order.

        Raises CmError.
        """
        path = set_id_option(self._table.id(number), level, name, value)
        if path is not None:
            self._resolving.set_path(self._table.id(number), path)

    # Connections.

    def connect(
        self,
        number: int,
        wanted: RdmaConnectionParameters,
        vendor_id: int = 0,
        options: int = 0,
    ) -> None:
        """Send a REQ or, of UD, a SIDR_REQ. Raises CmError."""
        self._connecting.connect(self._table.id(number), wanted, vendor_id, options)

    def accept(
        self,
        number: int,
        answer: RdmaConnectionParameters | None = None,
        context: int | None = None,
        vendor_id: int = 0,
        options: int = 0,
    ) -> None:
        """Accept a request with parameters, or a CONNECT_RESPONSE without. Raises CmError.

        Events of a new identifier are reported from here on; they come with ``context``.
        """
        accepted = self._table.id(number)
        self._connecting.accept(accepted, answer, vendor_id, options)
        if answer is not None:
            accepted.context = context or accepted.context or 1

    def reject(self, number: int, private_data: bytes = b"", reason: int = 28) -> None:
        """Refuse a request or a CONNECT_RESPONSE. Raises CmError."""
        self._connecting.reject(self._table.id(number), private_data, reason)

    def disconnect(self, number: int) -> None:
        """End a connection, or answer the peer that ends it. Raises CmError without a connection.

        In a state in which there is nothing to end it does nothing, as in Linux.
        """
        self._connecting.disconnect(self._table.id(number))

    def notify(self, number: int, event: int) -> None:
        """Say that the QP reported an event: COMM_EST is 4. Raises CmError."""
        self._connecting.notify(self._table.id(number), event)

    def qp_attributes(self, number: int, target: int) -> QpAttributes:
        """Return what the QP needs for INIT (1), RTR (2) or RTS (3). Raises CmError."""
        return self._connecting.qp_attributes(self._table.id(number), target)

    # Groups.

    def join_multicast(
        self, number: int, address: CmAddress, context: int = 1, flags: int = 0
    ) -> int:
        """Join a group; return its handle. MULTICAST_JOIN or MULTICAST_ERROR follows.

        ``flags`` 1 means that the member only sends. Raises CmError.
        """
        return self._groups.join(self._table.id(number), address, context, flags)

    def groups_lost(self, port: int) -> None:
        """The memberships of an InfiniBand port hold no more: MULTICAST_ERROR, ENETRESET."""
        self._groups.lost(port)

    def group_joined(self, handle: int, answer: McMemberRecord | int = 0) -> None:
        """Answer a ``JoinGroup``: the SA's record, an errno or status, or 0 on Ethernet."""
        self._groups.joined(handle, answer)

    def id_of_group(self, handle: int) -> RdmaId:
        """Return the identifier that joined a group, to be read only. Raises CmError."""
        member = self._table.groups.get(handle)
        if member is None:
            raise CmError(CmRefusal.NO_SUCH_GROUP)
        return self._table.id(member.id)

    def leave_multicast(self, handle: int) -> int:
        """Leave a group; return how many of its events were read. Raises CmError."""
        member = self._table.groups.get(handle)
        if member is None:
            raise CmError(CmRefusal.NO_SUCH_GROUP)
        self._groups.leave(member)
        return member.events_read
