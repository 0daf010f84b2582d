# SPDX-License-Identifier: Apache-2.0
"""Sweeps: one scenario with many settings and seeds, on all cores or on a Dask cluster.

``sweep`` checks all settings first, then runs the points in spawned processes, and returns a
``Sweep``, which is a table with a row for each point.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import current_process, get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena.progress import Line
from verbena.sim import limits
from verbena.sim.arguments import require, whole_number
from verbena.sim.document import Document, plain, toml_text
from verbena.sim.inside_tables import HOST_UNITS, host_measures
from verbena.sim.parquet import arrow, with_metadata, with_units
from verbena.sim.result import DONE, FAILED, INCOMPLETE, ScenarioResult
from verbena.sim.scenario import Scenario
from verbena.version import full_version

__all__ = ["Sweep", "SweepError", "measures", "sweep"]

WORKERS_MOST = 1 << 16
SEEDS_MOST = 1 << 40
PROGRESS_INTERVAL = 0.2  # s, the least time between two lines of progress
POINT_BYTES = 3000  # about what a point and its row take
Measure = Callable[[ScenarioResult], Mapping[str, float]]
UNGUARDED = 78  # exit code of a process that would sweep again: EX_CONFIG of sysexits.h
WHERE = (
    "define it at the top of a module (a file beside the notebook or program), or above the "
    'program\'s `if __name__ == "__main__":`; or sweep with workers=1'
)


UNITS = {  # of the columns that ``measures`` returns
    **dict.fromkeys(("time", "mean", "median", "p99", "slowest", "stalled", "wall"), "s"),
    **dict.fromkeys(("delivered", "lost", "queue_max"), "B"),
    **dict.fromkeys(
        ("swept", "recovered", "connect_median", "connect_last", "reserve_median"), "s"
    ),
    **dict.fromkeys(("done", "failed", "incomplete", "interrupted", "granted", "refused"), "flows"),
    **dict.fromkeys(
        (
            "retransmissions",
            "marks",
            "dropped",
            "smps",
            "smps_repeated",
            "connect_resent",
            "reserve_messages",
        ),
        "packets",
    ),
    "goodput": "bit/s",
}


class SweepError(RuntimeError):
    """A point failed. ``point`` has its settings; it is empty if no point could be run."""

    def __init__(self, text: str, point: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.point = dict(point)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SweepError, (str(self), self.point))


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep: a row for each point, in the order of ``itertools.product``.

    ``points``: the settings of each row, with its "seed". ``columns``: an array for each setting
    and each measure. Iteration yields the rows as dictionaries, so ``pandas.DataFrame(table)`` has
    the columns.
    ``about``: what made it: Verbena's "version", the scenario's "name", "settings" and "variant",
    and the name of the function "measure".
    """

    points: tuple[dict[str, Any], ...]
    columns: dict[str, NDArray[Any]]
    about: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}: there are {', '.join(self.columns)}")
        return self.columns[name]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, row, strict=True))

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file with units in the metadata of the fields; null is an absent time.

        ``about`` is in the metadata of the schema ("verbena"). The column "wall" is left out, since
        wall time differs between runs, and files of one sweep are otherwise equal. Needs pyarrow
        (pip install pyarrow).
        """
        pyarrow = arrow()
        columns = {
            name: pyarrow.array(column, from_pandas=True)
            for name, column in self.columns.items()
            if name != "wall"
        }
        settings = self.points[0] if self.points else {}
        units = {name: _unit_of(name) for name in columns if name not in settings}
        measured = {name: unit for name, unit in units.items() if unit is not None}
        table = with_metadata(pyarrow.table(columns), self.about)
        pyarrow.parquet.write_table(with_units(table, measured), path)


def _unit_of(column: str) -> str | None:
    _, point, behind = column.rpartition(".")
    return HOST_UNITS.get(behind) if point else UNITS.get(column)


def measures(result: ScenarioResult) -> dict[str, float]:
    """Return what a sweep keeps of each run by default; times are in seconds, rates in bits/s.

    It covers all traffics together; a function of your own can separate them, as with
    ``result.durations("web")``. Times are those of flows that are done; ``delivered`` and ``lost``
    are bytes. Each host with an inside has columns of its own (``inside_tables.host_measures``).
    """
    times = result.durations() / 1e12
    some = len(times) > 0
    return {
        "end": result.end,  # type: ignore[dict-item]
        "time": result.time / 1e12,
        "done": int((result.flows["state"] == DONE).sum()),
        "failed": int((result.flows["state"] == FAILED).sum()),
        "incomplete": int((result.flows["state"] == INCOMPLETE).sum()),
        "delivered": int(result.flows["done"].sum()),
        "lost": int(result.flows["lost"].sum()),
        "goodput": result.goodput(),
        "mean": float(times.mean()) if some else np.nan,
        "median": float(np.median(times)) if some else np.nan,
        "p99": float(np.percentile(times, 99)) if some else np.nan,
        "slowest": float(times.max()) if some else np.nan,
        "retransmissions": int(result.flows["retransmissions"].sum()),
        "marks": int(result.flows["marks"].sum()),
        "timeouts": int(result.flows["timeouts"].sum()),
        "dropped": result.packets["dropped"],
        "queue_max": int(result.links["queue_max"].max(initial=0)),
        "stalled": int(result.links["stalled"].sum()) / 1e12,
        "wall": result.wall,
        **_management(result),
        **host_measures(result),
    }


def _management(result: ScenarioResult) -> dict[str, float]:
    """Return the columns of runs with a subnet manager, and of those whose routes change."""
    found = {} if result.management is None else result.management.measures()
    if (of := result.recovery) is not None:
        after = np.nan if of.recovered is None else (of.recovered - of.at) / 1e12
        found |= {"interrupted": of.interrupted, "recovered": after}
    if result.connects:
        found |= _connections(result)
    return found


def _connections(result: ScenarioResult) -> dict[str, float]:
    """Return the columns of runs whose connections the connection manager sets up."""
    times = np.concatenate([each.times for each in result.connects]) / 1e12
    ends = np.concatenate([each.end - each.begin.min(initial=0) for each in result.connects])
    some = len(times) > 0
    return {
        "connected": len(times),
        "connect_median": float(np.median(times)) if some else np.nan,
        "connect_last": float(ends.max()) / 1e12 if some else np.nan,
        "connect_resent": sum(each.resent for each in result.connects),
    }


def sweep(
    scenario: Scenario,
    over: Mapping[str, Any] | None = None,
    seeds: int | Iterable[int] | None = None,
    *,
    dask: str | None = None,
    workers: int | None = None,
    measure: Measure = measures,
    quiet: bool = False,
) -> Sweep:
    """Run the scenario with all combinations of settings and seeds.

    ``over``: a sequence of values for each key, as ``Scenario.changed`` has them. "variant" has
    names of the scenario's variants, whose settings are applied first. ``seeds``: a list of seeds,
    or how many from the scenario's own on; ``over`` may have them as "seed" instead.
    ``workers``: the number of processes, by default that of the cores. ``dask``: the address of the
    scheduler of a Dask cluster on which Verbena is installed, "tcp://host:8786", in place of
    processes.
    ``measure(result)`` is called there and returns a dictionary, which makes a row; it has to be a
    function of a module. Processes are spawned, so a program calls ``sweep`` under ``if __name__ ==
    "__main__"``.

    The number of finished points is written to stderr if that is a terminal, otherwise from ten
    seconds on; with ``quiet`` it is not. Ctrl-C ends all processes.

    All settings are checked before the first point runs. Raises TypeError and ValueError for wrong
    arguments, ScenarioError for a setting that is not allowed, and SweepError for a point that
    fails, with its settings.
    """
    _check_guard()
    _check_arguments(scenario, over, workers, measure)
    points = list(_points(scenario, over or {}, seeds))
    for point in {_text(_without_seed(point)): point for point in points}.values():
        Scenario(_changed(scenario.document, point), scenario.folder)
    jobs = [(scenario.document, str(scenario.folder), point, measure) for point in points]
    progress = _PointsDone(len(jobs), quiet)
    with progress:
        rows = list(
            _on_cluster(dask, jobs, progress) if dask else progress.each(_here(workers, jobs))
        )
    if measure is measures:
        rows = _filled(rows)
    for point, row in zip(points, rows, strict=True):
        if row.keys() != rows[0].keys():
            names = f"{', '.join(row)}; with {_text(points[0])}: {', '.join(rows[0])}"
            raise SweepError(f"with {_text(point)} measure has other names: {names}", point)
    columns = {name: _column([point[name] for point in points]) for name in points[0]}
    columns |= {name: _column([row[name] for row in rows]) for name in rows[0]}
    if _seeds_are_alike(points, rows):
        warnings.warn(
            "sweep: all seeds gave the same rows, as where nothing is drawn by chance: "
            "one seed is enough",
            stacklevel=2,
        )
    return Sweep(tuple(points), columns, _about(scenario, measure))


def _filled(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows that all have the columns which any has: points may differ in their hosts, and in
    whether they have insides or a subnet manager. What a row has not is NaN."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, np.nan) for name in names} for row in rows]


def _check_arguments(scenario: object, over: object, workers: int | None, measure: object) -> None:
    """Raise TypeError or ValueError before anything runs."""
    require("scenario", scenario, Scenario, "a Scenario, as Scenario.load makes it")
    wanted = "a dictionary of lists, as {'switch.buffer': ['64 KiB', '1 MiB']}"
    require("over", {} if over is None else over, Mapping, wanted)
    if workers is not None:
        whole_number("workers", workers, 1, WORKERS_MOST)
    if not callable(measure):
        raise TypeError(f"measure is {measure!r}, and not a function of a ScenarioResult")


def _about(scenario: Scenario, measure: Measure) -> dict[str, Any]:
    """Return what made the table, except the settings of its points."""
    return {
        "version": full_version(),
        "name": scenario.name,
        "settings": plain(dict(scenario.document.settings)),
        "variant": scenario.document.variant,
        "changes": scenario.document.changed_values(),
        "measure": getattr(measure, "__qualname__", repr(type(measure))),
    }


def _seeds_are_alike(
    points: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether there are several seeds, and they make no difference except in wall time."""
    if len({point["seed"] for point in points}) < 2:
        return False
    first: dict[str, str] = {}
    for point, row in zip(points, rows, strict=True):
        seen = repr({name: value for name, value in row.items() if name != "wall"})
        if first.setdefault(_text(_without_seed(point)), seen) != seen:
            return False
    return True


