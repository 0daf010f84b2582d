# SPDX-License-Identifier: Apache-2.0
"""The connection manager of a channel adapter (IBA 12): its connections, resolutions and tables.

The owner passes received MADs to ``receive`` and time to ``tick``, and takes datagrams and events
after each call. A call acts at the time of the last ``tick`` or ``receive``. Nothing here raises
for a MAD from the network: a bad one is counted in ``counters.refused``. ``RdmaCm`` is an owner.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ..attribute_ids import CmMessageId, MgmtClass
from ..cm_messages import (
    CM_MESSAGES,
    AprStatus,
    CmApr,
    CmDrep,
    CmDreq,
    CmLap,
    CmMra,
    CmPath,
    CmRej,
    CmRep,
    CmReq,
    CmRtu,
    CmTransport,
    RejOf,
    RejReason,
    SidrRep,
    SidrReq,
    SidrStatus,
)
from ..errors import MadError
from ..mad import MAD_BYTES, CmMad, parse_mad
from ..record import Record
from .closed_listeners import ClosedListeners
from .connection import CmConnect, CmConnection
from .counters import CM_COUNTER_NAMES, CmCounters
from .machine import (
    CmEvent,
    CmInput,
    CmMachine,
    CmState,
    delay_input,
    rejection_input,
)
from .refusals import CmRefusal
from .resolution import CmResolution, SidrQuestion
from .routes import CmDatagram, CmDevice, CmPort, CmRoute, MadAddress, MadArrival
from .settings import CmSettings

__all__ = ["InfinibandCm"]

_NO_PATH = CmPath()
_SENT = CmMad().pack()[:4]  # versions, class and method of every message


# What takes a request that was kept, and what refuses it.
_Kept = tuple[Callable[[], object], Callable[[], object]]
_Header = CmMad | CmDatagram  # each has the transaction ID and the modifier


class InfinibandCm:
    """The connection manager of a device.

    ``random`` returns a number of so many bits, as ``random.Random.getrandbits`` does. With
    ``loops_back`` datagrams to the device's own ports are handled here instead of being taken.
    ``device`` may be replaced when its addresses change. ``now`` is in seconds, of any origin.
    """

    def __init__(
        self,
        device: CmDevice,
        random: Callable[[int], int],
        settings: CmSettings | None = None,
        *,
        now: float = 0.0,
        loops_back: bool = False,
    ) -> None:
        self.device = device
        self.settings = settings or CmSettings()
        self.counters = CmCounters()
        self.now = now
        self._random = random
        self._loops_back = loops_back
        self._machines: dict[int, CmMachine] = {}  # by communication ID or request ID
        self._listeners: Counter[int] = Counter()  # service ID: how many listen
        self._closed: ClosedListeners[_Kept] = ClosedListeners(
            self.settings.listener_memory, self.settings.listener_patience
        )
        self._remote_ids: dict[tuple[int, int], CmConnection] = {}  # CA GUID, communication ID
        self._remote_qpns: dict[tuple[int, int], CmConnection] = {}  # CA GUID, QPN
        self._askers: dict[tuple[bytes, int, int], CmResolution] = {}  # GID, LID, request ID
        self._keys: dict[CmMachine, list[tuple[dict[Any, Any], Any]]] = {}
        self._answers: dict[Any, tuple[CmDatagram, float]] = {}  # to requests that are over
        self._resting: dict[int, float] = {}  # communication IDs, and until when
        self._deadlines: list[tuple[float, int, CmMachine]] = []
        self._armed_count = 0
        self._datagrams: list[CmDatagram] = []
        self.looped: deque[tuple[CmDatagram, CmPort]] = deque()
        """Datagrams to this device that were not handled yet, and the ports where they arrive."""
        self.events: deque[CmEvent] = deque()
        """What ``take_event`` returns, and what comes of ``looped``."""
        self._handlers: dict[int, Callable[[_Header, Any, MadArrival], CmRefusal | None]] = {
            CmMessageId.REQ: self._on_req,
            CmMessageId.MRA: self._on_mra,
            CmMessageId.REJ: self._on_rej,
            CmMessageId.REP: self._on_rep,
            CmMessageId.RTU: self._on_rtu,
            CmMessageId.DREQ: self._on_dreq,
            CmMessageId.DREP: self._on_drep,
            CmMessageId.SIDR_REQ: self._on_sidr_req,
            CmMessageId.SIDR_REP: self._on_sidr_rep,
            CmMessageId.LAP: self._on_lap,
            CmMessageId.APR: self._on_apr,
        }

    # Calls of the owner.

    def connect(self, wanted: CmConnect) -> CmConnection:
        """Return a new connection whose REQ is sent. Raises CmError, and then there is none."""
        connection = CmConnection(self, self._new_id())
        connection.connect(wanted)
        self._machines[connection.local_id] = connection
        return connection

    def resolve(self, question: SidrQuestion) -> CmResolution:
        """Return a new resolution whose SIDR_REQ is sent. Raises CmError; then there is none."""
        resolution = CmResolution(self, self._new_id())
        resolution.resolve(question)
        self._machines[resolution.local_id] = resolution
        return resolution

    def listen(self, service_id: int) -> None:
        """Take requests for a service ID. Several may listen: the owner tells them apart."""
        self._listeners[service_id] += 1
        for take, _ in self._closed.opened(service_id):
            take()

    def unlisten(self, service_id: int) -> None:
        """Undo one ``listen``."""
        self._listeners[service_id] -= 1
        if not self._listeners[service_id]:
            self._closed.closed(service_id, self.now)
        self._listeners += Counter()  # keeps what is above 0

    def receive(self, data: bytes, arrival: MadArrival, now: float) -> CmRefusal | None:
        """Handle a datagram of QP 1. Return why it changed nothing, or None.

        It comes before what is due: after a pause of the owner an answer that waits in a queue
        counts, and not the time that has passed.
        """
        self.now = max(self.now, now)
        refusal = self._handle(data, arrival)
        if refusal is not None:
            self.counters.refused[refusal] += 1
        self.tick(now)
        return refusal

    def tick(self, now: float) -> None:
        """Do what is due at ``now``. Time that runs backwards stands still."""
        self.now = max(self.now, now)
        while self._deadlines and self._deadlines[0][0] <= self.now:
            machine = self._next_armed()
            if machine is not None:
                heapq.heappop(self._deadlines)
                machine.queued_for = math.inf
                machine.expire()
        for _, refuse in self._closed.due(self.now):
            refuse()
        self._expire_memories()
        self.deliver_looped()

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do, or None."""
        while self._deadlines and self._next_armed() is None:
            pass
        kept = self._closed.next_deadline()
        if not self._deadlines:
            return kept
        return self._deadlines[0][0] if kept is None else min(kept, self._deadlines[0][0])

    def take_datagrams(self) -> list[CmDatagram]:
        """Return what is to be sent, in order, and forget it."""
        if self.looped:
            self.deliver_looped()
        taken, self._datagrams = self._datagrams, []
        return taken

    def take_event(self) -> CmEvent | None:
        """Return the next event, or None."""
        if self.looped:
            self.deliver_looped()
        return self.events.popleft() if self.events else None

    def machines(self) -> tuple[CmMachine, ...]:
        """Return every connection and resolution, those included that nobody owns any more."""
        return tuple(self._machines.values())

    # What machines call; see CmKeeper.

    def send(self, datagram: CmDatagram, is_retry: bool = False) -> None:
        name = CM_COUNTER_NAMES[datagram.record.ATTRIBUTE]
        self.counters.sent[name] += 1
        if is_retry:
            self.counters.retries[name] += 1
        to = datagram.to
        here = self._own_port(to) if self._loops_back else None
        if here is None:
            self._datagrams.append(datagram)
        else:
            self.looped.append((datagram, here))

    def report(self, event: CmEvent) -> None:
        self.events.append(event)

    def duplicate(self, record: type[Record]) -> None:
        self.counters.duplicates[CM_COUNTER_NAMES[record.ATTRIBUTE]] += 1

    def armed(self, machine: CmMachine) -> None:
        self._armed_count += 1
        machine.armed_as = self._armed_count
        self._queue(machine)

    def _queue(self, machine: CmMachine) -> None:
        """Have a machine in the queue not later than it is due.

        One that is in it for an earlier time stays there: most waits are over before their end, so
        that a place for each would be made and removed in vain.
        """
        deadline = machine.deadline
        if deadline is not None and deadline < machine.queued_for:
            machine.queued_for = deadline
            heapq.heappush(self._deadlines, (deadline, machine.armed_as, machine))

    def _next_armed(self) -> CmMachine | None:
        """Return the first machine of the queue if it is due then, or remove it from that place."""
        at, armed_as, machine = self._deadlines[0]
        if machine.deadline == at == machine.queued_for and machine.armed_as == armed_as:
            return machine
        heapq.heappop(self._deadlines)
        if machine.queued_for == at:
            machine.queued_for = math.inf
            self._queue(machine)
        return None

    def entered(self, machine: CmMachine) -> None:
        """Keep the tables: a connection in timewait frees the peer's QPN, an idle one also its ID.

        Linux also forgets the communication ID at the beginning of timewait; a late REQ would then
        be taken for a new one.
        """
        if machine.state is CmState.TIMEWAIT:
            self._unlist(machine, self._remote_qpns)
        elif machine.state is CmState.IDLE:
            self._unlist(machine)
            if machine.is_orphan and self._machines.get(machine.local_id) is machine:
                del self._machines[machine.local_id]
                self._resting[machine.local_id] = self.now + self.settings.comm_id_rest

    def remember(self, machine: CmMachine, answer: CmDatagram) -> None:
        until = self.now + self.settings.answer_memory
        for table, key in self._keys.get(machine, ()):
            if table is self._remote_ids or table is self._askers:
                self._answers[key] = (answer, until)
        while len(self._answers) > self.settings.most_answers:
            del self._answers[next(iter(self._answers))]

    def _repeat_answer(self, key: Any) -> None:
        """Answer a request again that is over, and remember it for longer."""
        answer, _ = self._answers.pop(key)
        self._answers[key] = (answer, self.now + self.settings.answer_memory)
        self.send(answer, is_retry=True)

    # Tables.

    def _list(self, table: dict[Any, Any], key: Any, machine: CmMachine) -> None:
        table[key] = machine
        self._keys.setdefault(machine, []).append((table, key))

    def _unlist(self, machine: CmMachine, only: dict[Any, Any] | None = None) -> None:
        listed = self._keys.pop(machine, None)
        if listed is None:
            return
        if only is None:
            for table, key in listed:
                if table.get(key) is machine:
                    del table[key]
            return
        for table, key in listed:
            if table is only and table.get(key) is machine:
                del table[key]
        kept = [each for each in listed if each[0] is not only]
        if kept:
            self._keys[machine] = kept

    def draw(self) -> float:
        """Return a random number from 0 on and below 1."""
        return self._random(24) / (1 << 24)

    def _new_id(self) -> int:
        while True:
            number = self._random(32)
            if number and number not in self._machines and number not in self._resting:
                return number

    def _expire_memories(self) -> None:
        """Entries are in the order of their ends, since all of a table last equally long."""
        while self._resting and next(iter(self._resting.values())) <= self.now:
            del self._resting[next(iter(self._resting))]
        while self._answers and next(iter(self._answers.values()))[1] <= self.now:
            del self._answers[next(iter(self._answers))]

    def _connection(self, local_id: int, remote_id: int | None) -> CmConnection | None:
        """Return the connection with these IDs; the remote one is not compared if it is None."""
        found = self._machines.get(local_id)
        if not isinstance(found, CmConnection):
            return None
        return found if remote_id is None or remote_id == found.remote_id else None

    # Datagrams to this device.

    def _own_port(self, to: MadAddress) -> CmPort | None:
        """Return the port of this device to which an address leads, or None."""
        device = self.device
        if to.has_grh:
            return device.port_of_gid(to.dgid)
        if any(port.lid == to.dlid for port in device.ports):
            return device.port(to.port)
        return None

    def deliver_looped(self) -> None:
        """Handle the datagrams to this device."""
        looped = self.looped
        while looped:
            datagram, here = looped.popleft()
            to = datagram.to
            sender = self.device.port(to.port)
            # fmt: off
            arrival = MadArrival(
                here.number, to.has_grh, to.sgid, to.dgid, sender.lid if sender is not None else 0,
                to.sl, to.p_key, to.flow_label, to.hop_limit, to.traffic_class,
            )
            # fmt: on
            refusal = self._take(datagram, datagram.record, arrival)
            if refusal is not None:
                self.counters.refused[refusal] += 1

    # Messages.

    def _handle(self, data: bytes, arrival: MadArrival) -> CmRefusal | None:
        if data[:4] != _SENT or len(data) != MAD_BYTES:
            return _why_refused(data)
        number = data[16] << 8 | data[17]
        kind = CM_MESSAGES.get(number)
        if kind is None:
            return CmRefusal.UNKNOWN_MESSAGE
        return self._take(CmMad.unpack(data), kind.unpack(data, CmMad.DATA_AT), arrival)

    def _take(self, mad: _Header, record: Record, arrival: MadArrival) -> CmRefusal | None:
        """Handle a message, of the network or of this device."""
        if self.device.port(arrival.port) is None:
            return CmRefusal.NO_PORT
        number = record.ATTRIBUTE
        self.counters.received[CM_COUNTER_NAMES[number]] += 1
        return self._handlers[number](mad, record, arrival)

    def _feed(
        self, machine: CmMachine | None, what: CmInput | None, argument: Any, mad: _Header
    ) -> CmRefusal | None:
        """Give a message to a machine; return why it changes nothing, or None."""
        if machine is None or what is None:
            return CmRefusal.UNMATCHED
        if machine.feed(what, argument, mad.attribute_modifier):
            return None
        return CmRefusal.UNEXPECTED

    def _reply(self, mad: _Header, arrival: MadArrival, record: Record) -> None:
        """Answer a message that has no connection here."""
        self.send(CmDatagram(record, arrival.reply(), mad.transaction_id))

    def _refuse(
        self,
        mad: _Header,
        arrival: MadArrival,
        refused: CmReq | CmRep,
        reason: RejReason,
        ari: bytes = b"",
    ) -> None:
        """Send a REJ to a REQ or REP that leads to no connection."""
        record = CmRej(
            remote_comm_id=refused.local_comm_id,
            local_comm_id=refused.remote_comm_id if isinstance(refused, CmRep) else 0,
            message=RejOf.REP if isinstance(refused, CmRep) else RejOf.REQ,
            reason=reason,
            ari=ari,
            ari_length=len(ari),
        )
        self._reply(mad, arrival, record)

    def _on_req(self, mad: _Header, req: CmReq, arrival: MadArrival) -> CmRefusal | None:
        """Take a REQ in the order of IBA 12.9.8.3: repeated, stale, then what it asks for."""
        guid = req.local_ca_guid
        key = (guid, req.local_comm_id)
        known = self._remote_ids.get(key)
        if known is not None:
            return self._feed(known, CmInput.REQ, req, mad)
        if key in self._answers:
            self.duplicate(CmReq)
            self._repeat_answer(key)
            return None
        by_qpn = (guid, req.local_qpn)
        stale = self._remote_qpns.get(by_qpn)
        if stale is not None:
            self._refuse(mad, arrival, req, RejReason.STALE_CONNECTION)
            stale.feed(CmInput.STALE)
            return None
        if req.service_id not in self._listeners:
            take = partial(self._on_req, mad, req, arrival)
            refuse = partial(self._refuse, mad, arrival, req, RejReason.INVALID_SERVICE_ID)
            if not self._closed.keep(req.service_id, key, (take, refuse), self.now):
                refuse()
            return None
        port = self.device.port(arrival.port)
        assert port is not None
        primary = req.primary
        problem = self._path_problem(req, primary, port)
        if problem is not None:
            self._refuse(mad, arrival, req, *problem)
            return None
        connection = CmConnection(self, self._new_id())
        connection.transaction_id = mad.transaction_id
        self._machines[connection.local_id] = connection
        self._list(self._remote_ids, key, connection)
        self._list(self._remote_qpns, by_qpn, connection)
        route = CmRoute.of_request(req, arrival, port, primary)
        return self._feed(connection, CmInput.REQ, (req, route), mad)

    @staticmethod
    def _path_problem(req: CmReq, primary: CmPath, port: CmPort) -> tuple[RejReason, bytes] | None:
        """Return the reason and the additional information if there is no way back along a REQ."""
        known = primary.remote_gid in port.gids and port.p_key_index(req.p_key) is not None
        if not known:
            return RejReason.PRIMARY_REMOTE_GID, port.gids[0] if port.gids else b""
        if req.alternate != _NO_PATH and req.alternate.remote_gid not in port.gids:
            return RejReason.ALTERNATE_REMOTE_GID, port.gids[0]
        if not 1 <= req.path_mtu <= 5:
            return RejReason.INVALID_PATH_MTU, bytes([5])
        transport = req.transport
        if transport is CmTransport.RD or (
            transport is CmTransport.EXTENDED and req.extended_transport != 1
        ):
            return RejReason.INVALID_TRANSPORT_TYPE, b""
        return None

    def _on_mra(self, mad: _Header, mra: CmMra, arrival: MadArrival) -> CmRefusal | None:
        what = delay_input(mra)
        remote = 0 if what is CmInput.MRA_OF_REQ else mra.local_comm_id
        return self._feed(self._connection(mra.remote_comm_id, remote), what, mra, mad)

    def _on_rej(self, mad: _Header, rej: CmRej, arrival: MadArrival) -> CmRefusal | None:
        if rej.reason == RejReason.TIMEOUT:
            guid = int.from_bytes(rej.ari[:8], "big")
            found = self._remote_ids.get((guid, rej.local_comm_id))
            if found is None:  # the REP that would have told the peer's ID was lost
                found = self._connection(rej.remote_comm_id, 0)
        else:
            remote = 0 if rej.message == RejOf.REQ else rej.local_comm_id
            found = self._connection(rej.remote_comm_id, remote)
        return self._feed(found, rejection_input(rej), rej, mad)

    def _on_rep(self, mad: _Header, rep: CmRep, arrival: MadArrival) -> CmRefusal | None:
        found = self._connection(rep.remote_comm_id, None)
        if found is None:
            # IBA 12.9.7.1: unlike with Linux, the peer learns at once that its REP came too late.
            self._refuse(mad, arrival, rep, RejReason.INVALID_COMM_ID)
            return None
        if found.remote_id not in (0, rep.local_comm_id):
            return CmRefusal.UNMATCHED
        if found.remote_id == 0 and found.state in (CmState.REQ_SENT, CmState.MRA_REQ_RECEIVED):
            key = (rep.local_ca_guid, rep.local_comm_id)
            qpn = rep.local_eecn if found.transport == CmTransport.EXTENDED else rep.local_qpn
            by_qpn = (rep.local_ca_guid, qpn)
            if key in self._remote_ids:
                self.duplicate(CmRep)
                return None
            stale = self._remote_qpns.get(by_qpn)
            if stale is not None:
                self._refuse(mad, arrival, rep, RejReason.STALE_CONNECTION)
                stale.feed(CmInput.STALE)
                return None
            self._list(self._remote_ids, key, found)
            self._list(self._remote_qpns, by_qpn, found)
        return self._feed(found, CmInput.REP, rep, mad)

    def _on_rtu(self, mad: _Header, rtu: CmRtu, arrival: MadArrival) -> CmRefusal | None:
        found = self._connection(rtu.remote_comm_id, rtu.local_comm_id)
        return self._feed(found, CmInput.RTU, rtu, mad)

    def _on_dreq(self, mad: _Header, dreq: CmDreq, arrival: MadArrival) -> CmRefusal | None:
        found = self._connection(dreq.remote_comm_id, dreq.local_comm_id)
        if found is None:
            self.duplicate(CmDreq)
            drep = CmDrep(local_comm_id=dreq.remote_comm_id, remote_comm_id=dreq.local_comm_id)
            self._reply(mad, arrival, drep)
            return None
        if found.local_qpn != dreq.remote_qpn:
            return CmRefusal.OTHER_QPN
        return self._feed(found, CmInput.DREQ, (dreq, mad.transaction_id), mad)

    def _on_drep(self, mad: _Header, drep: CmDrep, arrival: MadArrival) -> CmRefusal | None:
        found = self._connection(drep.remote_comm_id, drep.local_comm_id)
        return self._feed(found, CmInput.DREP, drep, mad)

    def _on_sidr_req(self, mad: _Header, request: SidrReq, arrival: MadArrival) -> CmRefusal | None:
        key = (arrival.sgid, arrival.slid, request.request_id)
        known = self._askers.get(key)
        taken = (request, arrival, mad.transaction_id)
        if known is not None:
            return self._feed(known, CmInput.SIDR_REQ, taken, mad)
        if key in self._answers:
            self.duplicate(SidrReq)
            self._repeat_answer(key)
            return None
        if request.service_id not in self._listeners:
            reply = SidrRep(
                request_id=request.request_id,
                status=SidrStatus.UNSUPPORTED,
                service_id=request.service_id,
            )
            take = partial(self._on_sidr_req, mad, request, arrival)
            refuse = partial(self._reply, mad, arrival, reply)
            if not self._closed.keep(request.service_id, key, (take, refuse), self.now):
                refuse()
            return None
        resolution = CmResolution(self, self._new_id())
        self._machines[resolution.local_id] = resolution
        self._list(self._askers, key, resolution)
        return self._feed(resolution, CmInput.SIDR_REQ, taken, mad)

    def _on_sidr_rep(self, mad: _Header, reply: SidrRep, arrival: MadArrival) -> CmRefusal | None:
        found = self._machines.get(reply.request_id)
        return self._feed(
            found if isinstance(found, CmResolution) else None, CmInput.SIDR_REP, reply, mad
        )

    def _on_lap(self, mad: _Header, lap: CmLap, arrival: MadArrival) -> CmRefusal | None:
        found = self._connection(lap.remote_comm_id, lap.local_comm_id)
        if found is None:
            apr = CmApr(
                local_comm_id=lap.remote_comm_id,
                remote_comm_id=lap.local_comm_id,
                status=AprStatus.INVALID_COMM_ID,
            )
            self._reply(mad, arrival, apr)
            return None
        return self._feed(found, CmInput.LAP, lap, mad)

    def _on_apr(self, mad: _Header, apr: CmApr, arrival: MadArrival) -> CmRefusal | None:
        return CmRefusal.UNMATCHED  # no LAP is ever sent


def _why_refused(data: bytes) -> CmRefusal:
    """Return why a MAD is no message of the connection manager."""
    try:
        mad = parse_mad(data)
    except MadError:
        return CmRefusal.NOT_A_MAD
    if mad.mgmt_class != MgmtClass.COMMUNICATION_MANAGEMENT:
        return CmRefusal.OTHER_CLASS
    return CmRefusal.OTHER_METHOD if mad.class_version == _SENT[2] else CmRefusal.OTHER_VERSION
