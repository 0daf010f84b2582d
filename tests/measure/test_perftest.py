# SPDX-License-Identifier: Apache-2.0
"""Cases of Debian's perftest: reading its results, and how many operations it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verbena.measure import cores, perftest
from verbena.measure.case import Effort, Memory, size_text
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError

HERE = Cores(*[min(os.sched_getaffinity(0))] * 2)

BANDWIDTH = """
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 67108864    50               25144.61            21246.28		   0.000332
---------------------------------------------------------------------------------------
"""
LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 8       500000          104.00         15608801.00      520.00   	       1040.00      	356.32
"""


def test_programs_that_share_a_core_get_few_iterations() -> None:
    """ib_write_lat gives the core to nobody; what only one side polls is as fast as on two."""
    apart = Cores(0, 1)
    assert perftest.Perftest("write_lat").expected(apart) > 1e6
    assert perftest.Perftest("write_lat").expected(HERE) <= 100
    assert perftest.Perftest("send_lat").expected(HERE) <= 5000
    same = perftest.Perftest("read_lat")
    assert same.expected(HERE) == same.expected(apart)


def test_bandwidth_of_perftest() -> None:
    sample = perftest.Perftest("write_bw", 64 << 20).sample(perftest.data_row(BANDWIDTH))
    assert sample.value == 21246.28
    assert sample.rate == pytest.approx(21246.28 / 64)


def test_latency_of_perftest_is_in_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "cycles_per_us", lambda: 2600.0)
    row = perftest.data_row(LATENCY)
    assert perftest.Perftest("write_lat").sample(row).value == pytest.approx(0.2)
    assert perftest.Perftest("write_lat", average=True).sample(row).value == pytest.approx(0.4)
    assert "-C" in perftest.Perftest("write_lat").words(100)
    assert "-C" not in perftest.Perftest("write_bw").words(100)


def test_latency_of_perftest_without_a_steady_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "cycles_per_us", lambda: None)
    assert perftest.Perftest("read_lat").sample(perftest.data_row(LATENCY)).value == 520
    assert "-C" not in perftest.Perftest("read_lat").words(100)


def test_a_deviation_that_is_no_number_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "cycles_per_us", lambda: None)
    text = LATENCY.replace("356.32", "-nan")
    assert perftest.Perftest("read_lat").sample(perftest.data_row(text)).value == 520


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "-inf"])
@pytest.mark.parametrize("test", ["read_lat", "write_bw"])
def test_a_figure_that_is_no_number_is_no_result(test: str, number: str) -> None:
    text = LATENCY.replace("520.00", number).replace("15608801.00", number)
    with pytest.raises(MeasureError, match="busy"):
        perftest.Perftest(test, 4096).sample(perftest.data_row(text))


def test_a_warning_before_the_numbers_is_not_the_result() -> None:
    warned = BANDWIDTH.replace(" 67108864", "Conflicting CPU frequency values: 1 != 2\n 67108864")
    assert warned != BANDWIDTH
    assert perftest.data_row(warned) == perftest.data_row(BANDWIDTH)


@pytest.mark.parametrize("text", ["", "Couldn't connect\n", " #bytes\n", " #bytes\n Failed here\n"])
def test_perftest_without_a_result(text: str) -> None:
    with pytest.raises(MeasureError):
        perftest.data_row(text)


def test_perftest_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="apt-get install perftest"):
        perftest.find("ib_write_bw")


def test_effort_follows_the_measured_rate() -> None:
    assert Effort(0.5).iterations(1000) == 500
    assert Effort(0.5, rate=4e6).iterations(1000) == 2_000_000
    assert Effort(0.5, rate=1).iterations(1000) == 20


def test_sizes() -> None:
    assert [size_text(size) for size in (8, 4096, 64 << 20)] == ["8 B", "4 KiB", "64 MiB"]


@pytest.mark.debian
def test_events_and_own_memory() -> None:
    """The variants of one perftest program that the whole run needs."""
    for case in (
        perftest.Perftest("send_lat", events=True, spin_us=20),
        perftest.Perftest("read_lat", memory=Memory.OWN),
        perftest.Perftest("atomic_lat"),
        perftest.Perftest("send_bw", 4096, Memory.OWN),
    ):
        assert case.measure(Effort(0.01), cores.choose()).value > 0
