# SPDX-License-Identifier: Apache-2.0
"""The agent's life: who starts it, what it survives, what survives it, and when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent.conftest import Start, described, listening, wait_until
from tests.roce.networks import Host
from tests.support import verbena_command
from verbena.agent.running import PATIENCE

pytestmark = pytest.mark.debian


def connects(start: Start, port: int = 7174) -> None:
    client = start("rping", "-c", "-a", "127.0.0.1", "-p", str(port), "-C", "2")
    output, _ = client.communicate(timeout=30)
    assert client.returncode == 0, output


def test_the_first_program_starts_it_and_it_ends_after_the_last(host: Host, start: Start) -> None:
    assert described(host) is None
    server = start("rping", "-s", "-a", "127.0.0.1", "-C", "2")
    agent = listening(host)
    assert agent["listening"] == ["TCP 127.0.0.1:7174"]
    connects(start)
    assert server.wait(timeout=20) == 0
    begun = time.monotonic()
    wait_until(lambda: not Path(f"/proc/{agent['pid']}").exists(), PATIENCE + 20)
    assert time.monotonic() - begun > PATIENCE / 2
    assert described(host) is None


def test_it_is_nobody_s_child_and_holds_nothing_of_the_program(host: Host, start: Start) -> None:
    start("rping", "-s", "-a", "127.0.0.1")
    folder = Path(f"/proc/{listening(host)['pid']}")
    ends = [os.readlink(each) for each in (folder / "fd").iterdir()]
    assert [os.readlink(folder / "fd" / str(n)) for n in range(3)] == ["/dev/null"] * 3
    pipes = [each for each in ends if "pipe" in each]
    assert all(pipes.count(each) == 2 for each in pipes)  # both ends: they are its own
    assert os.readlink(folder / "cwd") == "/"
    assert "libverbena_paths" not in (folder / "maps").read_text()


def processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_idle_agent_uses_no_processor_time(host: Host, start: Start) -> None:
    start("rping", "-s", "-a", "127.0.0.1")
    pid = listening(host)["pid"]
    before = processor_ticks(pid)
    time.sleep(2)
    assert processor_ticks(pid) - before <= 1


def test_a_killed_program_gives_its_port_back(host: Host, start: Start) -> None:
    first = start("rping", "-s", "-a", "127.0.0.1")
    listening(host)
    os.killpg(first.pid, signal.SIGKILL)
    listening(host, count=0)
    second = start("rping", "-s", "-a", "127.0.0.1", "-C", "2")
    listening(host)
    connects(start)
    assert second.wait(timeout=20) == 0


def test_a_port_in_use_is_refused(host: Host, start: Start) -> None:
    start("rping", "-s", "-a", "127.0.0.1")
    listening(host)
    second = start("rping", "-s", "-a", "127.0.0.1")
    output, _ = second.communicate(timeout=30)
    assert second.returncode != 0
    assert "Address already in use" in output or "rdma_bind_addr" in output, output


def test_a_stopped_program_hinders_nobody(host: Host, start: Start) -> None:
    stopped = start("rping", "-s", "-a", "127.0.0.1", "-p", "7001")
    listening(host)
    os.killpg(stopped.pid, signal.SIGSTOP)
    server = start("rping", "-s", "-a", "127.0.0.1", "-C", "2")
    listening(host, count=2)
    connects(start)
    assert server.wait(timeout=20) == 0
    os.killpg(stopped.pid, signal.SIGCONT)


def test_programs_survive_its_death_and_the_next_starts_another(host: Host, start: Start) -> None:
    first = start("rping", "-s", "-a", "127.0.0.1")
    pid = listening(host)["pid"]
    os.kill(pid, signal.SIGKILL)
    output, _ = first.communicate(timeout=20)  # it reads its events, and is told
    assert first.returncode in (0, 1, 255), output
    server = start("rping", "-s", "-a", "127.0.0.1", "-C", "2")
    assert listening(host)["pid"] != pid
    connects(start)
    assert server.wait(timeout=20) == 0


def test_a_listener_of_peers_hears_of_its_death_and_listens_again(host: Host) -> None:
    """As docs/peers.md says."""
    child = str(Path(__file__).with_name("listener_child.py"))
    before, ended, after, again = host.run(sys.executable, child).splitlines()
    assert [before, after, again] == ["before", "after", "again"]
    assert ended.startswith("ended: the agent, which manages connections, has ended")


def test_a_second_agent_names_the_first(host: Host, start: Start) -> None:
    start("rping", "-s", "-a", "127.0.0.1")
    pid = listening(host)["pid"]
    done = subprocess.run(
        host.command(*verbena_command("agent")), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert f"an agent is running already, process {pid}" in done.stderr


def test_without_an_interpreter_the_program_is_told(host: Host, start: Start) -> None:
    client = start("rping", "-c", "-a", "127.0.0.1", env={"VERBENA_AGENT": "/nowhere/python"})
    output, _ = client.communicate(timeout=40)
    assert client.returncode != 0
    assert "no connection to the agent" in output
    assert "did not start in time" in output


def test_info_shows_it(host: Host, start: Start) -> None:
    info = verbena_command("info")
    assert "The agent, which manages connections for librdmacm: none runs" in host.run(*info)
    server = start("rping", "-s", "-a", "127.0.0.1")
    pid = listening(host)["pid"]
    shown = host.run(*info)
    assert f"process      {pid}" in shown
    assert "TCP 127.0.0.1:7174" in shown
    found = json.loads(host.run(*info, "--json"))["agent"]
    assert found["pid"] == pid
    assert len(found["programs"]) == 1
    assert server.poll() is None


def test_an_address_that_comes_later(host: Host, start: Start) -> None:
    server = start("rping", "-s", "-a", "0.0.0.0", "-C", "2")
    listening(host)
    host.run("ip", "addr", "add", "10.9.9.9/32", "dev", "lo")
    client = start("rping", "-c", "-a", "10.9.9.9", "-C", "2")
    output, _ = client.communicate(timeout=30)
    assert client.returncode == 0, output
    assert server.wait(timeout=20) == 0
