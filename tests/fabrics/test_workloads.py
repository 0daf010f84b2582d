# SPDX-License-Identifier: Apache-2.0
"""Traffic: exact where it is a pattern, statistical where it is drawn, and the same for a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verbena import fabrics
from verbena.fabrics import FabricError, Workload


def rows(work: Workload) -> list[tuple[int, ...]]:
    return work.flows.tolist()


def test_incast() -> None:
    work = fabrics.incast(3, 100, receiver=1)
    assert rows(work) == [(0, 1, 100, 0), (2, 1, 100, 0), (3, 1, 100, 0)]
    spread = fabrics.incast(50, 100, within_ps=1000).flows["start"]
    assert 0 <= spread.min() < 200
    assert 800 < spread.max() < 1000


def test_a_permutation_has_no_host_to_itself() -> None:
    for seed in range(20):
        work = fabrics.permutation(9, 10, seed=seed)
        work.check(9)
        assert sorted(work.flows["dst"]) == list(range(9))


def test_all_permutations_without_a_fixed_host_are_as_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(900):
        key = tuple(fabrics.permutation(4, 1, seed=seed).flows["dst"].tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 9  # derangements of four
    assert min(seen.values()) > 60


def test_all_to_all_is_every_shift() -> None:
    work = fabrics.all_to_all(4, 10)
    work.check(4)
    pairs = {(s, d) for s, d, *_ in rows(work)}
    assert len(pairs) == len(work) == 12
    assert rows(work)[:4] == rows(fabrics.shift(4, 1, 10))
    assert [work.flows["src"][a] for a, _ in work.after] == [
        work.flows["src"][b] for _, b in work.after
    ]
    assert len(fabrics.all_to_all(4, 10, in_turn=False).after) == 0


@pytest.mark.parametrize(
    ("name", "mean"),
    [("websearch", 1_711_250), ("fb_hadoop", 120_420.75), ("ali_storage", 40_869.8)],
)
def test_poisson_has_the_load_and_the_sizes_that_were_asked(name: str, mean: float) -> None:
    sizes = fabrics.distribution(name)
    assert sizes.mean == pytest.approx(mean)
    duration = round(20_000 * 8 * mean / 0.5 / 100e9 / 16 * 1e12)  # about 20,000 flows
    work = fabrics.poisson(16, 0.5, name, link="100GbE", duration_ps=duration, seed=3)
    work.check(16)
    assert len(work) == pytest.approx(20_000, rel=0.03)
    offered = work.bytes * 8 / (16 * 100e9 * duration / 1e12)
    assert offered == pytest.approx(0.5, rel=0.08)
    drawn = np.sort(work.flows["bytes"])
    for size, share in sizes.points[1:-1]:
        below = np.searchsorted(drawn, size, side="right") / len(drawn)
        assert below == pytest.approx(share / 100, abs=0.015)
    assert (np.diff(work.flows["start"]) >= 0).all()


def test_gaps_between_arrivals_are_exponential() -> None:
    work = fabrics.poisson(8, 0.3, "ali_storage", link="100GbE", duration_ps=10**10, seed=1)
    gaps = np.diff(work.flows["start"])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_the_published_tables_are_named_with_their_source() -> None:
    assert set(fabrics.PUBLISHED) >= {"websearch", "fb_hadoop", "ali_storage", "data_mining"}
    assert all(made.source for made in fabrics.PUBLISHED.values())
    assert fabrics.distribution("websearch").share_up_to(80_000) == 0.53
    assert fabrics.distribution("data_mining").share_up_to(1460) == 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: fabrics.permutation(50, 9, seed=seed),
        lambda seed: fabrics.incast(50, 9, within_ps=10**6, seed=seed),
        lambda seed: fabrics.poisson(
            9, 0.2, "fb_hadoop", link="10GbE", duration_ps=10**10, seed=seed
        ),
    ],
)
def test_a_seed_decides(make: Callable[[int], Workload]) -> None:
    assert rows(make(5)) == rows(make(5))
    assert rows(make(5)) != rows(make(6))


def test_a_trace_is_written_and_read(tmp_path: Path) -> None:
    work = fabrics.tree_all_reduce(7, 10) + fabrics.shift(7, 2, 99)
    fabrics.write_csv(work, tmp_path / "trace.csv")
    again = fabrics.read_csv(tmp_path / "trace.csv")
    assert rows(again) == rows(work)
    assert sorted(again.after.tolist()) == sorted(work.after.tolist())


def test_a_trace_may_name_hosts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("source,destination,bytes,start_ps\na,b,10,0\n\nb,1,20,5\n")
    names = {"a": 3, "b": 4}
    assert rows(fabrics.read_csv(path, names)) == [(3, 4, 10, 0), (4, 1, 20, 5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2,3", "t.csv, line 2: 3 columns, not 5"),
        ("x,2,3,4,", "t.csv, line 2: no host 'x'"),
        ("1,2,many,4,", "t.csv, line 2: 'many' is no whole number"),
        ("1,2,3,-4,", "t.csv, line 2: '-4' is no whole number"),
        ("1,2,3,4,x", "t.csv, line 2: 'x' is no whole number"),
        (f"{2**32 + 1},2,3,4,", f"t.csv, line 2: no host '{2**32 + 1}'"),
        (f"{10**30},2,3,4,", "t.csv, line 2: no host"),
        (f"1,2,3,4,{'1 ' * 70000}", "t.csv, line 2: field larger than"),
    ],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"source,destination,bytes,start_ps,after\n{line}\n")
    with pytest.raises(FabricError, match=message):
        fabrics.read_csv(path)


def test_a_trace_s_encoding_is_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfsource,destination,bytes,start_ps\n0,1,10,0\n")
    assert rows(fabrics.read_csv(path)) == [(0, 1, 10, 0)]
    path.write_bytes(b"source,destination,bytes,start_ps\n0,1,10,\xff\n")
    with pytest.raises(FabricError, match=r"t.csv, after line .: it is not UTF-8"):
        fabrics.read_csv(path)


def test_a_trace_without_its_head_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2,3,4\n")
    with pytest.raises(FabricError, match=r"t.csv, line 1: the head is not source,"):
        fabrics.read_csv(tmp_path / "t.csv")


def work_of(*flow: int, after: list[list[int]] | None = None) -> Workload:
    made = fabrics.flows(*flow)
    return Workload("trace", made, np.array(after or [], np.int64).reshape(-1, 2))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (work_of(1, 1, 10), r"trace: flow 0 \(1 to 1, 10 bytes at 0 ps\): from a host to itself"),
        (work_of(1, 4, 10), "no such host"),
        (work_of(1, 2, 0), "of no bytes"),
        (work_of(1, 2, 9, after=[[0, 3]]), "waits for one that is not there"),
        (work_of(1, 2, 9, after=[[0, 0]]), "flow 0 waits for itself"),
    ],
)
def test_a_workload_that_cannot_run_is_refused(work: Workload, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        work.check(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fabrics.shift(4, 8, 1), "by 8 of 4 hosts sends each to itself"),
        (lambda: fabrics.permutation(1, 1), "permutation: too few or too small: hosts"),
        (lambda: fabrics.incast(0, 1), "incast: too few or too small: senders"),
        (lambda: fabrics.all_to_all(20_000, 1), "flows are more than"),
        (lambda: fabrics.incast(10**9, 1), "incast: 1000000000 flows are more than"),
        (lambda: fabrics.permutation(10**9, 1), "flows are more than"),
        (lambda: fabrics.shift(10**9, 1, 1), "flows are more than"),
        (lambda: fabrics.incast(4, 1, within_ps=-1), "incast: within -1 ps is before"),
        (lambda: fabrics.flows(1, 2, -3), "a flow with bytes -3"),
        (lambda: fabrics.flows(1 << 32, 2, 3), "a flow with src 4294967296"),
        (lambda: fabrics.Distribution("d", ((-5, 0), (5, 100)), ""), "d: sizes and percentages"),
        (lambda: fabrics.distribution("x"), "no distribution 'x': there are websearch"),
        (lambda: fabrics.Distribution("d", ((10, 50), (5, 100)), ""), "d: sizes and percentages"),
        (
            lambda: fabrics.poisson(4, 1.5, "websearch", link="100GbE", duration_ps=1),
            "a load of 1.5 is not",
        ),
        (
            lambda: fabrics.poisson(4, 0.5, "fb_hadoop", link="100GbE", duration_ps=10**18),
            "about .* flows are more than",
        ),
        (lambda: fabrics.shift(4, 1.5, 5), "by is 1.5, and not a whole number"),  # type: ignore[arg-type]
        (lambda: fabrics.incast(2.5, 5), "and not a whole number"),  # type: ignore[arg-type]
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FabricError, match=message):
        make()


def test_a_distribution_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# bytes, percent\n100 20\n\n200 100\n")
    made = fabrics.read_distribution(path)
    assert made.mean == pytest.approx(0.2 * 100 + 0.8 * 150)
    path.write_text("100 20\n200\n")
    with pytest.raises(FabricError, match=r"mine.txt, line 2: '200' is not bytes and a percentage"):
        fabrics.read_distribution(path)


def ports_of(tables: fabrics.Tables, end: int) -> tuple[int, int]:
    return int(tables.end_node[end]), int(tables.end_port[end])


def test_a_flow_is_shared_out_over_the_ports() -> None:
    tables = fabrics.rails(4, rails=3).tables()
    work = Workload("two", fabrics.flows([0, 3], [1, 2], [100, 8], [0, 5]), np.array([[0, 1]]))
    made = fabrics.by_ports(work, tables)
    assert made.flows["bytes"].tolist() == [34, 33, 33, 3, 3, 2]
    assert made.flows["start"].tolist() == [0, 0, 0, 5, 5, 5]
    assert [ports_of(tables, end) for end in made.flows["src"]] == [
        *((0, port) for port in (1, 2, 3)),
        *((3, port) for port in (1, 2, 3)),
    ]
    assert [ports_of(tables, end) for end in made.flows["dst"]] == [
        *((1, port) for port in (1, 2, 3)),
        *((2, port) for port in (1, 2, 3)),
    ]
    assert made.after.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert made.bytes == work.bytes


def test_a_flow_goes_by_one_port() -> None:
    tables = fabrics.rails(4, rails=3).tables()
    made = fabrics.by_ports(fabrics.shift(4, 1, 2), tables, port=2)
    assert len(made) == 4
    assert made.flows["bytes"].tolist() == [2] * 4
    assert [ports_of(tables, end) for end in made.flows["src"]] == [(host, 2) for host in range(4)]


def test_what_has_no_ports_to_go_by_is_refused() -> None:
    tables = fabrics.rails(4, rails=3).tables()
    with pytest.raises(FabricError, match="a flow of 2 bytes has no share for 3 ports"):
        fabrics.by_ports(fabrics.shift(4, 1, 2), tables)
    for port in (0, 4):
        with pytest.raises(
            FabricError, match=f"port {port} is none of the ports of a host, 1 to 3"
        ):
            fabrics.by_ports(fabrics.shift(4, 1, 100), tables, port=port)
    with pytest.raises(FabricError, match="no such host"):
        fabrics.by_ports(fabrics.shift(5, 1, 100), tables)
    fabric = fabrics.Fabric("uneven")
    fabric.add_switch("s0", ports=3)
    for host, ports in (("one", 1), ("two", 2)):
        fabric.add_host(host, ports=ports)
        for _ in range(ports):
            fabric.connect(host, "s0")
    with pytest.raises(FabricError, match="some hosts have 1 ports in use, and some 2"):
        fabrics.by_ports(fabrics.shift(2, 1, 100), fabric.tables())
