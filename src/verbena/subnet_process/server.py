# SPDX-License-Identifier: Apache-2.0
"""The loop of a fabric's process: programs connect with a role, and packets and time move on.

``FabricServer`` owns the sockets. A role is served by a ``RoleHandler``, which ``add_role`` names;
what has to be done at a time, or after each round of the loop, is a ``Duty``. One thread does
everything, and sleeps in select when there is nothing to do.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from verbena._accepting import PAUSE, Acceptor

from .messages import LONGEST_HELLO, VERSION, Hello, Welcome, fabric_address

__all__ = ["Duty", "FabricConnection", "FabricServer", "RoleHandler", "credentials"]

_CREDENTIALS = struct.Struct("=iII")
_BACKLOG = 1024
# A program waits longer for this thread to be woken than for the answer: OpenSM takes a sixth less
# time for a sweep if the thread looks for the next message for a moment before it sleeps.
LOOK_FOR = 50e-6  # seconds
ALONE_FOR = 15e-6  # seconds; then it lets other threads of its processor run between two looks
PREEMPTED = 500e-6  # seconds between two looks: another thread has had the processor
SLEEPS_FOR = 0.1  # seconds without looks then
_FD_BYTES = socket.CMSG_SPACE(struct.calcsize("i"))


class FabricConnection:
    """A program's connection, from its hello on. ``fds`` are descriptors that came with the hello.

    ``on_readable`` is called when there is a message or the end; whoever keeps the connection sets
    it.
    """

    def __init__(self, server: FabricServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.pid = 0
        self.hello = Hello(0)
        self.fds: list[int] = []
        self.on_readable: Callable[[], None] = self.close
        self.on_close: Callable[[], None] | None = None

    def welcome(self, welcome: Welcome, fds: Sequence[int] = ()) -> None:
        """Send the welcome; descriptors go with it."""
        with contextlib.suppress(OSError):  # the loop will hear that it is closed
            if fds:
                socket.send_fds(self.sock, [welcome.pack()], list(fds), socket.MSG_NOSIGNAL)
            else:
                self.sock.send(welcome.pack(), socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Forget the connection; ``on_close`` is called once."""
        if self.sock.fileno() < 0:
            return
        self.server.forget(self.sock)
        self.sock.close()
        self.drop_fds()
        self.server.acceptor.descriptor_freed()
        if self.on_close is not None:
            self.on_close()

    def drop_fds(self) -> None:
        """Close the descriptors that came with the hello."""
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


class Watched(Protocol):
    """A socket, or what has a descriptor to wait for."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def close(self) -> None:
        """Close it."""


class RoleHandler(Protocol):
    """What serves the connections of a role."""

    def __call__(self, connection: FabricConnection) -> Welcome | None:
        """Answer a hello.

        A Welcome is sent. The connection stays open if ``on_readable`` was set and the welcome has
        no error, and is closed otherwise. None: the handler sends the welcome itself, at once or
        later, and closes the connection when it ends.
        """


class Duty(Protocol):
    """Something that has to be done at a time."""

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, in seconds of the server's clock, or None."""

    def tick(self, now: float) -> None:
        """Do what is due. Called after each round of the loop, too."""


