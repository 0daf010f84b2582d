# SPDX-License-Identifier: Apache-2.0
"""Debian's perftest, one of the two killed at work: the other ends, and nothing stays."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.programs.pairs import HOST, free_port, wait_listening

pytestmark = pytest.mark.debian
SURVIVES_AT_MOST = 2.5  # seconds: retry_cnt 7 at timeout 14 makes half a second, then TCP
AT_WORK = 0.4
Pair = tuple["subprocess.Popen[str]", "subprocess.Popen[str]"]
RUNS = [  # each would take 20 seconds or more
    "ib_write_bw -D 20",
    "ib_send_bw -D 20 --use-srq",
    "ib_send_bw -n 50000000 -e",
    "ib_read_bw -D 20",
    "ib_send_lat -D 20",
    "ib_send_bw -D 20 -c UD",
]


def slots(pid: int) -> set[str]:
    """The inodes of the process's sockets that have a name of Verbena's."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                own.add(target[len("socket:[") : -1])
    return own & named_sockets()


def named_sockets() -> set[str]:
    rows = Path("/proc/net/unix").read_text().splitlines()[1:]
    split = [row.split(maxsplit=7) for row in rows]
    return {row[6] for row in split if len(row) == 8 and row[7].startswith("@verbena/")}


def shared_files() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*verbena*")}


def start_pair(start: Start, program: str, folder: Path) -> Pair:
    """Server and client; ``folder`` is where they would put temporary files."""
    port = free_port()
    command = (*program.split(), "-x", "1", "-F", "-p", str(port))
    environment = {"TMPDIR": str(folder)}
    server = start(*command, env=environment)
    wait_listening(server, port)
    return server, start(*command, HOST, env=environment)


def wait_until_busy(process: subprocess.Popen[str]) -> set[str]:
    """Until it has the device open and has been at work for a moment; its sockets' inodes."""
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        if found := slots(process.pid):
            time.sleep(AT_WORK)
            return found
        time.sleep(0.01)
    pytest.fail("the program does not open the device")


def end_survivor(process: subprocess.Popen[str]) -> None:
    """It ends by itself, or, where it waits for ever on what perftest waits for, when asked to."""
    try:
        process.wait(timeout=SURVIVES_AT_MOST)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.parametrize("victim", ["server", "client"])
@pytest.mark.parametrize("program", RUNS)
def test_one_of_two_is_killed(
    verbena_start: Start, tmp_path: Path, program: str, victim: str
) -> None:
    files = shared_files()
    server, client = start_pair(verbena_start, program, tmp_path)
    sockets = wait_until_busy(client) | slots(server.pid)
    assert (server.poll(), client.poll()) == (None, None)
    killed, survivor = (server, client) if victim == "server" else (client, server)
    killed.kill()
    killed.wait()
    end_survivor(survivor)
    assert survivor.returncode not in (-6, -7, -11), "the survivor crashed"
    assert not sockets & named_sockets()
    assert list(tmp_path.iterdir()) == []
    assert shared_files() <= files


def test_the_next_run_starts_clean(verbena_start: Start, tmp_path: Path) -> None:
    for _ in range(3):
        server, client = start_pair(verbena_start, RUNS[0], tmp_path)
        wait_until_busy(client)
        client.kill()
        server.kill()
    server, client = start_pair(verbena_start, "ib_write_bw -n 100", tmp_path)
    assert (client.wait(20), server.wait(10)) == (0, 0)
