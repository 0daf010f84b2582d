# SPDX-License-Identifier: Apache-2.0
"""Each skip says what is missing and what brings it (scripts/check_skips.py, tests/conftest.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, load_script, plain_environment

check = load_script("scripts/check_skips.py")
GOOD = "gcc is not installed; apt-get install gcc brings it"


def test_all_reasons_of_the_tests_are_sentences() -> None:
    assert list(check.problems()) == []


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (GOOD, None),
        ("", "fewer than 5 words"),
        ("gcc is not installed", "fewer than 5 words"),
        ("gcc is not installed on this machine", "not of the form"),
        ("gcc is missing; install", "fewer than 5 words"),
        ("gcc is not installed; install", "not of the form"),
        ("gcc is not installed; apt-get install gcc", "ends with the name of what is missing"),
        ("chromium is not installed; apt install chromium-driver", "ends with a name"),
        ("the program is not installed; please install {}", "ends with a name"),
    ],
)
def test_a_reason_that_skips(reason: str, said: str | None) -> None:
    wrong = check.fault(reason)
    assert wrong is None if said is None else said in wrong


def test_a_reason_that_leaves_out_needs_no_remedy() -> None:
    assert check.fault("a simulated world has one thread", remedy=False) is None
    assert "fewer" in check.fault("one thread", remedy=False)


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        (f'pytest.skip("{GOOD}")', 0),
        ('pytest.skip("gcc is missing")', 1),
        ("pytest.skip()", 1),
        ("pytest.skip(said)", 0),  # conftest.py looks at it when it is there
        ('pytest.skip(f"{name} is not installed")', 1),
        ('pytest.skip(reason="gcc is missing")', 1),
        ('pytest.importorskip("dask")', 1),
        ('mark = pytest.mark.skipif(True, reason="gcc is missing")', 1),
        ('mark = pytest.mark.xfail(reason="gcc is missing")', 1),
        ("@pytest.mark.skip\ndef test() -> None: ...", 1),
        ("@pytest.mark.xfail\ndef test() -> None: ...", 1),
        ('WHY = "gcc is missing"\npytest.skip(WHY)', 1),
        ('mark = pytest.mark.not_sanitized("it is odd")', 1),
        ('def reason_not_to() -> str | None:\n    return "needs root"', 1),
        ("def reason_not_to() -> str | None:\n    return None", 0),
    ],
)
def test_python_that_skips(line: str, faults: int) -> None:
    assert len(list(check.faults_of_python(line + "\n"))) == faults


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        (f'    printf("{GOOD}\\n");\n    return 77;\n', 0),
        ('    printf("no gcc\\n");\n    return 77;\n', 1),
        ('    puts("no gcc");\n    exit(77);\n', 1),
        ('    puts("gcc is missing; apt-get "\n    "install gcc brings it");\n    exit(77);\n', 0),
        ('    puts("gcc is not installed; apt-get "\n    "install gcc");\n    exit(77);\n', 1),
        ("    exit(77);\n", 1),
        ('    skip("only root can do that");\n', 1),
        ("    CHECK_EQ(wc.wr_id, 77);\n", 0),
    ],
)
def test_c_that_skips(lines: str, faults: int) -> None:
    assert len(list(check.faults_of_c(lines))) == faults


PROGRAM = """
import pytest

def test_it():
    pytest.skip(" ".join({words!r}))
"""


@pytest.mark.parametrize(("reason", "status"), [(GOOD, 0), ("gcc is missing", 1)])
def test_a_reason_that_a_run_makes(tmp_path: Path, reason: str, status: int) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_makereport\n")
    (tmp_path / "test_it.py").write_text(PROGRAM.format(words=reason.split()))
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = plain_environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("the skip's reason" in done.stdout) == bool(status)
