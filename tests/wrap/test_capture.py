# SPDX-License-Identifier: Apache-2.0
"""The file that a capture begins with, and what it is never written over."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.native.test_tshark import frames
from tests.support import native_build, plain_environment
from verbena import capture, wire

PAGE = 4096
USAGE = 2


def write_packets(file: Path) -> None:
    program = native_build("test_capture") / "tests" / "test_capture"
    subprocess.run([program, "messages", file], env=plain_environment(), check=True, timeout=60)


def test_an_empty_capture_can_be_read(tmp_path: Path, debian_program: Callable[[str], str]) -> None:
    file = tmp_path / "out.pcapng"
    capture.begin(file)
    done = subprocess.run(
        [debian_program("tshark"), "-r", file],
        env=plain_environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_each_packet_of_a_direct_capture_has_the_paths_traffic_class_and_hop_limit(
    tmp_path: Path,
) -> None:
    file = tmp_path / "out.pcapng"
    write_packets(file)
    headers = [frame[14:] for frame in frames(file)]
    ipv4 = {(header[1], header[8]) for header in headers if header[0] >> 4 == 4}
    assert ipv4 == {(0x6A, 17)}  # test_capture.c's path


def test_an_earlier_capture_is_emptied(tmp_path: Path) -> None:
    file = tmp_path / "out.pcapng"
    write_packets(file)
    assert list(frames(file))
    capture.begin(file)
    assert file.stat().st_size == PAGE
    assert list(frames(file)) == []


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("words " * 2000)
    with pytest.raises(OSError, match="not a capture that Verbena wrote") as caught:
        capture.begin(file)
    assert caught.value.errno == errno.EBADMSG
    assert file.read_text() == "words " * 2000


def test_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        capture.begin(tmp_path / "fifo")


# ---- verbena run -------------------------------------------------------------------------------


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_options_become_variables(
    verbena_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--capture", "out.pcapng", "--capture-direct", "--capture-bytes", "96",
               "--fault", "drop 1%; seed 7")  # fmt: skip
    found = variables(verbena_run("env", options=options).stdout)
    assert found["VERBENA_CAPTURE"] == str(tmp_path / "out.pcapng")
    assert found["VERBENA_CAPTURE_DIRECT"] == "yes"
    assert found["VERBENA_CAPTURE_BYTES"] == "96"
    assert found["VERBENA_FAULT"] == "drop 1%; seed 7"
    assert (tmp_path / "out.pcapng").stat().st_size == PAGE


def test_without_options_there_are_no_variables(verbena_run: Run) -> None:
    found = variables(verbena_run("env").stdout)
    assert not [name for name in found if name.startswith(("VERBENA_CAPTURE", "VERBENA_FAULT"))]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fault", "drop opcod=ack"), 'argument --fault: fault rules: "opcod=ack": drop takes'),
        (("--capture-bytes", "63", "--capture", "x"), "from 64 to"),
        (("--capture-bytes", "many", "--capture", "x"), "'many' is not a number of bytes"),
        (("--capture-direct",), "name the file to capture into"),
        (("--capture-bytes", "64"), "name the file to capture into"),
        (("--capture", "missing/out.pcapng"), "cannot capture into missing/out.pcapng: No such"),
        (("--capture", "."), "cannot capture into .: Is a directory"),
    ],
)
def test_wrong_options(
    verbena_run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = verbena_run("true", options=options)
    assert done.returncode == USAGE
    assert words in done.stdout.replace("\n", " ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("VERBENA_FAULT", "drop 1%; dorp", 'VERBENA_FAULT is ignored: "dorp": a rule begins'),
        ("VERBENA_CAPTURE_BYTES", "7", "VERBENA_CAPTURE_BYTES=7 is not a number of bytes from 64"),
        ("VERBENA_SPIN_US", " 5", "VERBENA_SPIN_US= 5 is not a number of microseconds from 0"),
        ("VERBENA_SPIN_US", "5us", "VERBENA_SPIN_US=5us is not a number of microseconds from 0"),
        ("VERBENA_PART_ID", "+7", "VERBENA_PART_ID=+7 is not a number of a part from 0"),
        ("VERBENA_CAPTURE_DIRECT", "maybe", "VERBENA_CAPTURE_DIRECT=maybe is not understood"),
    ],
)
@pytest.mark.debian
def test_wrong_variables_are_reported(
    verbena_run: Run, debian_program: Callable[[str], str], name: str, value: str, words: str
) -> None:
    done = verbena_run(debian_program("ibv_devinfo"), options=("--log", "info"), env={name: value})
    assert done.returncode == 0
    assert words in done.stdout


# ---- XRC ---------------------------------------------------------------------------------------

XRC_TRAFFIC = """
from verbena import verbs
with verbs.open_device() as ctx:
    pd, sent, got = ctx.alloc_pd(), ctx.create_cq(16), ctx.create_cq(16)
    domain, mr = ctx.open_xrcd(), pd.alloc(8192, 15)
    srq, target = domain.create_srq(pd, got), domain.create_qp()
    initiator = pd.create_qp(send_cq=sent, qp_type=verbs.QPType.XRC_SEND)
    verbs.connect_pair(initiator, target, path_mtu=3)
    srq.recv(mr, 0, 4096)
    print(srq.srq_num)
    initiator.send(mr, length=2000, imm_data=5, remote_srqn=srq.srq_num)
    initiator.write(mr, mr.addr, mr.rkey, 0, 8, remote_srqn=srq.srq_num)
    initiator.read(mr, mr.addr, mr.rkey, 0, 8, remote_srqn=srq.srq_num)
    initiator.fetch_add(mr, mr.addr, mr.rkey, 1, 0, remote_srqn=srq.srq_num)
    for completion in sent.wait(4, timeout=20):
        completion.raise_for_status()
"""


@pytest.mark.parametrize("options", [("--capture-direct",), ()], ids=["direct", "packets"])
def test_xrc_requests_name_their_srq(
    verbena_run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Whether they travel as packets or are shown as the packets that they would be."""
    file, env = tmp_path / "out.pcapng", {} if options else {"VERBENA_CARRIER": "roce"}
    run = ("--capture", str(file), *options)
    done = verbena_run(sys.executable, "-c", XRC_TRAFFIC, options=run, env=env)
    assert done.returncode == 0, done.stdout
    packets = [wire.parse(frame) for frame in frames(file)]
    named = {(p.opcode_name, p.xrceth.srq) for p in packets if p.xrceth}
    others = {p.opcode_name for p in packets if not p.xrceth}
    kinds = ("SEND_FIRST", "SEND_LAST_IMM", "WRITE_ONLY", "READ_REQUEST")
    assert named == {(f"XRC_{kind}", int(done.stdout)) for kind in (*kinds, "FETCH_ADD")}
    assert others == {f"XRC_{kind}" for kind in ("ACKNOWLEDGE", "READ_RESP_ONLY", "ATOMIC_ACK")}
