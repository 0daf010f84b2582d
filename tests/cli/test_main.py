# SPDX-License-Identifier: Apache-2.0
"""The `verbena` program itself."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import pytest

from tests.support import verbena_command
from verbena import __version__, cli
from verbena.version import full_version


def verbena(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(verbena_command(*words), capture_output=True, text=True, timeout=60)


def test_help_lists_the_commands() -> None:
    done = verbena("--help")
    assert done.returncode == 0
    for command in ("run", "devices", "info", "doctor", "bench", "demo"):
        assert f"\n  {command} " in done.stdout


def test_no_command_is_wrong_usage() -> None:
    done = verbena()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: verbena COMMAND")


def test_unknown_command_is_wrong_usage() -> None:
    done = verbena("fly")
    assert done.returncode == 2
    assert "no command 'fly'" in done.stderr


@pytest.mark.parametrize("words", [(), ("--quick",)])
def test_bench_says_where_the_other_benchmarks_are(words: tuple[str, ...]) -> None:
    done = verbena("bench", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "`make bench`" in done.stderr
    assert "`python -m benchmarks`" in done.stderr
    assert "no command" not in done.stderr


def test_python_runs_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "verbena", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"verbena {full_version()}\n"


def test_version() -> None:
    assert verbena("--version").stdout == f"verbena {full_version()}\n"
    assert full_version().startswith(__version__)


@pytest.mark.parametrize("command", [command.name for command in cli.COMMANDS])
def test_every_command_explains_itself(command: str) -> None:
    done = verbena(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: verbena {command}")


@pytest.mark.parametrize("command", [command.name for command in cli.COMMANDS])
def test_unknown_option_is_status_2(command: str) -> None:
    assert verbena(command, "--no-such-option").returncode == 2


def test_run_does_not_import_the_verbs() -> None:
    """The launcher is in the way of every program: it must be light."""
    script = (
        "import sys, verbena.cli.run; print('numpy' in sys.modules, 'verbena.verbs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False False\n"


def test_error_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: list[str]) -> int:
        raise OSError(24, "Too many open files", "x")

    monkeypatch.setattr("verbena.cli.run.main", fail)
    assert cli.main(["run", "true"]) == 1
    said = "verbena run: [Errno 24] Too many open files: 'x': raise `ulimit -n`\n"
    assert capsys.readouterr().err == said


def test_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("verbena.cli.run.main", interrupt)
    assert cli.main(["run", "true"]) == 130


STREAMS = (">&-", "2>&-", "<&- >&- 2>&-")
CALLS = (
    *((("--version",), 0), ((), 2), (("fly",), 2), (("run", "--no-such-option"), 2)),
    *((("run", "--", "no-such-program"), 127), (("devices",), 0)),
)


@pytest.mark.parametrize(
    ("closed", "words", "status"),
    [(closed, words, status) for closed in STREAMS for words, status in CALLS]
    + [(STREAMS[-1], (command.name, "--help"), 0) for command in cli.COMMANDS],
)
def test_closed_streams_change_no_exit_status(
    closed: str, words: tuple[str, ...], status: int
) -> None:
    command = shlex.join(verbena_command(*words))
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (status, 0), done.stderr
    if ">&-" in closed.split():
        assert done.stdout == ""  # what belongs on stderr does not go to stdout, nor the reverse


def test_a_reader_that_has_seen_enough_is_no_failure_of_ours() -> None:
    """The status is the one that a shell gives other programs then: 128 + SIGPIPE."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        verbena_command("devices"), stdout=writes, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_full_disk_is_said_once() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            verbena_command("devices"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == "verbena devices: [Errno 28] No space left on device\n"
