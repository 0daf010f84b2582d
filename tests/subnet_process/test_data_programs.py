# SPDX-License-Identifier: Apache-2.0
"""Debian's unmodified programs at hosts of a live fabric, and what they add to its counters."""

from __future__ import annotations

import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.subnet_process.live import Live, Program, connect
from tests.support import clean_environment, ends, verbena_command
from verbena import fabrics, launch
from verbena.subnet_process.built_in import BuiltInManager, settings_of

Start = Callable[..., "subprocess.Popen[str]"]
Find = Callable[[str], str]
PORT_SECONDS = 20


@pytest.fixture
def live() -> Iterator[Live]:
    made = Live(fabrics.dumbbell(2, 2))
    yield made
    made.end()


def at(live: Live, host: str) -> list[str]:
    return ["--fabric", live.name, "--host", host]


def listens(port: int) -> bool:
    tables = [Path(f"/proc/net/tcp{six}").read_text() for six in ("", "6")]
    sockets = [line.split() for text in tables for line in text.splitlines()]
    return any(each[1].endswith(f":{port:04X}") and each[3] == "0A" for each in sockets)


def pair(
    live: Live, start: Start, program: list[str], hosts: tuple[str, str], tcp: int, **how: object
) -> list[subprocess.Popen[str]]:
    """Start a program and its client, which meet by a TCP port."""
    words = [*program, "-p", str(tcp)]
    server = start(*words, options=at(live, hosts[0]), **how)
    until = time.monotonic() + PORT_SECONDS
    while not listens(tcp) and time.monotonic() < until:
        time.sleep(0.01)
    return [server, start(*words, "127.0.0.1", options=at(live, hosts[1]), **how)]


