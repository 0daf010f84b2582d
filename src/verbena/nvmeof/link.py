# SPDX-License-Identifier: Apache-2.0
"""``Link``: the connection of one queue of a host, from the REQ to the Connect command.

``open_link`` makes it; a link that ends, for whatever reason, calls ``on_end`` of its owner once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from uuid import UUID, uuid4

from verbena import cm
from verbena.cm.arguments import check_text
from verbena.verbs import PD, QPCap

from .commands import SGL_IN_CAPSULE, SGL_KEYED, AdminOpcode, Command, FabricsType, Sgl
from .errors import CommandFailed, ConnectionLost, FormatError, Refused
from .fabrics import (
    DYNAMIC_CONTROLLER,
    AcceptData,
    ConnectData,
    RejectData,
    RejectStatus,
    RequestData,
    is_nqn,
)
from .host_queue import LOST, HostQueue
from .memory import Buffers
from .numbers import seconds, whole
from .status import Status, status_of_wire

__all__ = ["HostOptions", "Link", "open_link", "run_command", "wait_lost"]

_NQN = "nqn.2014-08.org.nvmexpress:uuid:"
_LEAST_KEEP_ALIVE = 0.001  # Connect has milliseconds, of 32 bits (KATO)
_MOST_SECONDS = {
    "keep_alive": ((1 << 32) - 1) / 1000,
    "timeout": 1e9,
    "reconnect_delay": 1e9,
    "loss_timeout": inf,
    "spin": 1.0,
}


@dataclass(frozen=True)
class HostOptions:
    """How a host connects.

    ``host_nqn`` and ``host_id`` say who it is; by default a random identity. ``queues`` are for
    I/O, of ``entries`` commands each. The target is told to give the host up after ``keep_alive``
    seconds of silence; 0: never, and this host does not ask whether the target is there either. A
    request of a connection waits ``timeout`` seconds for its answer. A connection that is lost is
    made again each ``reconnect_delay`` seconds, for ``loss_timeout`` seconds; 0: never. ``source``
    is the address of this host to connect from.
    ``spin``: seconds for which a queue polls before it sleeps, 1 at most. Raises TypeError,
    ValueError.
    """

    host_nqn: str = ""
    host_id: UUID = field(default_factory=uuid4)
    queues: int = 1
    entries: int = 128
    keep_alive: float = 5.0
    timeout: float = 10.0
    reconnect_delay: float = 1.0
    loss_timeout: float = 600.0
    source: str | None = None
    spin: float = 0.0

    def __post_init__(self) -> None:
        check_text("host_nqn", self.host_nqn)
        if not isinstance(self.host_id, UUID):
            raise TypeError(f"host_id is a uuid.UUID, and not {self.host_id!r}")
        if not self.host_nqn:
            object.__setattr__(self, "host_nqn", f"{_NQN}{self.host_id}")
        if not is_nqn(self.host_nqn):
            raise FormatError(f"{self.host_nqn!r} is no NQN")
        object.__setattr__(self, "queues", whole("queues", self.queues, 1, 64))
        object.__setattr__(self, "entries", whole("entries", self.entries, 2, 1024))
        for name, most in _MOST_SECONDS.items():
            object.__setattr__(self, name, seconds(name, getattr(self, name), most))
        if 0 < self.keep_alive < _LEAST_KEEP_ALIVE:
            raise ValueError(
                f"keep_alive is {_LEAST_KEEP_ALIVE} seconds or more, or 0 for never, and not"
                f" {self.keep_alive}"
            )
        if self.source is not None:
            check_text("source", self.source)


class Link:
    """A connected queue."""

    def __init__(self, conn: cm.Connection, queue: HostQueue) -> None:
        self.conn, self.queue = conn, queue
        self._watch = asyncio.create_task(self._wait_closed())

    async def _wait_closed(self) -> None:
        self.queue.end(await wait_lost(self.conn))

    def close(self) -> None:
        """Disconnect. Commands that are left are lost."""
        self._watch.cancel()
        self.queue.end("it was closed here")
        self.conn.close()
        self.queue.release()


async def wait_lost(conn: cm.Connection) -> str:
    """Wait until a connection has ended, and return why.

    Where the agent ends its data go on, and their failure tells of the end.
    """
    reason = await conn.wait_closed()
    if reason is cm.Closed.MANAGER:
        await asyncio.get_running_loop().create_future()
    return str(reason)


async def open_link(
    host: str,
    port: int,
    qid: int,
    entries: int,
    capsule_data: int,
    options: HostOptions,
    on_end: Callable[[str], None],
    on_room: Callable[[], None] = lambda: None,
    pd: PD | None = None,
) -> Link:
    """Connect a queue, in the protection domain of the earlier ones. Raises Refused,
    ConnectionManagerError."""
    queue = HostQueue(qid, entries, capsule_data, on_end, on_room)
    asked = RequestData(qid=qid, hrqsize=entries, hsqsize=entries - 1)
    cap = QPCap(
        max_send_wr=4 * entries,
        max_recv_wr=entries,
        max_send_sge=1,
        max_recv_sge=1,
        max_inline_data=64,
    )
    try:
        conn = await cm.connect(
            host,
            port,
            private_data=asked.pack(),
            pd=pd,
            cap=cap,
            prepare=queue.prepare,
            initiator_depth=0,
            source=options.source,
            timeout=options.timeout,
        )
    except cm.Rejected as error:
        raise _refused(error, f"{host}:{port}") from error
    try:
        said = AcceptData.parse(conn.private_data)
        if said.recfmt or not said.crqsize:
            raise Refused(f"{host}:{port} is no NVMe target: it accepted with other data")
        queue.limit(said.crqsize)
        conn.acq.close()  # the queue takes the completions itself
        queue.begin(conn.cq, options.spin)
        return Link(conn, queue)
    except BaseException:
        conn.close()
        queue.release()
        raise


def _refused(error: cm.Rejected, about: str) -> OSError:
    """Return the error of a REJ; one without a status of NVMe is the connection manager's."""
    with suppress(FormatError):
        said = RejectData.parse(error.private_data)
        if not said.recfmt and said.status in RejectStatus.__members__.values():
            return Refused(f"{about} refuses the queue: {RejectStatus(said.status).name}")
    return error


