# SPDX-License-Identifier: Apache-2.0
"""`verbena run --shared-heap`: large allocations are shared memory, and programs do not notice."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.not_sanitized("AddressSanitizer brings a malloc of its own")

CHILD = str(Path(__file__).with_name("shared_heap_child.py"))
SYSTEM_PYTHON = "/usr/bin/python3"
OPTIONS = ("--shared-heap",)


@pytest.mark.parametrize(
    "behaviour",
    [
        "large_requests_are_shared",
        "small_requests_are_not",
        "requests_are_aligned",
        "bad_requests_fail_as_ever",
        "calloc_is_zeroed_after_use",
        "freed_blocks_are_used_again",
        "realloc_keeps_contents",
        "discarded_pages_read_as_zeros",
        "a_peer_finds_the_bytes",
        "closing_every_descriptor_does_no_harm",
        "threads_share_it",
        "a_child_has_its_own_copy",
        "an_interpreter_survives_its_children",
        "a_pool_of_processes_works",
        "other_programs_can_be_started",
        "locking_all_memory_does_not_fill_the_heap",
    ],
)
def test_a_program_sees(verbena_run: Run, behaviour: str) -> None:
    done = verbena_run(SYSTEM_PYTHON, CHILD, behaviour, options=OPTIONS)
    assert done.returncode == 0, done.stdout
    if done.stdout.startswith("SKIP"):
        pytest.skip(done.stdout.removeprefix("SKIP: ").strip())


def test_without_the_option_nothing_is_shared(verbena_run: Run) -> None:
    done = verbena_run(SYSTEM_PYTHON, CHILD, "large_requests_are_shared")
    assert done.returncode != 0
    assert "AssertionError" in done.stdout


def test_an_invalid_free_ends_the_program_and_says_so(verbena_run: Run) -> None:
    done = verbena_run(SYSTEM_PYTHON, CHILD, "free_of_an_inner_pointer", options=OPTIONS)
    assert done.returncode in (-signal.SIGABRT, 128 + signal.SIGABRT)
    assert "not the start of a block in use" in done.stdout


def test_the_smallest_shared_request_can_be_set(verbena_run: Run) -> None:
    child = (SYSTEM_PYTHON, CHILD, "requests_from", "1000000")
    done = verbena_run(*child, options=OPTIONS, env={"VERBENA_SHARED_HEAP_MIN": "1000000"})
    assert done.returncode == 0, done.stdout


def test_a_full_heap_leaves_the_rest_to_libc(verbena_run: Run) -> None:
    size = str(64 << 20)
    child = (SYSTEM_PYTHON, CHILD, "heap_of_size", size)
    done = verbena_run(*child, options=OPTIONS, env={"VERBENA_HEAP_SIZE": size})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("minimum", ["1M", "1024K", "1048576", "1024k"])
def test_the_smallest_shared_request_may_have_a_unit(verbena_run: Run, minimum: str) -> None:
    child = (SYSTEM_PYTHON, CHILD, "requests_from", str(1 << 20))
    done = verbena_run(*child, options=OPTIONS, env={"VERBENA_SHARED_HEAP_MIN": minimum})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("size", ["64M", "65536K", "64m"])
def test_the_size_of_the_heap_may_have_a_unit(verbena_run: Run, size: str) -> None:
    child = (SYSTEM_PYTHON, CHILD, "heap_of_size", str(64 << 20))
    done = verbena_run(*child, options=OPTIONS, env={"VERBENA_HEAP_SIZE": size})
    assert done.returncode == 0, done.stdout
    assert "verbena:" not in done.stdout


NO_SIZES = ("64X", "64MB", "M", "-1", " 64M", "0", "0x1000", "1.5G", "99999999999G", "64 M")


@pytest.mark.parametrize("text", NO_SIZES)
@pytest.mark.parametrize("name", ["VERBENA_HEAP_SIZE", "VERBENA_SHARED_HEAP_MIN"])
def test_what_is_no_size_is_refused_with_what_to_write(
    verbena_run: Run, name: str, text: str
) -> None:
    """The default holds: requests from 64 KiB on are shared."""
    child = (SYSTEM_PYTHON, CHILD, "requests_from", str(64 << 10))
    done = verbena_run(*child, options=OPTIONS, env={name: text})
    assert done.returncode == 0, done.stdout
    said = (
        f"]: {name}={text} is not a size and ignored: write a number of bytes, or of KiB, "
        "MiB or GiB with K, M or G behind it, as 64M\n"
    )
    assert re.search(r"verbena: python3[.\d]*\[\d+" + re.escape(said), done.stdout)


def test_numpy(verbena_run: Run) -> None:
    program = (
        "import numpy as np; a = np.arange(3_000_000.0); b = np.sort(a[::-1] * 2);"
        "assert b[-1] == 5_999_998 and (np.fft.ifft(np.fft.fft(a)).real - a).max() < 1e-3;"
        "assert (np.zeros(1 << 20) == 0).all(); print((a @ b).item())"
    )
    done = verbena_run(sys.executable, "-c", program, options=OPTIONS)
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert float(done.stdout) == pytest.approx(float(plain.stdout))


def test_sort_with_threads(verbena_run: Run, tmp_path: Path) -> None:
    lines = [f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}\n" for i in range(500_000)]
    source, target = tmp_path / "lines", tmp_path / "sorted"
    source.write_text("".join(lines))
    command = ("/usr/bin/sort", "--parallel=4", "-S", "64M", "-o", str(target), str(source))
    done = verbena_run(*command, options=OPTIONS, env={"LC_ALL": "C"})
    assert done.returncode == 0, done.stdout
    assert target.read_text() == "".join(sorted(lines))


def test_a_compiler_and_its_children(verbena_run: Run, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("built") < 0; }\n')
    program = str(tmp_path / "program")
    done = verbena_run("/usr/bin/gcc", "-O2", "-o", program, str(source), options=OPTIONS)
    assert done.returncode == 0, done.stdout
    assert subprocess.run([program], capture_output=True).stdout == b"built\n"
