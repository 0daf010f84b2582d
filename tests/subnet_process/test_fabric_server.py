# SPDX-License-Identifier: Apache-2.0
"""The process of a fabric in this one: its server, with a clock that the tests set."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from verbena import fabrics
from verbena.manage.errors import MadError
from verbena.subnet_process import client
from verbena.subnet_process.messages import Hello, Role, Welcome, fabric_address
from verbena.subnet_process.running import LiveFabric, make_fabric
from verbena.subnet_process.server import FabricConnection, FabricServer

REGISTER = 0xC01C1B01
HEADER, MAD = 56, 256


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Program:
    """A program's end of a connection."""

    def __init__(self, live: LiveFabric, hello: Hello) -> None:
        self.live = live
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(fabric_address(os.geteuid(), live.server.name))
        inode = hello.inode or os.fstat(self.sock.fileno()).st_ino
        self.inode = inode
        raw = Hello(hello.role, hello.host, hello.number, inode, hello.data, hello.version).pack()
        self.sock.send(raw)
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.live.server.serve_once(0)

    def receive(self) -> bytes | None:
        try:
            return self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def welcome(self) -> Welcome:
        raw = self.receive()
        assert raw is not None
        found = Welcome.parse(raw)
        assert found is not None
        return found

    def close(self) -> None:
        self.sock.close()
        self.turn()


class Umad(Program):
    def __init__(self, live: LiveFabric, host: str) -> None:
        super().__init__(live, Hello(Role.UMAD, host, 1))
        assert self.welcome().error == 0

    def call(self, request: int, argument: bytes) -> Welcome:
        data = struct.pack("=I", request) + argument
        asked = Program(self.live, Hello(Role.CALL, "", 0, self.inode, data))
        return asked.welcome()

    def register(
        self, mgmt_class: int, version: int = 1, methods: int = 0, qp: int = 1, rmpp: int = 0
    ) -> int:
        argument = struct.pack("=I4IBBB3sBx", 0, methods, 0, 0, 0, qp, mgmt_class, version,
                               b"\0\0\0", rmpp)  # fmt: skip
        answer = self.call(REGISTER, argument)
        assert answer.error == 0
        return int(struct.unpack_from("=I", answer.data)[0])

    def write(self, agent: int, mad: bytes, timeout: int, retries: int, lid: int, qp: int) -> None:
        head = struct.pack("=5I", agent, 0, timeout, retries, MAD)
        head += struct.pack(">IIH", qp, 0x80010000 if qp else 0, lid)
        self.sock.send(head.ljust(HEADER, b"\0") + mad)
        self.turn()


