# SPDX-License-Identifier: Apache-2.0
"""A limit on address space: from 1.5 GiB on pairs connect; below it the doctor says they do not."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Sequence

import pytest

from tests.robust.conftest import StartChild, connect
from tests.support import own_network, verbena_command

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PINGPONG = ["ibv_rc_pingpong", "-g", "1", "-e"]
pytestmark = pytest.mark.not_sanitized("the shadow of AddressSanitizer takes address space itself")


# In KiB, as `ulimit -v` takes them; of some the next power of two is near, of others far.
LIMITS = [1536 * KIB, 2 * MIB, 4 * MIB, 64 * MIB, 2_500_000, 6_000_000, 9_000_000, 10_000_000]
LIMITS += [20_000_000, 35_000_000, 40_000_000, 50_000_000]


def status(limit: int, *words: str, prefix: Sequence[str] = ()) -> int:
    return subprocess.run(
        [*prefix, *verbena_command(*words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=100,
    ).returncode


def works(limit: int) -> bool:
    words = ["pair", "--", *PINGPONG, "--", *PINGPONG, "localhost"]
    return status(limit, *words, prefix=own_network()) == 0


@pytest.mark.debian
@pytest.mark.parametrize(
    "limit",
    LIMITS,
)
def test_a_pair_connects_from_the_least_limit_on(limit: int) -> None:
    assert works(limit * KIB)


@pytest.mark.debian
@pytest.mark.parametrize("limit", [500 * MIB, GIB, 1535 * MIB, 1536 * MIB])
def test_the_doctor_says_what_a_pair_finds(limit: int) -> None:
    assert (status(limit, "doctor") == 0) == works(limit)


@pytest.mark.parametrize("limit", [1536 * MIB, 2 * GIB, 6 * GIB, 20_000_000 * KIB])
def test_there_is_room_for_three_peers_with_the_same_limit(
    start_child: StartChild, limit: int
) -> None:
    hub, *rim = [start_child(f"RLIMIT_AS={limit}") for _ in range(4)]
    for child in rim:
        near, far = hub.make(), child.make()
        connect(near, far)
        near.fill(b"there is room")
        near.write(*far.region(), 64)
        assert [done.status for done in near.wait()] == ["SUCCESS"]
        assert far.bytes_at(0, 13) == b"there is room"
