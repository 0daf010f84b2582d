# SPDX-License-Identifier: Apache-2.0
"""Debian's pyverbs over Verbena, and rdma-core's own tests, which are written in it."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.programs.pairs import leaves_nothing
from verbena import verbs

pytestmark = pytest.mark.debian

PYTHON = "/usr/bin/python3"  # Debian's, the one that has pyverbs
CHILD = str(Path(__file__).with_name("pyverbs_child.py"))
RDMA_CORE_TESTS = Path("/usr/share/doc/rdma-core/tests")
# Files of rdma-core 44, and how many of their tests pass. The others of a file need what the device
# says it does not have (raw packets, DMA buffers), or huge pages that the system has not.
PASSING = {
    "test_addr": 3,
    "test_atomic": 9,
    "test_cq": 4,
    "test_cq_events": 2,
    "test_cqex": 5,
    "test_device": 21,
    "test_fork": 1,
    "test_mr": 17,
    "test_odp": 14,
    "test_parent_domain": 5,
    "test_pd": 4,
    "test_qp": 21,
    "test_qpex": 19,
    "test_relaxed_ordering": 3,
    "test_shared_pd": 1,
}


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


# ---- rdma-core's own tests ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def rdma_core_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rdma-core's tests as Debian ships them, unpacked."""
    if not RDMA_CORE_TESTS.is_dir():
        pytest.skip(f"{RDMA_CORE_TESTS} is missing: this system leaves out documentation")
    folder = tmp_path_factory.mktemp("rdma_core") / "tests"
    shutil.copytree(RDMA_CORE_TESTS, folder)
    for packed in folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.mark.parametrize(("name", "passing"), PASSING.items())
def test_rdma_core(verbena_run: Run, rdma_core_tests: Path, name: str, passing: int) -> None:
    program = (PYTHON, str(rdma_core_tests / "run_tests.py"), "--dev", "verbena0", "--gid", "1")
    done = verbena_run(*program, "-v", f"tests.{name}")
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"\bok$", done.stdout, re.MULTILINE)) >= passing, done.stdout


def test_leaves_nothing(verbena_run: Run) -> None:
    with leaves_nothing() as env:
        assert verbena_run(PYTHON, CHILD, "send", env=env).returncode == 0
