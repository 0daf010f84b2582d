# SPDX-License-Identifier: Apache-2.0
"""What the pictures of a result show, line by line, and what its summary says of flows not done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from verbena.sim import Scenario, ScenarioResult, plots
from verbena.sim.result import DONE, FAILED, QUEUES

BASE = """\
[fabric]
topology = "one_switch"
hosts = 5
rate = "100GbE"
delay = "1 us"

[[traffic]]
name = "many"
pattern = "incast"
senders = 4
size = "1 MiB"

[[traffic]]
name = "one"
pattern = "flows"
from = "h4"
to = "h0"
size = "16 KiB"
"""


def run(more: str = "", text: str = BASE) -> ScenarioResult:
    return Scenario.parse(more + text).run()


def drawn(draw: Any, result: ScenarioResult) -> Any:
    axes = Figure().subplots()
    draw(result, axes)
    return axes


def sampled(result: ScenarioResult, queued: np.ndarray) -> ScenarioResult:
    """As if these queues had been sampled."""
    queues = np.zeros(queued.shape[1], QUEUES)
    queues["link"] = np.arange(queued.shape[1]) % len(result.links)
    times = np.arange(1, len(queued) + 1, dtype=np.uint64) * 1000
    return replace(result, times=times, queues=queues, queued=queued.astype(np.uint32))


# ---- queues ------------------------------------------------------------------------------------


def test_the_longest_queues_are_drawn_beside_many_empty_ones() -> None:
    queued = np.zeros((5, 30))
    queued[2, 3], queued[:, 17], queued[4, 29] = 2048, 1024, 4096
    axes = drawn(plots.queues, sampled(run(), queued))
    assert [line.get_ydata().max() for line in axes.lines] == [4, 2, 1]
    assert len(axes.get_legend().get_texts()) == 3


def test_no_more_than_the_longest_eight_are_drawn() -> None:
    queued = np.tile(np.arange(1, 13) * 1024, (3, 1))
    axes = drawn(plots.queues, sampled(run(), queued))
    assert [line.get_ydata().max() for line in axes.lines] == list(range(12, 4, -1))
    assert axes.get_title().endswith("the longest 8 of 12")


def test_queues_that_were_always_empty_are_said_and_not_drawn() -> None:
    axes = drawn(plots.queues, sampled(run(), np.zeros((5, 9))))
    assert not axes.lines
    assert axes.texts[0].get_text() == "nothing waited in any of the 9 queues that were sampled"


def test_all_queues_of_a_tree_are_sampled_and_some_drawn() -> None:
    text = BASE.replace('"one_switch"\nhosts = 5', '"clos2"\nradix = 8')
    result = run(text=text + '\n[samples]\nevery = "5 us"\n')
    assert (result.queued.max(axis=0) == 0).sum() > 8
    lines = drawn(plots.queues, result).lines
    assert lines[0].get_ydata().max() == pytest.approx(result.queued.max() / 1024)


# ---- completion times ----------------------------------------------------------------------------


def curve(axes: Any, number: int) -> list[float]:
    made: list[float] = axes.lines[number].get_ydata().tolist()
    return made


def test_completion_begins_at_0_and_ends_at_the_part_of_all_flows() -> None:
    result = run()
    axes = drawn(plots.completion_times, result)
    assert curve(axes, 0)[:5] == [0, 0.25, 0.5, 0.75, 1]
    assert curve(axes, 0)[-1] == 1
    times = np.sort(result.durations("many"))
    unit = {"(us)": 1e6, "(ms)": 1e9}[axes.get_xlabel().split()[-1]]
    assert axes.lines[0].get_xdata()[1:5] == pytest.approx(times / unit)


def test_a_single_flow_is_a_line_that_is_seen() -> None:
    axes = drawn(plots.completion_times, run())
    one = axes.lines[1]
    assert one.get_ydata().tolist()[:2] == [0, 1]
    low, high = axes.get_xlim()
    inside = (one.get_xdata() > low) & (one.get_xdata() < high)
    assert inside.any()
    assert one.get_xdata()[-1] == pytest.approx(high)


def test_flows_that_have_not_ended_keep_the_curve_below_1() -> None:
    result = run('duration = "300 us"\n')
    states = result.of("many")["state"]
    assert 0 <= (states == DONE).sum() < 4
    axes = drawn(plots.completion_times, result)
    done = int((states == DONE).sum())
    assert curve(axes, 0)[-1] == done / 4
    assert axes.get_legend().get_texts()[0].get_text() == f"many: {done} of 4 flows"
    unit = {"(us)": 1e6, "(ms)": 1e9}[axes.get_xlabel().split()[-1]]
    assert axes.lines[0].get_xdata()[-1] >= 300e6 / unit


def test_flows_that_all_failed_are_drawn_too() -> None:
    result = replace(run(), flows=run().flows.copy())
    result.flows["state"], result.flows["status"] = FAILED, 12
    axes = drawn(plots.completion_times, result)
    assert {value for number in (0, 1) for value in curve(axes, number)} == {0}
    assert "many: 0 of 4 flows" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_times_that_are_far_apart_are_logarithmic() -> None:
    short = run(text=BASE.replace("16 KiB", "1 KiB").replace('from = "h4"', 'from = "h1"'))
    assert drawn(plots.completion_times, short).get_xscale() == "log"
    assert drawn(plots.completion_times, run(text=BASE[: BASE.rindex("[[")])).get_xscale() != "log"


def test_the_legend_hides_no_line() -> None:
    for draw, result in (
        (plots.completion_times, run()),
        (plots.queues, sampled(run(), np.full((5, 8), 9000))),
    ):
        axes = drawn(draw, result)
        axes.figure.draw_without_rendering()
        legend, plane = axes.get_legend().get_window_extent(), axes.get_window_extent()
        assert legend.y1 < plane.y0


# ---- in words ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "read", "send"])
def test_goodput_counts_what_has_come_of_flows_that_have_not_ended(operation: str) -> None:
    text = BASE[: BASE.rindex("[[")].replace('"1 MiB"', f'"1 GiB"\noperation = "{operation}"')
    result = run('duration = "1 ms"\n', text)
    assert (result.flows["state"] == 1).all()
    assert result.goodput() == pytest.approx(97.8e9, rel=0.03)
    assert "many: 0 of 4 flows of 1 GiB, 97." in result.summary()


def test_what_has_come_grows_to_the_whole_flow() -> None:
    scenario = Scenario.parse(BASE[: BASE.rindex("[[")])
    whole = scenario.run()
    before = np.zeros(4, np.uint64)
    for part in range(1, 12):
        result = scenario.changed({"duration": f"{whole.time * part // 12} ps"}).run()
        done = result.flows["done"]
        assert (done >= before).all()
        assert (done <= result.flows["bytes"]).all()
        arrived = result.links["bytes"][result.link("s0", "h4")]
        assert done.sum() <= arrived
        assert arrived - done.sum() < 0.05 * arrived + 64_000  # headers, and what is on its way
        before = done
    assert (whole.flows["done"] == 1 << 20).all()


def test_goodput_begins_with_the_first_flow_that_started() -> None:
    """Of one that waits for another `start` is a delay, and no time."""
    text = """\
