# SPDX-License-Identifier: Apache-2.0
"""What the whole suite shares: running Debian's programs, alone or over Verbena."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.support import SANITIZED, end_group, verbena_command

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


def pytest_report_header() -> str:
    from verbena import _native

    build = "AddressSanitizer and UBSan" if SANITIZED else "release"
    try:
        return f"verbena: {build} libraries in {_native.library_dir()}"
    except FileNotFoundError as error:
        return f"verbena: {error}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out tests on a simulated fabric that have no meaning there, in place of skips."""
    items[:] = [item for item in items if not (is_simulated(item) and is_impossible(item))]


def is_simulated(item: pytest.Item) -> bool:
    """Whether the fixture `port` of tests/verbs, or `where` of tests/aio, is a simulated fabric."""
    from verbena.sim.loop import Loop

    params = parameters(item)
    return params.get("port") == "sim" or params.get("where") is Loop


def is_impossible(item: pytest.Item) -> bool:
    """All hosts of a simulated fabric are in one process; a marker tells what else is not there."""
    marker = item.get_closest_marker("not_simulated")
    if marker is not None and not marker.args:
        raise pytest.UsageError(f"{item.nodeid}: not_simulated needs a reason")
    return marker is not None or parameters(item).get("processes") == "two processes"


def parameters(item: pytest.Item) -> dict[str, object]:
    return getattr(getattr(item, "callspec", None), "params", {})


@pytest.fixture(scope="session")
def debian_program() -> Callable[[str], str]:
    """debian_program(name) is the path of a program that scripts/setup-debian.sh installs."""

    def find(name: str) -> str:
        path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if path is None:
            pytest.fail(f"{name} is not installed: run scripts/setup-debian.sh test", pytrace=False)
        return path

    return find


@pytest.fixture
def verbena_run() -> Run:
    """verbena_run(*program, options=(), env={}, timeout=60): run a program over Verbena.

    Returns the completed process with its output as text; the caller looks at returncode.
    """

    def run(
        *program: str,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            verbena_command("run", *options, "--", *program),
            env=os.environ | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def verbena_start() -> Iterator[Start]:
    """verbena_start(*program, options=(), env={}): start a program over Verbena, as Popen.

    Each runs in its own process group, which is killed when the test ends.
    """
    started: list[subprocess.Popen[str]] = []

    def start(
        *program: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            verbena_command("run", *options, "--", *program),
            env=os.environ | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        end_group(process)
