# SPDX-License-Identifier: Apache-2.0
"""A host on which another user's process has UDP port 4791."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.test_tshark import frames
from tests.programs.pairs import Running
from tests.roce.networks import Host, Network
from tests.support import verbena_command
from verbena import capture

OTHER_USER = """
import os, socket, sys
os.setuid(65534)
taken = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
taken.bind(("::", 4791))
print("taken", flush=True)
sys.stdin.read()
"""
ITERATIONS = 10


@pytest.fixture
def host(network: Network) -> Iterator[Host]:
    first, _ = network.hosts
    taker = subprocess.Popen(
        first.command(sys.executable, "-c", OTHER_USER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert taker.stdout
    assert taker.stdout.readline() == "taken\n"
    yield first
    taker.communicate()


def test_info_says_why(host: Host) -> None:
    found = json.loads(host.run(*verbena_command("info", "--json")))["roce"]
    assert found["reason"].startswith("UDP port 4791 is taken, by another user's process")


def test_each_text_names_a_process_of_this_user_that_is_slow(host: Host) -> None:
    said = [
        host.run(*verbena_command("info", "--json")),
        host.start("ibv_devinfo", env={"VERBENA_PORT": "roce"}).communicate(timeout=60)[0],
    ]
    for text in said:
        assert "a process of this user that is stopped or too slow to answer" in text
        assert "ss -ulnpe 'sport = :4791'" in text


def test_doctor_says_what_to_do(host: Host) -> None:
    said = host.run(*verbena_command("doctor"))
    assert "RoCE port: UDP port 4791 is taken" in said
    assert "ss -ulnpe" in said


@pytest.mark.debian
def test_programs_on_this_host_run_and_are_captured(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "out.pcapng"
    capture.begin(file)
    env = {"VERBENA_CAPTURE": str(file), "VERBENA_CAPTURE_DIRECT": "yes"}
    words = ("ib_send_bw", "-F", "-x", "1", "-s", "64", "-n", str(ITERATIONS), "-p", "20501")
    server = host.start(*words, env=env)
    host.wait_listening(server, 20501)
    pair = Running(server, host.start(*words, "127.0.0.1", env=env)).finish()
    assert [side.status for side in pair.sides] == [0, 0], str(pair)
    assert "verbena:" not in str(pair)
    assert len(list(frames(file))) == 2 * ITERATIONS  # each with its acknowledgement


@pytest.mark.debian
def test_who_asked_for_packets_is_told(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "out.pcapng"
    capture.begin(file)
    process = host.start("ibv_devinfo", env={"VERBENA_CAPTURE": str(file)})
    output, _ = process.communicate(timeout=60)
    assert "verbena: no RoCE (UDP port 4791 is taken" in output
