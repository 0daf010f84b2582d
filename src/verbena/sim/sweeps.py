# SPDX-License-Identifier: Apache-2.0
"""One scenario with many settings and seeds, on all cores or on a Dask cluster."""

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
from verbena.sim.parquet import arrow, with_metadata, with_units
from verbena.sim.result import DONE, FAILED, INCOMPLETE, ScenarioResult
from verbena.sim.scenario import Scenario
from verbena.version import full_version

__all__ = ["Sweep", "SweepError", "measures", "sweep"]

WORKERS_MOST = 1 << 16
SEEDS_MOST = 1 << 40
LOOKS = 0.2  # s between two lines about how far a sweep is, at least
POINT_BYTES = 3000  # of a point and its row, on the way and in the table
Measure = Callable[[ScenarioResult], Mapping[str, float]]
UNGUARDED = 78  # exit code of a process that would begin the sweep anew: EX_CONFIG of sysexits.h
WHERE = (
    "define it at the top of a module (a file beside the notebook or program), or above the "
    'program\'s `if __name__ == "__main__":`; or sweep with workers=1'
)


UNITS = {  # of what ``measures`` gives
    **dict.fromkeys(("time", "mean", "median", "p99", "slowest", "stalled", "wall"), "s"),
    **dict.fromkeys(("delivered", "lost", "queue_max"), "B"),
    **dict.fromkeys(("done", "failed", "incomplete"), "flows"),
    **dict.fromkeys(("retransmissions", "marks", "dropped"), "packets"),
    "goodput": "bit/s",
}


class SweepError(RuntimeError):
    """A point failed. ``point`` are its settings; empty: no point could be run at all."""

    def __init__(self, text: str, point: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.point = dict(point)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SweepError, (str(self), self.point))


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep: a row for each point, in the order of ``itertools.product``.

    ``points``: the settings of each row, with its "seed". ``columns``: arrays by name, of settings
    and of measures. Iterating gives the rows as dicts, so ``pandas.DataFrame(table)`` has these
    columns. ``about`` says what made it: Verbena's "version", the scenario's "name", "settings" and
    "variant", and the "measure".
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
        """Units are in the fields' metadata; null is a time that there is not.

        ``about`` is in the schema's metadata ("verbena"). The column "wall" is left out, since
        real time is different each time, and files of one sweep are equal without it.
        Needs pyarrow (pip install pyarrow).
        """
        pyarrow = arrow()
        columns = {
            name: pyarrow.array(column, from_pandas=True)
            for name, column in self.columns.items()
            if name != "wall"
        }
        measured = {name: UNITS[name] for name in columns if name in UNITS}
        table = with_metadata(pyarrow.table(columns), self.about)
        pyarrow.parquet.write_table(with_units(table, measured), path)


def measures(result: ScenarioResult) -> dict[str, float]:
    """What a sweep keeps of each run, if it is not told otherwise; times in seconds.

    All traffics are taken together; one's own function tells them apart, as with
    ``result.durations("web")``. Times are those of flows that are done; ``delivered`` and ``lost``
    are bytes.
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
    """Runs the scenario with all combinations of settings and seeds.

    ``over``: a sequence of values for each key, as for ``Scenario.changed``; "variant" has names of
    the scenario's variants, whose settings come first. ``seeds``: which, or how many from the
    scenario's own on; ``over`` may have them as "seed" instead. The points are shared out to
    ``workers`` processes (as many as there are cores), or to the Dask cluster whose scheduler has
    the address ``dask``, "tcp://host:8786", on which Verbena is installed. ``measure(result)`` is
    called there and makes a row; it has to be a function of a module. The processes are spawned: a
    program calls this under ``if __name__ == "__main__"``.

    All settings are checked before the first point runs. Raises ScenarioError for a setting that
    cannot be, SweepError for a point that fails, which names its settings. Ctrl-C ends all of it.
    How many points are done is said on stderr if that is a terminal, otherwise from ten seconds
    on; with ``quiet`` nothing is.
    """
    _check_guard()
    _check_arguments(scenario, over, workers, measure)
    points = list(_points(scenario, over or {}, seeds))
    for point in {_text(_without_seed(point)): point for point in points}.values():
        Scenario(_changed(scenario.document, point), scenario.folder)
    jobs = [(scenario.document, str(scenario.folder), point, measure) for point in points]
    told = _Told(len(jobs), quiet)
    with told:
        rows = list(_on_cluster(dask, jobs, told) if dask else told.each(_here(workers, jobs)))
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
    """What made the table, beside the settings of its points."""
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
    """Are there several seeds, and all rows of one setting the same but for the real time?"""
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
        if isinstance(values, str | bytes | Mapping):  # it would be taken apart
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
    """The settings of a point: those of its variant, and then the others. Raises ScenarioError."""
    changes = {key: value for key, value in point.items() if key != "variant"}
    varied = document.varied(point["variant"]) if "variant" in point else document
    return varied.changed(changes, f"with {_text(point)}")


class _Told:
    """How many points are done, on stderr."""

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
        if now - self.last >= LOOKS and self.done < self.count:
            self.last = now
            left = (now - self.begin) * (self.count / self.done - 1)
            self.line.say(f"{self.done} of {self.count} points, about {left:.0f} s to go")

    def each(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for row in rows:
            self.one()
            yield row


Job = tuple[Document, str, dict[str, Any], Measure]


def _run(job: Job) -> Mapping[str, Any]:
    """In a worker."""
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
    """A spawned process imports the program, and would sweep once more: it ends instead.

    Its exit code tells the process that spawned it.
    """
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def _run_sent(job: SentJob) -> Mapping[str, Any]:
    """In a process, to which ``measure`` comes by its name."""
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
    except Exception as error:  # of whatever its __reduce__ does
        name = getattr(measure, "__qualname__", repr(measure))
        text = f"other processes cannot import measure, {name} ({error}): {WHERE}"
        raise SweepError(text, {}) from error
    return [(document, folder, point, sent) for document, folder, point, _ in jobs]


def _here(workers: int | None, jobs: list[Job]) -> Iterator[Mapping[str, Any]]:
    many = min(len(jobs), workers or len(os.sched_getaffinity(0)))
    if many <= 1:
        yield from map(_run, jobs)
        return
    some = max(1, min(64, len(jobs) // (16 * many)))  # that go to a process at once
    done, sent = 0, _sent(jobs)
    context = get_context("spawn")  # a forked process would wait for locks that threads hold here
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
    """Why a process ended: in the middle of a point, or before it could take one."""
    processes = list((pool._processes or {}).values())
    pool.shutdown()  # the pool terminates those that are left
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
    """At once: a run may take hours, and points that wait for a process would begin."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _on_cluster(address: str, jobs: list[Job], told: _Told) -> Iterator[Mapping[str, Any]]:
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
                told.one()
            yield from client.gather(futures)
        except BaseException:
            client.cancel(futures)
            raise


def _failed(future: Any, point: dict[str, Any]) -> SweepError:
    """Of a task: what its point raised, or why the cluster gave it up."""
    try:
        error = future.exception()
    except Exception as caught:  # it was cancelled, or lost
        error = caught
    if isinstance(error, SweepError):
        return error
    made = SweepError(f"with {_text(point)}: {type(error).__name__}: {error}", point)
    made.__cause__ = error
    return made


def _column(values: list[Any]) -> NDArray[Any]:
    """Numbers as numbers, anything else as text."""
    if all(isinstance(value, int | float | np.number) for value in values):
        return np.array(values)
    return np.array([str(value) for value in values])
