# SPDX-License-Identifier: Apache-2.0
"""What the whole suite shares: running Debian's programs, alone or over Verbena."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from tests.suite import processes
from tests.support import SANITIZED, end_group, load_script

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


def pytest_report_header() -> str:
    from verbena import _native

    build = "AddressSanitizer and UBSan" if SANITIZED else "release"
    try:
        return f"verbena: {build} libraries in {_native.library_dir()}"
    except FileNotFoundError as error:
        return f"verbena: {error}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out, in place of skips, tests that have no meaning on a simulated fabric or over a
    build with sanitizers; pytest counts them as deselected."""
    left_out = [item for item in items if has_no_meaning(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not has_no_meaning(item)]


def has_no_meaning(item: pytest.Item) -> bool:
    if SANITIZED and item.get_closest_marker("not_sanitized"):
        return True
    return is_simulated(item) and is_impossible(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip whose reason is no sentence fails: scripts/check_skips.py sees only what is written
    in the sources, and not what a program says or a function returns."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        wrong = load_script("scripts/check_skips.py").fault(reason)
        if wrong:
            report.outcome = "failed"
            report.longrepr = f"the skip's reason {reason!r} {wrong} (scripts/check_skips.py)"
    return report


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
    return processes.run


@pytest.fixture
def verbena_start() -> Iterator[Start]:
    """verbena_start(*program, options=(), env={}): start a program over Verbena, as Popen.

    Each runs in its own process group, which is killed when the test ends.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*program: str, **how: Any) -> subprocess.Popen[str]:
        started.append(processes.start(*program, **how))
        return started[-1]

    yield start
    for process in started:
        end_group(process)
