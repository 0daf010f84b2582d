# SPDX-License-Identifier: Apache-2.0
"""A fabric whose process gets messages, commands and MADs at random refuses and counts them, and
goes on for everybody else.
"""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent import fuzzing as agent_fuzzing
from tests.subnet_process import fuzzing
from tests.subnet_process.live import Live, Program, connect
from tests.subnet_process.scribbling import COUNTS, Scribbler
from tests.subnet_process.support import RunningFabric, running_fabric
from verbena.agent.client import describe_agent
from verbena.agent.messages import Role as AgentRole
from verbena.agent.messages import welcomed
from verbena.fabrics import clos2
from verbena.subnet_process.messages import Hello, Role

SEEDS, STEPS = 6, 250


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[RunningFabric]:
    with running_fabric("clos2:4", tmp_path) as made:
        yield made


def state(fabric: RunningFabric) -> dict[str, object]:
    found = fabric.control(do="status")
    assert found["failures"] == 0, fabric.log.read_text()
    return found


def test_messages_at_random(fabric: RunningFabric) -> None:
    """Two QPs write to each other while it lasts, and a third program has the device open."""
    ends = [Program(fabric.name, host) for host in ("h1", "h6")]
    for end in ends:
        end.run("open_qp()")
    connect(*ends)
    address, rkey = ends[1].run("result = [mr.addr, mr.rkey]")
    write = f"qp.write(mr, {address}, {rkey}, 0, 1000); result = done()"
    device, _ = agent_fuzzing.say_hello(AgentRole.DEVICE, fabric.name, b"at h2")
    for path in fuzzing.corpus():
        fuzzing.replay(path, fabric.name, "h3")
        state(fabric)
    for seed in range(SEEDS):
        fuzzing.run(seed, STEPS, fabric.name, "h3")
        assert ends[0].run(write) == ["SUCCESS"]
        state(fabric)
    found = state(fabric)
    assert int(str(found["refused"])) > 100
    assert found["ports"] == {"ACTIVE": 32}
    assert found["pid"] == fabric.process.pid
    manager = describe_agent(fabric.name)
    assert manager is not None
    assert os.getpid() in manager["hosts"]["h2"]["programs"]
    device.close()
    assert [end.end() for end in ends] == ["", ""]


def test_mads_that_change_settings(fabric: RunningFabric) -> None:
    """Ports and tables are anything after that, but the process answers."""
    for seed in range(100, 100 + SEEDS):
        fuzzing.run(seed, STEPS, fabric.name, "h3", sets=True)
        state(fabric)


def test_a_fabric_without_a_subnet_manager(tmp_path: Path) -> None:
    with running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric:
        for seed in range(200, 200 + SEEDS):
            fuzzing.run(seed, STEPS, fabric.name, "h3", sets=True)
            state(fabric)


def test_a_device_keeps_its_place(fabric: RunningFabric) -> None:
    """Calls of the first one came to a second one of the same inode."""
    first = fuzzing.Fuzzer(1, fabric.name, "h3")
    same = Hello(Role.UMAD, "h3", 1, first._inode).pack()
    refused = fuzzing.greet(fabric.name, same)
    assert refused is not None
    assert refused.error == errno.EEXIST
    first.close()


def test_a_host_that_is_not_there_has_no_connection_manager(fabric: RunningFabric) -> None:
    with agent_fuzzing.connect(fabric.name) as sock:
        sock.send(agent_fuzzing.hello(AgentRole.DEVICE, 5, b"at nowhere"))
        assert welcomed(sock.recv(64)) == errno.ENODEV
    assert describe_agent(fabric.name) is not None
    state(fabric)


def test_what_a_program_writes_over_its_counts() -> None:
    """The counters of ports never go back, whatever is in the page."""
    live = Live(clos2(4))
    try:
        ends = [Program(live.name, host) for host in ("h1", "h6")]
        for end in ends:
            end.run("open_qp()")
        connect(*ends)
        address, rkey = ends[1].run("result = [mr.addr, mr.rkey]")
        write = f"qp.write(mr, {address}, {rkey}, 0, 1000); result = done()"
        assert ends[0].run(write) == ["SUCCESS"]
        before = live.counts("h1")
        page = live.made.page
        assert page is not None

        def scribble() -> None:
            for slot in page._flows:
                at = page._flows_at + slot * 448 + 16
                page.fold()
                page._page[at : at + 168] = bytes(168)
                page.fold()

        live.do(scribble)
        after = live.counts("h1")
        assert before["xmit_packets"]
        assert all(after[name] >= count for name, count in before.items())
        for end in ends:
            end.end()
    finally:
        live.end()


@pytest.mark.parametrize("value", [1 << 32, 1 << 55, 1 << 57, (1 << 64) - 1])
def test_counts_of_any_size_take_no_time(value: int) -> None:
    """A draw for each of 2**32 losses ended the process; what nobody can have sent is refused."""
    live = Live(clos2(4))
    try:

        def lose() -> None:
            for port in (live.port("h3"), live.beside("h3"), live.beside("h1")):
                port.loss = 0.01
            live.subnet.routing_changed()

        live.do(lose)
        refused = live.do(lambda: live.server.refused)
        with fuzzing.connect(live.name) as sock:
            program = Scribbler(sock, "h3", random.Random(1))
            ways = ((live.lid("h1"), 2), (live.lid("h1"), 4), (0xC000, 4))
            for lid, kind in ways:
                program.ask(fuzzing.CALL.pack(1, 5, 0, 1, lid, 0, 0, 0, kind, 0, bytes(16), 1, 2))
            for at in program.flows:
                for number in range(COUNTS):
                    program.write_count(at, number, value)
            begun = time.monotonic()
            counts = live.counts("h3")
            assert time.monotonic() - begun < 5
            program.close()
        is_possible = value < 1 << 56
        assert (counts["xmit_packets"] >= value) == is_possible
        assert (live.do(lambda: live.server.refused) == refused) == is_possible
    finally:
        live.end()


def test_no_program_changes_the_size_of_the_page(fabric: RunningFabric) -> None:
    """The process would end by SIGBUS when it next writes there."""
    with fuzzing.connect(fabric.name) as sock:
        program = Scribbler(sock, "h3", random.Random(1))
        for size in (0, 4096, 1 << 40):
            with pytest.raises(PermissionError):
                os.ftruncate(program.fd, size)
        program.close()
    state(fabric)


def test_a_question_for_a_port_that_is_not_there_takes_no_flow() -> None:
    """So that nobody is left without flows."""
    live = Live(clos2(4))
    try:
        page = live.made.page
        assert page is not None
        live.do(lambda: setattr(page, "_free", iter(range(1))))
        sock = fuzzing.connect(live.name)
        sock.send(Hello(Role.PAGE, "h3").pack())
        sock.recv(1 << 16)
        flows = []
        for port in (9, 9, 9, 1):
            asked = fuzzing.CALL.pack(1, 5, 0, port, 1, 0, 0, 0, 2, 0, bytes(16), 1, 2)
            sock.send(asked)
            flows.append(int.from_bytes(sock.recv(64)[8:16], sys.byteorder))
        assert flows[:3] == [0, 0, 0]
        assert flows[3]
        sock.close()
    finally:
        live.end()
