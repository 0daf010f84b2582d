# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/c between two hosts, and what they say when something goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.roce.networks import Network
from tests.support import ROOT, clean_environment, own_network, plain_environment, verbena_command

EXAMPLES = ROOT / "examples" / "c"
TCP_PORT = 18515
SAID = {
    "rc_write": ("in my memory: a line from the client", ""),
    "rc_send": ("", "queue -> QUEUE"),
    "ud_datagram": ("5 bytes: ping", "pong"),
    "atomic_counter": ("the counter is 1000", "the last number drawn is 999"),
}
# A server that gives the client a QP number behind which there is no QP: the client's own, changed.
NOBODY = """
import socket, time
with socket.create_server(("", 18515)) as listener:
    link, _ = listener.accept()
mine = bytearray(link.recv(40, socket.MSG_WAITALL))
assert len(mine) == 40
mine[16:18] = (int.from_bytes(mine[16:18], "little") ^ 0xFFF).to_bytes(2, "little")
link.sendall(mine)
link.send(bytes(1))
time.sleep(60)
"""

pytestmark = pytest.mark.debian


def compiled(name: str, folder: Path) -> Path:
    made = folder / name
    sources = [EXAMPLES / f"{name}.c", EXAMPLES / "common.c"]
    subprocess.run(
        ["cc", "-o", made, *sources, "-libverbs"], check=True, env=plain_environment(), timeout=60
    )
    return made


@pytest.mark.parametrize("name", SAID)
def test_an_example_between_two_hosts(name: str, network: Network, tmp_path: Path) -> None:
    """Each side finds the GID that stands for the address by which it reached the other."""
    program = str(compiled(name, tmp_path))
    server, client = network.hosts
    listener = server.start(program)
    server.wait_listening(listener, TCP_PORT)
    caller = client.start(program, server.ipv4)
    try:
        asked, _ = caller.communicate(timeout=60)
        served, _ = listener.communicate(timeout=60)
    finally:
        for process in (caller, listener):
            process.kill()
            process.wait()
    assert caller.returncode == listener.returncode == 0, served + asked
    assert SAID[name][0] in served
    assert SAID[name][1] in asked


def told_by_nobody(name: str, folder: Path) -> str:
    """What an example says whose server has no QP."""
    program = compiled(name, folder)
    words = verbena_command("pair", "--grace", "0", "--", sys.executable, "-c", NOBODY)
    done = subprocess.run(
        [*own_network(), *words, "--", str(program), "localhost"],
        env=clean_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("name", ["rc_write", "rc_send"])
def test_an_example_says_how_its_request_ended(name: str, tmp_path: Path) -> None:
    assert "a request failed: transport retry counter exceeded" in told_by_nobody(name, tmp_path)


def test_a_datagram_that_nobody_answers_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    assert "no datagram came within 5 seconds" in told_by_nobody("ud_datagram", tmp_path)


def test_a_name_that_is_none(tmp_path: Path) -> None:
    done = subprocess.run(
        verbena_command("run", "--", str(compiled("rc_write", tmp_path)), "no.such.host.invalid"),
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no.such.host.invalid: " in done.stderr
    assert "Success" not in done.stderr
    assert "not known" in done.stderr or "resolution" in done.stderr
