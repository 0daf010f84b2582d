# SPDX-License-Identifier: Apache-2.0
"""Events in the sockets of devices: what was read, what is taken back, and what waits for room."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace

import pytest

from verbena.agent.messages import (
    EVENT_MESSAGE,
    SENTENCE,
    AnswerFlag,
    Hello,
    ProgramAnswer,
    ProgramPort,
    Request,
    Role,
    hello,
    welcomed,
)
from verbena.agent.rdma_cm_device import RdmaCmDevices
from verbena.agent.server import AgentServer, DeviceConnection, agent_address
from verbena.agent.ucm_answers import EVENT_BYTES, sockaddr
from verbena.agent.ucm_commands import UcmNumber, pack_command
from verbena.manage import cm
from verbena.manage.cm.host import ResolveAddress

LOCAL = cm.CmAddress.ip("192.0.2.1")
INTERFACE = cm.LocalInterface(port=1, gid=LOCAL.gid)
TCP, PORT = 0x106, 7174


class System:
    """Answers at once that every address is this host's."""

    def ask(self, request: cm.CmRequest, manager: cm.RdmaCm, now: float) -> None:
        assert isinstance(request, ResolveAddress)
        source = request.destination.with_port(0)
        manager.address_resolved(request.id, cm.AddressAnswer(source, INTERFACE, LOCAL.gid))

    def next_deadline(self) -> None:
        """Nothing waits."""

    def tick(self, now: float) -> None:
        """Nothing is due."""


class Program:
    """A program that has opened a device."""

    def __init__(self, devices: RdmaCmDevices, inode: int) -> None:
        self.devices, self.inode = devices, inode
        self.lines: list[str] = []  # for the program's log
        ours, self.events = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.events.setblocking(False)
        hello = Hello(1, Role.DEVICE, inode, (ProgramPort(0, 1, 5, True, 0, ""),))
        self.device = DeviceConnection(ours, hello, 1)
        devices.opened(self.device)

    def close(self) -> None:
        self.device.sock.close()
        self.events.close()

    def call(self, command: bytes, other: int = 0) -> ProgramAnswer:
        answered = self.devices.command(self.device, Request(self.inode, other, command))
        self.devices.answered(self.device)
        return self.parsed(answered)

    def parsed(self, message: bytes) -> ProgramAnswer:
        first, *others = ProgramAnswer.parse(message)
        self.lines += [each.data.decode() for each in others if each.command == SENTENCE]
        return first

    def create(self) -> int:
        made = self.call(
            pack_command(UcmNumber.CREATE_ID, 4, uid=9, port_space=TCP, qp_type=2)
        ).data
        return int(struct.unpack("=I", made)[0])

    def resolve(self, number: int, port: int = PORT) -> None:
        destination = sockaddr(LOCAL.with_port(port))
        answered = self.call(
            pack_command(
                UcmNumber.RESOLVE_ADDR,
                id=number,
                timeout_ms=2000,
                source_length=0,
                length=len(destination),
                source=b"",
                destination=destination,
            )
        )
        assert not answered.error

    def events_waiting(self) -> list[ProgramAnswer]:
        """Take every event."""
        found: list[ProgramAnswer] = []
        while True:
            try:
                message = self.events.recv(1 << 16)
            except BlockingIOError:
                return found
            assert len(message) == EVENT_MESSAGE
            found.append(self.parsed(message))

    def destroy(self, number: int, taken: list[ProgramAnswer] | None = None) -> ProgramAnswer:
        return self.call(pack_command(UcmNumber.DESTROY_ID, 4, id=number) + taken_back(taken))


def taken_back(taken: list[ProgramAnswer] | None) -> bytes:
    if taken is None:
        return b""
    return struct.pack(f"={len(taken) + 1}I", len(taken), *(each.serial for each in taken))


def read_count(answered: ProgramAnswer) -> int:
    assert not answered.error
    assert answered.flags & AnswerFlag.FORGET
    return int(struct.unpack("=I", answered.data)[0])


def kind(event: ProgramAnswer) -> int:
    assert len(event.data) == EVENT_BYTES
    return int(struct.unpack_from("=QIIi", event.data)[2])


@pytest.fixture
def devices() -> RdmaCmDevices:
    host = SimpleNamespace(
        interface_of=lambda address: INTERFACE,
        reaches=lambda local, peer, port: True,
        may_bind=lambda port: True,
        route_error=lambda source, destination: 0,
    )
    device = cm.CmDevice(1, ports=(cm.CmPort(gids=(LOCAL.gid,)),))
    manager = cm.RdmaCm(device, host, Random(1).getrandbits)
    return RdmaCmDevices(manager, System(), lambda datagram: None, lambda: 0.0)


