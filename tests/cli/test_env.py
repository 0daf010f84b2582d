# SPDX-License-Identifier: Apache-2.0
"""`verbena env`: shells and CI jobs in which all programs run over Verbena, and its undoing."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support import clean_environment, program_or_skip, verbena_command
from verbena import launch

OURS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "ASAN_OPTIONS")
PATH = os.environ["PATH"] + ":/usr/bin:/usr/bin:"  # with a folder twice, and an empty one
SHELLS = ["sh", "bash", "dash", "zsh"]


def env(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        verbena_command("env", *options),
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def in_shell(shell: str, script: str, **variables: str) -> dict[str, str]:
    """The variables at the end of a script."""
    program_or_skip(shell)
    done = subprocess.run(
        [shell, "-c", f"{script}\nenv -0"],
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def evaluated(*options: str) -> str:
    return f'eval "$({shlex.join(verbena_command("env", *options))})"'


def of_verbena(found: dict[str, str]) -> dict[str, str]:
    return {name: found.get(name, "") for name in (*OURS, *launch.OPTION_VARIABLES)}


# ---- in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_has_what_verbena_run_sets(shell: str) -> None:
    options = ("--shared-heap", "--log", "errors", "--fault", "drop 1%; seed 7")
    expected = launch.environment(
        clean_environment(), shared_heap=True, log="errors", faults="drop 1%; seed 7"
    )
    assert of_verbena(in_shell(shell, evaluated(*options))) == of_verbena(expected)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_value_comes_through_whatever_it_has(shell: str, tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s $HOME `here` \\n"x"'
    found = in_shell(shell, evaluated("--capture", str(odd)))
    assert found["VERBENA_CAPTURE"] == str(odd)
    assert odd.exists(), "the capture begins"


@pytest.mark.debian
def test_programs_of_the_shell_find_the_device() -> None:
    script = f'{evaluated()}\nfound=$(ibv_devices); export FOUND="$found"'
    assert "verbena0" in in_shell("bash", script)["FOUND"]


def test_a_second_time_changes_nothing() -> None:
    once = in_shell("bash", evaluated("--log", "errors"))
    assert in_shell("bash", evaluated("--log", "errors") * 2) | {"_": ""} == once | {"_": ""}


def test_fish_gets_its_own_commands() -> None:
    lines = env("--fish", "--log", "errors").stdout.splitlines()
    assert "set -gx VERBENA_LOG 'errors'" in lines
    assert all(line.startswith(("set -gx ", "set -e ")) for line in lines)
    assert "set -e VERBENA_LOG" in env("--fish", "--undo", VERBENA_LOG="x").stdout.splitlines()


def test_fish_understands_them(tmp_path: Path) -> None:
    program_or_skip("fish")
    odd = tmp_path / "it's \\ $HOME"
    command = shlex.join(verbena_command("env", "--fish", "--capture"))
    script = f"{command} $argv[1] | source; printf %s $VERBENA_CAPTURE"
    done = subprocess.run(
        ["fish", "-c", script, str(odd)], env=clean_environment(), capture_output=True, text=True
    )
    assert done.stdout == str(odd), done.stderr


# ---- CI ---------------------------------------------------------------------------------------


def of_job(text: str, before: dict[str, str]) -> dict[str, str]:
    """What GitHub's runner makes of the lines in $GITHUB_ENV for the next step."""
    found, lines = dict(before), iter(text.splitlines())
    for line in lines:
        name, marked, end = line.partition("<<")
        if marked and "=" not in name:
            value = "\n".join(iter(lambda: next(lines), end))
        else:
            name, _, value = line.partition("=")
        found[name] = value
    return found


def test_the_next_steps_of_a_job_run_over_verbena_until_it_is_undone(tmp_path: Path) -> None:
    before = clean_environment() | {"PATH": PATH}
    odd = str(tmp_path / "two\nlines=1")
    done = env("--github", "--log", "errors", "--capture", odd, PATH=PATH)
    job = of_job(done.stdout, before)
    expected = launch.environment(before, log="errors", capture=odd)
    assert of_verbena(job) == of_verbena(expected)
    undone = subprocess.run(
        verbena_command("env", "--github", "--undo"), env=job, capture_output=True, text=True
    )
    assert of_verbena(of_job(undone.stdout, job)) == of_verbena(before)


