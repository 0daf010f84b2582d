# SPDX-License-Identifier: Apache-2.0
"""What the pictures of a result show, line by line, and what its summary says of flows not done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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


# ---- throughput ----------------------------------------------------------------------------------


def test_throughput_is_what_was_delivered_and_ends_with_all_of_it() -> None:
    result = run()
    assert result.delivered[-1].tolist() == [4 << 20, 16 << 10]
    assert result.delivered[0].tolist() == [0, 0]
    assert (result.delivered_at[0], result.delivered_at[-1]) == (0, result.time)
    assert (np.diff(result.delivered.astype(np.int64), axis=0) >= 0).all()
    times, rates = result.throughput("many")
    assert 50 < len(times) == len(rates) <= 200
    assert np.median(rates) == pytest.approx(97.8e9, rel=0.03)
    axes = drawn(plots.throughput, result)
    assert axes.get_ylabel() == "throughput, acknowledged (Gb/s)"
    assert axes.lines[0].get_ydata() == pytest.approx(rates / 1e9)
    with pytest.raises(ValueError, match="no traffic 'few': there is many, one"):
        result.throughput("few")


@pytest.mark.parametrize("length", ["duration", "none"])
def test_a_run_that_lasts_longer_than_expected_has_no_more_rows(length: str) -> None:
    """Two flows lose nearly all and wait for timers."""
    text = BASE.replace("[[traffic]]", '[adapter]\ntimeout = 8\n[switch]\nbuffer = "8 KiB"\n'
                        "[[traffic]]", 1)  # fmt: skip
    result = run('duration = "40 ms"\n' if length == "duration" else "", text)
    assert result.time > 3 * 10**9
    assert 50 <= len(result.delivered_at) <= 202
    assert int(result.delivered[-1].sum()) == int(result.flows["done"].sum())


def test_looking_at_a_run_changes_nothing_of_it() -> None:
    scenario = Scenario.parse(BASE + '[switch]\nbuffer = "64 KiB"\n')
    result, alone = scenario.run(), scenario.world()
    assert alone.run() == "done"
    assert alone.flows()["finish"].tolist() == result.flows["finish"].tolist()
    assert (alone.now, alone.packets["sent"]) == (result.time, result.packets["sent"])


# ---- pictures ------------------------------------------------------------------------------------


def stalled() -> ScenarioResult:
    return run(text=BASE + '[switch]\nflow = "pauses"\nstop = "16 KiB"\nspare = "64 KiB"\n')


def test_links_are_coloured_by_how_long_they_stood_still(tmp_path: Path) -> None:
    result = stalled()
    axes = drawn(plots.stalls, result)
    part = result.links["stalled"] / result.time
    wide = [patch.get_linewidth() for patch in axes.patches]
    cables = part.reshape(-1, 2).max(axis=1)
    assert wide == pytest.approx(1.2 + 2.4 * cables)
    assert f"{part.max():.0%}" in axes.get_title()
    assert result.link_name(int(part.argmax())) in axes.get_title()
    bar = axes.figure.axes[1]
    assert bar.get_ylabel() == "part of the time that a link stood still"
    names = {path.name for path in result.plot(tmp_path)}
    assert names == {"throughput.png", "completion.png", "links.png", "stalls.png"}
    assert "stalls.png" not in {path.name for path in run().plot(tmp_path / "other")}


def test_an_svg_has_text_and_is_the_same_each_time(tmp_path: Path) -> None:
    made = [run().plot(tmp_path / name, "svg") for name in ("one", "other")]
    for one, other in zip(*made, strict=True):
        assert one.suffix == ".svg"
        assert one.read_bytes() == other.read_bytes()
    text = (tmp_path / "one" / "throughput.svg").read_text()
    assert ">throughput, acknowledged (Gb/s)</text>" in text
    with pytest.raises(ValueError, match="pictures are png, svg, pdf, and not 'jpg'"):
        run().plot(tmp_path, "jpg")


def test_variants_stand_side_by_side_on_common_axes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    save = plots._save
    monkeypatch.setattr(
        plots, "_save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    slow = run(text=BASE.replace("100GbE", "10GbE"))
    results = [run(), replace(slow, name="slow"), replace(stalled(), name="stops")]
    path = plots.compare(results, tmp_path / "new" / "variants.png")
    assert path.stat().st_size > 10_000
    (figure,) = figures
    planes = [axes for axes in figure.axes if axes.lines]
    rows = [planes[:3], planes[3:]]
    assert [axes.get_title() for axes in rows[0]] == ["scenario", "slow", "stops"]
    for row, label in zip(
        rows, ("throughput, acknowledged (Gb/s)", "part of all flows"), strict=True
    ):
        assert {axes.get_ylabel() for axes in row} == {label}
        assert len({(axes.get_xlim(), axes.get_ylim()) for axes in row}) == 1
        assert len({axes.get_xlabel().partition(",")[0] for axes in row}) == 1
    assert rows[0][0].get_ylim()[1] > 97
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert said.count("no link stood still") == 2


def test_a_run_that_ends_much_earlier_has_an_axis_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that ends in a deadlock: on the common axis it would be a vertical line."""
    figures: list[Any] = []
    save = plots._save
    monkeypatch.setattr(
        plots, "_save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    short = run()
    long = run(text=BASE.replace("100GbE", "1GbE"))
    assert 10 * short.time < long.time
    plots.compare([short, long], tmp_path / "variants.svg")
    first, second = (axes for axes in figures[0].axes if "throughput" in axes.get_ylabel())
    assert first.get_xlabel().endswith("an axis of its own")
    assert first.get_xlim()[1] < second.get_xlim()[1] / 10
    assert not second.get_xlabel().endswith("own")


def test_where_throughput_is_drawn_no_text_lies_over_it() -> None:
    axes = drawn(plots.throughput, run())
    assert not axes.texts
    assert ", in steps of " in axes.get_xlabel()


def test_a_queue_has_one_colour_in_all_variants() -> None:
    styles: dict[str, int] = {}
    seen: list[dict[str, str]] = []
    for longest in (3, 4):  # another one is drawn first
        queued = np.full((3, 5), 1024)
        queued[:, longest] = 4096
        queued[:, longest - 3] = 0
        axes = Figure().subplots()
        plots.queues(sampled(run(), queued), axes, 0, styles)
        seen.append({str(line.get_label()): line.get_color() for line in axes.lines})
    assert len(seen[0].keys() & seen[1].keys()) == 3
    assert all(seen[1].get(name, colour) == colour for name, colour in seen[0].items())
    assert len(set({**seen[0], **seen[1]}.values())) == 5


def test_names_that_would_overlap_are_left_out() -> None:
    axes = drawn(plots.links, run(text=BASE.replace("hosts = 5", "hosts = 33")))
    names = [text.get_text() for text in axes.texts]
    assert "s0" in names
    assert 5 < len(names) < 30
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


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
        arrived = result.links["bytes"][result.link("s0-h4")]
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
    result = replace(result, flows=result.flows.copy(), traffic=("incast", "incast"))
    result.flows["state"][:5], result.flows["status"][:5] = FAILED, 12
    assert result.failures == {"incast": {"RETRY_EXC_ERR": 5}}
    assert "FAILED: 4 of 4 flows of incast" in result.summary()
    assert "FAILED: 1 of 4 flows of incast" in result.summary()
    axes = drawn(plots.completion_times, result)
    assert [curve(axes, number)[-1] for number in (0, 1)] == [0, 0.75]


def test_a_large_network_has_the_names_of_its_busiest_link() -> None:
    """Others would overlap."""
    text = (
        '[fabric]\ntopology = "one_switch"\nhosts = 60\n[[traffic]]\npattern = "flows"\n'
        'from = "h7"\nto = "h9"\nsize = "64 KiB"\n'
    )
    result = Scenario.parse(text).run()
    axes = Figure().subplots()
    plots.links(result, axes)
    names = {text.get_text() for text in axes.texts}
    assert names in ({"h7", "s0"}, {"h9", "s0"})