# ---- commands ------------------------------------------------------------------------------------


async def run_command(
    queue: HostQueue,
    buffers: Buffers,
    command: Command,
    *,
    data: bytes = b"",
    length: int = 0,
    timeout: float | None = None,
    about: str = "the command",
) -> tuple[int, bytes]:
    """Run a command, with data for the controller or room for what it answers.

    Returns the result and the data. Raises CommandFailed, ConnectionLost, TimeoutError.
    """
    if queue.is_ended or not queue.room:
        raise ConnectionLost(f"{about}: the queue has ended, or is full")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[int, int]] = loop.create_future()
    size = len(data) or length
    pd = queue.sends.qp.pd if queue.sends.qp is not None else None
    assert pd is not None
    buffer = buffers.take(pd, size) if size else None

    def done(result: int, status: int) -> None:
        if not answer.done():
            answer.set_result((result, status))
        elif buffer is not None:  # nobody waits any more
            buffers.give_back(buffer)

    sgl = Sgl(SGL_KEYED, 0, 0, 0)
    if buffer is not None:
        memoryview(buffer)[: len(data)] = data
        sgl = Sgl(SGL_KEYED, buffer.addr, size, buffer.rkey)
    in_capsule = b""
    if data and len(data) <= queue.capsule_data:
        sgl, in_capsule = Sgl(SGL_IN_CAPSULE, 0, len(data), 0), data
    queue.submit(command._replace(sgl=sgl), done, in_capsule)
    async with asyncio.timeout(timeout):
        result, status = await answer
    answered = b""
    if buffer is not None:
        answered = bytes(memoryview(buffer)[:length])
        buffers.give_back(buffer)
    if status == LOST:
        raise ConnectionLost(f"{about}: the connection to the controller has ended")
    value, is_final = status_of_wire(status)
    if value != Status.SUCCESS:
        raise CommandFailed(about, value, is_final)
    return result, answered


async def connect_queue(
    link: Link, buffers: Buffers, nqn: str, cntlid: int, options: HostOptions
) -> int:
    """Send Connect, and return the controller's number. Raises CommandFailed, ConnectionLost."""
    queue = link.queue
    said = ConnectData(
        host_id=options.host_id.bytes,
        cntlid=cntlid if queue.qid else DYNAMIC_CONTROLLER,
        subsystem_nqn=nqn,
        host_nqn=options.host_nqn,
    )
    keep_alive = 0 if queue.qid else round(options.keep_alive * 1000)
    command = fabrics_command(
        FabricsType.CONNECT,
        cdw10=queue.qid << 16,
        cdw11=queue.entries - 1,
        cdw12=keep_alive,
    )
    result, _ = await run_command(
        queue,
        buffers,
        command,
        data=said.pack(),
        timeout=options.timeout,
        about=f"connecting to {nqn}",
    )
    if result >> 16 & 3:
        raise Refused(f"{nqn} wants hosts to authenticate, which is not supported here")
    return result & 0xFFFF


def fabrics_command(kind: FabricsType, **words: int) -> Command:
    """Return a fabrics command."""
    return Command(AdminOpcode.FABRICS, 0, 0, kind, Sgl(SGL_KEYED, 0, 0, 0), **words)


def command_of(opcode: int, nsid: int = 0, **words: int) -> Command:
    """Return a command without data."""
    return Command(opcode, 0, 0, nsid, Sgl(SGL_KEYED, 0, 0, 0), **words)
