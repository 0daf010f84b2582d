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


def parts(folder: Path, *, fails: str = "", forbidden: bool = False) -> tuple[int, str]:
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


GUESTS = "tests/roce/test_linux_guest.py"


def test_each_folder_runs_once(tmp_path: Path) -> None:
    status, said = parts(tmp_path)
    assert status == 0
    machine = next(words for _, words in runs(said) if not paths(words))
    others = [words for _, words in runs(said) if paths(words)]
    assert sorted(ignored(machine)) == sorted(path for words in others for path in paths(words))
    assert all((ROOT / path).exists() for path in ignored(machine))
    hosts = next(words for words in others if "tests/roce" in paths(words))
    assert ignored(hosts) == [GUESTS]
    assert sum(GUESTS in paths(words) for words in others) == 1


def test_programs_of_the_other_parts_have_networks_of_their_own(tmp_path: Path) -> None:
    own_network_or_skip()
    networks = {
        word: network
        for network, words in runs(parts(tmp_path)[1])
        for word in paths(words) or ["all others"]
    }
    assert networks["all others"] == networks["tests/sim"] == HERE
    assert len({networks[path] for path in ("tests/sim", "tests/roce", "tests/docs")}) == 3


def test_where_no_network_can_be_made_the_first_part_runs_them(tmp_path: Path) -> None:
    status, said = parts(tmp_path, forbidden=True)
    assert status == 0
    assert "No network namespace can be made here, so the first part also runs: tests/roce" in said
    machine = next(words for _, words in runs(said) if not paths(words))
    (computing,) = (words for _, words in runs(said) if paths(words))
    assert not {"tests/docs", "tests/roce"} & {*ignored(machine), *paths(computing)}
    assert ignored(machine) == paths(computing)


@pytest.mark.parametrize("fails", ["--ignore=tests/sim", "tests/sim", "tests/roce", "tests/docs"])
def test_a_failure_in_any_part_is_the_status_of_all(tmp_path: Path, fails: str) -> None:
    if fails in ("tests/roce", "tests/docs"):
        own_network_or_skip()
    assert parts(tmp_path, fails=fails)[0] == 3
