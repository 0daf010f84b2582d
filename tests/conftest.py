# SPDX-License-Identifier: Apache-2.0
"""What the whole suite shares: running Debian's programs, alone or over Verbena."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import over_roce
from tests.suite import processes
from tests.support import ROOT, SANITIZED, end_group, load_script, program_or_skip, run_tool

# How long an example takes by the clock says how busy the machine is: three parts of the suite and
# what else runs there share its processors, and one pause of 200 ms would be a failure. A test that
# hangs is ended by the time limit of pyproject.toml.
settings.register_profile(
    "suite",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("suite")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]


def pytest_report_header() -> str:
    from verbena import _native

    build = "AddressSanitizer and UBSan" if SANITIZED else "release"
    try:
        return f"verbena: {build} libraries in {_native.library_dir()}"
    except FileNotFoundError as error:
        return f"verbena: {error}"


SECOND = pytest.StashKey[over_roce.Second]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SECOND] = over_roce.Second(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[SECOND].stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out, in place of skips, tests that have no meaning over a build with sanitizers;
    pytest counts them as deselected. What another process runs comes last, so that no fixture of
    this one is kept for it."""
    if SANITIZED:
        left_out = [item for item in items if item.get_closest_marker("not_sanitized")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=over_roce.is_elsewhere)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Has a test over RoCE run by the second pytest, which also limits its time."""
    if not over_roce.is_elsewhere(item):
        return None
    item.config.hook.pytest_timeout_cancel_timer(item=item)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in item.config.stash[SECOND].run(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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


@pytest.fixture(scope="session")
def debian_program() -> Callable[[str], str]:
    """debian_program(name) is the path of a program that scripts/setup-debian.sh installs."""

    def find(name: str) -> str:
        path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if path is None:
            pytest.fail(f"{name} is not installed: run scripts/setup-debian.sh test", pytrace=False)
        return path

    return find


@pytest.fixture(scope="session")
def fast_clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which perftest waits for a tenth of the time: perftest_clock.c."""
    library = tmp_path_factory.mktemp("clock") / "perftest_clock.so"
    source = ROOT / "tests" / "programs" / "perftest_clock.c"
    compiler = program_or_skip("gcc")
    run_tool(compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source)
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}


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
