# SPDX-License-Identifier: Apache-2.0
"""A program of a simulated host whose world is another process: ``sim.remote.run(program())``, or
``sim.remote.run_sync(function)`` for one without asyncio.

``processes.run_processes`` starts the process, in whose environment VERBENA_SIM has the descriptors
of a segment and of a socket. The program finds the host's adapter, and its event loop runs by the
world's clock, as with ``sim.run``. Streams to programs of other hosts are letters to the world.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pickle
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar

from ._world import FarAttachments
from .callbacks import PS, ps_of
from .charge import charge as compute
from .errors import Deadlock
from .far_connections import FarDevice
from .hosts import Host, Hosts, host_here
from .letters import VARIABLE, WHOLE, Kind, Letter
from .loop import Loop
from .network import Address, Factory, Network, Stream, port_number
from .run import Program, close_loop, coroutine_of
from .waits import where_raised

__all__ = ["charge", "run", "run_sync", "sleep", "time"]

T = TypeVar("T")


def run(program: Program) -> Any:
    """Run an asyncio program, a coroutine or a function that returns one, on the simulated host of
    this process. Returns what it returned, when all programs have returned.

    Raises what the program raises; WorldEnded if the world's process ends; RuntimeError in a
    process that ``sim.run_processes`` has not started. A deadlock ends the process, and
    ``sim.run_processes`` raises it.
    """
    with _attached() as host:
        with host.here():
            task = host.loop.create_task(coroutine_of(host.name, program), name=host.name)
        return host.loop.run_until_complete(_until_over(task, host.network))


def run_sync(function: Callable[[], T]) -> T:
    """Call a function on the simulated host of this process, and return what it returned, when all
    programs have returned.

    Its calls that block, of ``verbena.verbs``, ``verbena.cm.sync`` and ``verbena.peers.sync``, and
    ``sleep`` of this module, let virtual time pass. Raises as ``run`` does.
    """
    with _attached() as host:
        with host.here():
            returned = function()
            made = host.loop.create_future()
            made.set_result(returned)
            host.run_blocking(_until_over(made, host.network))
        return returned


def sleep(seconds: float) -> None:
    """Let virtual time pass in a program of ``run_sync``. Raises RuntimeError in another one."""
    _far_host().run_blocking(asyncio.sleep(seconds))


def charge(name: str, *, us: float | None = None, cycles: int | None = None, core: int = 0) -> None:
    """Compute in a program of ``run_sync``, as ``sim.charge`` does in others. Raises RuntimeError
    in another one."""
    _far_host().run_blocking(compute(name, us=us, cycles=cycles, core=core))


def time() -> float:
    """Return the virtual time in seconds since the world began. Raises RuntimeError as ``sleep``
    does."""
    return _far_host().time()


def _far_host() -> FarHost:
    here = host_here()
    if not isinstance(here, FarHost):
        raise RuntimeError("this is no program that sim.run_processes has started")
    return here


@contextmanager
def _attached() -> Iterator[FarHost]:
    """Find the host of this process, and make its event loop and network."""
    given = os.environ.get(VARIABLE)
    if given is None:
        raise RuntimeError(f"{VARIABLE} is not set: sim.run_processes starts such programs")
    attachments = FarAttachments(*map(int, given.split(",")))
    try:
        (letter,) = attachments.begin()
        settings = json.loads(Letter.read(letter).text)
        hosts = FarHosts(attachments, settings["ports"], settings["seed"])
        host, delay = hosts[settings["host"]], settings["control_delay"]
        host.has_inside = settings["has_inside"]
        host.loop = loop = Loop(hosts, delay)
        loop.network = host.network = FarNetwork(loop, hosts, delay, host)
        attachments.on_letter = host.network.deliver
        asyncio.set_event_loop(loop)
        try:
            yield host
        except (Deadlock, OSError) as error:
            if isinstance(error, Deadlock) or error.errno == errno.EDEADLK:  # of a wait of verbs
                tasks = str(error).partition("\n")[2] if isinstance(error, Deadlock) else ""
                host.network.tell_stuck(tasks or f"  {host.name}: {where_raised(error)}")
            raise
        finally:
            close_loop(loop)
    finally:
        attachments.end()


async def _until_over(task: asyncio.Future[Any], network: FarNetwork) -> Any:
    """Tell the world what the program returned, and wait for the others, whose packets this
    process's adapters answer meanwhile."""
    returned = await task
    network.tell_returned(returned)
    await network.over
    return returned