def _points(
    scenario: Scenario, over: Mapping[str, Any], seeds: int | Iterable[int] | None
) -> Iterator[dict[str, Any]]:
    if "seed" in over:
        if seeds is not None:
            raise ValueError("sweep: there are seeds, and over has 'seed': one of them is enough")
        seeds, over = over["seed"], {key: over[key] for key in over if key != "seed"}
    if not isinstance(seeds, Iterable) and seeds is not None:
        seeds = whole_number("seeds", seeds, 1, SEEDS_MOST)
        seeds = range(scenario.seed, scenario.seed + seeds)
    if isinstance(seeds, str | bytes | Mapping):
        raise ValueError(f"sweep: seeds is {seeds!r}, and not a number or a list of numbers")
    chosen: Sequence[Any] = [scenario.seed] if seeds is None else seeds  # type: ignore[assignment]
    chosen = chosen if isinstance(chosen, range) else plain(list(chosen))
    count = 1
    for key, values in {**over, "seeds": chosen}.items():
        require("a key of over", key, str, "the name of a setting, as 'switch.buffer'")
        if not isinstance(values, Sized):
            raise ValueError(f"sweep: {key} is to have a list of values, and has {values!r}")
        if isinstance(values, str | bytes | Mapping):  # its characters or keys would be the values
            raise ValueError(
                f"sweep: {key} is to have a list of values, as [{values!r}], and has {values!r}"
            )
        if not len(values):
            raise ValueError(f"sweep: there is no value for {key}")
        count *= len(values)
    if count * POINT_BYTES > limits.available_memory():
        raise ValueError(f"sweep: {count} points are more than this machine has memory for")
    for point in itertools.product(*map(plain, over.values()), chosen):
        yield dict(zip((*over, "seed"), point, strict=True))


