# SPDX-License-Identifier: Apache-2.0
"""``TargetSession``: one queue of a host at a target, from its connection's request to its end.

A session is NEW until Connect has succeeded. A transport gives it commands with their data and
sends what it answers; commands that move blocks are checked here (``blocks_of``) and carried out by
the transport. Nothing here does I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

from .admin import Limits, Portal, execute_admin
from .commands import (
    EVERY_NAMESPACE,
    SGL_IN_CAPSULE,
    SGL_KEYED,
    SGL_KEYED_INVALIDATE,
    AdminOpcode,
    Command,
    FabricsType,
    IoOpcode,
)
from .controller import MOST_QUEUES, TargetController
from .errors import FormatError
from .fabrics import (
    DYNAMIC_CONTROLLER,
    AcceptData,
    ConnectData,
    RejectData,
    RejectStatus,
    RequestData,
)
from .replies import Failure, Reply
from .reservations import AcquireAction, Reservations
from .status import Status
from .stragglers import all_done
from .subsystems import Namespace, TargetModel

__all__ = ["Blocks", "QueueRefused", "SessionState", "TargetSession", "check_request"]

_ADMIN_ENTRIES = 32
_DISCOVERY_KEEP_ALIVE_MS = 120_000
_NO_FLOW_CONTROL = 4
_PARTS_OF_SQSIZE = 44
_DEALLOCATE = 4
_FORCE_UNIT_ACCESS = 1 << 14
_RANGE = 16


class SessionState(Enum):
    """States of a queue."""

    NEW = "waits for Connect"
    CONNECTED = "takes commands"
    ENDED = "its connection has ended"


class QueueRefused(Exception):
    """A request to connect is refused; ``private_data`` says why."""

    def __init__(self, status: RejectStatus) -> None:
        super().__init__(status.name)
        self.private_data = RejectData(status=status).pack()


class Blocks(NamedTuple):
    """Blocks that a command reads or writes, as bytes of the namespace's store."""

    namespace: Namespace
    offset: int
    length: int
    is_durable: bool = False


def check_request(private_data: bytes, initiator_depth: int, limits: Limits) -> RequestData:
    """Return what a host wants of a connection. Raises QueueRefused."""
    try:
        request = RequestData.parse(private_data)
    except FormatError:
        raise QueueRefused(RejectStatus.LENGTH) from None
    if request.recfmt:
        raise QueueRefused(RejectStatus.FORMAT)
    if request.qid > MOST_QUEUES:
        raise QueueRefused(RejectStatus.QID)
    most = _ADMIN_ENTRIES if request.qid == 0 else limits.queue_entries
    if not 1 <= request.hsqsize <= 0xFFFE or (request.qid == 0 and request.hsqsize >= most):
        raise QueueRefused(RejectStatus.HSQSIZE)
    if request.hrqsize == 0:
        raise QueueRefused(RejectStatus.HRQSIZE)
    if initiator_depth == 0:  # the host lets nobody read its memory
        raise QueueRefused(RejectStatus.IRD)
    return request


