# SPDX-License-Identifier: Apache-2.0
"""A host on which another user's process has UDP port 4791."""

from __future__ import annotations

import errno
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
        host.start("ibv_devinfo", env={"VERBENA_CARRIER": "roce"}).communicate(timeout=60)[0],
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
    assert "]: no RoCE (UDP port 4791 is taken" in output


TAKEN = (
    "UDP port 4791 is taken, by another user's process, the kernel's soft-RoCE driver, or a "
    "process of this user that is stopped or too slow to answer (who: ss -ulnpe 'sport = :4791')"
)


@pytest.mark.debian
def test_who_asked_for_packets_alone_cannot_open_the_device(host: Host) -> None:
    process = host.start("ibv_rc_pingpong", "-g", "0", env={"VERBENA_CARRIER": "roce"})
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"]: cannot open verbena0: {TAKEN}" in output
    assert (
        "Without VERBENA_CARRIER=roce the processes of this host are reached all the same" in output
    )


@pytest.mark.debian
def test_the_way_out_for_two_users_is_no_circle(host: Host) -> None:
    """Directly another user's process is told of without it (tests/native/test_silence.c)."""
    process = host.start("ibv_rc_pingpong", "-g", "0", env={"VERBENA_CARRIER": "roce"})
    output, _ = process.communicate(timeout=60)
    assert "but for another user's: run both as one user, or each in a network namespace" in output


OPENS = """
from verbena import verbs
try:
    verbs.open_device()
except verbs.VerbsError as error:
    print(error.errno, error)
"""


def test_in_python_the_error_says_so(host: Host) -> None:
    said = host.run(sys.executable, "-c", OPENS, env={"VERBENA_CARRIER": "roce"})
    assert said.startswith(f"{errno.EADDRINUSE} ")
    assert TAKEN in said


# Connects to a GID of the other host.
CONNECTS = """
import ipaddress, sys
from dataclasses import replace
from verbena import verbs
with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    qp = pd.create_qp(send_cq=cq)
    info, index = verbs.local_qp_info(qp)
    there = replace(info, gid=ipaddress.IPv6Address(sys.argv[1]).packed)
    verbs.bring_up(qp, info, there, index, timeout=10, retry_cnt=1)
    qp.send(pd.alloc(8))
    try:
        cq.wait_one(30).raise_for_status()
    except verbs.CompletionError as error:
        print(error)
"""


def test_a_peer_on_another_host_cannot_be_reached_and_the_error_says_why(
    host: Host, network: Network
) -> None:
    said = host.run(sys.executable, "-c", CONNECTS, f"::ffff:{network.hosts[1].ipv4}")
    assert "its GID is no address of this host, and no packets are sent" in said
    assert "UDP port 4791 free (`verbena info` says why it sends none)" in said
