# SPDX-License-Identifier: Apache-2.0
"""`ulimit -v` and `ulimit -d`: what is refused says which limit suffices, and that one does."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.not_sanitized("the shadow of AddressSanitizer takes address space itself")

PROGRAM = """
from verbena import verbs
with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    memory = pd.alloc(1 << 20, 15)
    near.write(memory, memory.addr, memory.rkey)
    cq.wait_one(30).raise_for_status()
"""
KINDS = {
    "v": (resource.RLIMIT_AS, "no address space for its tables and threads"),
    "d": (resource.RLIMIT_DATA, "no private memory for its tables and threads"),
}
TOO_LITTLE = {"v": 1_000_000, "d": 25_000}  # KiB; Python itself starts with it
BOTH = pytest.mark.parametrize("option", KINDS)
Done = subprocess.CompletedProcess[str]


def limiting(number: int, kib: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(number, (kib << 10, kib << 10))


def run_under(option: str, kib: int, **env: str) -> Done:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | env,
        preexec_fn=limiting(KINDS[option][0], kib),
        capture_output=True,
        text=True,
        timeout=60,
    )


def advised(option: str, kib: int, **env: str) -> tuple[int, int | None]:
    """What the refusal names: the limit that suffices, and that with the smallest heap."""
    refused = run_under(option, kib, **env)
    assert refused.returncode, f"{kib} KiB suffice"
    assert KINDS[option][1] in refused.stderr
    whole = re.search(rf"this program needs `ulimit -{option} (\d+)` \(KiB\)", refused.stderr)
    assert whole, refused.stderr
    small = re.search(
        rf"with VERBENA_HEAP_SIZE=16M `ulimit -{option} (\d+)` is enough", refused.stderr
    )
    return int(whole[1]), int(small[1]) if small else None


@BOTH
@pytest.mark.parametrize("part", [0.5, 0.6, 0.7])
def test_the_advice_is_enough(option: str, part: float) -> None:
    """Wherever below the least the limit was: threads and tables are refused at different ones."""
    whole, small = advised(option, TOO_LITTLE[option])
    again, _ = advised(option, int(part * (small or whole)))
    assert run_under(option, again).returncode == 0


def test_a_smaller_heap_needs_less_private_memory() -> None:
    """Of address space a heap takes a part, whatever there is."""
    whole, small = advised("d", TOO_LITTLE["d"])
    assert small
    assert small < 0.7 * whole
    assert run_under("d", small, VERBENA_HEAP_SIZE="16M").returncode == 0
    assert advised("v", TOO_LITTLE["v"])[1] is None


@BOTH
def test_the_advice_is_not_far_above_what_is_needed(option: str) -> None:
    """A number that everything passes with says nothing."""
    whole, small = advised(option, TOO_LITTLE[option])
    assert run_under(option, (small or whole) // 2, VERBENA_HEAP_SIZE="16M").returncode


@BOTH
def test_who_has_the_smallest_heap_is_told_of_no_smaller_one(option: str) -> None:
    whole, small = advised(option, TOO_LITTLE[option], VERBENA_HEAP_SIZE="16M")
    assert small is None
    assert run_under(option, whole, VERBENA_HEAP_SIZE="16M").returncode == 0


def test_the_advice_is_enough_for_a_heap_that_was_asked_for() -> None:
    whole, _ = advised("v", TOO_LITTLE["v"], VERBENA_HEAP_SIZE="64G")
    assert run_under("v", whole, VERBENA_HEAP_SIZE="64G").returncode == 0


@BOTH
def test_a_program_that_asks_for_errors_reads_the_same(option: str) -> None:
    refused = run_under(option, TOO_LITTLE[option], VERBENA_LOG="errors")
    assert f"]: cannot open verbena0: {KINDS[option][1]}: this program" in refused.stderr
