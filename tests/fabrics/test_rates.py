# SPDX-License-Identifier: Apache-2.0
"""Rates of links."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from verbena.fabrics import FabricError, Rate, ethernet, infiniband, rate, rates


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("1xSDR", 2),
        ("4xSDR", 8),
        ("4xDDR", 16),
        ("12xQDR", 96),
        ("4xFDR10", 40),
        ("4xFDR", Fraction(600, 11)),
        ("EDR", 100),
        ("4xHDR", 200),
        ("8xNDR", 800),
        ("2xXDR", 400),
        ("2.5GbE", Fraction(5, 2)),
        ("800GbE", 800),
        ("37.5 Gb/s", Fraction(75, 2)),
        ("0.1 Gb/s", Fraction(1, 10)),
        ("100 Gbps", 100),
        ("100 Gbit/s", 100),
        ("100G", 100),
        ("800 kb/s", Fraction(8, 10**4)),
        ("100gbe", 100),
        ("800 Mb/s", Fraction(4, 5)),
        ("2.5e8 bit/s", Fraction(1, 4)),
        ("1.6 Tb/s", 1600),
    ],
)
def test_a_rate_is_what_packets_can_use(name: str, gbps: int | Fraction) -> None:
    assert rate(name).bits_per_second == Fraction(gbps) * 10**9


def test_the_time_of_a_byte_is_exact() -> None:
    assert ethernet(100).ps_per_byte == 80
    assert infiniband("HDR").ps_per_byte == 40
    assert infiniband("FDR").ps_per_byte == Fraction(440, 3)


def test_every_name_is_read_again() -> None:
    for name in rates.names():
        assert rate(name).name == name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "0 is a number without a unit"),
        (100, '100 is a number without a unit: write "100 Gb/s", or "100GbE"'),
        (np.float32(40), 'write "40 Gb/s"'),
        (np.int64(25 * 10**9), 'write "25 Gb/s"'),
        (float("nan"), "nan is a number without a unit"),
        ("0 Gb/s", "carries nothing"),
        (Rate("none", Fraction(0)), "carries nothing"),
        ("1 b/s", "too slow"),
        ("1.1e6 Gb/s", "more than 1000000 Gb/s"),
        ([1], r"\[1\] is no rate"),
        (True, "True is no rate"),
        ("3xEDR", "no InfiniBand rate 3xEDR"),
        ("4xABC", "speeds are SDR"),
        ("30GbE", "no Ethernet of 30 Gb/s"),
        ("fast", "'fast' is no rate"),
        ("100 GB/s", r"is in bytes \(B\), and rates are in bits \(b\): write \"800 Gb/s\""),
        ("12.5GBps", 'write "100 Gb/s"'),
        ("100 MB/s", 'write "800 Mb/s"'),
        ("5 B/s", 'write "40 b/s"'),
        ("1 gbyte/s", 'write "8 Gb/s"'),
        ("100 gb/s", "'100 gb/s' has an unknown unit: write \"100 Gb/s\""),
        ("100 mbps", 'write "100 Mb/s"'),
        ("100g", 'write "100 Gb/s"'),
    ],
)
def test_what_is_no_rate(value: Any, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        rate(value)


def test_the_name_of_any_rate_is_that_rate() -> None:
    assert rate(rate("54.54545454 Gb/s").name) == rate("54.54545454 Gb/s")
