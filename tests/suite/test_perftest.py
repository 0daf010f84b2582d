# SPDX-License-Identifier: Apache-2.0
"""A part of what `make compatibility` runs of perftest: each option with one of its programs."""

from __future__ import annotations

import pytest

from tests.programs.pairs import Pair, Side
from tests.suite import perftest
from tests.suite.perftest import Mode, Option, label

pytestmark = pytest.mark.debian

# What tests/programs/test_perftest.py has, in more detail; and what takes seconds.
ELSEWHERE = {"", "--use_old_post_send", "-b", "-q 4", "-e", "-l 8", "--use-srq", "--use-srq -q 4"}
ELSEWHERE |= {"-I 32 -s 32", "-I 32 -s 32 --use_old_post_send", "-q 4 -b", "-q 4 --mr_per_qp"}
# What perftest refuses by itself: that it says so in its own words is what is looked at.
REFUSED = {"`--dont_xchg_versions`", "`-O`", "`--rate_limit 10 --rate_limit_type HW`"}
SLOW = ("-a", "-D", "--wait_destroy", "-A")
# Whose meaning depends on the CPU's frequency, which perftest_clock.c falsifies.
TIMED = ("--latency_gap", "--rate_limit", "-w ")


def chosen() -> list[Mode]:
    """One mode for each option: another program and transport each time."""
    found = []
    for number, option in enumerate(perftest.OPTIONS):
        if str(option) in ELSEWHERE or str(option).startswith(SLOW):
            continue
        modes = [mode for mode in perftest.modes() if mode.option is option]
        modes = [mode for mode in modes if mode.kind == "bw"] or modes  # the others take longer
        found.append(modes[number % len(modes)])
    return found


@pytest.mark.parametrize("mode", chosen(), ids=str)
def test_mode(mode: Mode, fast_clock: dict[str, str]) -> None:
    timed = str(mode.option).startswith(TIMED)
    outcome = perftest.outcome(mode, {} if timed else fast_clock)
    if outcome.reason == perftest.NO_HUGE_PAGES:
        pytest.skip("the machine has no huge pages; sysctl vm.nr_hugepages=64 sets some aside")
    ends = ("passed", "skipped") if label(mode.option) in REFUSED else ("passed",)
    assert outcome.status in ends, str(outcome)


# ---- what counts as passed ----------------------------------------------------------------------

GOOD = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      24               100.00             90.00              0.001440
"""


def judged(output: str, status: int = 0, option: Option | None = None) -> str:
    mode = Mode("write", "bw", "RC", option or Option(()))
    return perftest.judge(mode, Pair(Side("server", 0, ""), Side("client", status, output))).status


def test_a_measurement_is_passed() -> None:
    assert judged(GOOD) == "passed"


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (GOOD, 1),
        (GOOD, -11),
        ("", 0),
        (GOOD.splitlines()[0], 0),
        (GOOD.replace(" 24 ", " 23 "), 0),
        (GOOD + " Completion with error at client\n", 0),
    ],
    ids=["exit status", "signal", "silence", "no rows", "iterations", "complaint"],
)
def test_what_is_not(output: str, status: int) -> None:
    assert judged(output, status) == "failed"


def test_what_an_option_must_say() -> None:
    option = Option((), says="Test with events")
    assert judged(GOOD, option=option) == "failed"
    assert judged(GOOD + "Test with events\n", option=option) == "passed"


@pytest.mark.parametrize(
    ("said", "option", "transport", "status"),
    [
        ("QP failed to accept HW rate limit", Option(()), "RC", "skipped"),
        ("QP failed to accept HW rate limit", Option((), infiniband=True), "RC", "failed"),
        ("QP failed to accept HW rate limit", Option((), infiniband=True), "UD", "skipped"),
        ("ODP does not support UC", Option(("--odp",)), "UC", "skipped"),
        ("ODP does not support UC", Option(("--odp",)), "RC", "failed"),
        (" ODP is not supported for RC transport", Option(("--odp",)), "RC", "failed"),
        ("Unable to query port 2 attributes", Option(("-O",)), "RC", "skipped"),
        ("Unable to query port 2 attributes", Option(()), "RC", "failed"),
    ],
)
def test_a_refusal_is_skipped_only_where_it_is_right(
    said: str, option: Option, transport: str, status: str
) -> None:
    mode = Mode("write", "bw", transport, option)
    pair = Pair(Side("server", 0, ""), Side("client", 1, said))
    assert perftest.judge(mode, pair).status == status


def test_every_program_and_transport_has_modes() -> None:
    found = {mode.where for mode in perftest.modes()}
    assert len(found) == 2 * sum(len(kinds) for kinds in perftest.TRANSPORTS.values())
