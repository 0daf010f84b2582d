# SPDX-License-Identifier: Apache-2.0
"""The device of Verbena's agent, which needs no ``verbena run``: sockets to the agent itself.

``open_agent_device`` connects, and starts the agent if there is none, as preload/paths/manager does
for programs in C. agent/messages.py has the messages.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from verbena import _ports, launch
from verbena.agent.messages import (
    SENTENCE,
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
from verbena.manage.cm.refusals import CmRefusal
from verbena.verbs import Device, LinkLayer

from .device import ConnectionManagerDevice, DeviceAnswer
from .errors import DeviceRefusal, ManagerAbsent, ManagerEnded
from .watched_descriptor import WatchedDescriptor

__all__ = ["AgentDevice", "open_agent_device", "refusal_of"]

_START_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_NAP = 0.005
_PATIENCE = 0.01  # for which a loop may be blocked
_LONGEST = 1 << 16
_NUMBER = struct.Struct("=I")
_QUESTIONS = (UcmNumber.QUERY, UcmNumber.INIT_QP_ATTR)
_QUESTION = struct.Struct("=II")  # the identifier, and what is asked
_QUESTION_AT = 16
_CREDENTIALS = struct.Struct("=iII")
_STAYS_PRELOADED = ("libasan", "libubsan")
_ABSENT = (ConnectionRefusedError, ConnectionResetError, BrokenPipeError)

Pause = Callable[[float], Awaitable[None]]
"""Waits for some seconds: ``asyncio.sleep``, or what blocks the thread."""


class AgentDevice(WatchedDescriptor):
    """One event channel of the agent: a socket for events, and one for commands.

    With an event the agent gives the answers to the questions that follow it. They are kept until
    something about their identifier has changed.
    """

    def __init__(self, events: socket.socket, calls: socket.socket) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, dict[tuple[int, int], ProgramAnswer]] = {}  # by identifier
        self._serials: dict[int, int] = {}  # of the newest message about an identifier
        self._events, self._calls = events, calls
        self._calls.settimeout(_ANSWER_SECONDS)
        self._events.setblocking(False)
        self.inode = os.fstat(self._events.fileno()).st_ino
        super().__init__(self._events.fileno())

    def execute(self, command: bytes, option: bytes = b"") -> DeviceAnswer:
        answer = self._known_answer(command)
        if answer is None:
            answer = self._call(Request(self.inode, 0, command + option))
        return DeviceAnswer(answer.data, answer.gid_index_at, answer.gid)

    def _known_answer(self, command: bytes) -> ProgramAnswer | None:
        """Return the answer to a question, if it came in advance."""
        (number,) = _NUMBER.unpack_from(command)
        if number not in _QUESTIONS:
            return None
        identifier, option = _QUESTION.unpack_from(command, _QUESTION_AT)
        return self._known.get(identifier, {}).get((number, option))

    def _note(self, answers: list[ProgramAnswer]) -> None:
        first, *others = answers
        if first.flags & AnswerFlag.FORGET:
            self._known.pop(first.number, None)
            self._serials.pop(first.number, None)
        if not first.flags & AnswerFlag.CHANGED or first.flags & AnswerFlag.FORGET:
            return
        if not 0 < first.serial - self._serials.get(first.number, 0) & 0xFFFFFFFF < 1 << 31:
            return
        self._serials[first.number] = first.serial
        self._known.pop(first.number, None)
        in_advance = {
            (each.command, each.option): each for each in others if each.command != SENTENCE
        }
        if in_advance:
            self._known[first.number] = in_advance

    def migrate(self, number: int, old: ConnectionManagerDevice) -> None:
        assert isinstance(old, AgentDevice)
        command = pack_command(UcmNumber.MIGRATE_ID, 4, id=number, descriptor=old.descriptor)
        known = old._known.pop(number, None)
        self._call(Request(self.inode, old.inode, command), old)
        if known is not None:
            self._known[number] = known

    def _call(self, request: Request, holder: AgentDevice | None = None) -> ProgramAnswer:
        """``holder`` has the events that the command may take back, if it is another one."""
        command = request.command
        with self._lock:
            while True:
                answers = self._exchange(request.pack())
                self._note(answers)
                if answers[0].flags & AnswerFlag.TAKE_BACK:
                    request.command = command + (holder or self)._taken_back()
                elif answers[0].flags & AnswerFlag.AGAIN:
                    request.command = command
                else:
                    break
        if answers[0].error:
            raise refusal_of(answers)
        return answers[0]

    def _exchange(self, message: bytes) -> list[ProgramAnswer]:
        try:
            self._calls.send(message)
            answers = ProgramAnswer.parse(self._calls.recv(_LONGEST))
        except TimeoutError:
            self._calls.close()  # an answer that comes later would be taken for the next call's
            raise ManagerEnded(
                f"the agent did not answer within {_ANSWER_SECONDS:g} seconds: it may be stopped"
            ) from None
        except OSError:
            answers = []
        except BaseException:  # Ctrl-C: the answer may come later
            self._calls.close()
            raise
        if not answers:
            raise ManagerEnded()
        return answers

    def _taken_back(self) -> bytes:
        """Take the events that wait, and return their serial numbers as a command has them."""
        serials: list[int] = []
        while message := self._next_message():
            serials.append(ProgramAnswer.parse(message)[0].serial)
        return struct.pack(f"={len(serials) + 1}I", len(serials), *serials)

    def _next_message(self) -> bytes | None:
        """Return the next message with an event, or None. Raises ManagerEnded."""
        try:
            message = self._events.recv(_LONGEST)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message:
            raise ManagerEnded()
        return message

    def next_event(self) -> DeviceAnswer | None:
        message = self._next_message()
        if message is None:
            return None
        answers = ProgramAnswer.parse(message)
        with self._lock:
            self._note(answers)
        return DeviceAnswer(answers[0].data, answers[0].gid_index_at, answers[0].gid)

    def close_descriptor(self) -> None:
        self._events.close()
        self._calls.close()


def refusal_of(answers: list[ProgramAnswer]) -> DeviceRefusal:
    """Return the errno of an answer, and the row whose sentence the agent has added."""
    said = b"".join(each.data for each in answers if each.command == SENTENCE).decode()
    rows = (each for each in CmRefusal if each.code and each.sentence in said)
    return DeviceRefusal(answers[0].error, next(rows, None))


async def _connect(
    role: Role, ports: Sequence[ProgramPort], pause: Pause, deadline: float
) -> socket.socket:
    """Raises ConnectionRefusedError or ConnectionResetError if there is no agent."""
    fabric = os.environ.get(launch.FABRIC, "")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(_PATIENCE)
        sock.connect(agent_address(os.geteuid(), fabric))
        _check_owner(sock)
        host = os.environ.get(launch.HOST, "") if fabric else ""
        sock.send(hello(role, os.fstat(sock.fileno()).st_ino, ports, host))
        error = welcomed(await _received(sock, pause, deadline))
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


async def _received(sock: socket.socket, pause: Pause, deadline: float) -> bytes:
    """Return the next message. An agent that starts takes a while, in which a loop can go on."""
    while True:
        try:
            return sock.recv(_LONGEST)
        except TimeoutError:
            if time.monotonic() > deadline:
                raise _late(_owner(sock)[0]) from None
        await pause(_NAP)


def _late(process: int = 0) -> ManagerAbsent:
    """What is said of an agent that does not answer; 0: none has taken the connection."""
    if not process:
        text = "the agent did not start in time: `verbena agent` in another terminal shows why"
    elif _is_stopped(process):
        text = f"the agent, process {process}, is stopped: `kill -CONT {process}` lets it go on"
    elif _has_no_descriptor_left(process):
        text = (
            f"the agent, process {process}, has no file descriptor left for this program: "
            f"sudo prlimit --pid {process} --nofile=65536:65536, or end programs that use it"
        )
    else:
        text = f"the agent, process {process}, does not answer: it is busy, or hangs"
    return ManagerAbsent(errno.ETIMEDOUT, text)


def _is_stopped(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"


def _has_no_descriptor_left(process: int) -> bool:
    try:
        soft, _ = resource.prlimit(process, resource.RLIMIT_NOFILE)
        return len(os.listdir(f"/proc/{process}/fd")) >= soft
    except OSError:
        return False


def _owner(sock: socket.socket) -> tuple[int, int]:
    """The process and the user that listen at the name."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, uid, _ = _CREDENTIALS.unpack(raw)
    return process, uid


