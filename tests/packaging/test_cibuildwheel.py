# SPDX-License-Identifier: Apache-2.0
"""cibuildwheel accepts [tool.cibuildwheel] of pyproject.toml and names the wheels that we promise.

It is asked which builds it would make, and makes none: those need its container images.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from tests.support import ROOT, plain_environment

PYPROJECT = ROOT / "pyproject.toml"


def cibuildwheel(project: Path) -> subprocess.CompletedProcess[str]:
    """What it says that it would build of this project, on Linux."""
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
    environment = {name: v for name, v in plain_environment().items() if name[:5] != "CIBW_"}
    return subprocess.run(
        [*command, "--platform", "linux", str(project)],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )


def pythons() -> list[str]:
    """Those that the classifiers name, as "3.11"."""
    classifiers = tomllib.loads(PYPROJECT.read_text())["project"]["classifiers"]
    named = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", "\n".join(classifiers), re.M
    )
    assert named
    return named


def test_there_is_a_wheel_for_each_python_that_the_classifiers_name() -> None:
    done = cibuildwheel(ROOT)
    assert done.returncode == 0, done.stderr
    expected = [f"cp{python.replace('.', '')}-manylinux_x86_64" for python in pythons()]
    assert done.stdout.split() == expected


def test_the_page_names_the_same_pythons() -> None:
    page = (ROOT / "docs" / "development.md").read_text()
    *most, last = pythons()
    assert f"for Python {', '.join(most)} and {last}:" in page


def test_the_oldest_and_the_newest_are_installed_by_a_workflow() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    tried = jobs["installed"]["strategy"]["matrix"]["python"]
    assert tried == [pythons()[0], pythons()[-1]]


def test_workflow_and_tests_take_the_same_cibuildwheel() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    (ours,) = [each for each in extras["test"] if each.startswith("cibuildwheel")]
    assert f'pip install "{ours}" ' in (ROOT / ".github/workflows/wheels.yml").read_text()


def test_an_option_that_cibuildwheel_does_not_have_is_refused(tmp_path: Path) -> None:
    """The first test could not fail otherwise."""
    shutil.copy(PYPROJECT, tmp_path)
    with (tmp_path / "pyproject.toml").open("a") as copy:
        copy.write('\n[tool.cibuildwheel.linux]\ntest-comand = "true"\n')
    done = cibuildwheel(tmp_path)
    assert done.returncode != 0
    assert "test-comand" in done.stdout + done.stderr
