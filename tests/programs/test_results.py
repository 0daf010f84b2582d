# SPDX-License-Identifier: Apache-2.0
"""Perftest's tables are read whatever printf makes of a figure. Called by pytest alone."""

from __future__ import annotations

import pytest

from tests.programs.pairs import Pair, Side
from tests.programs.results import Row, assert_measured, rows

LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 8       1000          0.08           {most}        0.07               {average}      {deviation}
 16      1000          0.08           1.00           0.07               0.09           0.01
"""


def table(most: str = "1.00", average: str = "0.09", deviation: str = "0.01") -> str:
    return LATENCY.format(most=most, average=average, deviation=deviation)


def pair(output: str) -> Pair:
    return Pair(Side("server", 0, output), Side("client", 0, output))


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "0.00", "-0.00"])
def test_a_row_is_read_whatever_its_deviation(number: str) -> None:
    assert rows(table(deviation=number)) == [Row(8, 1000, 0.09), Row(16, 1000, 0.09)]
    assert_measured(pair(table(most=number, deviation=number)), [8, 16], 1000)


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "0.00"])
def test_the_figure_itself_has_to_be_a_number(number: str) -> None:
    assert len(rows(table(average=number))) == 2
    with pytest.raises(AssertionError):
        assert_measured(pair(table(average=number)), [8, 16], 1000)


BANDWIDTH = """
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 4194304    20               234.60             233.60 \t\t   0.000059Correlation coefficient r^2: \
0.512596 < 0.9

 8388608    20               0.00               0.00   \t\t   0.000000
"""


def test_a_note_of_the_clock_at_the_end_of_a_row_is_no_part_of_it() -> None:
    assert rows(BANDWIDTH) == [Row(4194304, 20, 0.000059), Row(8388608, 20, 0.0)]