@pytest.fixture
def program(devices: RdmaCmDevices) -> Iterator[Program]:
    made = Program(devices, 1)
    yield made
    made.close()


@pytest.fixture
def other(devices: RdmaCmDevices) -> Iterator[Program]:
    made = Program(devices, 2)
    yield made
    made.close()


def test_an_event_counts_when_the_program_has_taken_it(program: Program) -> None:
    number = program.create()
    program.resolve(number)
    assert [kind(each) for each in program.events_waiting()] == [0]
    assert read_count(program.destroy(number)) == 1


def test_an_event_that_nobody_has_taken_is_taken_back(program: Program) -> None:
    first, second = program.create(), program.create()
    program.resolve(first)
    program.resolve(second)
    assert program.destroy(second).flags == AnswerFlag.TAKE_BACK
    taken = program.events_waiting()
    assert len(taken) == 2
    assert read_count(program.destroy(second, taken)) == 0
    (again,) = program.events_waiting()  # that of the other identifier
    assert struct.unpack_from("=QI", again.data)[1] == first
    assert again.serial > max(each.serial for each in taken)
    assert read_count(program.destroy(first)) == 1


def test_an_event_that_another_thread_takes_meanwhile_was_read(program: Program) -> None:
    number = program.create()
    program.resolve(number)
    assert program.destroy(number).flags == AnswerFlag.TAKE_BACK
    assert len(program.events_waiting()) == 1
    assert read_count(program.destroy(number, [])) == 1


def test_one_thread_takes_back_while_others_wait(program: Program) -> None:
    first, second, third = program.create(), program.create(), program.create()
    program.resolve(first)
    program.resolve(second)
    assert program.destroy(first).flags == AnswerFlag.TAKE_BACK
    taken = program.events_waiting()
    assert program.destroy(second).flags == AnswerFlag.AGAIN
    assert read_count(program.destroy(third)) == 0
    program.resolve(program.create())
    assert program.events_waiting() == []  # until the events are back
    assert read_count(program.destroy(first, taken)) == 0
    assert len(program.events_waiting()) == 2


def test_events_that_do_not_fit_wait_for_room(program: Program) -> None:
    numbers = [program.create() for _ in range(100)]
    for number in numbers:
        program.resolve(number)
    assert program.device.is_full
    found = program.events_waiting()
    assert 8 < len(found) < 64
    while len(found) < 100:
        program.device.is_full = False
        program.devices.has_room(program.device)
        more = program.events_waiting()
        assert more
        found += more
    assert [struct.unpack_from("=QI", each.data)[1] for each in found] == numbers
    assert sum(read_count(program.destroy(number)) for number in numbers) == 100


