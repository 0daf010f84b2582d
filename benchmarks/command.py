# SPDX-License-Identifier: Apache-2.0
"""The command line of `python -m benchmarks`, which `make bench` calls too."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from benchmarks import goals, line, machine, report, runner
from verbena import _native
from verbena.measure import cores

FULL = runner.Plan(rounds=5, seconds=0.4, limit=510.0)
QUICK = runner.Plan(rounds=1, seconds=0.1, limit=50.0)
FAILED = 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Verbena beside UCX, TCP, libc and SimPy on two pinned cores, and "
        "print medians and ratios. The line is a bare ping-pong of one cache line, measured before "
        "and after each value: it tells whether the two processors are threads of one core at the "
        "time. Takes about 10 minutes; leave the machine alone meanwhile.",
        epilog="Exit status 1: something could not be measured. A missed goal is no failure.",
    )
    made.add_argument(
        "--quick", action="store_true", help="one round of the main rows, below 1 min"
    )
    made.add_argument("--only", metavar="PATTERN", help="only rows whose name has this part")
    made.add_argument("--rounds", type=positive, metavar="N", help="repetitions of everything")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all values there")
    made.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help=f"write the page there; {report.NOTES} beside it becomes its last section",
    )
    return made


def positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds")
    return value


def main(arguments: list[str]) -> int:
    """Run the benchmarks. Raises FileNotFoundError when Verbena is not built, ValueError."""
    options = parser().parse_args(arguments)
    _native.library_dir()
    signal.signal(signal.SIGTERM, terminate)
    chosen = goals.select(options.quick, options.only)
    plan = plan_of(options)
    where = cores.choose()
    here = machine.look(where)
    if not where.distinct:
        print(f"Only one core: {where}.", file=sys.stderr)
    groups = [tuple(goal.cases()) for goal in chosen]
    with line.prepared(where) as probe:
        series = runner.measure(groups, where, plan, progress_to(sys.stderr.isatty()), probe)
    here = replace(here, line=line.text(probe))
    found = report.rows(chosen, series)
    print(report.text(found, here))
    rounds = max((len(one.values) for one in series.values()), default=0)
    if options.json:
        report.write_json(options.json, found, here, series)
    if options.markdown:
        report.write_markdown(options.markdown, found, here, rounds)
    return FAILED if any(row.failed for row in found) else 0


def plan_of(options: argparse.Namespace) -> runner.Plan:
    plan = QUICK if options.quick else FULL
    rounds = options.rounds or plan.rounds
    return runner.Plan(rounds, plan.seconds, plan.limit)


def terminate(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C, so that what was started is ended too."""
    del number, frame
    raise KeyboardInterrupt


def progress_to(terminal: bool) -> Callable[[str], None]:
    """On a terminal one line that changes, otherwise nothing."""

    def show(line: str) -> None:
        if terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return show
