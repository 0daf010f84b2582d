# SPDX-License-Identifier: Apache-2.0
"""scripts/test.sh, with a program in place of pytest: what runs where, and how it ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, own_network_or_skip, plain_environment

# A line for each run: its network, and its arguments. Fails if $FAILS is among them.
PYTHON = """#!/bin/bash
echo "run: $(readlink /proc/self/ns/net) $*"
case " $* " in *" $FAILS "*) exit 3 ;; esac
"""
LIMITED = "#!/bin/sh\necho 'unshare: Operation not permitted' >&2\nexit 1\n"
HERE = os.readlink("/proc/self/ns/net")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def halves(folder: Path, *, fails: str = "", forbidden: bool = False) -> tuple[int, str]:
    program(folder / "venv" / "bin" / "python", PYTHON)
    path = plain_environment()["PATH"]
    if forbidden:
        program(folder / "bin" / "unshare", LIMITED)
        path = f"{folder / 'bin'}:{path}"
    done = subprocess.run(
        [str(ROOT / "scripts" / "test.sh"), str(folder / "venv")],
        env=plain_environment() | {"PATH": path, "FAILS": fails},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def runs(said: str) -> list[tuple[str, list[str]]]:
    lines = [line.split()[1:] for line in said.splitlines() if line.startswith("run: ")]
    return [(network, words) for network, *words in lines if "pytest" in words]


def paths(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("tests/")]


def ignored(words: list[str]) -> list[str]:
    return [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]


def test_each_folder_runs_once(tmp_path: Path) -> None:
    status, said = halves(tmp_path)
    assert status == 0
    first, *others = runs(said)
    assert paths(first[1]) == []
    assert ignored(first[1]) == [path for _, words in others for path in paths(words)]
    assert all((ROOT / path).exists() for path in ignored(first[1]))


def test_programs_of_the_second_half_have_a_network_of_their_own(tmp_path: Path) -> None:
    own_network_or_skip()
    first, computing, apart = runs(halves(tmp_path)[1])
    assert first[0] == computing[0] == HERE
    assert apart[0] != HERE
    assert "tests/docs" in apart[1]


def test_where_no_network_can_be_made_the_first_half_runs_them(tmp_path: Path) -> None:
    status, said = halves(tmp_path, forbidden=True)
    assert status == 0
    assert "No network namespace can be made here, so the first half also runs: tests/docs" in said
    first, computing = runs(said)
    assert "tests/docs" not in ignored(first[1])
    assert ignored(first[1]) == paths(computing[1])


@pytest.mark.parametrize("fails", ["--ignore=tests/sim", "tests/sim", "tests/docs"])
def test_a_failure_in_any_part_is_the_status_of_all(tmp_path: Path, fails: str) -> None:
    if fails == "tests/docs":
        own_network_or_skip()
    assert halves(tmp_path, fails=fails)[0] == 3
