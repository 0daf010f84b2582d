# SPDX-License-Identifier: Apache-2.0
"""`verbena disk study`: the disk, the processor or the fabric limits simulated hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verbena.cli.disk_study import Study, StudyRow, run_rdma, run_study, show_study

STUDY = Study(hosts=4, disks=2, commands=320)


def rows_of(study: Study) -> dict[str, StudyRow]:
    return {row.name: row for row in run_study(study)}


def test_the_disk_limits() -> None:
    """Two disks of 16 reads at a time, each of which takes 100 us: 320,000 reads a second."""
    rows = rows_of(STUDY)
    assert rows["local"].rate == pytest.approx(320_000, rel=0.01)
    assert 0.9 * 320_000 < rows["RDMA"].rate <= 320_000
    assert rows["RDMA"].limit == "the disk"


def test_the_processor_limits() -> None:
    rows = rows_of(replace(STUDY, processor_seconds=20e-6))
    assert rows["RDMA"].rate == pytest.approx(100_000, rel=0.05)
    assert rows["RDMA"].limit == "the processor"
    assert rows["TCP"].rate == pytest.approx(100_000, rel=0.01)
    assert rows["TCP"].limit == "the processor"


def test_the_fabric_limits() -> None:
    """Two links of 10 Gb/s carry at most 38,147 reads of 64 KiB a second."""
    study = replace(STUDY, rate="10GbE", size=65_536, commands=64, disk_seconds=20e-6)
    rows = rows_of(study)
    for name in ("RDMA", "TCP"):
        assert 33_000 < rows[name].rate < 38_147
        assert rows[name].limit == "the fabric"


def test_a_host_with_a_short_queue() -> None:
    """One read after the other: its latency is the disk's, the processor's and the fabric's."""
    row = run_rdma(Study(hosts=1, disks=1, depth=1, commands=50))
    assert row.limit.startswith("the hosts")
    assert row.latency is not None
    assert 105e-6 < row.latency < 120e-6


def test_the_same_twice() -> None:
    assert run_rdma(STUDY) == run_rdma(STUDY)


def test_the_table() -> None:
    text = show_study([StudyRow("TCP", 1000.0, None, {"the disk": 0.5, "the fabric": 1.0})])
    assert text.splitlines()[1].split() == [
        "TCP",
        "1,000",
        "-",
        "50%",
        "-",
        "100%",
        "the",
        "fabric",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        *({"hosts": 0}, {"disks": 65}, {"channels": 0}, {"depth": 0}),
        *({"disk_seconds": 0.0}, {"disk_seconds": -1.0}, {"processor_seconds": -1.0}),
    ],
)
def test_wrong_numbers(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"1 to 64|1 at least|negative|more than 0"):
        replace(STUDY, **changes)  # type: ignore[arg-type]
