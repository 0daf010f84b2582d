# SPDX-License-Identifier: Apache-2.0
"""``HostController``: a host's connection to a subsystem, which is made again when it is lost.

``connect`` makes it and ``discover`` asks what a target has. ``HostState`` are its states. Blocks
that were under way when the connection was lost are transferred again after it was made again, as
Linux does; commands that must not be repeated fail.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Self

from verbena.cm.manager import manager_of_loop
from verbena.verbs import PD, AccessFlags, VerbsError

from .callbacks import Callbacks
from .commands import AdminOpcode, FabricsType
from .disk import Disk, Transfer
from .errors import CommandFailed, ConnectionLost, NvmeError, Refused
from .fabrics import DISCOVERY_NQN, PORT, Capabilities, Configuration, Property, check_nqn
from .host_queue import LOST, Done, HostQueue
from .identify import (
    IDENTIFY_SIZE,
    SGLS_IN_CAPSULE,
    ControllerKind,
    IdentifyController,
    IdentifyNamespace,
    IdentifyWhat,
    parse_namespace_list,
)
from .link import (
    HostOptions,
    Link,
    command_of,
    connect_queue,
    fabrics_command,
    open_link,
    run_command,
)
from .logs import DiscoveryEntry, DiscoveryHeader, LogPage, parse_discovery
from .memory import Buffers
from .numbers import whole
from .status import status_of_wire

__all__ = ["HostController", "HostState", "connect", "discover"]

_ADMIN_ENTRIES = 32
_PAGE = 4096
_LONGEST_TRANSFER = 1 << 23  # a keyed descriptor has 24 bits
_MOST_IN_CAPSULE = 8192
_MOST_NSID, _MOST_OFFSET = (1 << 32) - 1, (1 << 64) - 1
_TRIES = 5
_MOST_LOSSES = 10
_READY_STEP = 0.01
_ENABLED = Configuration(enable=True)
_HOST_ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ | AccessFlags.REMOTE_WRITE
_LOSSES = (OSError, VerbsError, TimeoutError)
_log = logging.getLogger("verbena.nvmeof")


class HostState(Enum):
    """States of a host's controller."""

    NEW = "was never connected"
    CONNECTING = "its queues are being connected"
    LIVE = "takes commands"
    WAITING = "was lost, and will be connected again"
    DEAD = "was lost for too long"
    CLOSED = "was closed here"


_S = HostState
STEPS: dict[HostState, frozenset[HostState]] = {
    _S.NEW: frozenset({_S.CONNECTING, _S.CLOSED}),
    _S.CONNECTING: frozenset({_S.LIVE, _S.WAITING, _S.DEAD, _S.CLOSED}),
    _S.LIVE: frozenset({_S.WAITING, _S.DEAD, _S.CLOSED}),
    _S.WAITING: frozenset({_S.CONNECTING, _S.DEAD, _S.CLOSED}),
    _S.DEAD: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}