class FarHost(Host):
    """A host of a world in another process. That of this process has a loop and a network."""

    attachments: FarAttachments
    loop: Loop
    network: FarNetwork
    has_inside: bool

    def open_connection_manager(self) -> FarDevice:
        """Open a device for ``verbena.cm``."""
        devices = self.network.devices
        made = devices[len(devices)] = FarDevice(self, len(devices))
        return made

    @property
    def now(self) -> int:
        """The world's time in ps."""
        return self.attachments.now

    def time(self) -> float:
        """Return the virtual time in seconds, for ``verbena.cm.sync``."""
        return self.attachments.now / PS

    def look_up(self, host: str, port: int) -> Any:
        """Return what getaddrinfo knows of a host's name."""
        return self.network.look_up(host, port)

    def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of this process until it ends, for a call that blocks."""
        self.attachments.set_looped(True)
        try:
            return self.loop.run_until_complete(work)  # type: ignore[no-any-return]
        finally:
            self.attachments.set_looped(False)

    def charge(
        self, name: str, *, us: float | None = None, cycles: int | None = None, core: int = 0
    ) -> int | None:
        given = {"name": name, "us": us, "cycles": cycles, "core": core}
        answer = json.loads(self.ask(json.dumps(given).encode(), Kind.CHARGE))
        if isinstance(answer, list):
            raise {"TypeError": TypeError}.get(answer[0], ValueError)(answer[1])
        assert answer is None or isinstance(answer, int)
        return answer

    def registered(self, length: int, pinned: bool) -> None:
        if self.has_inside:
            given = {"length": length, "pinned": pinned}
            self.ask(json.dumps(given).encode(), Kind.REGISTERED)

    def ask(self, text: bytes, kind: Kind = Kind.ASK) -> bytes:
        """Send a call to the world's process, and return the answer."""
        answers = self.network.answers
        self.attachments.ask(Letter(self.now, kind, self.number, text=text).pack())
        while not answers:  # there was no room for it
            self.attachments.pass_turn(self.now)
        return answers.pop()

    def pass_time(self, until: int | None) -> str:
        """Let time pass, without the loop, until something comes or until that time in ps."""
        return self.attachments.pass_turn(until)


class FarHosts(Hosts):
    """The hosts of a world in another process, of which one is in this."""

    attachments: FarAttachments
    _hosts: dict[str, FarHost]  # type: ignore[assignment]

    def __getitem__(self, name: str) -> FarHost:
        found = super().__getitem__(name)
        assert isinstance(found, FarHost)
        return found

    def __init__(self, attachments: FarAttachments, ports: dict[str, list[int]], seed: int) -> None:
        self.attachments = attachments
        self._hosts = {
            name: FarHost(name, number, tuple(own), attachments, Random(f"{seed}/{number}"))
            for number, (name, own) in enumerate(ports.items())
        }
        self._addresses = {one: host for host in self for one in host.addresses}


