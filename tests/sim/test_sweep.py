# SPDX-License-Identifier: Apache-2.0
"""Sweeps: all points once, on processes and on a cluster, and errors that name their point."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verbena.sim import Scenario, ScenarioError, ScenarioResult, Sweep, SweepError, sweep
from verbena.version import full_version

TEXT = """\
[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"
delay = "1 us"
bit_error_rate = 1e-7

[switch]
buffer = "64 KiB"

[adapter]
timeout = 5

[[traffic]]
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "256 KiB"
"""
OVER = {"switch.buffer": ["32 KiB", "1 MiB"], "fabric.hosts": [3, 4]}


def broken(result: ScenarioResult) -> dict[str, float]:
    """A measure that some results have not."""
    if len(result.nodes) == 5:
        raise LookupError("no such measure")
    return {"time": result.time}


def ragged(result: ScenarioResult) -> dict[str, float]:
    return {"odd" if result.seed % 2 else "even": 1.0}


def dies(result: ScenarioResult) -> dict[str, float]:
    os._exit(3)


def is_killed(result: ScenarioResult) -> dict[str, float]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def dies_there(result: ScenarioResult) -> dict[str, float]:
    """In one point of two."""
    if len(result.nodes) == 5:
        os._exit(3)
    return {"time": result.time}


def interrupts(result: ScenarioResult) -> dict[str, float]:
    if result.seed == 0:
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600)
    return {}


def test_a_sweep_is_a_table_of_all_points(tmp_path: Path) -> None:
    scenario = Scenario.parse(TEXT)
    made = sweep(scenario, OVER, seeds=[3, 4], workers=2)
    assert len(made) == 8
    assert made["switch.buffer"].tolist() == ["32 KiB"] * 4 + ["1 MiB"] * 4
    assert made["fabric.hosts"].tolist() == [3, 3, 4, 4] * 2
    assert made["seed"].tolist() == [3, 4] * 4
    assert (made["end"] == "done").all()
    assert made["dropped"][:4].sum() > made["dropped"][4:].sum()
    assert len(np.unique(made["slowest"])) > 2
    alone = scenario.changed({"switch.buffer": "1 MiB", "fabric.hosts": 4}).run(seed=4)
    assert made["slowest"][7] == alone.durations().max() / 1e12


def test_the_table_of_a_sweep_says_what_made_it_and_is_equal_to_the_byte(tmp_path: Path) -> None:
    import pyarrow.parquet

    scenario = Scenario.parse(TEXT).changed({"switch.buffer": "64 KiB"})
    for name in ("one", "other"):
        made = sweep(scenario, {"fabric.hosts": [3, 4]}, seeds=[3], workers=1)
        assert "wall" in made.columns
        made.to_parquet(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    table = pyarrow.parquet.read_table(tmp_path / "one")
    assert "wall" not in table.column_names
    about = json.loads(table.schema.metadata[b"verbena"])
    assert about == made.about
    assert (about["version"], about["measure"]) == (full_version(), "measures")
    point = table.select(["fabric.hosts", "seed"]).to_pylist()[1]
    again = Scenario.make(about["settings"]).changed(point).run()
    assert again.durations().max() / 1e12 == table["slowest"][1].as_py()


def test_variants_may_be_swept_over() -> None:
    text = TEXT + '[variants.one]\n"switch.buffer" = "1 MiB"\n[variants.two]\n'
    text += '"switch.buffer" = "32 KiB"\n'
    scenario = Scenario.parse(text)
    over = {"fabric.hosts": [3, 4], "variant": ["two", "one"]}
    made = sweep(scenario, over, workers=2)
    assert made["variant"].tolist() == ["two", "one"] * 2
    for name, slowest in zip(("two", "one"), made["slowest"][:2], strict=True):
        assert slowest == scenario.variant(name).run().durations().max() / 1e12
    assert made["slowest"][0] != made["slowest"][1]
    with pytest.raises(ScenarioError, match=r"no variant \"tow\": is 'two' meant.*one, two"):
        sweep(scenario, {"variant": ["one", "tow"]})


def test_a_long_sweep_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("verbena.progress.FIRST", 0.0)
    monkeypatch.setattr("verbena.sim.sweeps.PROGRESS_INTERVAL", 0.0)
    sweep(Scenario.parse(TEXT), seeds=3, workers=1, quiet=True)
    assert capsys.readouterr().err == ""
    sweep(Scenario.parse(TEXT), seeds=3, workers=1)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("sweep: 1 of 3 points, about ")


def test_the_rows_of_a_table_have_its_columns() -> None:
    """So pandas.DataFrame(table), which takes a list of dicts, has columns with names."""
    made = Sweep(({"a": 1}, {"a": 2}), {"a": np.array([1, 2]), "end": np.array(["done", "time"])})
    assert [*made] == [{"a": 1, "end": "done"}, {"a": 2, "end": "time"}]


def test_a_table_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    made = sweep(Scenario.parse(TEXT), workers=1)
    with pytest.raises(ModuleNotFoundError, match=r"pip install pyarrow"):
        made.to_parquet("nowhere.parquet")


def test_a_sweep_over_seeds_alone() -> None:
    made = sweep(Scenario.parse(TEXT), seeds=3, workers=1)
    assert made["seed"].tolist() == [0, 1, 2]
    assert made.points == ({"seed": 0}, {"seed": 1}, {"seed": 2})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_point_that_fails_names_its_settings(workers: int) -> None:
    with pytest.raises(SweepError) as caught:
        sweep(Scenario.parse(TEXT), {"fabric.hosts": [3, 4]}, workers=workers, measure=broken)
    assert str(caught.value) == "with fabric.hosts = 4, seed = 0: LookupError: no such measure"
    assert caught.value.point == {"fabric.hosts": 4, "seed": 0}


def test_settings_that_cannot_be_are_refused_before_the_first_run() -> None:
    with pytest.raises(ScenarioError, match=r"with fabric.hosts = 0, seed = 0: fabric.hosts"):
        sweep(Scenario.parse(TEXT), {"fabric.hosts": [3, 0]}, measure=broken)
    with pytest.raises(ValueError, match=r"no value for switch\.buffer"):
        sweep(Scenario.parse(TEXT), {"switch.buffer": []})


def test_seeds_may_be_among_the_settings_but_not_twice() -> None:
    scenario = Scenario.parse(TEXT)
    made = sweep(scenario, {"seed": [5, 6], "fabric.hosts": [3]}, workers=1)
    assert made["seed"].tolist() == [5, 6]
    assert made["slowest"][1] == scenario.run(seed=6).durations().max() / 1e12
    with pytest.raises(ValueError, match="one of them is enough"):
        sweep(scenario, {"seed": [5]}, seeds=2)


def test_values_may_be_numpy_s() -> None:
    made = sweep(Scenario.parse(TEXT), {"fabric.hosts": np.arange(3, 5)}, np.arange(2), workers=1)
    assert made.points[3] == {"fabric.hosts": 4, "seed": 1}
    assert type(made.points[3]["seed"]) is int


def test_what_is_no_list_of_values_or_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fabric.hosts is to have a list of values, and has 4"):
        sweep(Scenario.parse(TEXT), {"fabric.hosts": 4})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="1000000000000 points are more than this machine"):
        sweep(Scenario.parse(TEXT), seeds=10**12)


@pytest.mark.parametrize("value", ["64 KiB", b"64", {"buffer": "64 KiB"}])
def test_a_value_that_is_not_in_a_list_is_not_taken_apart(value: object) -> None:
    with pytest.raises(ValueError) as caught:
        sweep(Scenario.parse(TEXT), {"switch": value})  # type: ignore[dict-item]
    assert str(caught.value) == (
        f"sweep: switch is to have a list of values, as [{value!r}], and has {value!r}"
    )
    with pytest.raises(ValueError, match=r"variant is to have a list of values, as \['lossy'\]"):
        sweep(Scenario.load("incast"), {"variant": "lossy"})


def test_rows_of_different_names_and_processes_that_end_name_their_point() -> None:
    with pytest.raises(SweepError, match=r"with seed = 1 measure has other names: odd; with seed"):
        sweep(Scenario.parse(TEXT), seeds=2, workers=1, measure=ragged)
    words = r"a process ended at once, with exit code 3, with seed = 0 or later"
    with pytest.raises(SweepError, match=words):
        sweep(Scenario.parse(TEXT), seeds=2, workers=2, measure=dies)
    with pytest.raises(SweepError, match=r"killed, as where memory is short, with seed = 0"):
        sweep(Scenario.parse(TEXT), seeds=2, workers=2, measure=is_killed)


def test_a_measure_that_processes_cannot_import_says_so() -> None:
    """One that is in a function, and is no name; with one worker it may be that."""

    def inner(result: ScenarioResult) -> dict[str, float]:
        return {"time": result.time}

    with pytest.raises(SweepError, match=r"cannot import measure, .*inner.*top of a module"):
        sweep(Scenario.parse(TEXT), seeds=2, workers=2, measure=inner)
    assert len(sweep(Scenario.parse(TEXT), seeds=2, workers=1, measure=inner)) == 2


PROGRAM = """\
from verbena.sim import Scenario, SweepError, sweep

{before}
def call():
    try:
        print(len(sweep(Scenario.load("two-senders"), seeds=2, workers=2{given})))
    except SweepError as error:
        print("told:", error, error.point)


{after}
"""
GUARD = 'if __name__ == "__main__":\n    '
MEASURE = "def own(result):\n    return {'time': result.time}\n"
INDENTED = MEASURE.replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("before", "given", "after", "words"),
    [
        (MEASURE, ", measure=own", f"{GUARD}call()", "2"),
        ("", "", "call()", "told: each process imports the program, and that calls sweep() again"),
        ("", ", measure=own", f"{GUARD}{INDENTED}\n    call()",
         "told: the processes cannot import measure (AttributeError: "),
        ("if __name__ != '__main__':\n    raise OSError('no disk')", "", f"{GUARD}call()",
         "told: the processes ended, with exit code 1, before they had a point"),
    ],
    ids=["good", "unguarded", "behind the guard", "cannot be imported"],
)  # fmt: skip
def test_a_program_that_processes_cannot_import_is_told_why(
    tmp_path: Path, before: str, given: str, after: str, words: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(before=before, given=given, after=after))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith(words), done.stderr
    assert ("no disk" in done.stderr) == ("no disk" in before)


def test_a_notebook_s_measure_is_known_to_no_process() -> None:
    """A program on the command line has no file either."""
    text = PROGRAM.format(before=MEASURE, given=", measure=own", after="call()")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert "told: the processes cannot import measure (AttributeError" in done.stdout, done.stderr


@pytest.mark.timeout(60)
def test_control_c_ends_points_that_run_and_those_that_wait() -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep(Scenario.parse(TEXT), seeds=8, workers=2, measure=interrupts)


def dask_distributed() -> Any:
    reason = "Dask's distributed is not installed; pip install '.[dask]' brings it"
    return pytest.importorskip("dask.distributed", reason=reason)


@pytest.mark.timeout(120)
def test_the_same_call_on_a_dask_cluster() -> None:
    distributed = dask_distributed()
    scenario = Scenario.parse(TEXT)
    here = sweep(scenario, OVER, seeds=[3], workers=1)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        there = sweep(scenario, OVER, seeds=[3], dask=cluster.scheduler_address)
        with pytest.raises(SweepError) as caught:
            sweep(
                scenario, {"fabric.hosts": [3, 4]}, dask=cluster.scheduler_address, measure=broken
            )
    assert caught.value.point == {"fabric.hosts": 4, "seed": 0}
    assert set(here.columns) == set(there.columns)
    for name in set(here.columns) - {"wall"}:
        assert here[name].tolist() == there[name].tolist()


@pytest.mark.timeout(120)
def test_a_worker_of_a_cluster_that_dies_names_the_point() -> None:
    """Dask's KilledWorker, which knows nothing of settings."""
    distributed = dask_distributed()
    dask = importlib.import_module("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        pytest.raises(SweepError, match=r"with fabric.hosts = 4, seed = 0: KilledWorker") as caught,
    ):
        sweep(
            Scenario.parse(TEXT),
            {"fabric.hosts": [4]},
            dask=cluster.scheduler_address,
            measure=dies_there,
        )
    assert caught.value.point == {"fabric.hosts": 4, "seed": 0}


def test_seeds_that_change_nothing_are_told_of() -> None:
    still = Scenario.parse(TEXT.replace("bit_error_rate = 1e-7\n", ""))
    with pytest.warns(UserWarning, match="all seeds gave the same rows"):
        sweep(still, seeds=2, workers=1)