duration = "10 ms"
[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"
[[traffic]]
name = "late"
pattern = "ring_all_reduce"
size = "200 MB"
start = "5 ms"
"""
    result = run(text=text)
    assert (result.flows["state"] == 0).any()
    assert result.goodput() == pytest.approx(3 * 97.5e9, rel=0.03)


def test_failures_are_summed_up_with_their_reason() -> None:
    result = run('[adapter]\ntimeout = 4\nretry_count = 1\n[[event]]\nlink = "h4-s0"\n'
                 'at = "20 us"\nup = false\n')  # fmt: skip
    assert result.failures == {"many": {"RETRY_EXC_ERR": 4}}
    assert "  FAILED: 4 of 4 flows of many: RETRY_EXC_ERR, no answer within" in result.summary()
    assert run().failures == {}


def test_traffic_of_one_name_is_counted_apart() -> None:
    twice = BASE[: BASE.rindex("[[")] + BASE[BASE.index("[[") : BASE.rindex("[[")]
    result = run(text=twice.replace('name = "many"\n', ""))
    result = replace(result, flows=result.flows.copy())
    result.flows["state"][:5], result.flows["status"][:5] = FAILED, 12
    assert result.failures == {"incast": {"RETRY_EXC_ERR": 5}}
    assert "FAILED: 4 of 4 flows of incast" in result.summary()
    assert "FAILED: 1 of 4 flows of incast" in result.summary()
    axes = drawn(plots.completion_times, result)
    assert [curve(axes, number)[-1] for number in (0, 1)] == [0, 0.75]
