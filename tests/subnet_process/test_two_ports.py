# SPDX-License-Identifier: Apache-2.0
"""An adapter with two ports in a live fabric: each has its LID, its state, its data and its
connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.subnet_process.live import Live, Program
from verbena.fabrics import ibnetdiscover

TOPOLOGY = """
Switch 4 "S-1"
[2] "H-2"[1]
[1] "H-1"[1]
[4] "S-2"[4]

Switch 4 "S-2"
[1] "H-1"[2]
[2] "H-3"[1]
[4] "S-1"[4]

Ca 1 "H-2"
[1] "S-1"[2]

Ca 2 "H-1"
[1] "S-1"[1]
[2] "S-2"[1]

Ca 1 "H-3"
[1] "S-2"[2]
"""
Start = Callable[[str], Program]


@pytest.fixture
def live() -> Iterator[Live]:
    made = Live(ibnetdiscover.read(TOPOLOGY))
    yield made
    made.end()


@pytest.fixture
def start(live: Live) -> Iterator[Start]:
    started: list[Program] = []

    def begin(host: str) -> Program:
        started.append(Program(live.name, host))
        return started[-1]

    yield begin
    for program in started:
        program.kill()


def test_both_ports_are_shown(live: Live, start: Start) -> None:
    program = start("H-1")
    shown = program.run(
        "context = verbs.open_device('verbena0')\n"
        "result = [[context.query_port(n).lid, context.query_port(n).state.name,"
        " bytes(context.query_gid(n, 0))[8:].hex()] for n in (1, 2)]"
    )
    ports = [live.port("H-1", number) for number in (1, 2)]
    assert ports[0].lid != ports[1].lid
    assert shown == [[port.lid, "ACTIVE", f"{port.guid:016x}"] for port in ports]


@pytest.mark.parametrize(("number", "other"), [(1, "H-2"), (2, "H-3"), (2, "H-2")])
def test_data_leave_by_the_port_of_the_queue_pair(
    live: Live, start: Start, number: int, other: str
) -> None:
    one, two = start("H-1"), start(other)
    one.run(f"open_qp(port={number})")
    two.run("open_qp()")
    mine, theirs = (each.run("result = qp.qp_num") for each in (one, two))
    before = live.counts("H-1", 1), live.counts("H-1", 2)
    one.run(f"connect({theirs}, {live.lid(other)}, port={number})")
    two.run(f"connect({mine}, {live.port('H-1', number).lid})")
    two.run("qp.recv(mr)")
    one.run("qp.send(mr, 0, 64)")
    assert one.run("result = done()") == ["SUCCESS"]
    assert two.run("result = done()") == ["SUCCESS"]
    after = live.counts("H-1", 1), live.counts("H-1", 2)
    sent = [
        now["xmit_packets"] - then.get("xmit_packets", 0)
        for then, now in zip(before, after, strict=True)
    ]
    assert sent == [int(number == 1), int(number == 2)]


def test_a_port_fails_alone(live: Live, start: Start) -> None:
    program = start("H-1")
    program.run("context = verbs.open_device('verbena0')")
    live.do(lambda: live.subnet.cut("H-1", 2))
    found = program.run(
        "event = context.get_async_event(10)\nresult = [event.event_type.name, event.port_num,"
        " context.query_port(1).state.name, context.query_port(2).state.name]"
    )
    assert found == ["PORT_ERR", 2, "ACTIVE", "DOWN"]


def test_connections_at_both_ports(live: Live, start: Start) -> None:
    """The first port has 10.0.0.2, and the second one 10.0.0.3; the manager is at H-2."""
    server = start("H-1")
    server.run("from verbena.cm import sync; listener = sync.listen(7174); result = 0")
    for host, address, number in (("H-2", "10.0.0.2", 1), ("H-3", "10.0.0.3", 2)):
        client = start(host)
        server.begin("conn = listener.get_request(20).accept(); result = conn.qp.qp_num")
        client.run(
            f"from verbena.cm import sync\nconn = sync.connect({address!r}, 7174, timeout=10)"
        )
        assert server.result()
        text = "result = conn.qp.query().port_num"
        assert server.run(text) == number
        client.run("conn.close()")
    live.do(lambda: live.subnet.cut("H-1", 1))
    client = start("H-3")
    server.begin("conn = listener.get_request(20).accept(); result = conn.qp.qp_num")
    client.run("from verbena.cm import sync\nconn = sync.connect('10.0.0.3', 7174, timeout=10)")
    assert server.result()
