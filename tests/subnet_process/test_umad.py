# SPDX-License-Identifier: Apache-2.0
"""What a program at a host of a fabric finds behind /dev/infiniband/umad0 and issm0."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.subnet_process.support import RunningFabric, cpu_seconds, parsed, running_fabric

CHILD = str(Path(__file__).with_name("umad_child.py"))
GET_RESP, TABLE_RESP, ETIMEDOUT = 0x81, 0x92, 110


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFabric]:
    """Verbena's own subnet manager is at h0."""
    with running_fabric("clos2:6", tmp_path_factory.mktemp("fabric")) as made:
        yield made


def case(fabric: RunningFabric, name: str, host: str = "h3") -> Any:
    done = fabric.run(host, sys.executable, CHILD, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return parsed(done.stdout)


def test_agents_are_registered_as_linux_does(fabric: RunningFabric) -> None:
    found = case(fabric, "registrations")
    assert found["first"] == 0
    assert found["flags"] == 1  # those that there are
    refused = {
        *("the same methods", "class of QP 0 on QP 1", "class of QP 1 on QP 0", "qp 2", "flags"),
        *("vendor without OUI", "RMPP of a class without", "P_Key too late", "unregister nothing"),
    }
    errors = found["errors"]
    assert {name for name, error in errors.items() if error == "EINVAL"} == refused
    assert errors["unknown ioctl"] == "ENOTTY"
    assert errors["33rd"] == "ENOMEM"
    assert {errors[name] for name in ("others", "vendor", "after it was unregistered")} == {"none"}


def test_a_request_and_its_response(fabric: RunningFabric) -> None:
    found = case(fabric, "exchange")
    answer = found["answer"]
    assert answer["bytes"] == answer["length"] == found["written"] == 64 + 256
    assert answer["method"] == GET_RESP
    assert (answer["agent"], answer["status"]) == (0, 0)
    assert answer["low"] == 0x3333_4444
    assert answer["high"] != 0x1111_2222  # the agent's number is there
    assert found["hop pointer"] == 0
    assert found["node type"] == 2  # the switch behind port 1
    assert found["empty"] == "EAGAIN"
    assert found["writable"]
    assert found["short"] == "EINVAL"
    assert found["no agent"] == "EIO"
    assert found["bad agent"] == found["short write"] == "EINVAL"


def test_the_header_without_a_p_key(fabric: RunningFabric) -> None:
    assert case(fabric, "short_header") == {"bytes": 56 + 256}


def test_a_request_without_a_response_comes_back(fabric: RunningFabric) -> None:
    found = case(fabric, "timeouts")
    assert found["status"] == ETIMEDOUT
    assert found["bytes"] == 64 + 24
    assert found["length"] == 24
    assert found["low"] == 77
    assert 0.2 <= found["seconds"] < 5


def test_a_transaction_id_that_is_pending_is_refused(fabric: RunningFabric) -> None:
    assert case(fabric, "duplicates") == {
        "first": "none",
        "the same": "EINVAL",
        "of another route": "EINVAL",
        "with another upper half": "EINVAL",
        "without a time-out": "EINVAL",
        "of another agent": 77,
        "another": 78,
        "one that is answered": 78,
    }


def test_a_descriptor_s_number_may_become_another_file_s(fabric: RunningFabric) -> None:
    assert case(fabric, "reused") == {
        "umad": [1, 2],
        "socket takes it": True,
        "a byte": "x",
        "more": [330, 70],
        "the end": 0,
        "after the end": "EPIPE",
        "pipe": [320, True],
        "write only": "EBADF",
        "closed": ["EBADF", "EBADF"],
        "same number": True,
        "not registered": "EIO",
        "again": [0, 8, 9],
    }


def test_a_duplicate_and_a_child_have_the_same_device(fabric: RunningFabric) -> None:
    assert case(fabric, "shared") == [1, 2, 3]


def test_a_message_of_several_packets_is_one(fabric: RunningFabric) -> None:
    found = case(fabric, "long_messages")
    assert found["short"] == "ENOSPC"
    assert found["readable"]
    assert found["method"] == TABLE_RESP
    assert found["bytes"] == found["length"] == 64 + 56 + 27 * 112  # 18 hosts, 9 switches


def test_issm_has_one_opener(fabric: RunningFabric) -> None:
    assert case(fabric, "issm") == {"mask": [0, 2, 0], "busy": "EAGAIN", "waited": True}


def test_the_working_directory_may_be_in_sysfs(fabric: RunningFabric) -> None:
    found = case(fabric, "folders")
    assert "verbena0" in found["names"]
    assert found["cwd"] == "/sys/class/infiniband/verbena0/ports"
    assert int(found["lid"], 16) > 1
    assert found["up"]


def test_a_fabric_that_ends(tmp_path: Path) -> None:
    with running_fabric("pair", tmp_path) as fabric:
        pipe = subprocess.PIPE
        child = fabric.start(
            "h1", sys.executable, CHILD, "fabric_ends", stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        fabric.process.send_signal(signal.SIGKILL)
        fabric.process.wait()
        output, errors = child.communicate("go\n", timeout=20)
        late = fabric.run("h1", "true")
    found = parsed(output)
    assert found.pop("hung up")
    assert found == {"read": "EIO", "write": "EIO", "open": "ENXIO", "file": "EIO"}
    assert errors.count("verbena:") == 1
    assert f"the fabric {fabric.name} does not answer" in errors
    assert "`verbena fabric TOPOLOGY --name" in errors
    assert late.returncode == 2
    assert f"no fabric '{fabric.name}' runs" in late.stderr


def test_an_idle_fabric_uses_no_processor(fabric: RunningFabric) -> None:
    import time

    before = cpu_seconds(fabric.process.pid)
    time.sleep(1)
    assert cpu_seconds(fabric.process.pid) - before <= 0.02
