# SPDX-License-Identifier: Apache-2.0
"""``Target``: listens for hosts, and serves their queues in the running loop.

    model = nvmeof.TargetModel()
    subsystem = nvmeof.Subsystem("nqn.2026-01.org.example:disks")
    subsystem.add(nvmeof.FileStore("disk.img"))
    model.add(subsystem)
    async with nvmeof.Target(model, port=4420) as target:
        await target.serve()

Each queue of a host is a connection with memory of its own: what a host does wrong ends that
connection, and no other.
"""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from verbena import cm
from verbena.verbs import CQ, PD, CompChannel, QPCap, VerbsError

from .admin import Limits, Portal
from .callbacks import Callbacks
from .fabrics import PORT, RejectData, RejectStatus
from .link import wait_lost
from .memory import Buffers, Regions
from .numbers import whole
from .session import QueueRefused, TargetSession, check_request
from .subsystems import TargetModel
from .target_queue import TargetQueue

__all__ = ["Target"]

_MOST_CONNECTIONS = 1024
_ANSWER_SECONDS = 10.0
_log = logging.getLogger("verbena.nvmeof")


class Target:
    """A target at a port of an address, or of every one. ``report`` gets a line for each event.

    An exception of ``report`` is logged at its first time, and the target serves on.
    Raises TypeError and ValueError.
    """

    def __init__(
        self,
        model: TargetModel,
        *,
        host: str | None = None,
        port: int = PORT,
        limits: Limits | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.model = model
        self.limits = Limits(*map(operator.index, limits or Limits()))
        self._host, self._port = host, whole("port", port, 0, 0xFFFF)
        self._given_report = report or (lambda line: _log.info(line))
        self._callbacks = Callbacks()
        self._listener: cm.Listener | None = None
        self._listening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._queues: set[TargetQueue] = set()
        self.regions, self.buffers = Regions(), Buffers()

    # ---- beginning and end ----

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """The port at which it listens."""
        assert self._listener is not None
        return self._listener.port

    @property
    def queues(self) -> int:
        """How many queues of hosts are connected."""
        return len(self._queues)

    async def start(self) -> None:
        """Listen. Raises ConnectionManagerError, as AddressInUse."""
        self._listener = await cm.listen(self._port, self._host)
        self._port = self._listener.port
        self._listening = asyncio.create_task(self._listen())

    async def serve(self) -> None:
        """Serve until this is cancelled. Raises ConnectionManagerError if it can listen no more."""
        if self._listening is None:
            await self.start()
        assert self._listening is not None
        await asyncio.shield(self._listening)

    async def close(self) -> None:
        """End all connections. Stores stay open."""
        if self._listener is not None:
            self._listener.close()
        for queue in list(self._queues):
            queue.end("the target is being closed")
        tasks = [each for each in self._tasks if each is not asyncio.current_task()]
        tasks += [self._listening] if self._listening is not None else []
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self.regions.close()
            self.buffers.close()

    def end_controllers(self, nqn: str) -> None:
        """End the connections of all hosts of a subsystem."""
        for queue in list(self._queues):
            controller = queue.session.controller
            if controller is not None and controller.subsystem.nqn == nqn:
                queue.end("its subsystem was removed")

    def _start_task(self, what: object) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(what)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- connections ----

    async def _listen(self) -> None:
        """Take requests; if the agent ends, listen by the next one, which starts by itself."""
        assert self._listener is not None
        while True:
            try:
                async for request in self._listener:
                    self._start_task(self._admit(request))
                return
            except cm.ManagerEnded as error:
                self._report(f"listening again: {error.strerror}")
            self._listener.close()
            self._listener = await cm.listen(self._port, self._host)

    async def _admit(self, request: cm.ConnectionRequest) -> None:
        peer = request.remote_address
        about = f"{peer.host}:{peer.port}" if peer is not None else "a host"
        try:
            try:
                said = check_request(request.private_data, request.initiator_depth, self.limits)
                if len(self._queues) >= _MOST_CONNECTIONS:
                    raise QueueRefused(RejectStatus.NO_RESOURCE)
            except QueueRefused as refused:
                self._report(f"{about}: refused, {refused}")
                request.reject(refused.private_data)
                return
            local = request.local_address
            portal = Portal(local.host if local else "", local.port if local else self._port)
            now = asyncio.get_running_loop().time
            session = TargetSession(self.model, said, portal, self.limits, now)
            await self._serve_queue(request, session, about)
        except (OSError, VerbsError) as error:
            self._report(f"{about}: {error}")
            with suppress(OSError):
                request.reject(RejectData(status=RejectStatus.NO_RESOURCE).pack())

    async def _serve_queue(
        self, request: cm.ConnectionRequest, session: TargetSession, about: str
    ) -> None:
        pd = request.pd
        channel, cq, cap = make_cq(pd, TargetQueue.send_room(session.entries), session.entries)
        ended, connected = asyncio.Event(), asyncio.Event()
        reasons: list[str] = []

        def on_end(reason: str) -> None:
            reasons.append(reason)
            ended.set()

        session.on_connected = connected.set
        queue: TargetQueue | None = None
        conn: cm.Connection | None = None
        life = asyncio.create_task(self._watch(session, connected))
        try:
            queue = TargetQueue(session, pd, cq, self.regions, self.buffers, on_end)
            self._queues.add(queue)
            conn = await request.accept(
                private_data=session.accept_data,
                cq=cq,
                cap=cap,
                prepare=queue.prepare,
                responder_resources=0,
                timeout=_ANSWER_SECONDS,
            )
            queue.start()
            await _either(ended.wait(), wait_lost(conn))
        finally:
            life.cancel()
            if queue is not None:
                closed = conn.closed if conn is not None else None
                queue.end(str(closed or "it was closed"))
                self._queues.discard(queue)
                self._report_end(session, about, reasons[0])
            if conn is not None:
                conn.close()
            if queue is not None:
                queue.release()
            cq.close()
            channel.close()

    def _report(self, line: str) -> None:
        self._callbacks.call("the report of a target", self._given_report, line)

    def _report_end(self, session: TargetSession, about: str, reason: str) -> None:
        controller = session.controller
        if session.qid or (controller is not None and controller.is_discovery):
            return
        who = about if controller is None else f"{controller.host_nqn} at {about}"
        why = "disconnected" if session.was_shut_down else f"was lost: {reason}"
        self._report(f"{who} {why}")

    async def _watch(self, session: TargetSession, connected: asyncio.Event) -> None:
        """End a queue without Connect, or whose host has been silent for longer than it said."""
        try:
            await asyncio.wait_for(connected.wait(), _ANSWER_SECONDS)
        except TimeoutError:
            session.on_end()
            return
        controller = session.controller
        if session.qid or controller is None:
            return
        if not controller.is_discovery:
            self._report(
                f"{controller.host_nqn} uses {controller.subsystem.nqn}"
                f" as controller {controller.cntlid}"
            )
        loop = asyncio.get_running_loop()
        while True:
            heard = max(each.last_seen for each in (session, *controller.queues.values()))
            controller.last_seen = heard
            if controller.is_expired(loop.time()):
                session.on_end()
                return
            left = heard + controller.seconds_of_silence - loop.time()
            await asyncio.sleep(max(left, 0.05) if controller.keep_alive_ms else _ANSWER_SECONDS)


async def _either(*waits: object) -> None:
    """Wait until one of two has ended, and cancel the other one."""
    tasks = [asyncio.ensure_future(each) for each in waits]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def make_cq(pd: PD, sends: int, receives: int) -> tuple[CompChannel, CQ, QPCap]:
    """Return a CQ with a channel of its own, and the capacity of its queue pair. VerbsError."""
    device = pd.context.query_device()
    sends, receives = min(sends, device.max_qp_wr), min(receives, device.max_qp_wr)
    channel = pd.context.create_comp_channel()
    try:
        cq = pd.context.create_cq(min(sends + receives, device.max_cqe), channel)
    except BaseException:
        channel.close()
        raise
    cap = QPCap(
        max_send_wr=sends,
        max_recv_wr=receives,
        max_send_sge=1,
        max_recv_sge=1,
        max_inline_data=64,
    )
    return channel, cq, cap
