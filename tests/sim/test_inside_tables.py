# SPDX-License-Identifier: Apache-2.0
"""What insides of hosts did, in Parquet files and in the columns of sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sim.test_scenario_inside import BASE, parse
from verbena.sim import Scenario, ScenarioResult, sweep

INSIDE = """
hosts = ["h2", "h0"]
cpu = { cores = 2 }
iommu = { entries = 4 }
interrupts = { time = "8 us", packets = 4 }
hca = { mtt = 16 }
"""


@pytest.mark.parametrize("slices", [0, 10_000])
def test_files_give_back_what_the_insides_did(slices: int, tmp_path: Path) -> None:
    result = parse(f"{INSIDE}\nslices = {slices}").run()
    result.to_parquet(tmp_path)
    again = ScenarioResult.from_parquet(tmp_path)
    assert [one.host for one in again.insides] == [2, 0]
    for one, other in zip(result.insides, again.insides, strict=True):
        assert one.counters == other.counters
        assert one.costs == other.costs
        assert one.slices.dtype == other.slices.dtype
        assert one.slices.tolist() == other.slices.tolist()
        assert (len(one.slices) > 100) == bool(slices)
    assert (tmp_path / "inside_slices.parquet").exists() == bool(slices)
    for name in ("one.json", "other.json"):
        (result if name == "one.json" else again).timeline(tmp_path / name)
    assert (tmp_path / "one.json").read_text() == (tmp_path / "other.json").read_text()


def test_tables_have_names_and_units(tmp_path: Path) -> None:
    import pyarrow.parquet

    result = parse(f"{INSIDE}\nslices = 10000").run()
    result.to_parquet(tmp_path)
    table = pyarrow.parquet.read_table(tmp_path / "insides.parquet")
    rows = {row["host"]: row for row in table.to_pylist()}
    assert [*rows] == ["h2", "h0"]
    for report in result.insides:
        row, seen = rows[f"h{report.host}"], report.counters
        assert row["busy"] + row["polling"] + row["idle"] == row["elapsed"] * row["cores"]
        assert (row["interrupts"], row["merged"]) == (seen.interrupts, seen.merged)
        assert row["interrupts"] + row["merged"] == row["completions"] == 16
        assert row["down_bytes"] == seen.down.bytes
        assert row["up_write"] == seen.up.tlps["write"][0]
        assert row["up_msi"] == row["interrupts"]
        assert row["iotlb_misses"] == seen.iotlb[1] > 0
        assert row["mtt_hits"] == seen.mtt[0]
        assert row["cycles_post"] == 80 * 16
    units = {field.name: (field.metadata or {}).get(b"unit") for field in table.schema}
    assert (units["busy"], units["up_bytes"], units["host"]) == (b"ps", b"B", None)
    slices = pyarrow.parquet.read_table(tmp_path / "inside_slices.parquet").to_pylist()
    assert {row["row"] for row in slices} >= {"core 0", "PCIe to memory", "memory", "wire"}
    assert {row["what"] for row in slices if row["row"] == "core 0"} >= {"post", "interrupt"}
    of_h2 = [row for row in slices if row["host"] == "h2" and row["row"] == "PCIe to memory"]
    assert sum(row["bytes"] for row in of_h2) == rows["h2"]["up_bytes"]


def test_a_result_without_insides_ignores_files_of_another(tmp_path: Path) -> None:
    parse(f"{INSIDE}\nslices = 100").run().to_parquet(tmp_path)
    Scenario.parse(BASE).run().to_parquet(tmp_path)
    assert ScenarioResult.from_parquet(tmp_path).insides == ()


def test_a_sweep_has_columns_of_each_host(tmp_path: Path) -> None:
    import pyarrow.parquet

    over = {
        "inside.interrupts": [{"time": "0 us"}, {"time": "50 us"}],
        "inside.cpu.ghz": [1.0, 3.0],
    }
    table = sweep(parse('hosts = ["h0", "h2"]'), over, workers=1, quiet=True)
    for number, point in enumerate(table.points):
        seen = parse('hosts = ["h0", "h2"]').changed(
            {key: value for key, value in point.items() if key != "seed"}
        ).run().insides[1].counters  # fmt: skip
        assert table["h2.cores_busy"][number] == seen.busy / seen.elapsed
        assert table["h2.pcie_up"][number] == seen.up.bytes
        assert table["h2.pcie_down_busy"][number] == seen.down.busy / seen.elapsed
        assert table["h2.interrupts"][number] == seen.interrupts
    busy = table["h0.cores_busy"]
    assert (busy > 0).all()
    assert busy[0] > busy[1]
    assert busy[0] > busy[2]
    assert not [name for name in table.columns if name.startswith("h1.")]
    table.to_parquet(tmp_path / "sweep.parquet")
    schema = pyarrow.parquet.read_schema(tmp_path / "sweep.parquet")
    assert schema.field("h0.pcie_up").metadata == {b"unit": b"B"}
    assert schema.field("h0.merged").metadata == {b"unit": b"interrupts"}
    assert schema.field("inside.interrupts").metadata is None


def test_points_may_differ_in_their_hosts(tmp_path: Path) -> None:
    import pyarrow.parquet

    over = {"fabric.hosts": [3, 4], "inside": [{}, {"cpu": {"cores": 1}}]}
    table = sweep(parse("cpu = { ghz = 3.0 }"), over, workers=1, quiet=True)
    assert np.isnan(table["h0.interrupts"][::2]).all()
    assert (table["h0.cores_polling"][1::2] > 0).all()
    assert np.isnan(table["h3.pcie_up"][:3]).all()
    assert table["h3.pcie_up"][3] == 0
    table.to_parquet(tmp_path / "sweep.parquet")
    read = pyarrow.parquet.read_table(tmp_path / "sweep.parquet")
    assert read["h3.pcie_up"].to_pylist() == [None, None, None, 0]
