# SPDX-License-Identifier: Apache-2.0
"""Debian's pyverbs over Verbena. rdma-core's own tests, which are written in it: tests/suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run
from tests.programs.pairs import leaves_nothing
from verbena import verbs

pytestmark = pytest.mark.debian

PYTHON = "/usr/bin/python3"  # Debian's, the one that has pyverbs
CHILD = str(Path(__file__).with_name("pyverbs_child.py"))


def test_device_list(verbena_run: Run) -> None:
    done = verbena_run(PYTHON, CHILD, "device_list")
    with verbs.open_device() as context:
        assert done.stdout == f"{context.name} {context.device.guid:016x}\n"
    assert done.returncode == 0


def test_queries(verbena_run: Run) -> None:
    done = verbena_run(PYTHON, CHILD, "queries")
    with verbs.open_device() as context:
        device, port = context.query_device(), context.query_port()
    assert done.returncode == 0, done.stdout
    wanted = [device.max_qp, device.max_sge, port.state, port.gid_tbl_len]
    assert [int(word) for word in done.stdout.split()] == wanted


@pytest.mark.parametrize("name", ["send", "write_and_read", "wrong_key", "events"])
def test_traffic(verbena_run: Run, name: str) -> None:
    done = verbena_run(PYTHON, CHILD, name)
    assert (done.returncode, done.stdout) == (0, "")


def test_leaves_nothing(verbena_run: Run) -> None:
    with leaves_nothing() as env:
        assert verbena_run(PYTHON, CHILD, "send", env=env).returncode == 0
