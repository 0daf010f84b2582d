# SPDX-License-Identifier: Apache-2.0
"""Named costs, the ledger, the charged path of TCP, and receiving under load."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.host import HostError
from verbena.host.costs import DEFAULTS, Costs, Ledger
from verbena.host.receive_path import (
    Work,
    poisson,
    receive_by_interrupts,
    receive_by_polling,
    steady,
)
from verbena.host.tcp_path import TcpPath


def test_every_cost_has_a_source_and_a_unit() -> None:
    assert len({one.name for one in DEFAULTS}) == len(DEFAULTS)
    assert all(one.source and one.per and one.cycles > 0 for one in DEFAULTS)


def test_a_changed_cost_says_that_the_caller_set_it() -> None:
    ledger = Ledger(Costs(syscall=432))
    assert ledger.add("syscall", 2) == 864
    assert "set by the caller" in str(ledger)
    assert "432" in str(ledger)


def test_copies_by_level() -> None:
    ledger = Ledger()
    cycles = [ledger.copy(1000, level) for level in ("l2", "l3", "memory")]
    assert cycles == pytest.approx([100, 200, 500])
    assert ledger.copied_bytes == 3000


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Costs(sycall=1), "there is no cost 'sycall': there are ack, "),
        (lambda: Costs(syscall=-1), "number of cycles from 0"),
        (lambda: Ledger().copy(1, "l4"), "l2, l3 or memory"),
        (lambda: Ledger().copy(-1), "0 bytes or more"),
        (lambda: Ledger().add("syscall", -1), "not negative"),
        (lambda: TcpPath(mtu=100), "576 to 65,535"),
        (lambda: TcpPath(miss=2), "part of misses"),
        (lambda: TcpPath().sender(0), "at least one byte"),
        (lambda: Work(1, 0), "a packet takes some"),
        (lambda: Work(1, 1, spread=1e-9), "0.001 to 100"),
        (lambda: Work(1, 1, ring=0), "at least one packet"),
        (lambda: steady(0, 1), "above 0 a second"),
        (lambda: receive_by_polling([], Work(1, 1), Random(), quota=0), "quota"),
    ],
)
def test_bad_input_is_named(wrong: object, words: str) -> None:
    assert callable(wrong)
    with pytest.raises(HostError, match=words):
        wrong()


@given(st.integers(1, 1 << 22), st.booleans(), st.sampled_from([1500, 9000]))
def test_the_path_of_tcp_adds_up(size: int, joins: bool, mtu: int) -> None:
    path = TcpPath(mtu=mtu, tso=joins, gro=joins)
    for ledger in (path.sender(size), path.receiver(size)):
        assert ledger.total == pytest.approx(sum(ledger.cycles.values()))
        assert ledger.copied_bytes == size
        assert ledger.times["syscall"] == 1
    assert path.throughput_gbps(size, 10.0) <= 10.0
    assert path.receiver(size).times["frame_in"] == -(-size // (mtu - 52))


@given(
    st.floats(100, 50_000),
    st.integers(1, 400),
    st.booleans(),
    st.integers(1, 64),
    st.sampled_from([0.0, 0.01, 0.7, 2.0]),
)
def test_no_packet_is_lost_uncounted(
    rate: float, packets: int, polls: bool, quota: int, spread: float
) -> None:
    work = Work(20.0, 100.0, 3.0, spread, ring=8, queue=4)
    arrivals = list(poisson(rate, packets, Random(3)))
    if polls:
        got = receive_by_polling(arrivals, work, Random(1), quota=quota, share=0.9)
        waiting = work.ring
    else:
        got = receive_by_interrupts(arrivals, work, Random(1))
        waiting = work.queue
    assert got.offered == packets
    left = packets - got.out - got.dropped_by_adapter - got.dropped_by_host
    assert 0 <= left <= waiting


def test_interrupts_alone_end_in_livelock_and_polling_does_not() -> None:
    work = Work(interrupt=100.0, packet=100.0, ring=32)

    def out(rate: float, polls: bool) -> float:
        packets = steady(rate, 5000)
        if polls:
            return receive_by_polling(packets, work, Random(1)).out_per_second
        return receive_by_interrupts(packets, work, Random(1)).out_per_second

    assert out(4000, False) == pytest.approx(4000, rel=0.01)
    assert out(20_000, False) < 100
    assert out(20_000, True) > 9500
