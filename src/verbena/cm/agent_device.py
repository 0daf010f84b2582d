# SPDX-License-Identifier: Apache-2.0
"""The device of Verbena's agent, which needs no ``verbena run``: sockets to the agent itself.

``open_agent_device`` connects, and starts the agent if there is none, as preload/paths/manager does
for programs in C. agent/messages.py has the messages.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

from verbena import launch
from verbena.agent.messages import (
    AnswerFlag,
    ProgramAnswer,
    ProgramPort,
    Request,
    Role,
    hello,
    welcomed,
)
from verbena.agent.server import agent_address
from verbena.agent.ucm_commands import UcmNumber, pack_command
from verbena.verbs import Device

from .device import GET_EVENT, ConnectionManagerDevice, DeviceAnswer, WatchedDescriptor
from .errors import ManagerAbsent, ManagerEnded

__all__ = ["AgentDevice", "open_agent_device"]

_START_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_NAP = 0.005
_LONGEST = 1 << 16
_CREDENTIALS = struct.Struct("=iII")
_STAYS_PRELOADED = ("libasan", "libubsan")
_ABSENT = (ConnectionRefusedError, ConnectionResetError, BrokenPipeError)

Pause = Callable[[float], Awaitable[None]]
"""Waits for some seconds: ``asyncio.sleep``, or what blocks the thread."""


class AgentDevice(WatchedDescriptor):
    """One event channel of the agent: a socket for events, and one for commands."""

    def __init__(self, ports: Sequence[ProgramPort] = ()) -> None:
        """Connect. Raises ConnectionRefusedError or ConnectionResetError if there is no agent."""
        self._lock = threading.Lock()
        self._events = _connect(Role.DEVICE, ports)
        try:
            self._calls = _connect(Role.CALLS, ports)
        except BaseException:
            self._events.close()
            raise
        self._calls.settimeout(_ANSWER_SECONDS)
        self._events.setblocking(False)
        self.inode = os.fstat(self._events.fileno()).st_ino
        super().__init__(self._events.fileno())

    def execute(self, command: bytes, option: bytes = b"") -> DeviceAnswer:
        answer = self._call(Request(self.inode, 0, command + option))
        return DeviceAnswer(answer.data, answer.gid_index_at, answer.gid)

    def migrate(self, number: int, old: ConnectionManagerDevice) -> None:
        assert isinstance(old, AgentDevice)
        command = pack_command(UcmNumber.MIGRATE_ID, 4, id=number, descriptor=old.descriptor)
        self._call(Request(self.inode, old.inode, command))

    def _call(self, request: Request) -> ProgramAnswer:
        with self._lock:
            answer = self._exchange(request.pack())
        if answer.flags & AnswerFlag.TAKE_BACK:
            self._take_byte()
        if answer.error:
            raise OSError(answer.error, os.strerror(answer.error))
        return answer

    def _exchange(self, message: bytes) -> ProgramAnswer:
        try:
            self._calls.send(message)
            answer = ProgramAnswer.parse(self._calls.recv(_LONGEST))
        except TimeoutError:
            self._calls.close()  # an answer that comes later would be taken for the next call's
            raise ManagerEnded(
                f"the agent did not answer within {_ANSWER_SECONDS:g} seconds: it may be stopped"
            ) from None
        except OSError:
            answer = None
        except BaseException:  # Ctrl-C: the answer may come later
            self._calls.close()
            raise
        if answer is None:
            raise ManagerEnded()
        return answer

    def _take_byte(self) -> bool:
        """Take the byte that says that there are events; False if it is not there."""
        try:
            byte = self._events.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            byte = b""
        if not byte:
            raise ManagerEnded()
        return True

    def next_event(self) -> DeviceAnswer | None:
        while self._take_byte():
            answer = self._call(Request(self.inode, 0, GET_EVENT))
            if not answer.flags & AnswerFlag.WAIT_AGAIN:
                return DeviceAnswer(answer.data, answer.gid_index_at, answer.gid)
        return None

    def close(self) -> None:
        self.unwatch()
        self._events.close()
        self._calls.close()


def _connect(role: Role, ports: Sequence[ProgramPort]) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(_START_SECONDS)
        sock.connect(agent_address(os.geteuid()))
        _check_owner(sock)
        sock.send(hello(role, os.fstat(sock.fileno()).st_ino, ports))
        error = welcomed(sock.recv(_LONGEST))
        if error is None:
            raise ManagerAbsent(
                errno.EPROTO,
                "the agent is of another version of Verbena: end the programs that "
                "use it, or the agent, and start this one again",
            )
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        sock.close()
        raise
    return sock


def _check_owner(sock: socket.socket) -> None:
    """The agent's name is no file, so that another user may have taken it."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    if uid != os.geteuid():
        raise ManagerAbsent(errno.EACCES, "the agent's name is held by a process of another user")


async def open_agent_device(pause: Pause, devices: Sequence[Device]) -> AgentDevice:
    """Connect to the agent, and start one if there is none. Raises ManagerAbsent."""
    ports = _ports_of(devices)
    deadline = time.monotonic() + _START_SECONDS
    was_started = False
    while True:
        try:
            return AgentDevice(ports)
        except _ABSENT:
            if time.monotonic() > deadline:
                raise ManagerAbsent(
                    errno.ETIMEDOUT,
                    "the agent did not start in time: `verbena agent` in another "
                    "terminal shows what is wrong",
                ) from None
        if not was_started:
            _start_agent()
            was_started = True
        await pause(_NAP)


def _ports_of(devices: Sequence[Device]) -> list[ProgramPort]:
    """What the agent is told of this process's devices: their GUIDs."""
    return [
        ProgramPort(number, 1, device.guid, True, 0, "") for number, device in enumerate(devices)
    ]


def _start_agent() -> None:
    """Start an agent that is nobody's child and goes on when this process has ended."""
    python = os.environ.get(launch.AGENT) or sys.executable
    if not python or python == "off":
        raise ManagerAbsent(
            errno.ENOENT, "there is no agent, and VERBENA_AGENT is off: start `verbena agent`"
        )
    subprocess.run(
        ["/bin/sh", "-c", '"$0" -P -m verbena.agent &', python],
        env=_environment_of_agent(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
    )


def _environment_of_agent() -> dict[str, str]:
    """What is preloaded for this program is not for the agent, but for a sanitizer's runtime."""
    environment = dict(os.environ)
    preloaded = environment.pop("LD_PRELOAD", "").replace(":", " ").split()
    kept = [each for each in preloaded if any(name in each for name in _STAYS_PRELOADED)]
    return environment | ({"LD_PRELOAD": " ".join(kept)} if kept else {})