class FabricServer:
    """Serves the programs of this user that use the fabric ``name``.

    ``accept_pause`` is how many seconds it does not accept when no descriptor is left.

    Raises OSError (EADDRINUSE) if this user has a fabric of the name in this network namespace.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] = lambda _: None,
        accept_pause: float = PAUSE,
    ) -> None:
        self.name = name
        self.clock = clock
        self.report = report
        self.failures = 0
        """Exceptions of the process's own, each a defect."""
        self.refused = 0
        """Messages that no program of this version sends: what is none, and unknown requests."""
        self._roles: dict[int, RoleHandler] = {}
        self._duties: list[Duty] = []
        self._is_over = False
        self._poll = select.epoll()
        self._looks = False
        self._sleeps_until = 0.0 if len(os.sched_getaffinity(0)) > 1 else math.inf
        self._watched: dict[int, tuple[Watched, Callable[[], None]]] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listener.bind(fabric_address(os.geteuid(), name))
        except OSError:
            self._listener.close()
            raise
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self.acceptor = Acceptor(self._listener, self._poll, clock, self._tell, accept_pause)
        """Accepts connections, and pauses while there is no descriptor for them; a duty."""
        self.add_duty(self.acceptor)
        self.watch(self._listener, self._accept)

    # ---- what is served ------------------------------------------------------------------------

    def add_role(self, role: int, handler: RoleHandler) -> None:
        """Let a handler serve a role."""
        self._roles[role] = handler

    def add_duty(self, duty: Duty) -> None:
        """Call this after each round of the loop and when it is due."""
        self._duties.append(duty)

    def watch(self, sock: Watched, call: Callable[[], None], *, writes: bool = False) -> None:
        """Call this whenever it is readable, or writable, if ``writes``. ``close`` closes it."""
        events = select.EPOLLIN | (select.EPOLLOUT if writes else 0)
        number = sock.fileno()
        held = self._watched.get(number)
        if held is not None and held[0] is sock:
            self._poll.modify(number, events)
        else:
            self._poll.register(number, events)
        self._watched[number] = sock, call

    def forget(self, sock: socket.socket) -> None:
        """Watch a socket no more."""
        number = sock.fileno()
        if self._watched.pop(number, None) is not None:
            self._poll.unregister(number)

    # ---- the loop ------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until ``stop``."""
        while not self._is_over:
            self._serve(self._wait(self._time_left))

    def serve_once(self, timeout: float | None) -> None:
        """Wait for something to do, at most so many seconds, and do it."""
        self._serve(self._wait(lambda: timeout))

    def _serve(self, found: list[tuple[int, int]]) -> None:
        for number, watched in [(number, self._watched.get(number)) for number, _ in found]:
            if watched and self._watched.get(number) is watched:  # none before it has closed it
                self._guarded(watched[1])
        now = self.clock()
        for duty in self._duties:
            try:
                duty.tick(now)
            except Exception:  # the others have theirs
                self._failed()

    def _wait(self, timeout: Callable[[], float | None]) -> list[tuple[int, int]]:
        """Return what is readable, at once or when there is something.

        While messages come within ``LOOK_FOR``, the thread does not sleep in between.
        """
        begun = time.perf_counter()
        found = self._look(begun) if self._looks else []
        if not found:
            found = self._poll.poll(timeout())
        self._looks = bool(found) and time.perf_counter() - begun < LOOK_FOR
        return found

    def _look(self, begun: float) -> list[tuple[int, int]]:
        poll, clock = self._poll.poll, time.perf_counter
        last, end = begun, begun + LOOK_FOR
        while self._sleeps_until < last < end:
            found = poll(0)
            if found:
                return found
            now = clock()
            if now - begun > ALONE_FOR:
                os.sched_yield()  # returns at once if nobody waits
                now = clock()
            if now - last > PREEMPTED:
                self._sleeps_until = now + SLEEPS_FOR
            last = now
        return []

    def _guarded(self, call: Callable[[], None]) -> None:
        """One program's request must not end every program's fabric."""
        try:
            call()
        except Exception:
            self._failed()

    def _tell(self, line: str) -> None:
        self.report(line)  # which may be set later

    def _failed(self) -> None:
        self.failures += 1
        self.report(traceback.format_exc())

    def _time_left(self) -> float | None:
        due = [time for duty in self._duties if (time := duty.next_deadline()) is not None]
        return max(min(due) - self.clock(), 0.0) if due else None

    def fileno(self) -> int:
        """Return the descriptor that is readable when ``serve_once`` has something to do."""
        return self._poll.fileno()

    def stop(self) -> None:
        """Let ``run`` return after this round."""
        self._is_over = True

    def close(self) -> None:
        """Close every socket. Programs find their devices closed."""
        for sock, _ in list(self._watched.values()):
            sock.close()
        self._watched.clear()
        self._poll.close()

    # ---- connections ---------------------------------------------------------------------------

    def _accept(self) -> None:
        sock = self.acceptor.accept()
        if sock is None:
            return
        sock.setblocking(False)
        self._hello(FabricConnection(self, sock))  # which most have sent by now

    def _hello(self, connection: FabricConnection) -> None:
        try:
            raw, fds = _receive(connection.sock)
        except BlockingIOError:
            self.watch(connection.sock, lambda: self._hello(connection))
            return
        except OSError:
            connection.close()
            return
        connection.fds = fds
        connection.pid, uid = credentials(connection.sock)
        hello = Hello.parse(raw)
        refusal = self._refusal(hello, uid)
        if hello is None or refusal is not None:
            self.refused += 1
            connection.welcome(refusal or Welcome(errno.EPROTO))
            connection.close()
            return
        connection.hello = hello
        self._begin(connection)

    def _refusal(self, hello: Hello | None, uid: int) -> Welcome | None:
        if uid != os.geteuid():
            return Welcome.refused(
                errno.EACCES, f"the fabric {self.name} belongs to another user; start your own"
            )
        if hello is None:
            return Welcome(errno.EPROTO)
        if hello.version != VERSION:
            return Welcome.refused(
                errno.EPROTONOSUPPORT,
                f"the fabric {self.name}, process {os.getpid()}, is of another version of Verbena: "
                "start it again",
            )
        if hello.role not in self._roles:
            return Welcome(errno.EINVAL)
        return None

    def _begin(self, connection: FabricConnection) -> None:
        close = connection.on_readable
        welcome: Welcome | None
        try:
            welcome = self._roles[connection.hello.role](connection)
        except Exception:
            self.failures += 1
            self.report(traceback.format_exc())
            welcome = Welcome.refused(errno.EIO, f"the fabric {self.name} has failed to answer")
        connection.drop_fds()
        if connection.sock.fileno() < 0:
            return
        if welcome is not None:
            connection.welcome(welcome)
            if welcome.error or connection.on_readable == close:
                connection.close()
                return
        self.watch(connection.sock, connection.on_readable)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    raw, fds, _, _ = socket.recv_fds(sock, LONGEST_HELLO + 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not raw:
        raise ConnectionResetError
    return raw, list(fds)


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
