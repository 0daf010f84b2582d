# SPDX-License-Identifier: Apache-2.0
"""A target's controller: what one host has with one subsystem, over all of its queues.

It has the properties (CAP, CC, CSTS), keep-alive and asynchronous events. ``STEPS`` is the table
of its states. Nothing here does I/O or knows a clock: callers pass the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from .fabrics import Capabilities, Configuration, Property, ShutdownStatus
from .logs import LogPage
from .replies import Failure, Reply
from .status import Status
from .subsystems import Subsystem, TargetModel

__all__ = ["ControllerState", "TargetController"]

VERSION = 0x00010400
MOST_EVENTS = 4
MOST_QUEUES = 64
KEEP_ALIVE_UNIT_MS = 100
_KEEP_ALIVE_SLACK = 2.0
_NOTICE = 2
_NAMESPACE_CHANGED, _DISCOVERY_CHANGED = 0x00, 0xF0
NAMESPACE_EVENTS, DISCOVERY_EVENTS = 1 << 8, 1 << 31


class ControllerState(Enum):
    """States, as CC and CSTS show them."""

    DISABLED = "CC.EN is 0"
    READY = "CSTS.RDY is 1"
    SHUT_DOWN = "CSTS.SHST says that the shutdown is complete"
    FAILED = "CSTS.CFS is 1: the host enabled it with a configuration that it does not have"
    GONE = "its admin queue has ended"


_S = ControllerState
# The state after a write of CC, by the present one.
STEPS: dict[ControllerState, Callable[[Configuration], ControllerState]] = {
    _S.DISABLED: lambda cc: _enabled(cc) if cc.enable else _S.DISABLED,
    _S.READY: lambda cc: _S.SHUT_DOWN if cc.shutdown else _S.READY if cc.enable else _S.DISABLED,
    _S.SHUT_DOWN: lambda cc: _S.SHUT_DOWN if cc.enable else _S.DISABLED,
    _S.FAILED: lambda cc: _S.FAILED if cc.enable else _S.DISABLED,
    _S.GONE: lambda cc: _S.GONE,
}


def _enabled(cc: Configuration) -> ControllerState:
    if cc.shutdown:
        return _S.SHUT_DOWN
    return _S.READY if cc.is_valid else _S.FAILED


class TargetController:
    """One controller. ``on_event`` sends the completion of a command that waits for an event."""

    def __init__(
        self,
        model: TargetModel,
        subsystem: Subsystem,
        cntlid: int,
        host_nqn: str,
        host_id: bytes,
        keep_alive_ms: int,
        queue_entries: int = 128,
    ) -> None:
        self.model, self.subsystem, self.cntlid = model, subsystem, cntlid
        self.host_nqn, self.host_id = host_nqn, host_id
        self.keep_alive_ms = keep_alive_ms
        self.capabilities = Capabilities(queue_entries)
        self.configuration = Configuration()
        self.state = ControllerState.DISABLED
        self.queues: dict[int, Any] = {}  # the sessions of its queues, by QID
        self.granted_queues = 0
        self.event_mask = NAMESPACE_EVENTS | DISCOVERY_EVENTS
        self.changed_namespaces: set[int] = set()
        self.last_seen = 0.0  # by the clock of its queues
        self.on_event: Callable[[int, int], None] = lambda cid, result: None
        self._waiting: deque[int] = deque()  # CIDs of commands that wait for events
        self._pending: dict[int, None] = {}  # events that nobody has been told of
        self._unread: set[int] = set()  # log pages whose events wait until they are read
        subsystem.controllers[cntlid] = self

    @property
    def is_discovery(self) -> bool:
        """Whether it is one of the discovery subsystem."""
        return self.subsystem is self.model.discovery

    @property
    def is_ready(self) -> bool:
        """Whether it takes commands of I/O queues."""
        return self.state is ControllerState.READY

    @property
    def is_shut_down(self) -> bool:
        """Whether the host has shut it down."""
        return self.state is ControllerState.SHUT_DOWN

    def end(self) -> None:
        """Forget it."""
        self.state = ControllerState.GONE
        self.subsystem.controllers.pop(self.cntlid, None)
        self._waiting.clear()

    # ---- properties ----

    def get_property(self, offset: int, is_long: bool) -> Reply:
        """Property Get. Raises Failure."""
        if (offset, is_long) == (Property.CAP, True):
            return Reply(self.capabilities.pack())
        if is_long:
            raise Failure(Status.INVALID_FIELD)
        if offset == Property.VS:
            return Reply(VERSION)
        if offset == Property.CC:
            return Reply(self.configuration.pack())
        if offset == Property.CSTS:
            return Reply(self._csts())
        raise Failure(Status.INVALID_FIELD)

    def _csts(self) -> int:
        shut = self.state is ControllerState.SHUT_DOWN
        status = ShutdownStatus.COMPLETE if shut else ShutdownStatus.NORMAL
        return int(self.is_ready) | (self.state is ControllerState.FAILED) << 1 | status << 2

    def set_property(self, offset: int, is_long: bool, value: int) -> Reply:
        """Property Set: CC is the only one that can be written. Raises Failure."""
        if offset != Property.CC or is_long or value >> 32:
            raise Failure(Status.INVALID_FIELD)
        self.configuration = Configuration.parse(value)
        before, self.state = self.state, STEPS[self.state](self.configuration)
        if before is ControllerState.READY and self.state is not before:
            self.granted_queues = 0
        return Reply()

    # ---- keep-alive ----

    def is_expired(self, now: float) -> bool:
        """Whether the host has been silent for longer than it said that it would be."""
        return now - self.last_seen > self.seconds_of_silence if self.keep_alive_ms else False

    @property
    def seconds_of_silence(self) -> float:
        """How long the host may be silent; with some time for slow networks."""
        return self.keep_alive_ms / 1000 + _KEEP_ALIVE_SLACK

    def keep_alive(self) -> Reply:
        """Keep Alive. Raises Failure where the host has said that it sends none."""
        if not self.keep_alive_ms and not self.is_discovery:
            raise Failure(Status.KEEP_ALIVE_INVALID)
        return Reply()

    # ---- events ----

    def wait_for_event(self, cid: int) -> None:
        """Asynchronous Event Request: it completes with an event. Raises Failure."""
        if len(self._waiting) >= MOST_EVENTS:
            raise Failure(Status.AER_LIMIT)
        self._waiting.append(cid)
        self._send_events()

    def stop_waiting(self, cid: int) -> bool:
        """Abort a command that waits for an event; False if none does."""
        if cid not in self._waiting:
            return False
        self._waiting.remove(cid)
        return True

    def namespace_changed(self, nsid: int) -> None:
        """A namespace came, went, or has another size."""
        self.changed_namespaces.add(nsid)
        if self.event_mask & NAMESPACE_EVENTS:
            self._raise(_NAMESPACE_CHANGED, LogPage.CHANGED_NAMESPACES)

    def discovery_changed(self) -> None:
        """The discovery log has changed."""
        if self.event_mask & DISCOVERY_EVENTS:
            self._raise(_DISCOVERY_CHANGED, LogPage.DISCOVERY)

    def _raise(self, what: int, page: int) -> None:
        if page not in self._unread:
            self._pending[_NOTICE | what << 8 | page << 16] = None
            self._send_events()

    def _send_events(self) -> None:
        while self._waiting and self._pending:
            result = next(iter(self._pending))
            del self._pending[result]
            self._unread.add(result >> 16)
            self.on_event(self._waiting.popleft(), result)

    def log_was_read(self, page: int, keeps_event: bool) -> None:
        """A log page was read: its event may come again, unless the host keeps it back (RAE)."""
        if not keeps_event:
            self._unread.discard(page)
            if page == LogPage.CHANGED_NAMESPACES:
                self.changed_namespaces.clear()
