# SPDX-License-Identifier: Apache-2.0
"""python -m tests.validation: runs the rows, each in a process of its own, and writes the page.

Ends with status 1 when a figure is not as expected and its row does not say why. With --threads it
compares the results of rows that so many threads run, and ends with status 1 when they differ.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests.support import ROOT
from tests.validation.page import Result, is_as_known, merged, page, word
from tests.validation.row import Figure, Row, Scope
from tests.validation.rows import row, rows
from tests.validation.watcher import watched
from verbena import __version__

PAGE = ROOT / "docs" / "validation.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make validate VALIDATE=…", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="V3 P7 …; writes no page")
    parser.add_argument("--merge", action="store_true", help="writes those into the page")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument(
        "--threads",
        nargs="+",
        type=int,
        metavar="N",
        help="1 2 3: compares, to the bit, the results of so many threads; writes no page",
    )
    parser.add_argument("--one", metavar="ROW", help="prints the figures of one row as JSON")
    return parser.parse_args()


def print_one(number: str, seed: int) -> None:
    """What a process of one row says: a line for each figure."""
    for figure in row(number).measure(Scope(seed)):
        print(json.dumps(asdict(figure)), flush=True)


def print_one_watched(number: str, seed: int, threads: int) -> None:
    """As print_one, then a line with the hash of all results, and one with the threads there
    were."""
    with watched(threads) as watcher:
        print_one(number, seed)
        print(watcher.finish())
        print(watcher.threads, flush=True)


def words_of(each: Row, seed: int) -> list[str]:
    return [sys.executable, "-m", "tests.validation", "--one", each.number, "--seed", str(seed)]


def measure(each: Row, seed: int) -> Result:
    start = time.monotonic()
    process = subprocess.Popen(
        words_of(each, seed), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    problem = ""
    try:
        said, wrong = process.communicate(timeout=each.seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        said, wrong = process.communicate()
        problem = f"it took more than {each.seconds:g} s"
    if process.returncode and not problem:
        problem = (wrong.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
    lines = [line for line in said.splitlines() if line.endswith("}")]
    figures = [Figure(**json.loads(line)) for line in lines]
    return Result(figures, time.monotonic() - start, problem)


def say(each: Row, result: Result, done: int, count: int) -> None:
    good = sum(figure.passed for figure in result.figures)
    status = word(each, result).replace("*", "")
    print(
        f"[{done:2}/{count}] {each.number:>3} {status}  {good}/{len(result.figures)} figures, "
        f"{result.seconds:.1f} s  {each.title}",
        flush=True,
    )
    for figure in result.figures:
        if not figure.passed:
            wanted = figure.rule if figure.expected is None else f"{figure.expected:.6g}"
            print(f"         {figure.what}: {figure.measured:.6g}, expected {wanted}")
    if result.problem:
        print(f"         {result.problem}")


def measure_all(chosen: Sequence[Row], seed: int, jobs: int) -> dict[str, Result]:
    """Each row in a process, so many at a time; what became of each, by number."""
    results = {}
    with ThreadPoolExecutor(jobs) as pool:
        # Those that may take longest first, so that none of them is left alone at the end.
        order = sorted(chosen, key=lambda each: -each.seconds)
        pending = {pool.submit(measure, each, seed): each for each in order}
        for future in as_completed(pending):
            each = pending[future]
            results[each.number] = future.result()
            say(each, results[each.number], len(results), len(chosen))
    return results


def is_result(line: str) -> bool:
    """Whether the figure is of the simulation, and not the time or memory that it took."""
    return json.loads(line)["unit"] not in ("s", "B")


def watch(each: Row, seed: int, counts: Sequence[int]) -> tuple[bool, int]:
    """Whether the row gives the same by each number of threads; and the most that there were."""
    given: set[tuple[str, ...]] = set()
    most = 1
    for count in counts:
        words = [*words_of(each, seed), "--threads", str(count)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return False, most
        *figures, results, threads = done.stdout.splitlines()
        given.add((*filter(is_result, figures), results))
        most = max(most, int(threads))
    return len(given) == 1, most


def compare(chosen: Sequence[Row], seed: int, jobs: int, counts: Sequence[int]) -> int:
    """Each row by each number of threads; the exit status."""
    differ, several = 0, 0
    with ThreadPoolExecutor(jobs) as pool:
        order = sorted(chosen, key=lambda each: -each.seconds)
        pending = {pool.submit(watch, each, seed, counts): each for each in order}
        for future in as_completed(pending):
            equal, most = future.result()
            differ += not equal
            several += most > 1
            word = "equal" if equal else "DIFFERS"
            print(f"{pending[future].number:>3} {word}, {most} threads", flush=True)
    print(f"{len(chosen)} rows, {several} by several threads: {differ} differ")
    return 1 if differ else 0


def facts(seed: int, seconds: float) -> dict[str, str]:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    commit = f", commit {done.stdout.strip()}" if done.returncode == 0 else ""
    return {
        "Date": str(datetime.datetime.now(datetime.UTC).date()),
        "Verbena": f"{__version__}{commit}",
        "Python": platform.python_version(),
        "Seed": str(seed),
        "Took": f"{seconds:.0f} s",
    }


def main() -> int:
    options = arguments()
    if options.one and options.threads:
        print_one_watched(options.one, options.seed, options.threads[0])
        return 0
    if options.one:
        print_one(options.one, options.seed)
        return 0
    everything = rows()
    wanted = set(options.only or [each.number for each in everything])
    if unknown := wanted - {each.number for each in everything}:
        print(f"no such row: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [each for each in everything if each.number in wanted]
    if options.threads:
        return compare(chosen, options.seed, options.jobs, options.threads)
    start = time.monotonic()
    results = measure_all(chosen, options.seed, options.jobs)
    good = sum(is_as_known(each, results[each.number]) for each in chosen)
    if not options.only:
        text = page(everything, results, facts(options.seed, time.monotonic() - start))
        options.page.write_text(text)
        print(f"written: {options.page}")
    elif options.merge:
        options.page.write_text(merged(options.page.read_text(), everything, results))
        print(f"merged into: {options.page}")
    print(f"{good} as known, {len(results) - good} failed")
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