def _check_owner(sock: socket.socket) -> None:
    """The agent's name is no file, so that another user may have taken it."""
    _, uid = _owner(sock)
    if uid != os.geteuid():
        raise ManagerAbsent(errno.EACCES, "the agent's name is held by a process of another user")


async def open_agent_device(
    pause: Pause, devices: Sequence[Device], seconds: float | None = None
) -> AgentDevice:
    """Connect to the agent, and start one if there is none, in so many seconds at most.

    Raises ManagerAbsent.
    """
    fabric = os.environ.get(launch.FABRIC, "")
    ports = [] if fabric else _ports_of(devices)
    longest = _START_SECONDS if seconds is None else min(seconds, _START_SECONDS)
    deadline = time.monotonic() + longest
    was_started = False
    while True:
        try:
            return await _open(ports, pause, deadline)
        except _ABSENT:
            if fabric:
                raise ManagerAbsent(
                    errno.ECONNREFUSED,
                    f"the fabric {fabric!r} has ended: start it again with `verbena fabric`",
                ) from None
            is_absent = True
        except (BlockingIOError, TimeoutError):
            is_absent = False  # too many connect to it at once
        if time.monotonic() > deadline:
            raise _late()
        if is_absent and not was_started:
            _start_agent()
            was_started = True
        await pause(_NAP)


async def _open(ports: Sequence[ProgramPort], pause: Pause, deadline: float) -> AgentDevice:
    events = await _connect(Role.DEVICE, ports, pause, deadline)
    try:
        return AgentDevice(events, await _connect(Role.CALLS, ports, pause, deadline))
    except BaseException:
        events.close()
        raise


def _ports_of(devices: Sequence[Device]) -> list[ProgramPort]:
    """What the agent is told of this process's devices.

    Devices are opened for it only where the environment says that there are other ports than one
    Ethernet port.
    """
    if not any(name in os.environ for name in _ports.SOURCES):
        return [ProgramPort(at, 1, device.guid, True, 0, "") for at, device in enumerate(devices)]
    return [port for at, device in enumerate(devices) for port in _ports_of_device(at, device)]


def _ports_of_device(at: int, device: Device) -> list[ProgramPort]:
    with device.open() as context:
        numbers = range(1, context.query_device().phys_port_cnt + 1)
        found = [(number, context.query_port(number)) for number in numbers]
    return [
        ProgramPort(at, number, device.guid, port.link_layer == LinkLayer.ETHERNET, port.lid, "")
        for number, port in found
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
