# SPDX-License-Identifier: Apache-2.0
"""The agent's loop: programs connect, give commands and get answers, and events wake them.

``AgentServer`` owns the sockets and the time. What commands mean is the ``CommandHandler``'s, which
``run`` is given. One thread does everything, and sleeps in select when there is nothing to do.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from verbena._accepting import PAUSE, Acceptor
from verbena.agent.messages import (
    EVENT_MESSAGE,
    LONGEST_HELLO,
    LONGEST_REQUEST,
    VERSION,
    Hello,
    Request,
    Role,
    answer,
    welcome,
)

__all__ = [
    "AgentServer",
    "CommandHandler",
    "DeviceConnection",
    "DeviceRefused",
    "agent_address",
]

_CREDENTIALS = struct.Struct("=iII")
_BACKLOG = 1024
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_SIOCOUTQ = 0x5411
_SEND_BUFFER = 1 << 16  # bytes: thirty messages with events
_BUSY = 0.001  # seconds
_AWAKE = 50e-6  # seconds
_CLOSED_FOR = 0.3
_AFTER_FAILURE = 0.1  # seconds


def agent_address(uid: int, fabric: str = "") -> str:
    """Return the abstract name at which the agent of a user listens, or that of a live fabric."""
    return f"\0verbena/agent/{uid}" + (f"/{fabric}" if fabric else "")


class DeviceRefused(Exception):
    """A program cannot have the device; ``errno`` is what its open(2) gives."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.errno = error