class HostController:
    """A controller as a host has it: ``disks`` are its namespaces, by their numbers."""

    def __init__(self, host: str, port: int, nqn: str, options: HostOptions) -> None:
        check_nqn(nqn, "a subsystem")
        self.host, self.nqn, self.options = host, nqn, options
        self.port = whole("port", port, 1, 0xFFFF)
        self.state = HostState.NEW
        self.identity = IdentifyController()
        self.cntlid = 0
        self.disks: dict[int, Disk] = {}
        self.reconnects = 0
        self.on_change: Callable[[], None] = lambda: None
        """Is called when the target has told of a change, after it was looked at. Its exceptions
        are logged at the first time, as those of ``on_state``."""
        self.on_state: Callable[[HostState, str], None] = lambda state, why: None
        """Is called with each new state, and why the connection was lost."""
        self.buffers = Buffers(_HOST_ACCESS)
        self._admin: Link | None = None
        self._pd: PD | None = None  # of all its connections: memory of programs is registered there
        self._links: list[Link] = []
        self._waiting: deque[Transfer] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._why = ""
        self._manager = manager_of_loop(None)
        self._has_manager = False
        self._callbacks = Callbacks()
        self._released = asyncio.Event()  # after it was closed

    # ---- beginning and end ----

    async def open(self) -> None:
        """Connect. Raises Refused, CommandFailed, ConnectionManagerError, TimeoutError."""
        await self._manager.enter()
        self._has_manager = True
        try:
            await self._connect()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Shut the controller down, and disconnect. Transfers that are left fail.

        If this is cancelled, it disconnects without shutting down. Further calls wait until the
        first one has ended.
        """
        if self.state is HostState.CLOSED:
            await self._released.wait()
            return
        was_live = self.state is HostState.LIVE
        try:
            self._enter(HostState.CLOSED)
            for task in list(self._tasks):
                task.cancel()
            if was_live:
                with suppress(*_LOSSES):
                    await asyncio.wait_for(self._shut_down(), 1.0)
        finally:
            self._release()

    def _release(self) -> None:
        """Disconnect, and let go what the connection had."""
        self._drop_links()
        self._fail_waiting("it was closed here")
        self.buffers.close()
        if self._has_manager:
            self._has_manager = False
            self._manager.leave()
        self._released.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<HostController of {self.nqn} at {self.host}:{self.port}: {self.state.value}>"

    @property
    def pd(self) -> PD:
        """The protection domain of its queues."""
        if self._pd is None or self.state is HostState.CLOSED:
            raise ConnectionLost(f"{self.nqn}: not connected")
        return self._pd

    @property
    def queues(self) -> list[HostQueue]:
        """Its queues for I/O, while it is connected."""
        return [each.queue for each in self._links]

    def _enter(self, state: HostState) -> None:
        assert state in STEPS[self.state], (self.state, state)
        self.state = state
        self._callbacks.call("on_state of a controller", self.on_state, state, self._why)

    def _start_task(self, what: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- connecting ----

    async def _connect(self, again: bool = False) -> None:
        self._enter(HostState.CONNECTING)
        options = self.options
        self._admin = await open_link(
            self.host, self.port, 0, _ADMIN_ENTRIES, 0, options, self._lost, pd=self._pd
        )
        self._pd = self._admin.conn.pd
        self.cntlid = await connect_queue(self._admin, self.buffers, self.nqn, 0, options)
        capabilities = Capabilities.parse(await self.get_property(Property.CAP, is_long=True))
        await self._enable(capabilities)
        block = await self._identify(IdentifyWhat.CONTROLLER)
        self.identity = self._checked(IdentifyController.parse(block))
        if self.identity.kind != ControllerKind.DISCOVERY and self.nqn != DISCOVERY_NQN:
            await self._connect_io(capabilities)
            await self._find_disks()
        links = [self._admin, *self._links]
        if self.state is not HostState.CONNECTING or any(each.queue.is_ended for each in links):
            raise ConnectionLost(f"{self.nqn}: {self._why}")
        self._enter(HostState.LIVE)
        self.reconnects += again
        if options.keep_alive:
            self._start_task(self._keep_alive(self._admin))
        if self.identity.async_events:
            self._wait_for_event()
        self.pump()

    async def _enable(self, capabilities: Capabilities) -> None:
        await self.set_property(Property.CC, _ENABLED.pack())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(capabilities.timeout, 1) / 2
        while not (status := await self.get_property(Property.CSTS)) & 1:
            if status & 2 or loop.time() > deadline:
                raise Refused(f"{self.nqn}: the controller does not become ready")
            await asyncio.sleep(_READY_STEP)

    def _checked(self, found: IdentifyController) -> IdentifyController:
        """Raise Refused where this host cannot use the controller."""
        if found.cntlid != self.cntlid:
            raise Refused(f"{self.nqn}: the controller gives itself two numbers")
        if not found.sgls & 4 or found.in_capsule_offset:
            raise Refused(f"{self.nqn}: the controller takes no keyed descriptors of data")
        if found.kind == ControllerKind.IO and not found.keep_alive and self.options.keep_alive:
            raise Refused(f"{self.nqn}: the controller has no keep-alive; give keep_alive=0")
        return found

    async def _connect_io(self, capabilities: Capabilities) -> None:
        wanted = self.options.queues - 1
        command = command_of(AdminOpcode.SET_FEATURES, cdw10=0x07, cdw11=wanted | wanted << 16)
        granted, _ = await self._run(command, about="asking for queues")
        count = min(self.options.queues, (granted & 0xFFFF) + 1, (granted >> 16) + 1)
        most = min(capabilities.queue_entries, self.identity.max_commands or 1024)
        entries = max(2, min(self.options.entries, most))
        capsule = self._capsule_data()
        for qid in range(1, count + 1):
            link = await open_link(
                self.host,
                self.port,
                qid,
                entries,
                capsule,
                self.options,
                self._lost,
                self.pump,
                self._pd,
            )
            self._links.append(link)
            await connect_queue(link, self.buffers, self.nqn, self.cntlid, self.options)

    def _capsule_data(self) -> int:
        """Return how many bytes of data a capsule may have."""
        if not self.identity.sgls & SGLS_IN_CAPSULE:
            return 0
        return max(0, min(self.identity.command_capsule * 16 - 64, _MOST_IN_CAPSULE))

    @property
    def most_bytes(self) -> int:
        """The most bytes of one command."""
        shift = self.identity.max_transfer
        return min(_PAGE << shift, _LONGEST_TRANSFER) if shift else _LONGEST_TRANSFER

    async def _find_disks(self) -> None:
        numbers = parse_namespace_list(await self._identify(IdentifyWhat.ACTIVE_NAMESPACES))
        for nsid in numbers:
            found = IdentifyNamespace.parse(await self._identify(IdentifyWhat.NAMESPACE, nsid))
            if nsid in self.disks:
                self.disks[nsid].update(found)
            else:
                self.disks[nsid] = Disk(self, nsid, found)
        for nsid in set(self.disks) - set(numbers):
            self.disks.pop(nsid).is_gone = True

    async def _shut_down(self) -> None:
        await self.set_property(Property.CC, Configuration(enable=True, shutdown=1).pack())
        while await self.get_property(Property.CSTS) >> 2 & 3 != 2:
            await asyncio.sleep(_READY_STEP)

    # ---- losing and reconnecting ----

    def _lost(self, reason: str) -> None:
        """A queue has ended: with it the whole connection."""
        self._why = self._why or reason
        if self.state is not HostState.LIVE:
            return
        _log.info("%s: the connection is lost: %s", self.nqn, reason)
        if self.options.loss_timeout:
            self._enter(HostState.WAITING)
            self._start_task(self._reconnect())
        else:
            self._die()

    def _die(self) -> None:
        self._enter(HostState.DEAD)
        asyncio.get_running_loop().call_soon(self._drop_links)
        self._fail_waiting(f"the connection is lost: {self._why}")

    def _drop_links(self) -> None:
        links, self._links = self._links, []
        if self._admin is not None:
            links.append(self._admin)
            self._admin = None
        for link in links:
            link.close()

    async def _reconnect(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.loss_timeout
        while self.state is HostState.WAITING:
            await asyncio.sleep(0)
            self._drop_links()
            self._why = ""
            try:
                await self._connect(again=True)
            except _LOSSES as error:
                self._why = str(error)
                self._wait_again()
                if loop.time() > deadline or _is_final(error):
                    self._die()
                    return
                await asyncio.sleep(self.options.reconnect_delay)

    def _wait_again(self) -> None:
        if self.state is HostState.CONNECTING:
            self._enter(HostState.WAITING)

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for transfer in waiting:
            transfer.fail(ConnectionLost(f"{self.nqn}: {why}"))

    # ---- transfers ----

    def start(self, transfer: Transfer) -> None:
        """Start a transfer, or have it wait for room, or for a connection."""
        if self.state in (HostState.DEAD, HostState.CLOSED):
            transfer.fail(ConnectionLost(f"{self.nqn}: {self._why or self.state.value}"))
            return
        queue = self._queue_with_room() if not self._waiting else None
        if queue is None:
            self._waiting.append(transfer)
        else:
            self._submit(transfer, queue)

    def _submit(self, transfer: Transfer, queue: HostQueue) -> None:
        if transfer.answer.done():
            transfer.fail(NvmeError(errno.ECANCELED, "nobody waits for it any more"))
        elif transfer.connection not in (None, self.reconnects):
            about = f"{self.nqn}: {transfer.about}"
            transfer.fail(ConnectionLost(f"{about}: the connection that it was meant for is lost"))
        else:
            transfer.submit(queue, self._done_of(transfer))

    def _queue_with_room(self) -> HostQueue | None:
        if self.state is not HostState.LIVE:
            return None
        if len(self._links) == 1:
            queue = self._links[0].queue
        else:
            queue = max((each.queue for each in self._links), key=lambda each: each.room)
        return queue if not queue.is_ended and queue.room else None

    def pump(self) -> None:
        """Start transfers that wait."""
        while self._waiting and (queue := self._queue_with_room()) is not None:
            self._submit(self._waiting.popleft(), queue)

    def _done_of(self, transfer: Transfer) -> Done:
        def done(result: int, status: int) -> None:
            if status == 0:
                transfer.succeed(result)
                return
            if status == LOST:
                self._repeat(transfer, ConnectionLost(f"{self.nqn}: {self._why}"))
                return
            value, is_final = status_of_wire(status)
            error = CommandFailed(transfer.about, value, is_final)
            if is_final or transfer.tries >= _TRIES:
                transfer.fail(error)
            else:
                self._repeat(transfer, error)

        return done

    def _repeat(self, transfer: Transfer, error: NvmeError) -> None:
        """Send a transfer again, unless nobody waits for it any more, or it has failed too often.

        One that was under way at each of several losses may be their cause.
        """
        failed = isinstance(error, CommandFailed)
        transfer.tries, transfer.losses = transfer.tries + failed, transfer.losses + (not failed)
        ended = self.state in (HostState.DEAD, HostState.CLOSED) or transfer.losses > _MOST_LOSSES
        if ended or not transfer.may_repeat or transfer.answer.done():
            transfer.fail(error)
        else:
            self._waiting.append(transfer)

    # ---- admin commands ----

    async def _run(
        self, command: Any, *, data: bytes = b"", length: int = 0, about: str
    ) -> tuple[int, bytes]:
        if self._admin is None:
            raise ConnectionLost(f"{self.nqn}: {about}: not connected")
        return await run_command(
            self._admin.queue,
            self.buffers,
            command,
            data=data,
            length=length,
            timeout=self.options.timeout,
            about=f"{self.nqn}: {about}",
        )

    async def get_property(self, offset: Property, is_long: bool = False) -> int:
        """Return a property."""
        command = fabrics_command(FabricsType.PROPERTY_GET, cdw10=int(is_long), cdw11=offset)
        return (await self._run(command, about=f"reading {offset.name}"))[0]

    async def set_property(self, offset: Property, value: int) -> None:
        """Write a property."""
        command = fabrics_command(FabricsType.PROPERTY_SET, cdw11=offset, cdw12=value)
        await self._run(command, about=f"writing {offset.name}")

    async def _identify(self, what: IdentifyWhat, nsid: int = 0) -> bytes:
        command = command_of(AdminOpcode.IDENTIFY, nsid, cdw10=what)
        return (await self._run(command, length=IDENTIFY_SIZE, about="Identify"))[1]

    async def get_log(
        self, page: int, length: int, offset: int = 0, nsid: int = 0, keeps_event: bool = False
    ) -> bytes:
        """Return a part of a log page. Raises CommandFailed, TypeError and ValueError."""
        page, nsid = whole("page", page, 0, 0xFF), whole("nsid", nsid, 0, _MOST_NSID)
        length = whole("length", length, 4, _LONGEST_TRANSFER)
        offset = whole("offset", offset, 0, _MOST_OFFSET)
        count = length // 4 - 1
        command = command_of(
            AdminOpcode.GET_LOG_PAGE,
            nsid,
            cdw10=page | keeps_event << 15 | (count & 0xFFFF) << 16,
            cdw11=count >> 16,
            cdw12=offset & 0xFFFFFFFF,
            cdw13=offset >> 32,
        )
        return (await self._run(command, length=length, about=f"log page {page:#x}"))[1]

    async def discovery_log(self) -> list[DiscoveryEntry]:
        """Return the discovery log; it is read again if it changes meanwhile."""
        size = DiscoveryHeader.SIZE
        for _ in range(_TRIES):
            head, _ = parse_discovery(await self.get_log(LogPage.DISCOVERY, size, keeps_event=True))
            page = await self.get_log(LogPage.DISCOVERY, size * (min(head.records, 1000) + 1))
            now, entries = parse_discovery(page)
            if now.generation == head.generation and len(entries) == now.records:
                return entries
        raise NvmeError(errno.EAGAIN, f"{self.host}: the discovery log changes all the time")

    # ---- keep-alive and events ----

    async def _keep_alive(self, admin: Link) -> None:
        """Send Keep Alive often enough; without an answer the connection is lost."""
        command = command_of(AdminOpcode.KEEP_ALIVE)
        while not admin.queue.is_ended and self._admin is admin:
            await asyncio.sleep(self.options.keep_alive / 2)
            try:
                await asyncio.wait_for(
                    self._run(command, about="keep-alive"), self.options.keep_alive
                )
            except TimeoutError:
                admin.queue.end("the target did not answer a keep-alive")
            except NvmeError as error:
                admin.queue.end(str(error))

    def _wait_for_event(self) -> None:
        if self._admin is None or self._admin.queue.is_ended:
            return
        admin = self._admin

        def done(result: int, status: int) -> None:
            if status == 0 and self._admin is admin and self.state is HostState.LIVE:
                self._start_task(self._on_event(result))

        admin.queue.submit(command_of(AdminOpcode.ASYNC_EVENT), done)

    async def _on_event(self, result: int) -> None:
        with suppress(*_LOSSES):
            page = result >> 16 & 0xFF
            if page == LogPage.CHANGED_NAMESPACES:
                await self.get_log(page, 4096)
                await self._find_disks()
            self._wait_for_event()
            self._callbacks.call("on_change of a controller", self.on_change)


def _is_final(error: BaseException) -> bool:
    """Whether connecting again will fail in the same way: the target knows, and refuses."""
    return isinstance(error, CommandFailed) and error.is_final


async def connect(
    host: str, nqn: str, port: int = PORT, options: HostOptions | None = None
) -> HostController:
    """Connect to a subsystem. Use it as ``async with await connect(...) as controller``.

    Raises Refused, CommandFailed (its list of hosts lacks this one; there is no such subsystem),
    ConnectionManagerError, TimeoutError, TypeError, ValueError.
    """
    made = HostController(host, port, nqn, options or HostOptions())
    await made.open()
    return made


async def discover(
    host: str, port: int = PORT, options: HostOptions | None = None
) -> list[DiscoveryEntry]:
    """Return what a target offers to this host. Raises as ``connect``."""
    async with await connect(host, DISCOVERY_NQN, port, options) as controller:
        return await controller.discovery_log()
