# SPDX-License-Identifier: Apache-2.0
"""`verbena launch`: ranks that join a group, and what becomes of the others when one fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import own_network, verbena_command
from verbena.cli.launch import await_ranks

PROGRAM = """
import sys
import numpy as np
from verbena.collectives import sync
with sync.join(timeout=20) as group:
    total = group.all_reduce(np.array([group.rank]))
    print("the sum is", *total, flush=True)
    if len(sys.argv) > 1 and group.rank == 1:
        sys.exit(int(sys.argv[1]))
    if len(sys.argv) > 1:
        group.barrier()
"""


FORKS = """
import os, sys
from verbena.collectives import GroupError, sync
with sync.join(timeout=20) as group:
    group.barrier()
    child = os.fork()
    if not child:
        try:
            group.barrier()
        except GroupError as error:
            print(type(error).__name__, error, flush=True)
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    group.barrier()
"""


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*own_network(), *verbena_command("launch", *words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_ranks_join() -> None:
    done = launched("-n", "3", "--", sys.executable, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank}: the sum is 3" for rank in range(3)]


def test_a_forked_child_is_no_rank() -> None:
    """Nobody has died: the parents go on. The options may stand in any order."""
    done = launched("--fault", "drop 0%", "-n", "2", "--", sys.executable, "-c", FORKS)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "process that forked" in line]
    assert sorted(line[: len("0: GroupError")] for line in said) == [
        "0: GroupError",
        "1: GroupError",
    ]


def test_a_rank_fails() -> None:
    done = launched("-n", "3", "--grace", "5", "--", sys.executable, "-c", PROGRAM, "7")
    assert done.returncode in (1, 7)  # one of those that it leaves may be seen first
    assert "has ended (exit" in done.stderr
    assert "rank 1" in done.stdout + done.stderr


def test_ranks_that_end_at_once_are_named_too(capsys: pytest.CaptureFixture[str]) -> None:
    """All have ended before the launcher looks at them, as on a busy machine."""
    processes = [subprocess.Popen(["sh", "-c", f"exit {status}"]) for status in (0, 7, 0)]
    for process in processes:
        process.wait()
    assert await_ranks(processes, 4, 5.0) == 7
    assert capsys.readouterr().err == "verbena launch: rank 5 has ended (exit 7)\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-n", "2"], "name the program"),
        (["-n", "0", "--", "true"], "not a number of ranks"),
        (["-n", "2", "--size", "4", "--", "true"], "same --address"),
        (["-n", "2", "--first", "3", "--size", "4", "--", "true"], "beyond --size"),
        (["-n", "2", "--", "no-such-program"], "no-such-program"),
    ],
)
def test_wrong_usage(words: list[str], text: str) -> None:
    done = launched(*words)
    assert done.returncode
    assert text in done.stderr


def test_two_hosts() -> None:
    """Two launchers with one address, as at two hosts."""
    words = ["--size", "4", "--address", "127.0.0.1:7176"]
    both = [
        f"{' '.join(map(repr, verbena_command('launch', '-n', '2', '--first', first, *words)))}"
        f" -- {sys.executable} -c '{PROGRAM}'"
        for first in ("0", "2")
    ]
    command = [*own_network(), "bash", "-c", f"{both[0]} & {both[1]}; wait"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: the sum is 6" for rank in range(4)]
