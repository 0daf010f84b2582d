# SPDX-License-Identifier: Apache-2.0
"""`verbena compare`: the same bytes moved by PIO, DMA, TCP and RDMA, and what each way costs.

verbena.cli starts main(); verbena.host.comparison builds the computers, runs them and counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from verbena.cli.exact import ExactParser
from verbena.cli.paths import prepare_file, unusable
from verbena.cli.table import aligned
from verbena.host import HostError, Pcie
from verbena.host.comparison import WAYS, Recording, Row, Setup, compare_ways
from verbena.host.comparison.pictures import bars, sweep
from verbena.host.comparison.tables import cost_table, row_data, rows_costs, speed_table, work_table
from verbena.sim.units import bytes_of, size_text

_MOST_SIZES = 24
LONG = 2.0  # s after which a measurement is announced


def size_option(text: str) -> int:
    """Read "8KiB" or 8192. Raises ArgumentTypeError."""
    try:
        return bytes_of(int(text) if text.isdigit() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def sizes_option(text: str) -> list[int]:
    """Read "64B..1MiB": powers of two times the first size. Raises ArgumentTypeError."""
    first, dots, last = text.partition("..")
    if not dots:
        raise argparse.ArgumentTypeError(f'{text!r} is no range of sizes, as in "64B..1MiB"')
    low, high = size_option(first), size_option(last)
    if not 0 < low <= high:
        raise argparse.ArgumentTypeError(f"{text!r}: the first size is above 0, the last no less")
    found = [low]
    while found[-1] * 2 <= high:
        found.append(found[-1] * 2)
    if len(found) > _MOST_SIZES:
        raise argparse.ArgumentTypeError(f"{text!r} has {len(found)} sizes: at most {_MOST_SIZES}")
    return found


def pcie_option(text: str) -> tuple[int, int]:
    """Read "3x8": generation and lanes. Raises ArgumentTypeError."""
    generation, by, lanes = text.partition("x")
    if not by or not generation.isdigit() or not lanes.isdigit():
        raise argparse.ArgumentTypeError(f'{text!r} is no generation and lanes, as in "3x8"')
    return int(generation), int(lanes)


def parser() -> argparse.ArgumentParser:
    known = Setup()
    made = ExactParser(
        prog="verbena compare",
        description="Move the same bytes in several ways between a disk, memory and the memory of "
        "another computer, and show what each way costs: processor cycles of both sides, copies, "
        "interrupts, system calls, PCIe transactions, latency and bandwidth. The computers are "
        "simulated from the inside (verbena.host): drivers are machine code. Without an option "
        "that names a way, all ways are shown.",
        epilog="`many at once` is what the most loaded resource allows when many transfers are "
        "under way. Below the table are the costs that were used, with their sources.",
    )
    sizes = made.add_mutually_exclusive_group()
    sizes.add_argument(
        "--size", type=size_option, default=8192,
        help="of the transfer, as 8KiB: a multiple of 8 bytes up to 64MiB; default: 8KiB",
    )  # fmt: skip
    sizes.add_argument(
        "--sizes", type=sizes_option, metavar="FIRST..LAST",
        help="a transfer of each size, doubled from the first to the last, as 64B..1MiB; "
        "the first is a multiple of 8 bytes",
    )  # fmt: skip
    ways = made.add_argument_group("ways")
    for way in WAYS.values():
        ways.add_argument(
            f"--{way.option}", dest="ways", action="append_const", const=way.option, help=way.says
        )
    made.add_argument("--json", action="store_true", help="print JSON: times in ps, sizes in bytes")
    made.add_argument(
        "--costs", action="store_true",
        help="with --json: an object of `rows` and `costs`, which are those that the rows used",
    )  # fmt: skip
    made.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw a picture")
    made.add_argument(
        "--timeline", type=Path, metavar="FILE.json",
        help="write what cores, links, memory and devices did, for https://ui.perfetto.dev",
    )  # fmt: skip
    machine = made.add_argument_group("the computers")
    machine.add_argument(
        "--ghz", type=float, default=known.ghz,
        help="clock of the processors, 0.001 to 1000; default: %(default)s",
    )  # fmt: skip
    machine.add_argument(
        "--pcie", type=pcie_option, default=(3, 8), metavar="GENxLANES", help="default: 3x8"
    )
    machine.add_argument(
        "--round-trip-ns", type=float, default=known.pcie.round_trip_ns,
        help="of a load over PCIe, 0 to 1e6; default: %(default)s",
    )  # fmt: skip
    machine.add_argument(
        "--disk-us", type=float, default=known.disk_us,
        help="until the medium has the data, 0 to 1e6; default: %(default)s",
    )  # fmt: skip
    return made


def main(arguments: list[str]) -> int:
    """Run `verbena compare`. Returns its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    if options.plot is not None and options.plot.suffix != ".svg":
        made.error(f"--plot {options.plot}: the picture is an SVG, so its name ends in .svg")
    if options.costs and not options.json:
        made.error("--costs is of --json: the text has the costs that were used at its end")
    if options.timeline is not None and options.sizes:
        made.error("--timeline is of one size: give --size")
    recording = None if options.timeline is None else Recording()
    try:
        for path in (options.timeline, options.plot):
            if path is not None:
                prepare_file(path)
        rows = measured(options, recording)
        if recording is not None:
            recording.write(options.timeline)
    except OSError as error:
        print(f"verbena compare: {unusable(error)}", file=sys.stderr)
        return 1
    except HostError as error:
        print(f"verbena compare: {error}", file=sys.stderr)
        return 1
    print(json_text(rows, options) if options.json else report(rows, setup_of(options)))
    if options.plot is not None:
        try:
            options.plot.write_text(sweep(rows) if options.sizes else bars(rows))
        except OSError as error:
            print(f"verbena compare: {unusable(error)}", file=sys.stderr)
            return 1
    return 0


