# SPDX-License-Identifier: Apache-2.0
"""Under every value of a limit: it works, or a clear error and nothing that stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from tests.robust.conftest import StartChild, connect
from tests.support import ROOT
from verbena import verbs


def sweep(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.robust.starved", name],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_every_number_of_descriptors() -> None:
    done = sweep("descriptors")
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 5
    assert "ulimit -n" in done.stderr


@pytest.mark.not_sanitized("the shadow of AddressSanitizer takes address space itself")
def test_every_amount_of_address_space() -> None:
    done = sweep("space")
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 2
    assert "ulimit -v" in done.stderr


def test_no_descriptors_while_a_peer_is_met() -> None:
    done = sweep("meeting")
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_way_that_is_not_found_for_want_of_descriptors_is_not_said_to_be_missing() -> None:
    done = sweep("way", VERBENA_CARRIER="roce")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("EMFILE")
    assert "the way to" in done.stdout
    assert "raise `ulimit -n`" in done.stdout
    assert "no route leads" not in done.stdout + done.stderr


LEAST_FILE = 64 << 20  # docs/shared-heap.md says so, and so does the message


@pytest.mark.parametrize("limit", [0, 1 << 16, 1 << 24, LEAST_FILE - 1])
def test_files_that_may_not_grow(start_child: StartChild, limit: int) -> None:
    child = start_child(f"RLIMIT_FSIZE={limit}")
    with pytest.raises(verbs.VerbsError) as caught:
        child.make()
    assert caught.value.errno in (errno.EFBIG, errno.ENOMEM)
    said = child.stop()
    assert "ulimit -f" in said
    assert "64 MiB" in said


LIMITED = [(LEAST_FILE, 1 << 17), (100 * 10**6, 1 << 17), (1 << 30, 1 << 21), (2**31 - 1, 1 << 21)]


@pytest.mark.parametrize(("limit", "regions"), LIMITED)
@pytest.mark.parametrize("kind", ["alloc", "own"])
def test_files_of_a_limited_size_hold_smaller_tables(
    start_child: StartChild, limit: int, regions: int, kind: str
) -> None:
    """The device opens, says how many regions its table has room for, and works with any peer."""
    small, usual = start_child(f"RLIMIT_FSIZE={limit}"), start_child()
    near, far = small.make(kind=kind), usual.make(kind=kind)
    connect(near, far)
    assert (near.regions_most(), far.regions_most()) == (regions, 1 << 23)
    for one, other in ((near, far), (far, near)):
        one.fill(b"a limited file")
        one.write(*other.region(), 64)
        assert [done.status for done in one.wait()] == ["SUCCESS"]
        assert other.bytes_at(0, 14) == b"a limited file"
