# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own tests, as Debian ships them, over Verbena by Debian's pyverbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.roce import networks
from tests.suite import accepted, rdma_core
from tests.suite.rdma_core import Case

pytestmark = pytest.mark.debian

# Of rdma-core 44; a file that is not here fails test_every_file.
FILES = (
    "test_addr",
    "test_atomic",
    "test_cq",
    "test_cq_events",
    "test_cqex",
    "test_device",
    "test_flow",
    "test_fork",
    "test_mr",
    "test_odp",
    "test_parent_domain",
    "test_pd",
    "test_qp",
    "test_qpex",
    "test_rdmacm",
    "test_relaxed_ordering",
    "test_rss_traffic",
    "test_shared_pd",
    "test_tag_matching",
)


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rdma-core's tests, unpacked."""
    if not rdma_core.DEBIAN_TESTS.is_dir():
        pytest.skip(
            f"dpkg left out {rdma_core.DEBIAN_TESTS}; apt-get install --reinstall python3-pyverbs"
            " without the path-exclude of /usr/share/doc brings it"
        )
    return rdma_core.unpack(tmp_path_factory.mktemp("rdma_core"))


@pytest.mark.parametrize("name", FILES)
def test_file(suite: Path, name: str) -> None:
    if name == rdma_core.CONNECTIONS and (reason := networks.reason_not_to()):
        pytest.skip(reason)
    result = rdma_core.run(suite, name)
    assert rdma_core.problems(result) == [], result.output
    skipped = [case for case in result.cases if case.outcome == "skipped"]
    assert [str(case) for case in skipped if accepted.why(case) is None] == []
    assert accepted.unneeded(name, result.cases) == [], "these cases run now: drop the entries"


def test_every_file(suite: Path) -> None:
    assert rdma_core.files(suite) == list(FILES)


# ---- the reading of its output ------------------------------------------------------------------

OUTPUT = """\
test_one (tests.test_x.Kind.test_one) ... ok
test_two (tests.test_x.Kind.test_two)
What it does ... skipped 'It's not supported'
test_three (tests.test_x.Kind)
Python 3.9 leaves the method out here ... /usr/lib/x.py:5: ResourceWarning: a file
  with open(x)
ok
test_four (tests.test_x.Kind.test_four) ... FAIL

======================================================================
FAIL: test_four (tests.test_x.Kind.test_four)
----------------------------------------------------------------------
Traceback: all is ok

----------------------------------------------------------------------
Ran 4 tests in 0.036s

FAILED (failures=1, skipped=1)
"""


def test_outcomes() -> None:
    assert rdma_core.parse("test_x", OUTPUT) == [
        Case("test_x", "Kind.test_one", "ok"),
        Case("test_x", "Kind.test_two", "skipped", "It's not supported"),
        Case("test_x", "Kind.test_three", "ok"),
        Case("test_x", "Kind.test_four", "FAIL"),
    ]


def test_no_outcome_is_an_error() -> None:
    cut = OUTPUT[: OUTPUT.index("ok")]
    assert rdma_core.parse("test_x", cut) == [Case("test_x", "Kind.test_one", "ERROR")]


@pytest.mark.parametrize(
    ("output", "status", "problem"),
    [
        (OUTPUT, 1, "test_x.Kind.test_four: FAIL"),
        (OUTPUT.replace("FAIL", "ok"), 139, "exit status 139"),
        (OUTPUT.replace("Ran 4", "Ran 5").replace("FAIL", "ok"), 0, "4 outcomes were read"),
        (OUTPUT.replace("FAIL", "ok"), None, "still ran after"),
    ],
    ids=["failure", "crash", "lost case", "hang"],
)
def test_problems(output: str, status: int | None, problem: str) -> None:
    result = rdma_core.Result(tuple(rdma_core.parse("test_x", output)), status, output)
    assert rdma_core.problems(result)[0].startswith(problem)


def test_a_new_skip_is_not_accepted() -> None:
    assert accepted.why(Case("test_qp", "QPTest.test_create_rc_qp", "skipped", "none left")) is None
    assert accepted.why(Case("test_mr", "MRTest.test_mr_read", "skipped", "x")) is None


def test_an_entry_without_a_skip_is_found() -> None:
    ran = [Case("test_flow", "FlowTest.test_udp_spec_flow_traffic", "ok")]
    assert [skip.file for skip in accepted.unneeded("test_flow", ran)] == ["test_flow"]