def a_mad(mgmt_class: int, method: int, transaction: int) -> bytes:
    return bytes((1, mgmt_class, 1, method, 0, 0, 0, 0)) + transaction.to_bytes(8, "big").ljust(
        MAD - 8, b"\0"
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(clock: Clock) -> Iterator[LiveFabric]:
    made = make_fabric(fabrics.clos2(4), f"unit{os.getpid()}", sm_host="h0", clock=clock)
    yield made
    assert made.server.failures == 0
    made.server.close()


def test_a_request_is_repeated_and_given_back_in_time(live: LiveFabric, clock: Clock) -> None:
    """To a LID that nobody has. What the last time-out leaves is in the receiver's queue."""
    umad = Umad(live, "h3")
    agent = umad.register(0x04)
    drops = live.live.subnet.all_drops
    umad.write(agent, a_mad(0x04, 1, 5), timeout=100, retries=2, lid=999, qp=1)
    assert sum(drops().values()) == 1
    for sent in (2, 3):
        assert umad.receive() is None
        assert live.live.next_deadline() == pytest.approx(clock.now + 0.1)
        clock.now += 0.1001
        umad.turn()
        assert sum(drops().values()) == sent
    clock.now += 0.1001
    umad.turn()
    back = umad.receive()
    assert back is not None
    assert struct.unpack_from("=5I", back) == (agent, errno.ETIMEDOUT, 100, 2, 24)
    assert len(back) == HEADER + 24
    assert umad.receive() is None


def test_responses_that_were_not_asked_for_are_lost(live: LiveFabric) -> None:
    """Without a time-out no response is expected."""
    umad = Umad(live, "h3")
    agent = umad.register(0x04)
    umad.write(agent, a_mad(0x04, 1, 5), timeout=0, retries=0, lid=1, qp=1)
    assert umad.receive() is None
    umad.write(agent, a_mad(0x04, 1, 6), timeout=100, retries=0, lid=1, qp=1)
    answer = umad.receive()
    assert answer is not None
    assert answer[HEADER + 3] == 0x81


def test_requests_go_to_the_agent_of_their_class_and_method(live: LiveFabric) -> None:
    asking, serving = Umad(live, "h3"), Umad(live, "h5")
    other = Umad(live, "h5")
    agent = asking.register(0x0A, methods=0)
    owner = serving.register(0x0A, methods=1 << 1)
    other.register(0x0A, methods=1 << 2)
    lid = live.live.subnet.node("h5").ports[1].lid
    asking.write(agent, a_mad(0x0A, 1, 7), timeout=100, retries=0, lid=lid, qp=1)
    request = serving.receive()
    assert request is not None
    assert other.receive() is None
    slid = int.from_bytes(request[28:30], "big")
    assert slid == live.live.subnet.node("h3").ports[1].lid
    answer = bytearray(request[HEADER:])
    answer[3] = 0x81
    serving.write(owner, bytes(answer), timeout=0, retries=0, lid=slid, qp=1)
    response = asking.receive()
    assert response is not None
    assert response[HEADER + 3] == 0x81
    assert response[HEADER + 12 : HEADER + 16] == (7).to_bytes(4, "big")


def test_a_full_socket_keeps_the_order(live: LiveFabric) -> None:
    """A program that does not read gets everything when it does, but the most that Linux keeps."""
    umad = Umad(live, "h3")
    agent = umad.register(0x04)
    many = 2000
    for number in range(many):
        umad.write(agent, a_mad(0x04, 1, number), timeout=5000, retries=0, lid=1, qp=1)
    found = []
    for _ in range(many):
        raw = umad.receive()
        if raw is None:
            umad.turn()
            raw = umad.receive()
        assert raw is not None
        found.append(int.from_bytes(raw[HEADER + 12 : HEADER + 16], "big"))
    assert found == list(range(many))


def test_the_packets_of_a_long_message_are_counted(live: LiveFabric) -> None:
    """All NodeRecords in one message: 14 nodes of 112 bytes are 8 packets with 200 bytes each."""
    umad = Umad(live, "h3")
    agent = umad.register(0x03, 2, rmpp=1)
    ports = [live.live.subnet.node(host).ports[1] for host in ("h0", "h3")]
    live.live.subnet.read_counters()
    before = [dict(port.tally) for port in ports]
    request = bytearray(a_mad(0x03, 0x12, 9))
    request[2], request[17] = 2, 0x11
    umad.write(agent, bytes(request), timeout=1000, retries=0, lid=ports[0].lid, qp=1)
    live.live.subnet.read_counters()
    assert ports[0].tally["xmit_packets"] - before[0].get("xmit_packets", 0) == 8
    assert ports[1].tally["rcv_packets"] - before[1].get("rcv_packets", 0) == 8
    assert umad.receive() == b"\0"
    raw, fds, _, _ = socket.recv_fds(umad.sock, 1000, 1)
    assert len(raw) == HEADER + MAD
    assert os.fstat(fds[0]).st_size == HEADER + 56 + 14 * 112
    os.close(fds[0])


def test_a_closed_device_leaves_nothing(live: LiveFabric, clock: Clock) -> None:
    agents = len(live.live.agents)
    umad = Umad(live, "h3")
    agent = umad.register(0x04, methods=0)
    umad.write(agent, a_mad(0x04, 1, 5), timeout=100, retries=9, lid=999, qp=1)
    assert len(live.live.agents) == agents + 1
    umad.close()
    assert len(live.live.agents) == agents
    clock.now += 1
    live.server.serve_once(0)
    drops = sum(live.live.subnet.all_drops().values())
    clock.now += 1
    live.server.serve_once(0)
    assert sum(live.live.subnet.all_drops().values()) == drops


@pytest.mark.parametrize(
    ("hello", "error", "words"),
    [
        (Hello(Role.UMAD, "h99", 1), errno.ENODEV, "no host 'h99', as h"),
        (Hello(Role.UMAD, "e0", 1), errno.ENODEV, "e0 is a switch; programs run on hosts"),
        (Hello(Role.UMAD, "h1", 2), errno.ENODEV, "h1 has no port 2"),
        (Hello(Role.TREE, "h99"), errno.ENODEV, "no host"),
        (Hello(Role.FILE, "h1", data=b"/sys/nothing"), errno.ENOENT, ""),
        (Hello(Role.CONTROL, data=b"{"), errno.EINVAL, "does not know the request"),
        (Hello(Role.CONTROL, data=b'{"do": "cut", "link": "h1"}'), errno.EINVAL, "h1 is a node"),
        (Hello(Role.CONTROL, data=b'{"do": "cut", "link": "x-y"}'), errno.EINVAL, "is no link"),
        (Hello(Role.UMAD, "h1", 1, version=7), errno.EPROTONOSUPPORT, "another version"),
        (Hello(77), errno.EINVAL, ""),
    ],
)
def test_refusals_say_what_to_do(live: LiveFabric, hello: Hello, error: int, words: str) -> None:
    found = Program(live, hello).welcome()
    assert found.error == error
    assert words in found.data.decode()


def test_what_is_no_hello_is_refused(live: LiveFabric) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(fabric_address(os.geteuid(), live.server.name))
        sock.send(b"hello")
        for _ in range(3):
            live.server.serve_once(0)
        found = Welcome.parse(sock.recv(1000))
    assert found is not None
    assert found.error == errno.EPROTO


def test_links(live: LiveFabric, clock: Clock) -> None:
    def ask(**request: str) -> Welcome:
        return Program(live, Hello(Role.CONTROL, data=json.dumps(request).encode())).welcome()

    assert b"e0:3 and a0:1" in ask(do="cut", link="e0-a0").data
    assert "is cut already" in ask(do="cut", link="e0:3").data.decode()
    status = json.loads(ask(do="status").data)
    assert status["ports"]["DOWN"] == 2
    assert status["cut"] == ["a0:1"]
    assert ask(do="restore", link="a0-e0").error == 0
    clock.now += 2  # a switch sends its next trap when the time-out of the last one has passed
    live.server.serve_once(0)
    assert json.loads(ask(do="status").data)["ports"] == {"ACTIVE": 32}
    assert "no cable joins" in ask(do="cut", link="h0-h1").data.decode()


def test_a_name_is_used_once(live: LiveFabric) -> None:
    with pytest.raises(OSError) as refused:
        make_fabric(fabrics.pair(), live.server.name)
    assert refused.value.errno == errno.EADDRINUSE
    assert live.server.name in client.running_fabrics()
    with pytest.raises(client.FabricMissing, match="verbena fabric TOPOLOGY --name none"):
        client.the_fabric("none")


def test_a_manager_at_a_node_that_is_not_there() -> None:
    name = f"gone{os.getpid()}"
    with pytest.raises(MadError, match="there is no node 'h9'"):
        make_fabric(fabrics.pair(), name, sm_host="h9")
    assert name not in client.running_fabrics()


def test_a_manager_may_be_at_a_switch() -> None:
    made = make_fabric(fabrics.clos2(4), f"switch{os.getpid()}", sm_host="e1")
    assert made.manager is not None
    assert made.manager.is_up
    assert {
        port.state for node in made.live.subnet.nodes.values() for port in node.end_ports()
    } == {4}
    made.server.close()


def test_a_handler_that_fails_ends_nothing() -> None:
    server = FabricServer(f"fails{os.getpid()}")
    said: list[str] = []
    server.report = said.append

    def fail(connection: FabricConnection) -> Welcome:
        raise ZeroDivisionError

    server.add_role(5, fail)
    live = LiveFabric(server, None, None)  # type: ignore[arg-type]
    assert Program(live, Hello(5)).welcome().error == errno.EIO
    assert server.failures == 1
    assert "ZeroDivisionError" in said[0]
    server.close()


def test_a_socket_that_is_closed_in_a_round_is_not_called_in_it(live: LiveFabric) -> None:
    """Nor is one that has got its number since."""
    server, called = live.server, []
    pairs = [socket.socketpair() for _ in range(2)]
    later: list[socket.socket] = []

    def close_other(other: socket.socket) -> None:
        called.append("first")
        server.forget(other)
        other.close()
        later.extend(socket.socketpair())
        server.watch(later[0], lambda: called.append("new"))

    ends = [pair[0] for pair in pairs]
    for end, other in (ends, ends[::-1]):
        server.watch(end, lambda other=other: close_other(other))  # type: ignore[misc]
    for pair in pairs:
        pair[1].send(b"x")
    server.serve_once(0)
    assert called == ["first"]
    for sock in (*later, *(sock for pair in pairs for sock in pair)):
        if sock.fileno() >= 0:
            server.forget(sock)
            sock.close()


class Waits:
    """What the server waits with, and its clock: both write down what it does."""

    def __init__(self, server: FabricServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.poll_of, self.now = server, server._poll, 0.0
        self.waits: list[float | None] = []
        monkeypatch.setattr(server, "_poll", self)
        monkeypatch.setattr(server, "_sleeps_until", 0.0)  # also on one processor
        monkeypatch.setattr("verbena.subnet_process.server.time.perf_counter", self.perf_counter)

    def perf_counter(self) -> float:
        self.now += 1e-6
        return self.now

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        self.waits.append(timeout)
        self.now += timeout or 0
        return self.poll_of.poll(0)

    def of_round(self) -> list[float | None]:
        self.waits.clear()
        self.server.serve_once(0.001)
        return list(self.waits)


def test_the_server_looks_for_the_next_message_before_it_sleeps(
    live: LiveFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one has come a moment ago, and no other thread wants the processor."""
    umad = Umad(live, "h3")
    live.server.serve_once(0)
    waits = Waits(live.server, monkeypatch)

    def others_run() -> None:
        waits.now += 0.001

    def write() -> None:
        umad.sock.send(b"x")
        live.server.serve_once(0)

    assert waits.of_round() == [0.001]
    write()
    looked = waits.of_round()
    assert looked[-1] == 0.001
    assert set(looked[:-1]) == {0}
    assert waits.of_round() == [0.001]
    monkeypatch.setattr("os.sched_yield", others_run)
    write()
    fewer = waits.of_round()
    assert 1 < len(fewer) < len(looked)
    write()
    assert waits.of_round() == [0.001]
    waits.now += 1
    write()
    assert len(waits.of_round()) > 1


def test_a_duty_that_fails_keeps_no_other_from_its_own(live: LiveFabric) -> None:
    class Failing:
        def next_deadline(self) -> float | None:
            return None

        def tick(self, now: float) -> None:
            raise ValueError

    class Counting(Failing):
        ticks = 0

        def tick(self, now: float) -> None:
            self.ticks += 1

    counting = Counting()
    for duty in (Failing(), counting):
        live.server.add_duty(duty)
    live.server.serve_once(0)
    assert (counting.ticks, live.server.failures) == (1, 1)
    live.server.failures = 0  # the fixture wants none
