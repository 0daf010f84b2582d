# SPDX-License-Identifier: Apache-2.0
"""`verbena run`: which programs it starts, with which environment, and what it says of others."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.support import plain_environment, verbena_command
from verbena import _native

USAGE, CANNOT_RUN, NOT_FOUND = 2, 126, 127


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def compile_program(folder: Path, *options: str) -> Path:
    """A program that exits with status 7."""
    source, program = folder / "seven.c", folder / "seven"
    source.write_text("int main(void) { return 7; }\n")
    subprocess.run(["gcc", *options, "-o", program, source], env=plain_environment(), check=True)
    return program


# ---- the environment ---------------------------------------------------------------------------


def preloaded(found: dict[str, str]) -> list[str]:
    """Verbena's own libraries, in order: a sanitizer's stand around them."""
    names = [Path(name) for name in found["LD_PRELOAD"].split()]
    return [name.name for name in names if name.parent == _native.library_dir()]


def test_program_finds_the_libraries_first(verbena_run: Run) -> None:
    found = variables(verbena_run("env").stdout)
    folder = str(_native.library_dir())
    assert found["LD_LIBRARY_PATH"].split(":")[0] == folder
    assert found["PATH"].split(":")[0] == f"{folder}/bin"
    assert preloaded(found) == ["libverbena_paths.so", "libibverbs.so.1"]


def test_options_become_variables(verbena_run: Run) -> None:
    options = ("--shared-heap", "--log", "errors", "--spin", "25", "--netdev", "lo")
    options += ("--link-layer", "ethernet", "--pkeys", "0xffff,1")
    found = variables(verbena_run("env", options=options).stdout)
    assert (found["VERBENA_NETDEV"], found["VERBENA_LINK_LAYER"]) == ("lo", "ethernet")
    assert found["VERBENA_PKEYS"] == "0xffff,0x0001"
    assert (found["VERBENA_LOG"], found["VERBENA_SPIN_US"]) == ("errors", "25")
    assert preloaded(found)[-1] == "libverbena_heap.so"


def test_what_was_preloaded_stays(verbena_run: Run) -> None:
    other = str(_native.library("libverbena_heap.so"))
    done = verbena_run("env", env={"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {other}"})
    assert variables(done.stdout)["LD_PRELOAD"].split()[-1] == other


def test_run_within_run_changes_nothing(verbena_run: Run) -> None:
    once = variables(verbena_run("env").stdout)
    twice = variables(verbena_run(*verbena_command("run", "env")).stdout)
    names = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PATH")
    assert [once[name] for name in names] == [twice[name] for name in names]


# ---- the command line --------------------------------------------------------------------------


def test_exit_status_is_the_programs(verbena_run: Run) -> None:
    assert verbena_run("sh", "-c", "exit 23").returncode == 23


def test_process_is_replaced(verbena_run: Run) -> None:
    """A signal to `verbena run` reaches the program, and nothing stands between."""
    process = subprocess.Popen(
        verbena_command("run", "--", "sh", "-c", "echo $$; exec sleep 60"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert int(process.stdout.readline()) == process.pid
    process.terminate()
    assert process.wait(10) == -15
    process.stdout.close()


@pytest.mark.parametrize(
    "words", [["--", "echo", "--log", "-x"], ["echo", "--log", "-x"]], ids=["with --", "without"]
)
def test_arguments_of_the_program_are_left_to_it(words: list[str]) -> None:
    done = subprocess.run(verbena_command("run", *words), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "--log -x\n")


def test_second_double_dash_is_the_programs() -> None:
    done = subprocess.run(
        verbena_command("run", "--", "echo", "--", "x"), capture_output=True, text=True
    )
    assert done.stdout == "-- x\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the program"),
        (["--log", "loud", "true"], "invalid choice: 'loud'"),
        (["--spin", "-1", "true"], "not a whole number of microseconds"),
        (["--spin", "1000001", "true"], "not a whole number of microseconds up to 1000000"),
        (["--part-id", "4294967296", "true"], "not a number of 32 bits"),
        (["--shared", "--nothing", "true"], "--nothing not recognized"),
        (["--captur", "x", "true"], "(is --capture meant?)"),
        (["--shared-heep", "true"], "(is --shared-heap meant?)"),
    ],
)
def test_wrong_usage_is_status_2(words: list[str], said: str) -> None:
    done = subprocess.run(verbena_command("run", *words), capture_output=True, text=True)
    assert done.returncode == USAGE
    assert said in done.stderr


def test_fewer_devices_than_the_variable_describes_are_wrong_usage(verbena_run: Run) -> None:
    done = verbena_run(
        "true", options=("--devices", "1"), env={"VERBENA_PORTS": "ethernet/ethernet"}
    )
    assert done.returncode == USAGE
    said = (
        "VERBENA_PORTS describes 2 devices, which is more than 1 (VERBENA_PORTS in the environment"
    )
    assert said in " ".join(done.stdout.split())


# ---- programs that cannot run over Verbena -----------------------------------------------------


def test_missing_program(verbena_run: Run) -> None:
    done = verbena_run("no-such-program")
    assert (done.returncode, done.stdout) == (
        NOT_FOUND,
        "verbena run: there is no program no-such-program in PATH\n",
    )


@pytest.mark.not_sanitized("gcc, which PATH must have, says where the sanitizer's runtime is")
def test_missing_program_of_a_known_package(verbena_run: Run) -> None:
    for name, package in (("ib_write_bw", "perftest"), ("ibv_devinfo", "ibverbs-utils")):
        done = verbena_run(name, env={"PATH": "/no/such/folder"})
        assert done.returncode == NOT_FOUND
        assert f"apt install {package}" in done.stdout


def test_missing_program_with_a_name_like_a_known_packages(verbena_run: Run) -> None:
    done = verbena_run("ib_devices_nothing")
    assert done.returncode == NOT_FOUND
    assert "apt install" not in done.stdout


def test_file_that_is_not_executable(verbena_run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("text")
    done = verbena_run(str(file))
    assert done.returncode == CANNOT_RUN
    assert f"chmod +x {file}" in done.stdout


def test_folder(verbena_run: Run, tmp_path: Path) -> None:
    done = verbena_run(str(tmp_path))
    assert done.returncode == CANNOT_RUN
    assert "is a folder" in done.stdout


def test_dynamic_program_runs(verbena_run: Run, tmp_path: Path) -> None:
    assert verbena_run(str(compile_program(tmp_path))).returncode == 7


@pytest.mark.parametrize("option", ["-static", "-static-pie"])
def test_static_program(verbena_run: Run, tmp_path: Path, option: str) -> None:
    done = verbena_run(str(compile_program(tmp_path, option)))
    assert done.returncode == CANNOT_RUN
    assert "statically linked" in done.stdout


def test_script_for_a_static_interpreter(verbena_run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{compile_program(tmp_path, '-static')}\n")
    script.chmod(0o755)
    done = verbena_run(str(script))
    assert done.returncode == CANNOT_RUN
    assert "statically linked" in done.stdout


def test_script_without_its_interpreter(verbena_run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter -x\n")
    script.chmod(0o755)
    done = verbena_run(str(script))
    assert done.returncode == CANNOT_RUN
    assert "/no/such/interpreter, does not exist" in done.stdout


def test_program_that_gains_rights(verbena_run: Run, tmp_path: Path) -> None:
    program = compile_program(tmp_path)
    if os.geteuid() == 0:
        shutil.chown(program, 65534)
        program.chmod(0o4755)
    else:  # only root can give files away: any set-user-ID program of root's will do
        program = Path(
            shutil.which("su")
            or shutil.which("mount")
            or pytest.skip("neither su nor mount is here; run the tests as root")
        )
    done = verbena_run(str(program))
    assert done.returncode == CANNOT_RUN
    assert "gains rights when it starts" in done.stdout


def test_script_that_seems_to_gain_rights(verbena_run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho started\n")
    if os.geteuid() == 0:
        shutil.chown(script, 65534)
    script.chmod(0o4755)
    assert verbena_run(str(script)).stdout == "started\n"


def test_program_for_another_c_library(verbena_run: Run, tmp_path: Path) -> None:
    loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"
    done = verbena_run(str(compile_program(tmp_path, loader)))
    assert done.returncode == CANNOT_RUN
    assert "musl" in done.stdout


def test_file_of_no_known_format(verbena_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "odd"
    program.write_bytes(b"\x7fELF" + bytes(8))
    program.chmod(0o755)
    done = verbena_run(str(program))
    assert done.returncode == CANNOT_RUN
    assert "Exec format error" in done.stdout


# ---- closed streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_a_program_starts_and_finds_the_streams_as_they_are(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    """It runs, and what the caller closed is closed in the program, too."""
    command = shlex.join(verbena_command("run", "--", sys.executable, "-c", OPEN_ONES))
    closing = " ".join(f"{number}>&-" for number in closed)
    whole = ["sh", "-c", f"{command} {tmp_path}/found {closing}"]
    assert subprocess.run(whole, stdin=subprocess.DEVNULL).returncode == 23
    open_ones = set((tmp_path / "found").read_text().split())
    assert open_ones == {"0", "1", "2"} - {str(number) for number in closed}


OPEN_ONES = """
import os, sys
found = [number for number in range(3) if os.path.exists(f"/proc/self/fd/{number}")]
open(sys.argv[1], "w").write(" ".join(map(str, found)))
os._exit(23)
"""


@pytest.mark.debian
def test_without_a_file_the_program_starts_and_its_device_says_why() -> None:
    command = shlex.join(verbena_command("run", "--", "ibv_devinfo"))
    script = f"ulimit -f 0; {command} 2>&1 | cat"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert "raise `ulimit -f`" in done.stdout
    assert "Errno" not in done.stdout