def finish(programs: list[subprocess.Popen[str]]) -> list[str]:
    try:
        outputs = [program.communicate(timeout=60)[0] for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert [program.returncode for program in programs] == [0] * len(programs), outputs
    return outputs


def test_ib_write_bw_is_counted(
    live: Live,
    verbena_start: Start,
    debian_program: Find,
    fast_clock: dict[str, str],
) -> None:
    program = [debian_program("ib_write_bw"), "-n", "1000", "-s", "10000", "-m", "2048"]
    before = live.counts("h3")
    finish(pair(live, verbena_start, program, ("h3", "h0"), 18611, env=fast_clock))
    after = live.counts("h3")
    packets = after["rcv_packets"] - before["rcv_packets"]
    words = after["rcv_data"] - before["rcv_data"]
    assert packets == 5 * 1000
    assert words == 1000 * (10000 // 4 + 4 + 5 * 6)
    assert after["xmit_packets"] - before["xmit_packets"] == 1000
    found = live.counts("h0")
    assert found["xmit_packets"] >= packets


def test_ib_write_bw_goes_on_after_a_cut(
    live: Live,
    verbena_start: Start,
    debian_program: Find,
    fast_clock: dict[str, str],
) -> None:
    program = [debian_program("ib_write_bw"), "-D", "2", "-s", "4096", "-u", "18"]
    programs = pair(live, verbena_start, program, ("h3", "h0"), 18612, env=fast_clock)
    while live.counts("h3").get("rcv_packets", 0) < 1000:
        time.sleep(0.01)
    over, _ = live.between("s0", "s1")
    live.do(lambda: live.subnet.cut("s0", over))
    time.sleep(0.2)
    still = live.counts("h3")["rcv_packets"]
    time.sleep(0.1)
    assert live.counts("h3")["rcv_packets"] == still
    assert live.counts("s0", live.beside("h0").number).get("rcv_packets", 0) > 0
    live.do(lambda: live.subnet.restore("s0", over))
    finish(programs)
    assert live.counts("h3")["rcv_packets"] > still


def test_pingpongs_on_one_host(live: Live, verbena_start: Start, debian_program: Find) -> None:
    program = [debian_program("ibv_rc_pingpong"), "-n", "100"]
    before = live.counts("h2")
    (out, _) = finish(pair(live, verbena_start, program, ("h2", "h2"), 18613))
    assert f"LID {live.lid('h2'):#06x}" in out
    assert live.counts("h2") == before  # a packet to the port's own LID does not leave it


def test_hundred_programs(live: Live, debian_program: Find) -> None:
    """They are started without `verbena run`, whose start takes longer than what they do."""

    def begin(*program: str, options: list[str], **_: object) -> subprocess.Popen[str]:
        environment = launch.environment(
            clean_environment(), fabric=options[1], host=options[3], ports=["infiniband"]
        )
        return subprocess.Popen(
            program,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    program = [debian_program("ibv_rc_pingpong"), "-n", "50", "-s", "256"]
    before = live.counts("h3").get("rcv_packets", 0)
    hosts = [("h3", ("h0", "h1", "h2")[i % 3]) for i in range(50)]
    programs = [
        each
        for i, ends_of in enumerate(hosts)
        for each in pair(live, begin, program, ends_of, 18700 + i)
    ]
    finish(programs)
    assert live.counts("h3")["rcv_packets"] - before == 50 * 50 * 2  # a message and an answer


def test_subnet_that_comes_up_under_programs() -> None:
    live = Live(fabrics.one_switch(2), managed=False)
    programs = [Program(live.name, host) for host in ("h0", "h1")]
    try:
        for program in programs:
            program.run("open_qp()")
            state = "port = context.query_port(1); result = [port.state.name, port.lid]"
            assert program.run(state) == ["INITIALIZING", 0] or program.run(state)[0] == "INIT"
        managers = []
        begin = BuiltInManager
        live.do(lambda: managers.append(begin(live.made.live, "h0", settings_of("minhop"))))
        live.do(lambda: live.server.add_duty(managers[0]))
        for program in programs:
            events = program.run("result = events(4)")
            assert {"PORT_ACTIVE", "LID_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER"} == set(events)
        one, other = programs
        connect(one, other)
        other.run("qp.recv(mr)")
        one.run("qp.send(mr, 0, 64)")
        assert one.run("result = done()") == ["SUCCESS"]
    finally:
        for program in programs:
            program.kill()
        live.end()


def test_capture_and_fault(live: Live, tmp_path: Path) -> None:
    """What goes direct is captured with its LIDs; a fault needs packets, so it does nothing."""
    file = tmp_path / "fabric.pcapng"
    one = Program(
        live.name,
        "h0",
        VERBENA_CAPTURE=str(file),
        VERBENA_CAPTURE_DIRECT="yes",
        VERBENA_FAULT="drop 50%",
    )
    other = Program(live.name, "h3")
    try:
        for program in (one, other):
            program.run("open_qp()")
        connect(one, other, timeout=8, retry_cnt=1)
        other.run("qp.recv(mr)")
        one.run("qp.send(mr, 0, 3000)")
        assert one.run("result = done()") == ["SUCCESS"]
        live.do(lambda: live.subnet.cut("h3", 1))
        one.run("qp.send(mr, 0, 64)")
        assert one.run("result = done()")[0].startswith("RETRY_EXC_ERR")
        assert "so VERBENA_FAULT has no effect" in one.end()
    finally:
        one.kill()
        other.kill()
    assert file.stat().st_size > 3000
    lids = struct.pack(">HH", live.lid("h3"), live.lid("h0"))
    assert lids[:2] in file.read_bytes()
    assert live.counts("h3")["rcv_packets"] >= 3


@pytest.fixture
def alone() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The name and the process of a fabric of its own."""
    name = f"alone-{time.monotonic_ns()}"
    process = subprocess.Popen(
        verbena_command("fabric", "one_switch:2", "--name", name), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    yield name, process
    process.kill()
    process.wait()


@pytest.mark.parametrize("log", ["errors", ""])
def test_killed_fabric(alone: tuple[str, subprocess.Popen[str]], log: str) -> None:
    name, process = alone
    program = Program(name, "h1", VERBENA_LOG=log)
    program.run("open_qp()")
    process.kill()
    assert ends(process.pid)
    assert program.run("result = events(1)") == ["PORT_ERR"]
    assert program.run("result = context.query_port(1).state.name") == "DOWN"
    program.run("qp.close(); context.close()")
    assert program.end().count("the process of the fabric has ended") == 1


def test_stopped_fabric(alone: tuple[str, subprocess.Popen[str]]) -> None:
    """What has a flow goes on, and what has none waits for its timers, and no longer."""
    name, process = alone
    one, other = Program(name, "h0"), Program(name, "h1")
    try:
        for program in (one, other):
            program.run("open_qp()")
        connect(one, other)
        other.run("for i in range(3): qp.recv(mr)")
        one.run("qp.send(mr, 0, 64)")
        assert one.run("result = done()") == ["SUCCESS"]
        process.send_signal(signal.SIGSTOP)
        one.run("qp.send(mr, 0, 64)")
        assert one.run("result = done()") == ["SUCCESS"]
        for program in (one, other):
            program.run("first = qp; open_qp()")
        connect(one, other, timeout=8, retry_cnt=1)
        one.run("qp.send(mr, 0, 64)")
        assert one.run("result = done()")[0].startswith("RETRY_EXC_ERR")
        process.send_signal(signal.SIGCONT)
        one.run("first.send(mr, 0, 64)")
        assert one.run("(wc,) = first.send_cq.wait(1, 10); result = wc.is_success")
    finally:
        process.send_signal(signal.SIGCONT)
        one.kill()
        other.kill()