class DeviceConnection:
    """A device that a program has open. Its socket has messages with events for the program.

    ``channel`` is the command handler's number for it. ``await_room`` is called when the socket has
    no room for another message, and ``is_full`` until it has. event_delivery.py keeps ``sent``, the
    serial numbers of the messages of which it is not known that the program has taken them, and
    ``is_taking_back``: the program takes them back.
    """

    def __init__(
        self,
        sock: socket.socket,
        hello: Hello,
        pid: int,
        await_room: Callable[[DeviceConnection], None] = lambda _: None,
        message_cost: int = 0,
    ) -> None:
        self.sock = sock
        self.hello = hello
        self.pid = pid
        self.channel = -1
        self.sent: list[int] = []
        self.is_full = False
        self.is_taking_back = False
        self._await_room = await_room
        self._message_cost = message_cost or _message_cost()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def send_event(self, message: bytes) -> bool:
        """Send a message of EVENT_MESSAGE bytes; False if there is no room for it."""
        try:
            self.sock.send(message, _AT_ONCE)
        except BlockingIOError:
            self.is_full = True
            self._await_room(self)
        except OSError:
            self.is_full = True  # the program has closed it, and the loop will hear so
        return not self.is_full

    def waiting_messages(self) -> int:
        """Return how many messages the program has not taken."""
        return min(_bytes_out(self.sock) // self._message_cost, len(self.sent))


class CommandHandler(Protocol):
    """What carries commands out."""

    def opened(self, device: DeviceConnection) -> None:
        """A program has opened the device. Raises DeviceRefused."""

    def closed(self, device: DeviceConnection) -> None:
        """The last descriptor was closed."""

    def has_room(self, device: DeviceConnection) -> None:
        """There is room again for messages with events."""

    def command(self, device: DeviceConnection, request: Request) -> bytes:
        """Carry a command out and return its answer (messages.answer)."""

    def answered(self, device: DeviceConnection) -> None:
        """The answer to a command is sent: do what follows of it."""

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has to be called, in seconds of the server's clock."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def describe(self) -> dict[str, Any]:
        """Return what `verbena info` shows, as JSON has it."""

    def is_idle(self) -> bool:
        """Whether nothing would be lost if the agent ended."""


class AgentServer:
    """Serves the programs of this user until nobody has used it for ``patience`` seconds.

    With ``fabric``, the programs at hosts of that live fabric, in the loop of the fabric's process:
    it calls ``serve`` when ``fileno`` is readable, and has ``acceptor`` among its duties.
    ``accept_pause`` is how many seconds it does not accept when no descriptor is left.

    Raises OSError (EADDRINUSE) if another agent of this user has the name.
    """

    def __init__(
        self,
        patience: float | None = 10.0,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] = lambda _: None,
        fabric: str = "",
        accept_pause: float = PAUSE,
    ) -> None:
        self.devices: dict[int, DeviceConnection] = {}
        self._handler: CommandHandler | None = None
        self._patience = patience
        self._clock = clock
        self._poll = select.epoll()
        self._watched: dict[int, tuple[socket.socket | int, Callable[[], None]]] = {}
        self._stays_awake = (os.cpu_count() or 1) > 1
        self._full: dict[int, DeviceConnection] = {}  # by descriptor
        self._message_cost = _message_cost()
        self._calls = 0
        self._closed: dict[int, float] = {}  # when, by process
        self.refused = 0
        """Hellos and requests that are none, or not of this user."""
        self.failures = 0
        """Commands, and ticks, that ended in an exception of the agent's own, each a defect."""
        self.report = report
        self._tells = not fabric
        self._idle_since = clock()
        self._try_again = 0.0  # when, after a failure, to do what is due
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(agent_address(os.geteuid(), fabric))
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self.acceptor = Acceptor(self._listener, self._poll, clock, report, accept_pause)
        """Accepts connections, and pauses while there is no descriptor for them."""
        self.watch(self._listener, self._accept)

    @property
    def handler(self) -> CommandHandler:
        """What ``run`` was given."""
        assert self._handler is not None
        return self._handler

    @property
    def number_of_calls(self) -> int:
        """How many commands were carried out."""
        return self._calls

    def watch(self, sock: socket.socket | int, call: Callable[[], None]) -> None:
        """Call this whenever the socket is readable."""
        number = sock if isinstance(sock, int) else sock.fileno()
        if number in self._watched:
            self._poll.modify(number, select.EPOLLIN)
        else:
            self._poll.register(number, select.EPOLLIN)
        self._watched[number] = sock, call

    def forget(self, sock: socket.socket | int) -> None:
        """Watch a socket no more."""
        number = sock if isinstance(sock, int) else sock.fileno()
        del self._watched[number]
        self._poll.unregister(number)

    def run(self, handler: CommandHandler) -> None:
        """Serve until it is time to end.

        While programs give commands, what is due is looked for once in a millisecond, and a command
        within 50 µs of another one finds the agent awake: to wake it takes as long as a command.
        """
        self.begin(handler)
        ticked = -1.0
        is_busy = False
        while is_busy or not self._is_over():
            is_busy = (is_busy and self._next_comes()) or self.serve(
                _BUSY if is_busy else self._patience_left()
            )
            now = self._clock()
            self.acceptor.tick(now)
            if not is_busy or now - ticked >= _BUSY:
                ticked = now
                self._tick(now)
                self._report_closed(now)

    def _tick(self, now: float) -> None:
        """Have what is due done. As with commands, what fails for one program ends nobody else's
        connections; what is still due is tried again after a moment."""
        try:
            self.handler.tick(now)
        except Exception:
            self._failed()
            self._try_again = now + _AFTER_FAILURE

    def _next_comes(self) -> bool:
        """Do what programs ask, if they do so in a moment; others may have this processor."""
        if self.serve(0):
            return True
        if not self._stays_awake:
            return False
        end = self._clock() + _AWAKE
        while not self.serve(0):
            if self._clock() >= end:
                return False
            os.sched_yield()
        return True

    def begin(self, handler: CommandHandler) -> None:
        """Let this carry out commands."""
        self._handler = handler

    def fileno(self) -> int:
        """Return the descriptor that is readable when ``serve`` has something to do."""
        return self._poll.fileno()

    def serve(self, timeout: float | None = 0) -> bool:
        """Wait for programs so long, and do what they ask. False: nobody has asked."""
        found = self._poll.poll(timeout)
        if not found:
            return False
        known = self._watched
        ready = [(number, what, known.get(number)) for number, what in found]
        for number, what, watched in ready:
            if watched and known.get(number) is watched:  # none before it has closed it
                if what & select.EPOLLOUT:
                    self._call_back(watched[0], partial(self._has_room, number))
                if what & ~select.EPOLLOUT:
                    self._call_back(*watched)
        return True

    def _await_room(self, device: DeviceConnection) -> None:
        number = device.sock.fileno()
        self._full[number] = device
        self._poll.modify(number, select.EPOLLIN | select.EPOLLOUT)

    def _has_room(self, number: int) -> None:
        device = self._full.pop(number)
        self._poll.modify(number, select.EPOLLIN)
        device.is_full = False
        self.handler.has_room(device)

    def _call_back(self, sock: socket.socket | int, call: Callable[[], None]) -> None:
        """Nothing that one program sends may end the agent, which has everybody's connections."""
        try:
            call()
        except Exception:
            self.failures += 1
            self.report(traceback.format_exc())
            if (
                isinstance(sock, socket.socket)
                and sock is not self._listener
                and sock.fileno() >= 0
            ):
                self._drop(sock)

    def close(self) -> None:
        """Close every socket. Programs find their devices closed."""
        for sock, _ in self._watched.values():
            if isinstance(sock, socket.socket):
                sock.close()
        self._watched.clear()
        self._poll.close()

    def _describe(self) -> dict[str, Any]:
        own = {
            "pid": os.getpid(),
            "commands": self._calls,
            "refused": self.refused,
            "failures": self.failures,
        }
        return own | self.handler.describe()

    # ---- time ----

    def _is_over(self) -> bool:
        now = self._clock()
        if self.devices or not self.handler.is_idle():
            self._idle_since = now
        return self._patience is not None and now - self._idle_since >= self._patience

    def _patience_left(self) -> float | None:
        now = self._clock()
        first = self.handler.next_deadline()
        due = [first if first is None else max(first, self._try_again)]
        due.append(self.acceptor.next_deadline())
        if self._patience is not None and not self.devices:
            due.append(self._idle_since + self._patience)
        due += [since + _CLOSED_FOR for since in self._closed.values()]
        times = [max(each - now, 0.0) for each in due if each is not None]
        return min(times, default=None)

    # ---- connections ----

    def _accept(self) -> None:
        sock = self.acceptor.accept()
        if sock is not None:
            self.watch(sock, lambda: self._hello(sock))

    def _drop(self, sock: socket.socket) -> None:
        self.forget(sock)
        sock.close()
        self.acceptor.descriptor_freed()

    def _receive(self, sock: socket.socket, size: int) -> bytes:
        try:
            return sock.recv(size, _AT_ONCE)
        except OSError:
            return b""

    def _hello(self, sock: socket.socket) -> None:
        pid, uid = _credentials(sock)
        hello = Hello.parse(self._receive(sock, LONGEST_HELLO + 1))
        error = _refusal(hello, uid)
        if hello is not None and hello.role == Role.DEVICE and hello.inode in self.devices:
            error = error or errno.EEXIST
        device = None
        if hello is not None and hello.role == Role.DEVICE and not error:
            device = DeviceConnection(sock, hello, pid, self._await_room, self._message_cost)
            error = self._opened(device)
        _send(sock, welcome(error, os.getpid()))
        if error or hello is None:
            self.refused += 1
            self._drop(sock)
            return
        if hello.role == Role.DESCRIPTION:
            _send(sock, json.dumps(self._describe()).encode())
            self._drop(sock)
            return
        if hello.role == Role.CALLS:
            self.watch(sock, partial(self._call, sock))
            return
        assert device is not None
        if self._tells and self._closed.pop(pid, None) is None and not self._has_open(pid):
            self.report(f"process {pid} has opened the connection manager")
        self.devices[hello.inode] = device
        self.watch(sock, lambda: self._device_is_readable(device))

    def _opened(self, device: DeviceConnection) -> int:
        """Return the errno with which a device is refused, or 0."""
        try:
            self.handler.opened(device)
        except DeviceRefused as refused:
            return refused.errno
        return 0

    def _report_closed(self, now: float) -> None:
        """librdmacm opens the device, closes it and opens it again: that is to be one line."""
        for pid, since in list(self._closed.items()):
            if now - since >= _CLOSED_FOR:
                del self._closed[pid]
                self.report(f"process {pid} has closed the connection manager")

    def _has_open(self, pid: int) -> bool:
        return any(each.pid == pid for each in self.devices.values())

    def _device_is_readable(self, device: DeviceConnection) -> None:
        """A program writes commands elsewhere: this is its end, or a message that nobody reads."""
        if self._receive(device.sock, 1):
            return
        del self.devices[device.hello.inode]
        self._full.pop(device.sock.fileno(), None)
        if self._tells and not self._has_open(device.pid):
            self._closed[device.pid] = self._clock()
        self._drop(device.sock)
        self.handler.closed(device)

    def _call(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(LONGEST_REQUEST + 1, _AT_ONCE)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return
        self._calls += 1
        request = Request.parse(data)
        if request is None:
            self.refused += 1
            _send(sock, answer(errno.EINVAL))
            return
        device = self.devices.get(request.inode)
        if device is None:
            _send(sock, answer(errno.EIO))  # another agent's, which has ended
            return
        handler = self.handler
        try:
            made = handler.command(device, request)
        except Exception:  # one program's command must not end every program's connections
            self._failed()
            made = answer(errno.EIO)
        _send(sock, made)
        try:
            handler.answered(device)
        except Exception:
            self._failed()

    def _failed(self) -> None:
        self.failures += 1
        self.report(traceback.format_exc())


def _send(sock: socket.socket, message: bytes) -> None:
    try:
        sock.send(message, _AT_ONCE)
    except OSError:
        return  # the loop will hear that it is closed


def _bytes_out(sock: socket.socket) -> int:
    """Return what the messages that nobody has taken cost, as the kernel counts."""
    return int.from_bytes(fcntl.ioctl(sock.fileno(), _SIOCOUTQ, bytes(4)), sys.byteorder)


def _message_cost() -> int:
    """Return what the kernel counts for a message with an event."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.send(bytes(EVENT_MESSAGE))
        return _bytes_out(ours)


def _credentials(sock: socket.socket) -> tuple[int, int]:
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


def _refusal(hello: Hello | None, uid: int) -> int:
    if uid != os.geteuid():
        return errno.EACCES
    if hello is None:
        return errno.EPROTO
    if hello.version != VERSION:
        return errno.EPROTONOSUPPORT
    return 0 if hello.role in tuple(Role) else errno.EINVAL
