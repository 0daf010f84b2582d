# SPDX-License-Identifier: Apache-2.0
"""What a program sees when the agent has ended or is stopped, and when its own calls are wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent.conftest import Start, described, listening, wait_until
from tests.roce.networks import Host
from tests.support import clean_environment, verbena_command

pytestmark = pytest.mark.debian

CHILD = Path(__file__).with_name("librdmacm_child.py")
DEVICE_REMOVAL = 11


@pytest.fixture
def child(host: Host, start: Start) -> Start:
    """child(what): the program does it."""

    def run(what: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        return start(sys.executable, str(CHILD), what, env=env)

    return run


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for each in process.stdout:
        if each.strip() == line:
            return
    raise AssertionError(f"no {line!r}")


def kill_agent(host: Host) -> int:
    agent = described(host)
    assert agent is not None
    os.kill(agent["pid"], signal.SIGKILL)
    return int(agent["pid"])


def test_its_death_removes_the_device_of_each_identifier(host: Host, child: Start) -> None:
    host.run("ip", "addr", "add", "192.0.2.50/32", "dev", "lo")  # 127.0.0.1 is no device's
    program = child("removal")
    read_until(program, "ready")
    killed = kill_agent(host)
    output, _ = program.communicate(timeout=30)
    lines = output.splitlines()
    events = [line for line in lines if line.startswith("event ")]
    removed = [f"event {DEVICE_REMOVAL} 0 {number}" for number in (0, 1)]
    assert sorted(events) == [*sorted(removed), "event EIO"], output
    assert "rdma_listen EIO" in lines
    assert lines.count("rdma_destroy_id 0") == 3
    assert lines[-1] == "rdma_bind_addr 0"  # by another agent
    assert output.count("the agent, which manages connections, has ended") == 1
    agent = described(host)
    assert agent is not None
    assert agent["pid"] != killed


def connected_perftest(
    host: Host, start: Start, both: list[str]
) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """Its server and client, which transfer. It listens twice, and a client that comes in between
    is refused, for its first or for its second connection."""
    for _ in range(5):
        server = start(*both)
        wait_until(lambda: "7201" in str((described(host) or {}).get("listening")))
        time.sleep(0.5)
        client = start(*both, "127.0.0.1")
        wait_until(
            lambda each=client: (
                (described(host) or {}).get("connections") == 2 or each.poll() is not None
            )
        )
        time.sleep(1)
        if client.poll() is None:
            return server, client
        server.kill()
        server.communicate()
    raise AssertionError(client.communicate()[0])


def test_data_go_on_after_its_death(host: Host, start: Start) -> None:
    both = ["ib_write_bw", "-F", "-R", "-D", "5", "-p", "7201"]
    server, client = connected_perftest(host, start, both)
    kill_agent(host)
    output, _ = client.communicate(timeout=30)
    assert re.search(r"^ *65536 +[1-9]\d+ ", output, re.MULTILINE), output
    server.wait(timeout=20)


def test_a_forked_child_uses_its_parent_s_identifier(child: Start) -> None:
    output, _ = child("forked").communicate(timeout=30)
    assert output.splitlines()[-2:] == ["rdma_bind_addr 0", "rdma_listen 0"], output


def test_a_call_to_a_stopped_agent_says_for_whom_it_waits(host: Host) -> None:
    program = subprocess.Popen(
        host.command(*verbena_command("run", "--", sys.executable, str(CHILD), "stopped")),
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    read_until(program, "ready")
    agent = described(host)
    assert agent is not None
    os.kill(agent["pid"], signal.SIGSTOP)
    assert program.stdin is not None
    assert program.stdout is not None
    begun = time.monotonic()
    program.stdin.write("\n")
    program.stdin.flush()
    said = program.stdout.readline()
    assert 1 < time.monotonic() - begun < 10
    assert f"waits for the agent, process {agent['pid']}" in said
    os.kill(agent["pid"], signal.SIGCONT)
    output, _ = program.communicate(timeout=20)
    assert output.splitlines() == ["rdma_create_id 0"]


CONNECT = """
from verbena import cm
from verbena.cm import sync
try:
    sync.connect("127.0.0.1", 7174, timeout=1.5)
except cm.ManagerAbsent as error:
    print(error)
"""


def test_a_stopped_agent_keeps_verbena_cm_no_longer_than_its_timeout(
    host: Host, start: Start
) -> None:
    start("rping", "-s", "-a", "127.0.0.1")
    agent = listening(host)["pid"]
    os.kill(agent, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        output, _ = start(sys.executable, "-c", CONNECT).communicate(timeout=30)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert f"the agent, process {agent}, is stopped: `kill -CONT {agent}`" in output, output
    assert 1.5 <= time.monotonic() - begun < 8


def test_pointers_that_lead_nowhere(child: Start) -> None:
    program = child("pointers")
    output, _ = program.communicate(timeout=30)
    assert program.returncode == 0, output
    assert output.splitlines() == [
        "create 32",
        "command EFAULT",
        "answer EFAULT",
        "option EFAULT",
        "query EFAULT",
    ]


def test_the_log_says_why_a_call_was_refused(child: Start) -> None:
    output, _ = child("refused", env={"VERBENA_LOG": "errors"}).communicate(timeout=30)
    assert "rdma_bind_addr failed: EADDRNOTAVAIL; " in output, output
    assert "No interface has the address; use an address of this host." in output
    assert "rdma_resolve_addr failed: ENETUNREACH; 240.0.0.1:7: No route leads to the" in output
    silent, _ = child("refused").communicate(timeout=30)
    assert "verbena:" not in silent


def test_the_agent_s_log_names_a_program_once(host: Host, start: Start) -> None:
    agent = subprocess.Popen(
        host.command(*verbena_command("agent")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: described(host))
    server = start("rping", "-s", "-a", "127.0.0.1", "-C", "1")
    listening(host)
    client = start("rping", "-c", "-a", "127.0.0.1", "-C", "1", env={"VERBENA_LOG": "errors"})
    output, _ = client.communicate(timeout=30)
    assert "ece" not in output  # librdmacm can do without
    assert server.wait(timeout=20) == 0
    assert agent.stdout is not None
    said = ""
    while said.count("has closed the connection manager") < 2 and (line := agent.stdout.readline()):
        said += line
    agent.send_signal(signal.SIGINT)
    said += agent.stdout.read()
    assert agent.wait(timeout=20) is not None
    assert said.count("has opened the connection manager") == 2, said
    assert said.count("has closed the connection manager") == 2, said


def test_messages_to_its_own_queue_pair_do_no_harm(host: Host) -> None:
    said = host.run(sys.executable, str(CHILD.with_name("general_qp_child.py")))
    assert said.splitlines() == ["sent 0"]