KEEPS_RUNTIME = pytest.mark.not_sanitized(
    "the variable LD_PRELOAD keeps the runtime of the sanitizer"
)

# ---- out --------------------------------------------------------------------------------------


@KEEPS_RUNTIME
@pytest.mark.parametrize("shell", SHELLS)
def test_undo_leaves_the_shell_as_it_was(shell: str) -> None:
    mine = {"PATH": PATH, "LD_LIBRARY_PATH": "/mine", "VERBENA_CARRIER": "roce"}
    before = in_shell(shell, ":", **mine)
    script = f"{evaluated('--shared-heap', '--spin', '7')}\n{evaluated('--undo')}"
    after = in_shell(shell, script, **mine)
    assert after | {"_": ""} == before | {"_": ""}


@KEEPS_RUNTIME
def test_undo_keeps_what_is_not_ours() -> None:
    base = {"PATH": "/bin", "LD_PRELOAD": "/mine.so", "LD_LIBRARY_PATH": "/mine"}
    assert launch.without(launch.environment(base, shared_heap=True, log="info")) == base
    assert launch.without(base) == base


@KEEPS_RUNTIME
def test_undo_leaves_lists_as_they_were_written() -> None:
    base = {
        "PATH": "/bin:/usr/bin:/bin::",
        "LD_PRELOAD": "/a.so:/b.so /a.so",
        "ASAN_OPTIONS": "a=1",
    }
    changed = launch.environment(base, shared_heap=True)
    assert changed["ASAN_OPTIONS"] == "a=1:verify_asan_link_order=0"
    assert launch.without(changed) == base
    assert launch.without(launch.environment(changed)) == base


@KEEPS_RUNTIME
@pytest.mark.parametrize(
    "mine", ["verify_asan_link_order=0", "a=1:verify_asan_link_order=0", "verify_asan_link_order=1"]
)
def test_undo_keeps_options_of_the_user_that_end_as_ours_do(mine: str) -> None:
    base = {"PATH": "/bin", "ASAN_OPTIONS": mine}
    changed = launch.environment(base)
    assert launch.environment(changed) == changed
    assert launch.without(changed) == base


# ---- mistakes ---------------------------------------------------------------------------------


NO_INTERFACE: list[tuple[str, ...]] = [
    ("--netdev", "nosuch0"),
    ("--port", "ethernet,netdev=nosuch0"),
    ("--device", "--port", "ethernet,netdev=nosuch0"),
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fish", "--github"), "not allowed with"),
        (("--", "ibv_devices"), "it starts no program"),
        (("--capture", "/nosuch/folder/file"), "cannot capture into"),
        (("--capture-direct",), "name the file to capture into"),
        *((words, "there is no interface nosuch0, only: ") for words in NO_INTERFACE),
    ],
)
def test_a_mistake_prints_nothing_but_that_it_failed(words: tuple[str, ...], said: str) -> None:
    done = env(*words)
    assert (done.returncode, done.stdout) == (2, "" if "--github" in words else "false\n")
    assert said in done.stderr


@pytest.mark.parametrize("options", NO_INTERFACE, ids=" ".join)
@pytest.mark.parametrize("words", [("run", "--", "true"), ("pair", "--", "true", "--", "true")])
def test_what_starts_programs_refuses_an_interface_likewise(
    words: tuple[str, ...], options: tuple[str, ...]
) -> None:
    command = verbena_command(words[0], *options, *words[1:])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    known = ", ".join(name for _, name in socket.if_nameindex())
    said = f"verbena {words[0]}: error: there is no interface nosuch0, only: {known}"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize("shell", SHELLS)
def test_a_careful_shell_ends_at_a_mistake(shell: str) -> None:
    program_or_skip(shell)
    script = f"{evaluated('--capture', '/nosuch/folder/file')}; echo goes on"
    done = subprocess.run([shell, "-ec", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")


def test_nothing_but_commands_goes_into_a_pipe() -> None:
    assert all(line.startswith("export ") for line in env().stdout.splitlines())
    assert os.linesep not in env(**launch.environment(clean_environment())).stdout
