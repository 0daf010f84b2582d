# SPDX-License-Identifier: Apache-2.0
"""Programs under `verbena run` that do not use the device: they succeed, and a line says so."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.conftest import Run
from tests.support import verbena_command

TCP = "import socket; socket.socket()"
DEVICE = "from verbena import verbs; verbs.open_device().close()"
UNUSED = "never looked for verbena0"
START = "import subprocess, sys; [subprocess.run([sys.executable, '-c', p]) for p in sys.argv[1:]]"


def python(*programs: str) -> tuple[str, ...]:
    """A process that starts one for each program, without its descriptors, and awaits them."""
    return (sys.executable, "-c", START, *programs)


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        ([TCP], True),
        ([TCP, TCP], True),
        ([TCP, DEVICE], False),
        ([DEVICE, TCP], False),
        (["import socket; socket.socket(socket.AF_UNIX)"], False),
        (["pass"], False),
    ],
)
def test_a_program_that_went_over_tcp_is_told_once(
    verbena_run: Run, programs: list[str], told: bool
) -> None:
    done = verbena_run(*python(*programs))
    assert (done.returncode, done.stdout.count(UNUSED)) == (0, int(told)), done.stdout
    assert done.stdout.count("\n") == int(told)


def test_a_program_that_fails_has_said_why(verbena_run: Run) -> None:
    done = verbena_run(sys.executable, "-c", f"{TCP}; raise SystemExit(3)")
    assert (done.returncode, done.stdout) == (3, "")


def test_a_program_that_only_looks_hears_nothing(verbena_run: Run) -> None:
    for command in (("ibv_devices",), ("ls", "/sys/class/infiniband"), ("env",)):
        assert "verbena:" not in verbena_run(*command).stdout, command


def test_another_program_of_the_same_process_is_told(verbena_run: Run) -> None:
    done = verbena_run("sh", "-c", 'exec "$0" -c "$1"', sys.executable, TCP)
    assert done.stdout.count(UNUSED) == 1, done.stdout


def test_a_shell_to_work_in_hears_nothing() -> None:
    """It ends with status 0 after what was typed into it."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        verbena_command("run", "--", "bash"), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    os.write(ours, f"{sys.executable} -c '{TCP}' && exit 0\nexit 1\n".encode())
    said = shell.communicate(timeout=60)[1].decode()
    os.close(ours)
    assert shell.returncode == 0, said
    assert UNUSED not in said
