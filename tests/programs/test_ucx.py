# SPDX-License-Identifier: Apache-2.0
"""Debian's UCX over Verbena: it insists on sysfs and /dev/infiniband, and has RC and UD of its own.

UCX connects RC through an auxiliary transport: rc_verbs "alone" lets it use ud_verbs for that only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from tests.conftest import Run, Start
from tests.programs.pairs import Pair, assert_good, leaves_nothing, start_pair

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
Ucx = Callable[..., Pair]

DEVICE = "verbena0:1"
BOTH, ONLY_RC, ONLY_UD = "rc_verbs,ud_verbs", "rc_verbs,ud_verbs:aux", "ud_verbs"
USED = {BOTH: "rc_verbs", ONLY_RC: "rc_verbs", ONLY_UD: "ud_verbs"}
MESSAGES = ("tag_lat", "tag_bw", "ucp_am_lat", "ucp_am_bw", "stream_lat")
MEMORY = ("ucp_put_lat", "ucp_put_bw", "ucp_get")
ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")


def environment(transports: str) -> dict[str, str]:
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": DEVICE, "UCX_LOG_LEVEL": "info"}


@pytest.fixture
def ucx(verbena_start: Start, debian_program: Find) -> Ucx:
    """ucx(transports, test, size, iterations, *more): both sides of ucx_perftest."""

    def run(
        transports: str,
        test: str,
        size: int = 8,
        iterations: int = 500,
        *more: str,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Pair:
        return start_pair(
            verbena_start,
            debian_program("ucx_perftest"),
            client_only=("-t", test, "-s", str(size), "-n", str(iterations), "-w", "5", *more),
            options=options,
            env=environment(transports) | (env or {}),
        ).finish()

    return run


def lanes(output: str) -> set[str]:
    """The transports, with their devices, that UCX says its endpoints use."""
    configurations = re.findall(r"ep_cfg\[\d+\]: (.*)", output)
    return set(re.findall(r"(\w+/[\w:]+)", " ".join(configurations)))


def assert_ran(pair: Pair, transports: str, iterations: int = 500) -> None:
    """Both ended well, over the transport that was asked for, with every iteration."""
    assert_good(pair, allowed="UCX  DIAG")  # it has no connection manager, and does without
    for side in pair.sides:
        assert lanes(side.output) == {f"{USED[transports]}/{DEVICE}"}, str(pair)
    final = re.search(r"^Final: +(\d+) ", pair.client.output, re.MULTILINE)
    assert final, str(pair)
    assert int(final[1]) == iterations, str(pair)


def test_device_is_found(verbena_run: Run, debian_program: Find) -> None:
    done = verbena_run(debian_program("ucx_info"), "-d")
    assert done.returncode == 0
    for transport in ("rc_verbs", "ud_verbs"):
        wanted = rf"Transport: {transport}\n#\s+Device: {DEVICE}\n"
        assert re.search(wanted, done.stdout), done.stdout


@pytest.mark.parametrize("test", [*MESSAGES, *MEMORY])
@pytest.mark.parametrize("size", [8, 5000, 1 << 20])
@pytest.mark.parametrize("transports", [BOTH, ONLY_UD], ids=["rc and ud", "ud"])
def test_message(ucx: Ucx, transports: str, size: int, test: str) -> None:
    iterations = 20 if size > 5000 else 500
    assert_ran(ucx(transports, test, size, iterations), transports, iterations)


@pytest.mark.parametrize("test", ["tag_lat", "tag_bw", "ucp_get"])
def test_rc_alone(ucx: Ucx, test: str) -> None:
    assert_ran(ucx(ONLY_RC, test, 4096), ONLY_RC)


@pytest.mark.parametrize("test", ATOMICS)
def test_atomic(ucx: Ucx, test: str) -> None:
    assert_ran(ucx(BOTH, test), BOTH)


@pytest.mark.parametrize("transports", [BOTH, ONLY_UD], ids=["rc and ud", "ud"])
def test_sleeping_receiver(ucx: Ucx, transports: str) -> None:
    """It waits in epoll on the completion channels' descriptors."""
    assert_ran(ucx(transports, "tag_lat", 8, 200, "-E", "sleep"), transports, 200)


def test_scattered_buffers(ucx: Ucx) -> None:
    pair = ucx(BOTH, "tag_bw", 8, 200, "-D", "iov,iov", "-s", "100,3000,40000")
    assert_ran(pair, BOTH, 200)


@pytest.mark.not_sanitized("AddressSanitizer brings a malloc of its own")
@pytest.mark.parametrize("test", ["tag_bw", "ucp_put_bw", "ucp_get"])
def test_shared_heap(ucx: Ucx, test: str) -> None:
    assert_ran(ucx(BOTH, test, 1 << 20, 20, options=("--shared-heap",)), BOTH, 20)


@pytest.mark.parametrize("test", ["tag_bw", "ucp_put_bw", "ucp_get"])
def test_bounce_ring(ucx: Ucx, test: str) -> None:
    assert_ran(ucx(BOTH, test, 1 << 20, 20, env={"VERBENA_COPY": "bounce"}), BOTH, 20)


# Microseconds for a message. By turns of the scheduler it is 13,000 to 33,000, with yields 8 to 15.
YIELDING = 1000


@pytest.mark.parametrize("transports", [BOTH, ONLY_UD], ids=["rc and ud", "ud"])
def test_both_ends_on_one_core_take_turns(
    verbena_start: Start, debian_program: Find, transports: str
) -> None:
    """UCX polls without a pause: the other end runs because `ibv_poll_cq` gives the core away."""
    core = str(min(os.sched_getaffinity(0)))
    pair = start_pair(
        verbena_start,
        *("taskset", "-c", core, debian_program("ucx_perftest")),
        client_only=("-t", "tag_lat", "-s", "8", "-n", "300", "-w", "5"),
        env=environment(transports),
    ).finish()
    assert_ran(pair, transports, 300)
    final = re.search(r"^Final: +\d+ +([\d.]+) ", pair.client.output, re.MULTILINE)
    assert final, str(pair)
    assert float(final[1]) < YIELDING, str(pair)  # half of the messages take no longer


def test_leaves_nothing(ucx: Ucx) -> None:
    with leaves_nothing() as env:
        assert_ran(ucx(BOTH, "tag_lat", env=env), BOTH)
