# SPDX-License-Identifier: Apache-2.0
"""Facts and small functions that tests import; fixtures are in conftest.py."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SANITIZED = os.environ.get("VERBENA_SANITIZE", "0") not in ("", "0")


def plain_environment() -> dict[str, str]:
    """The environment for compilers and other tools: nothing preloaded, no Verbena variables."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH") and not name.startswith("VERBENA_")
    }


def clean_environment() -> dict[str, str]:
    """The environment for Verbena's own programs: no variables of Verbena's but the one that says
    that the build is sanitized; then its runtime stays, without which nothing of it starts."""
    kept = ("LD_PRELOAD", "VERBENA_SANITIZE") if SANITIZED else ()
    return plain_environment() | {name: os.environ[name] for name in kept}


def runs(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent's wait does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    """Whether a process is gone within ten seconds."""
    deadline = time.monotonic() + 10
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


def benchmarks_command(*arguments: str) -> list[str]:
    """The command line of the benchmarks; the working directory has to be ROOT."""
    return [sys.executable, "-m", "benchmarks", *arguments]


def verbena_command(*arguments: str) -> list[str]:
    """The command line of the `verbena` program of the environment that runs the tests."""
    return [str(Path(sys.executable).parent / "verbena"), *arguments]


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a process that was started in a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@cache
def device_mtu() -> int:
    """The port's active MTU in bytes, which follows this machine's interfaces."""
    from verbena import verbs

    with verbs.open_device() as context:
        return context.query_port(1).active_mtu.nbytes


@contextlib.contextmanager
def building(build: Path) -> Iterator[None]:
    """Within it no other test builds in that folder: scripts/test.sh runs several at once."""
    build.parent.mkdir(parents=True, exist_ok=True)
    with build.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# As distributions build: the C library's headers then replace open(), realpath() and others, which
# the preload libraries define, by inline functions.
HARDENED = (
    "-fstack-protector-strong -fstack-clash-protection -fcf-protection "
    "-Wformat -Werror=format-security -D_FORTIFY_SOURCE=3"
)


@cache
def native_build_folder() -> Path:
    """The build folder of the C test programs, configured for the sources as they are. They and the
    libraries are hardened, unless the sanitizers look at them."""
    build = ROOT / "build" / ("native-tests-sanitize" if SANITIZED else "native-tests")
    configure = ["-S", str(ROOT), "-B", str(build), "-DVERBENA_NATIVE_TESTS=ON"]
    configure += ["-DVERBENA_WERROR=ON", "-DVERBENA_LOCK_ORDER=ON"]
    configure += ["-DVERBENA_LTO=OFF", f"-DVERBENA_SANITIZE={'ON' if SANITIZED else 'OFF'}"]
    configure += [f"-DCMAKE_C_FLAGS={'' if SANITIZED else HARDENED}"]
    with building(build):
        cmake(*configure)
    return build


def native_build(*targets: str) -> Path:
    """Builds these targets of the C test programs; returns the build folder."""
    build = native_build_folder()
    with building(build):
        cmake("--build", str(build), "--target", *targets)
    return build


def cmake(*arguments: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = shutil.which("cmake", path=path)
    if program is None:
        pytest.fail("cmake is not installed: run make setup, or pip install cmake", pytrace=False)
    environment = plain_environment() | {"PATH": path, "CMAKE_GENERATOR": "Ninja"}
    command = [program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)


@cache
def load_script(path: str) -> ModuleType:
    """The module in a file of the repository that is in no package."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_")[:-3], ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run_tool(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """What a compiler or other tool says, which must end well; it runs in the repository."""
    done = subprocess.run(
        [str(part) for part in command],
        env=plain_environment() | (env or {}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def install_wheel(wheel: Path, folder: Path) -> Path:
    """A virtual environment with the wheel alone; NumPy comes from the one that runs the tests."""
    run_tool(sys.executable, "-m", "venv", "--without-pip", folder)
    install = ["install", "--quiet", "--no-deps", "--no-index", "--only-binary", ":all:"]
    python = folder / "bin" / "python"
    run_tool(sys.executable, "-m", "pip", "--python", python, *install, wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "numpy.pth").write_text(sysconfig.get_path("platlib"))
    return folder


def program_or_skip(name: str, package: str = "") -> str:
    """The path of a program that only some tests need; the test is skipped where it is missing."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed; apt-get install {package or name} brings it")
    return path


@cache
def own_network() -> list[str]:
    """What to put before a command so that no other program is in its network, where that may be.

    It has a loopback interface and no other.
    """
    script = 'ip link set lo up && exec "$0" "$@"'
    prefix = ["unshare", "--net", "sh", "-c", script]
    try:
        tried = subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError:
        return []
    return [] if tried.returncode else prefix


def own_network_or_skip() -> list[str]:
    """As `own_network`, for a test that means nothing without one."""
    prefix = own_network()
    if not prefix:
        pytest.skip("this user may not make a network namespace; run the tests as root")
    return prefix


def child(program: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a network of its own, with `settings` in its environment."""
    return subprocess.run(
        [*own_network(), sys.executable, "-c", program, *arguments],
        env=clean_environment() | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