class FarNetwork(Network):
    """The control network, as far as one host sees it."""

    def __init__(self, loop: Loop, hosts: FarHosts, delay: float, host: Host) -> None:
        super().__init__(loop, hosts, delay)
        self.over: asyncio.Future[None] = loop.create_future()
        self._host = host
        self._attachments = hosts.attachments
        self._streams: dict[int, FarStream] = {}
        self.devices: dict[int, FarDevice] = {}
        self.answers: list[bytes] = []  # to the last ASK
        self._stream_numbers = count(1)

    def post(self, kind: Kind, target: int, **fields: Any) -> None:
        """Send a letter, which arrives after the network's delay."""
        due = ps_of(self.loop.time() + self.delay)
        assert due is not None
        self._attachments.write(Letter(due, kind, self._host.number, target, **fields).pack())

    def tell_returned(self, returned: Any) -> None:
        text = pickle.dumps(returned)
        if len(text) > WHOLE:
            raise ValueError(f"the program returned {len(text)} bytes, and at most {WHOLE} fit")
        letter = Letter(self._attachments.now, Kind.RETURNED, self._host.number, text=text)
        self._attachments.write(letter.pack())

    def tell_stuck(self, waits: str) -> None:
        """Tell the world the lines of what waits. It ends all programs, and raises Deadlock."""
        text = waits.encode()[:WHOLE]
        letter = Letter(self._attachments.now, Kind.STUCK, self._host.number, text=text)
        self._attachments.write(letter.pack())
        self._attachments.pass_turn(None)

    async def connect(
        self, factory: Factory, name: Any, port: Any, local: Any = None
    ) -> tuple[Stream, Any]:
        target = self._find(name)
        if target is self._host or local is not None:
            return await super().connect(factory, name, port, local)
        number, own = port_number(port), next(self._stream_numbers)
        key = self.take_port(self._host)
        here, protocol = (self._host.address, key[2]), factory()
        stream = FarStream(self, protocol, here, (target.address, number), own)
        stream.met = self.loop.create_future()
        self.post(Kind.OPEN, target.number, own=own, port=number, text=str(here[1]).encode())
        stream.port_key = key
        is_met = False
        try:
            is_met = await stream.met
        finally:
            if not is_met:
                self.used_ports.discard(key)
        if not is_met:
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"nobody listens on port {port} of {target.name}"
            )
        stream.start()
        return stream, protocol

    def deliver(self, packed: bytes) -> None:
        """Take a letter that has come."""
        letter = Letter.read(packed)
        if letter.kind == Kind.EVENTS:
            self.devices[letter.own].has_events()
        elif letter.kind == Kind.ANSWER:
            self.answers.append(letter.text)
        else:
            self.loop.call_soon(self._take, letter)

    def _take(self, letter: Letter) -> None:
        if letter.kind == Kind.OVER:
            if not self.over.done():
                self.over.set_result(None)
        elif letter.kind == Kind.OPEN:
            self._accept(letter)
        elif letter.peer in self._streams:
            self._streams[letter.peer].take(letter)

    def _accept(self, letter: Letter) -> None:
        server = self.listening(self._host, letter.port)
        if server is None:
            self.post(Kind.REFUSED, letter.source, peer=letter.own)
            return
        there = ([*self._hosts][letter.source].address, int(letter.text))
        own = next(self._stream_numbers)
        self.post(Kind.ACCEPTED, letter.source, own=own, peer=letter.own)

        def meet(protocol: asyncio.BaseProtocol, here: Address) -> Stream:
            stream = FarStream(self, protocol, here, there, own)
            stream.other = letter.source, letter.own
            return stream

        server.accept(meet)

    def add(self, number: int, stream: FarStream) -> None:
        self._streams[number] = stream

    def remove(self, number: int) -> None:
        self._streams.pop(number, None)


class FarStream(Stream):
    """An end of a connection to a program in another process."""

    _network: FarNetwork

    def __init__(
        self,
        network: FarNetwork,
        protocol: asyncio.BaseProtocol,
        here: Address,
        there: Address,
        own: int,
    ) -> None:
        super().__init__(network, protocol, here, there)
        self.met: asyncio.Future[bool] | None = None  # of a caller: whether it was accepted
        self.other = (0, 0)  # the host and the number of the other end
        self._own = own
        network.add(own, self)

    def _send(self, message: bytes | None) -> None:
        host, number = self.other
        if message is None:
            self._network.post(Kind.EOF, host, peer=number)
            return
        for at in range(0, len(message), WHOLE):
            text = message[at : at + WHOLE]
            self._network.post(Kind.DATA, host, peer=number, text=text)

    def take(self, letter: Letter) -> None:
        """Take a letter of the other end."""
        if letter.kind in (Kind.ACCEPTED, Kind.REFUSED):
            self.other = letter.source, letter.own
            if self.met is not None and not self.met.done():
                self.met.set_result(letter.kind == Kind.ACCEPTED)
            if letter.kind == Kind.REFUSED:
                self._network.remove(self._own)
        elif not self._ended:
            self._inbox.append(letter.text if letter.kind == Kind.DATA else None)
            self._context.run(self._arrived)

    def _end(self, error: BaseException | None) -> None:
        self._network.remove(self._own)
        super()._end(error)
