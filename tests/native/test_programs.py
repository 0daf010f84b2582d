# SPDX-License-Identifier: Apache-2.0
"""Builds the C unit-test programs beside this file and runs each as one test.

A program passes with exit status 0, and skips with 77, its last line being the reason.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import (
    SANITIZED,
    native_build,
    native_build_folder,
    own_network,
    plain_environment,
)
from verbena._native import sanitizer_preload

HERE = Path(__file__).parent
SKIP_STATUS = 77
SOURCES = sorted(
    str(path.relative_to(HERE).with_suffix(""))
    for pattern in ("test_*.c", "dropin/test_*.c", "preload/test_*.c")
    for path in HERE.glob(pattern)
)


# Between queue pairs of one process, and once more by packets of the host's own network.
BY_PACKETS = [
    "dropin/test_errno",
    "dropin/test_faults",
    "dropin/test_flush",
    "dropin/test_rate_limit",
    "dropin/test_wr_calls",
]
# And with the library in front that `verbena run` preloads; it is all that ALONE_WATCHED is about.
ALONE_WATCHED = ["dropin/test_reused_memory", "dropin/test_freed_memory"]
WATCHED = [
    "dropin/test_faults",
    "dropin/test_regions",
    *([] if SANITIZED else ["dropin/test_freed_memory"]),  # its free() would come first
    "dropin/test_reused_memory",
    "dropin/test_watched_calls",
]
CORE_WATCHED = ["test_processes", "test_srq_in_hand"]  # which end.c then says to the core


def elsewhere() -> list[str]:
    """Programs that would only skip here: of a sanitized build none can measure its own memory, and
    those of preload stand in front of functions, malloc's among them, that are the sanitizer's."""
    sanitized = ["test_roce_idle", *(name for name in SOURCES if name.startswith("preload/"))]
    return [*ALONE_WATCHED, *(sanitized if SANITIZED else [])]


def target_of(name: str) -> str:
    return name.replace("/", "_")


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest) -> frozenset[str]:
    """The targets of all tests that run, built at once: a build that finds nothing to do takes as
    long as most programs. It is empty if one does not compile; then each test builds its own."""
    params = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    targets = frozenset(target_of(each["name"]) for each in params)
    try:
        native_build(*sorted(targets))
    except pytest.fail.Exception:
        return frozenset()
    return targets


@pytest.mark.timeout(600)  # the first one builds the core too
@pytest.mark.parametrize("name", [name for name in SOURCES if name not in elsewhere()])
def test_program(tmp_path: Path, built: frozenset[str], name: str) -> None:
    run(tmp_path, built, name, {})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BY_PACKETS)
def test_program_by_packets(tmp_path: Path, built: frozenset[str], name: str) -> None:
    run(tmp_path, built, name, {"VERBENA_CARRIER": "roce"})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("carrier", ["direct", "roce"])
def test_program_watched(tmp_path: Path, built: frozenset[str], name: str, carrier: str) -> None:
    lib = native_build("verbena_paths") / "lib"
    preload = [*sanitizer_preload(), lib / "libverbena_paths.so", lib / "libibverbs.so.1"]
    settings = {"LD_PRELOAD": " ".join(map(str, preload)), "VERBENA_CARRIER": carrier}
    run(tmp_path, built, name, settings)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CORE_WATCHED)
def test_core_watched(tmp_path: Path, built: frozenset[str], name: str) -> None:
    run(tmp_path, built, name, {"VERBENA_TEST_WATCHED": "1"})


def run(tmp_path: Path, built: frozenset[str], name: str, settings: dict[str, str]) -> None:
    there = target_of(name) in built
    build = native_build_folder() if there else native_build(target_of(name))
    # Who shares port 4791 forwards for others, as late as it is itself.
    prefix = own_network() if "VERBENA_CARRIER" in settings or "roce" in name else []
    environment = plain_environment()
    environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=1"
    # For the program alone: Debian's `ip`, which makes the network, leaks.
    program = ["env", *(f"{key}={value}" for key, value in settings.items())]
    done = subprocess.run(
        [*prefix, *program, str(build / "tests" / name)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=100,
    )
    if done.returncode == SKIP_STATUS:
        pytest.skip(done.stdout.strip().rpartition("\n")[2])
    assert done.returncode == 0, f"{name} exited with {done.returncode}:\n{done.stdout}"