def measured(options: argparse.Namespace, recording: Recording | None) -> list[Row]:
    """The rows of each size and way, once each; says on stderr what it measures if that is long.
    Raises HostError."""
    ways = list(WAYS) if options.ways is None else list(dict.fromkeys(options.ways))
    rows: list[Row] = []
    for size in options.sizes or [options.size]:
        for way in ways:
            with said_if_long(f"measuring {WAYS[way].title} with {size_text(size)}"):
                rows += compare_ways(size, [way], setup_of(options), recording)
    return rows


@contextmanager
def said_if_long(text: str) -> Iterator[None]:
    """Prints a line on stderr, once, if the block takes longer than ``LONG`` seconds."""
    words = f"verbena compare: {text} ..."
    timer = Timer(LONG, lambda: print(words, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def json_text(rows: list[Row], options: argparse.Namespace) -> str:
    """The rows, or with --costs an object of them and the costs that they used."""
    found = [row_data(row) for row in rows]
    if not options.costs:
        return json.dumps(found, indent=2)
    costs = rows_costs(rows, setup_of(options)).data
    return json.dumps({"rows": found, "costs": costs}, indent=2)


def setup_of(options: argparse.Namespace) -> Setup:
    """The computers of the command's words. Raises HostError."""
    generation, lanes = options.pcie
    return Setup(
        ghz=options.ghz,
        pcie=Pcie(generation, lanes, round_trip_ns=options.round_trip_ns),
        disk_us=options.disk_us,
    )


def report(rows: list[Row], setup: Setup) -> str:
    """The tables of each size, and the costs behind them."""
    parts: list[str] = []
    for size in dict.fromkeys(row.size for row in rows):
        some = [row for row in rows if row.size == size]
        parts += [size_text(size), aligned(speed_table(some)), "", aligned(work_table(some)), ""]
    return "\n".join([*parts, "Costs that were used", aligned(cost_table(rows, setup))])
