# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' rows of calls and of disks over RDMA."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import disk_cases, python_goals
from benchmarks.disk_cases import DiskLoad, NbdDisk, NvmeDisk
from benchmarks.goal import Better
from benchmarks.rank_cases import RankCall
from benchmarks.rpc_cases import RpcCall
from verbena.measure import cores, rpc_bench
from verbena.measure.case import Case, Effort, Unit
from verbena.measure.processes import MeasureError, SkipError

SHORT = Effort(0.01)
FIO = 'fio: started\n{"jobs": [{"read": {"iops": 12.5}, "write": {"iops": 0.0}}]}'


def test_what_the_disks_programs_say_is_read() -> None:
    said = "randread, 4096 bytes, depth 32: 58,829 commands/s, 0.24 GB/s\n"
    assert disk_cases.bench_rate(said) == 58829.0
    assert disk_cases.fio_rate(FIO) == 12.5
    for read in (disk_cases.bench_rate, disk_cases.fio_rate):
        with pytest.raises(MeasureError, match="printed no"):
            read("nothing")


# nbdkit and fio are fetched where they are missing, and so need the machine's own network.
OWN_NETWORK = pytest.mark.over_roce


@pytest.mark.debian
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", [pytest.param(NvmeDisk, marks=OWN_NETWORK), NbdDisk])
def test_a_disk_is_measured(case: type[NvmeDisk | NbdDisk]) -> None:
    load = DiskLoad("randread", 4096, 32)
    try:
        found = case(load).measure(SHORT, cores.choose())
    except SkipError as error:
        pytest.skip(str(error))
    assert case(load).unit is Unit.PER_SECOND
    assert 10 < found.value < 1e7


@pytest.mark.debian
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("call", "transport"),
    [
        pytest.param("broadcast", None, marks=OWN_NETWORK),
        pytest.param("all_gather", None, marks=OWN_NETWORK),
        ("barrier", "tcp"),
        ("broadcast", "tcp"),
        ("all_gather", "vader"),
        ("all_to_all", "vader"),
    ],
)
def test_a_collective_call_is_measured(call: str, transport: str | None) -> None:
    try:
        found = RankCall(call, 0 if call == "barrier" else 8192, transport).measure(
            SHORT, cores.choose()
        )
    except SkipError as error:
        pytest.skip(str(error))
    assert 0.05 < found.value < 1e6


@pytest.mark.parametrize("who", ["default", "uvloop"])
def test_a_call_is_measured(who: str) -> None:
    found = RpcCall(who, 64).measure(SHORT, cores.choose())
    assert 0.5 < found.value < 1e5


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_bench, "missing_module", lambda kind: f"{kind} is not installed")
    with pytest.raises(SkipError, match="gRPC is not installed"):
        RpcCall("gRPC", 64).measure(SHORT, cores.choose())


def test_the_contenders_of_all_rows_exist() -> None:
    known = {each.name: each for each in rpc_bench.contenders()}
    cases: list[Case] = [case for goal in python_goals.calls() for case in goal.cases()]
    for case in cases:
        assert isinstance(case, RpcCall)
        assert case.size <= known[case.who].largest
        assert replace(case, size=1).label == case.label


def test_bounds() -> None:
    (random_reads, reads) = python_goals.disks()
    assert random_reads.met(1.5e5, 1e5)
    assert not random_reads.met(1.4e5, 1e5)
    assert not reads.met(1.9e4, 1e4)
    assert {goal.better for goal in python_goals.calls()} == {Better.LOWER}