class TargetSession:
    """A queue. ``now`` gives the time of the loop."""

    def __init__(
        self,
        model: TargetModel,
        request: RequestData,
        portal: Portal,
        limits: Limits,
        now: Callable[[], float],
    ) -> None:
        self.model, self.portal, self.limits = model, portal, limits
        self.qid = request.qid
        most = _ADMIN_ENTRIES if request.qid == 0 else limits.queue_entries
        self.entries = min(request.hsqsize + 1, most)
        self.state = SessionState.NEW
        self.controller: TargetController | None = None
        self.flow_control = True
        self.last_seen = now()
        self.was_shut_down = False  # by the host, before its connection ended
        self.on_aborted: Callable[[int], None] = lambda cid: None
        self.on_connected: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None
        """Ends its connection."""
        self.begun: Callable[[int], list[asyncio.Future[Any]]] = lambda nsid: []
        """Returns what has begun and uses blocks of a namespace."""
        self._now = now

    @property
    def accept_data(self) -> bytes:
        """The private data of the connection manager's answer."""
        return AcceptData(crqsize=self.entries).pack()

    @property
    def namespaces(self) -> dict[int, Namespace]:
        """The namespaces that its commands may name."""
        return {} if self.controller is None else self.controller.subsystem.namespaces

    def seen(self) -> None:
        """A command came: the host lives."""
        self.last_seen = self._now()

    def end(self) -> None:
        """Its connection has ended; with the admin queue the controller ends."""
        if self.state is SessionState.ENDED:
            return
        self.state = SessionState.ENDED
        controller = self.controller
        self.was_shut_down = controller is not None and controller.is_shut_down
        if controller is None:
            return
        if controller.queues.get(self.qid) is self:
            del controller.queues[self.qid]
        if self.qid == 0:
            controller.end()
            for session in list(controller.queues.values()):
                session.on_end()

    # ---- commands ----

    def check_sgl(self, command: Command, capsule_data: int) -> None:
        """Check where a command's data are, of which the capsule has so many. Raises Failure."""
        if not command.uses_sgl:
            raise Failure(Status.INVALID_FIELD)
        sgl = command.sgl
        if sgl.kind in (SGL_KEYED, SGL_KEYED_INVALIDATE):
            return
        if sgl.kind >> 4 not in (0, 4):
            raise Failure(Status.SGL_TYPE)
        if sgl.kind != SGL_IN_CAPSULE:
            raise Failure(Status.INVALID_FIELD)
        if not command.to_controller or sgl.address + sgl.length > capsule_data:
            raise Failure(Status.SGL_OFFSET)

    def execute(self, command: Command, data: bytes) -> Reply | None:
        """Execute a command that moves no blocks. Returns None if it waits. Raises Failure."""
        self.seen()
        if self.state is not SessionState.CONNECTED:
            is_connect = (
                command.opcode == AdminOpcode.FABRICS
                and command.fabrics_type == FabricsType.CONNECT
            )
            if not is_connect or self.state is SessionState.ENDED:
                raise Failure(Status.INVALID_OPCODE)
            return self._connect(command, data)
        assert self.controller is not None
        if self.qid == 0:
            return execute_admin(self.controller, command, data, self.portal, self.limits)
        if command.opcode == AdminOpcode.FABRICS:
            again = command.fabrics_type == FabricsType.CONNECT
            raise Failure(Status.COMMAND_SEQUENCE if again else Status.INVALID_OPCODE)
        self.check_ready()
        return self._reserve(command, data)

    def check_ready(self) -> None:
        """Raise Failure while the controller is not enabled."""
        if self.controller is None or not self.controller.is_ready:
            raise Failure(Status.COMMAND_SEQUENCE)

    # ---- Connect ----

    def _connect(self, command: Command, data: bytes) -> Reply:
        if len(data) < ConnectData.SIZE:
            raise Failure(Status.SGL_DATA_LENGTH)
        said = ConnectData.parse(data)
        recfmt, qid = command.cdw10 & 0xFFFF, command.cdw10 >> 16
        sqsize, attributes = command.cdw11 & 0xFFFF, command.cdw11 >> 16 & 0xFF
        if recfmt:
            raise Failure(Status.CONNECT_FORMAT)
        if qid != self.qid:
            raise Failure.of_parameter(42, False)
        if sqsize == 0 or sqsize >= max(self.entries, 2):
            raise Failure.of_parameter(_PARTS_OF_SQSIZE, False)
        subsystem = self.model.find(said.subsystem_nqn)
        if subsystem is None:
            raise Failure.of_parameter(256, True)
        if not said.host_nqn or not subsystem.allows(said.host_nqn):
            raise Failure(Status.CONNECT_HOST, result=512 | 1 << 16)
        if qid == 0:
            controller = self._new_controller(said, command.cdw12)
        else:
            controller = self._join(said, qid)
        self.flow_control = not attributes & _NO_FLOW_CONTROL
        self.controller = controller
        controller.queues[qid] = self
        self.state = SessionState.CONNECTED
        self.seen()
        self.on_connected()
        return Reply(controller.cntlid)

    def _new_controller(self, said: ConnectData, keep_alive_ms: int) -> TargetController:
        if said.cntlid != DYNAMIC_CONTROLLER:
            raise Failure.of_parameter(16, True)
        subsystem = self.model.find(said.subsystem_nqn)
        assert subsystem is not None
        cntlid = subsystem.new_controller_id()
        if cntlid is None:
            raise Failure(Status.CONNECT_BUSY, is_final=False)
        if subsystem is self.model.discovery and keep_alive_ms == 0:
            keep_alive_ms = _DISCOVERY_KEEP_ALIVE_MS
        entries = self.limits.queue_entries
        return TargetController(
            self.model, subsystem, cntlid, said.host_nqn, said.host_id, keep_alive_ms, entries
        )

    def _join(self, said: ConnectData, qid: int) -> TargetController:
        subsystem = self.model.find(said.subsystem_nqn)
        assert subsystem is not None
        controller: TargetController | None = subsystem.controllers.get(said.cntlid)
        if controller is None or controller.is_discovery:
            raise Failure.of_parameter(16, True)
        if (said.host_nqn, said.host_id) != (controller.host_nqn, controller.host_id):
            raise Failure.of_parameter(512, True)
        if not controller.is_ready:
            raise Failure(Status.COMMAND_SEQUENCE)
        if qid > controller.granted_queues:
            raise Failure.of_parameter(42, False)
        if qid in controller.queues:
            raise Failure(Status.COMMAND_SEQUENCE)
        return controller

    # ---- blocks ----

    def namespace_of(self, nsid: int) -> Namespace:
        """Return a namespace. Raises Failure."""
        found = self.namespaces.get(nsid)
        if found is None:
            raise Failure(Status.INVALID_NAMESPACE)
        return found

    def blocks_of(self, command: Command) -> Blocks:
        """Return what Read, Write, Compare or Write Zeroes is about. Raises Failure."""
        self.check_ready()
        namespace = self.namespace_of(command.nsid)
        first = command.cdw10 | command.cdw11 << 32
        count = (command.cdw12 & 0xFFFF) + 1
        if first + count > namespace.blocks:
            raise Failure(Status.LBA_RANGE)
        changes = command.opcode in (IoOpcode.WRITE, IoOpcode.WRITE_ZEROES)
        self.check_access(namespace, changes)
        length = count << namespace.shift
        if command.opcode != IoOpcode.WRITE_ZEROES:
            if length > self.limits.transfer:
                raise Failure(Status.INVALID_FIELD)
            if command.sgl.length != length:
                raise Failure(Status.SGL_DATA_LENGTH)
        durable = bool(command.cdw12 >> 16 & _FORCE_UNIT_ACCESS)
        return Blocks(namespace, first << namespace.shift, length, durable)

    def check_access(self, namespace: Namespace, changes: bool) -> None:
        """Raise Failure where the namespace is read-only, or reserved by another host."""
        if changes and namespace.store.is_read_only:
            raise Failure(Status.NAMESPACE_WRITE_PROTECTED)
        if not namespace.reservations.is_free:
            assert self.controller is not None
            namespace.reservations.check(self.controller.host_id, changes)

    def ranges_of(self, command: Command, data: bytes) -> list[Blocks]:
        """Return what Dataset Management gives back; [] if it is only a hint. Raises Failure."""
        self.check_ready()
        namespace = self.namespace_of(command.nsid)
        count = (command.cdw10 & 0xFF) + 1
        if len(data) < count * _RANGE:
            raise Failure(Status.SGL_DATA_LENGTH)
        if not command.cdw11 & _DEALLOCATE:
            return []
        self.check_access(namespace, True)
        found = []
        for at in range(0, count * _RANGE, _RANGE):
            blocks = int.from_bytes(data[at + 4 : at + 8], "little")
            first = int.from_bytes(data[at + 8 : at + 16], "little")
            if first + blocks > namespace.blocks:
                raise Failure(Status.LBA_RANGE)
            if blocks:
                found.append(Blocks(namespace, first << namespace.shift, blocks << namespace.shift))
        return found

    def flushed_by(self, command: Command) -> list[Namespace]:
        """Return the namespaces of a Flush. Raises Failure."""
        self.check_ready()
        if command.nsid == EVERY_NAMESPACE:
            return list(self.namespaces.values())
        namespace = self.namespace_of(command.nsid)
        assert self.controller is not None
        namespace.reservations.check(self.controller.host_id, True)
        return [namespace]

    # ---- reservations ----

    def _reserve(self, command: Command, data: bytes) -> Reply:
        namespace = self.namespace_of(command.nsid)
        assert self.controller is not None
        host = self.controller.host_id
        if command.opcode == IoOpcode.RESERVATION_REPORT:
            return self._report(command)
        needed = 8 if command.opcode == IoOpcode.RESERVATION_RELEASE else 16
        call = _RESERVATION_CALLS.get(command.opcode)
        if call is None:
            raise Failure(Status.INVALID_OPCODE)
        if len(data) < needed:
            raise Failure(Status.SGL_DATA_LENGTH)
        aborts = (
            command.opcode == IoOpcode.RESERVATION_ACQUIRE
            and command.cdw10 & 7 == AcquireAction.PREEMPT_AND_ABORT
        )
        lost: set[bytes] = set()  # hosts that are registered no more

        def change(reservations: Reservations) -> None:
            before = set(reservations.keys) if aborts else set()
            call(reservations, host, command.cdw10, data)
            lost.update(before.difference(reservations.keys))

        waiting = namespace.change_reservations(change)
        if aborts:
            waiting = self._change_and_abort(waiting, lost, namespace.nsid)
        return Reply(waiting=waiting)

    async def _change_and_abort(
        self, change: Awaitable[None] | None, lost: Iterable[bytes], nsid: int
    ) -> None:
        """Preempt and Abort: wait until what hosts without registration have begun is done.

        NVMe base 1.4, section 8.8: the command completes after the commands of these hosts for
        the namespace. What they had not begun is checked against the changed reservations. Work
        that uses no blocks, as another Preempt and Abort, is not waited for.
        """
        if change is not None:
            await change
        assert self.controller is not None
        hosts = set(lost)
        begun = [work for host in hosts for work in self.model.stragglers.left(host, nsid)]
        for controller in list(self.controller.subsystem.controllers.values()):
            if controller.host_id in hosts:
                begun += [work for each in controller.queues.values() for work in each.begun(nsid)]
        await all_done(begun)

    def _report(self, command: Command) -> Reply:
        assert self.controller is not None
        length = (command.cdw10 + 1) * 4
        if length != command.sgl.length or length > self.limits.transfer:
            raise Failure(Status.SGL_DATA_LENGTH)
        subsystem = self.controller.subsystem
        here = {each.host_id: each.cntlid for each in subsystem.controllers.values()}
        reservations = self.namespace_of(command.nsid).reservations
        page = reservations.report(here, bool(command.cdw11 & 1))
        return Reply(0, page[:length].ljust(length, b"\0"))


_RESERVATION_CALLS: dict[int, Callable[[Reservations, bytes, int, bytes], None]] = {
    IoOpcode.RESERVATION_REGISTER: Reservations.register,
    IoOpcode.RESERVATION_ACQUIRE: Reservations.acquire,
    IoOpcode.RESERVATION_RELEASE: Reservations.release,
}