def _without_seed(point: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in point.items() if key != "seed"}


def _text(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {toml_text(value)}" for key, value in point.items())


def _changed(document: Document, point: Mapping[str, Any]) -> Document:
    """Return the document of a point: with its variant, and then its settings. Raises
    ScenarioError."""
    changes = {key: value for key, value in point.items() if key != "variant"}
    varied = document.varied(point["variant"]) if "variant" in point else document
    return varied.changed(changes, f"with {_text(point)}")


class _PointsDone:
    """Writes on stderr how many points are done."""

    def __init__(self, count: int, quiet: bool) -> None:
        self.count, self.done = count, 0
        self.line = Line(quiet, "sweep")
        self.begin = self.last = time.monotonic()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self.line.clear()

    def one(self) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self.last >= PROGRESS_INTERVAL and self.done < self.count:
            self.last = now
            left = (now - self.begin) * (self.count / self.done - 1)
            self.line.say(f"{self.done} of {self.count} points, about {left:.0f} s to go")

    def each(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for row in rows:
            self.one()
            yield row


Job = tuple[Document, str, dict[str, Any], Measure]


def _run(job: Job) -> Mapping[str, Any]:
    """Run one point in a worker, and return its row."""
    document, folder, point, measure = job
    try:
        made = Scenario(_changed(document, point), folder)
        result = made.run()
        if result.end == "interrupted":
            raise KeyboardInterrupt
        row = measure(result)
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise TypeError(f"measure returned {row!r}, and not a dictionary of numbers by name")
        return dict(row)
    except Exception as error:
        raise SweepError(f"with {_text(point)}: {type(error).__name__}: {error}", point) from error


# ---- processes ----------------------------------------------------------------------------------

SentJob = tuple[Document, str, dict[str, Any], bytes]


def _check_guard() -> None:
    """End a spawned process that imports the program and would sweep once more.

    Its exit code tells the process that spawned it why.
    """
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def _run_sent(job: SentJob) -> Mapping[str, Any]:
    """Run one point in a process. ``measure`` arrives pickled, which is by its name."""
    document, folder, point, sent = job
    try:
        measure = pickle.loads(sent)
    except Exception as error:
        text = f"the processes cannot import measure ({type(error).__name__}: {error}): {WHERE}"
        raise SweepError(text, {}) from error
    return _run((document, folder, point, measure))


def _sent(jobs: list[Job]) -> list[SentJob]:
    measure = jobs[0][3]
    try:
        sent = pickle.dumps(measure)
    except Exception as error:  # its __reduce__ may raise anything
        name = getattr(measure, "__qualname__", repr(measure))
        text = f"other processes cannot import measure, {name} ({error}): {WHERE}"
        raise SweepError(text, {}) from error
    return [(document, folder, point, sent) for document, folder, point, _ in jobs]


def _here(workers: int | None, jobs: list[Job]) -> Iterator[Mapping[str, Any]]:
    many = min(len(jobs), workers or len(os.sched_getaffinity(0)))
    if many <= 1:
        yield from map(_run, jobs)
        return
    some = max(1, min(64, len(jobs) // (16 * many)))  # points that a process gets at once
    done, sent = 0, _sent(jobs)
    context = get_context("spawn")  # fork copies locks that other threads hold
    ready = context.Event()
    with ProcessPoolExecutor(many, mp_context=context, initializer=ready.set) as pool:
        try:
            for row in pool.map(_run_sent, sent, chunksize=some):
                yield row
                done += 1
        except BrokenProcessPool as error:
            raise _ended(pool, jobs[done][2], ready.is_set()) from error
        except BaseException:
            _end(pool)
            raise


def _ended(pool: ProcessPoolExecutor, point: dict[str, Any], began: bool) -> SweepError:
    """Return why a process ended: during a point, or before it could take one."""
    processes = list((pool._processes or {}).values())
    pool.shutdown()  # it terminates the remaining processes
    codes = {one.exitcode for one in processes} - {None, 0, -signal.SIGTERM}
    if UNGUARDED in codes:
        return SweepError(
            "each process imports the program, and that calls sweep() again: put the call under "
            '`if __name__ == "__main__":`',
            {},
        )
    how = " or ".join(sorted(_how(code) for code in codes if code is not None))
    if not began:
        return SweepError(
            f"the processes ended{how and ', ' + how}, before they had a point: each imports the "
            f"program, {_program()}, and its stderr has why that failed. What is not for them "
            'goes under `if __name__ == "__main__":`',
            {},
        )
    how = how or "without a word"
    return SweepError(f"a process ended at once, {how}, with {_text(point)} or later", point)


def _how(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed, as where memory is short"
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _program() -> str:
    return str(getattr(sys.modules["__main__"], "__file__", None) or "which has no file")


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop at once: a run may take hours, and points that wait for a process would start."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _on_cluster(
    address: str, jobs: list[Job], progress: _PointsDone
) -> Iterator[Mapping[str, Any]]:
    try:
        from dask.distributed import Client, as_completed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a Dask cluster needs dask.distributed: pip install distributed", name=error.name
        ) from None
    with Client(address) as client:
        futures = client.map(_run, jobs, pure=False, retries=0)
        points = {future.key: job[2] for future, job in zip(futures, jobs, strict=True)}
        try:
            for future in as_completed(futures):
                if future.status != "finished":
                    raise _failed(future, points[future.key])
                progress.one()
            yield from client.gather(futures)
        except BaseException:
            client.cancel(futures)
            raise


def _failed(future: Any, point: dict[str, Any]) -> SweepError:
    """Return the error of a task: the one that its point raised, or why the cluster gave it up."""
    try:
        error = future.exception()
    except Exception as caught:  # the task was cancelled or lost
        error = caught
    if isinstance(error, SweepError):
        return error
    made = SweepError(f"with {_text(point)}: {type(error).__name__}: {error}", point)
    made.__cause__ = error
    return made


def _column(values: list[Any]) -> NDArray[Any]:
    """Return an array of numbers if all values are numbers, otherwise of text."""
    if all(isinstance(value, int | float | np.number) for value in values):
        return np.array(values)
    return np.array([str(value) for value in values])