def test_a_long_queue_is_looked_at_once(
    devices: RdmaCmDevices, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the events that wait, those behind the room in the socket are not looked at each time."""
    count, seen = 500, 0
    look = devices.cm.unread_events

    def counted(channel: int, at: int, most: int) -> list[cm.RdmaEvent]:
        nonlocal seen
        found = look(channel, at, most)
        seen += len(found)
        return found

    monkeypatch.setattr(devices.cm, "unread_events", counted)
    numbers = [program.create() for _ in range(count)]
    for number in numbers:
        program.resolve(number)
    found = program.events_waiting()
    assert len(found) < count // 4
    while waiting := count - len(found):
        program.device.is_full = False
        devices.has_room(program.device)
        found += program.events_waiting()
        assert count - len(found) < waiting
    assert [struct.unpack_from("=QI", each.data)[1] for each in found] == numbers
    assert seen < 3 * count


def test_a_backlog_is_full_until_the_program_has_taken_a_request(
    devices: RdmaCmDevices, program: Program, other: Program
) -> None:
    listener = other.create()
    here = sockaddr(LOCAL.with_port(PORT))
    other.call(pack_command(UcmNumber.BIND, id=listener, length=len(here), address=here))
    other.call(pack_command(UcmNumber.LISTEN, id=listener, backlog=1))

    def connect(qpn: int) -> None:
        number = program.create()
        program.resolve(number)
        program.call(pack_command(UcmNumber.RESOLVE_ROUTE, id=number, timeout_ms=2000))
        param = struct.pack("=II256s8B", qpn, 0, b"", 0, 0, 1, 1, 0, 7, 7, 1)
        answered = program.call(
            pack_command(
                UcmNumber.CONNECT, conn_param=param, id=number, ece_vendor=0, ece_options=0
            )
        )
        assert not answered.error

    refused = devices.cm.counters.refused
    connect(100)
    connect(101)
    assert refused[cm.CmRefusal.BACKLOG_FULL] == 1
    assert [kind(each) for each in other.events_waiting()] == [4]
    assert other.lines == []
    connect(102)
    assert refused[cm.CmRefusal.BACKLOG_FULL] == 1
    assert [kind(each) for each in other.events_waiting()] == [4]
    where = f"192.0.2.1:{PORT}"
    says = "found the backlog of 1 full"
    assert [each.partition(";")[0] for each in other.lines] == [
        f"rdma_listen at {where}: a request {says}"
    ]
    connect(103)
    connect(104)
    assert other.devices.describe()["full_backlogs"] == {f"TCP {where}": 2}
    other.destroy(listener, other.events_waiting())
    assert f"2 requests {says}" in other.lines[-1]


def test_a_moved_identifier_takes_its_unread_events_along(program: Program, other: Program) -> None:
    number, stays = program.create(), program.create()
    program.resolve(stays)
    program.resolve(number)
    move = pack_command(UcmNumber.MIGRATE_ID, 4, id=number, descriptor=0)
    assert other.call(move, program.inode).flags == AnswerFlag.TAKE_BACK
    taken = program.events_waiting()
    answered = other.call(move + taken_back(taken), program.inode)
    assert struct.unpack("=I", answered.data) == (0,)
    assert len(program.events_waiting()) == 1
    assert [kind(each) for each in other.events_waiting()] == [0]
    assert read_count(other.destroy(number)) == 1


def test_a_program_may_not_ask_for_its_events(program: Program) -> None:
    assert program.call(pack_command(UcmNumber.GET_EVENT, EVENT_BYTES)).error


class Handler:
    """Remembers what a server tells it."""

    def __init__(self) -> None:
        self.devices: list[DeviceConnection] = []
        self.with_room: list[DeviceConnection] = []

    def opened(self, device: DeviceConnection) -> None:
        self.devices.append(device)

    def has_room(self, device: DeviceConnection) -> None:
        self.with_room.append(device)

    def closed(self, device: DeviceConnection) -> None:
        self.devices.remove(device)


def test_the_server_says_when_there_is_room_again() -> None:
    name = f"test_delivery_{os.getpid()}"
    server, handler = AgentServer(None, fabric=name), Handler()
    server.begin(handler)  # type: ignore[arg-type]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
        program.connect(agent_address(os.geteuid(), name))
        program.send(hello(Role.DEVICE, 7))
        program.setblocking(False)
        while not handler.devices:
            assert server.serve(1)
        assert welcomed(program.recv(64)) == 0
        (device,) = handler.devices
        message = bytes(EVENT_MESSAGE)
        while device.send_event(message):
            device.sent.append(0)
        assert 8 < len(device.sent) < 64
        assert device.waiting_messages() == len(device.sent)
        assert not server.serve(0)
        for left in reversed(range(len(device.sent))):
            assert program.recv(1 << 16) == message
            assert device.waiting_messages() == left
        assert server.serve(0)
        assert handler.with_room == [device]
        assert not device.is_full
        assert not server.serve(0)  # an idle program costs nothing
        while device.send_event(message):
            pass
    while handler.devices:  # one that went with a full socket
        assert server.serve(1)
    server.close()


class Failing(Handler):
    """What is due fails a few times, and is over then."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.left = failures

    def next_deadline(self) -> float | None:
        return 0.0 if self.left else None

    def is_idle(self) -> bool:
        return not self.left

    def tick(self, now: float) -> None:
        if self.left:
            self.left -= 1
            raise OSError("nobody can say why")


def test_a_failure_of_what_is_due_does_not_end_the_server() -> None:
    told: list[str] = []
    server = AgentServer(0.2, report=told.append, fabric=f"test_failing_{os.getpid()}")
    begun = time.monotonic()
    server.run(Failing(3))  # type: ignore[arg-type]
    server.close()
    assert server.failures == 3
    assert all("nobody can say why" in each for each in told)
    assert time.monotonic() - begun > 0.3  # it waits before it tries again, twice, and at the end
