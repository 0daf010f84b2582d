# SPDX-License-Identifier: Apache-2.0
"""`verbena bench rpc`: the strategies of verbena.rpc, and what others need for the same calls.

verbena.cli starts main(); verbena.measure.rpc_bench measures. The other benchmarks are in a
checkout alone: `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import sys

from verbena.cli import guarded
from verbena.cli.exact import ExactParser
from verbena.measure.case import size_text
from verbena.measure.rpc_bench import (
    SIMULATED_WAYS,
    RpcMeasurement,
    contenders,
    crossover,
    measure_live,
    measure_simulated,
    winners,
)

SIZES = (64, 1024, 4096, 16 << 10, 64 << 10, 1 << 20)
SIMULATED_SIZES = (64, 1024, 4096, 16 << 10, 64 << 10, 256 << 10)
DISTANCES = (5.0, 1000.0, 10_000.0)
STRATEGIES = ("inline", "ring", "rendezvous", "datagram")
LARGEST = {each.name: each.largest for each in contenders()}
OTHERS_HERE = (
    "verbena bench: only rpc is installed with Verbena; for the others run `make bench`, or `python"
    " -m benchmarks` with the same arguments, in a checkout of its sources."
)


def request_size(word: str) -> int:
    """Return the bytes of a request."""
    if not word.isdecimal() or not SIZES[0] <= int(word) <= SIZES[-1]:
        raise argparse.ArgumentTypeError(f"{word!r} is not from {SIZES[0]} to {SIZES[-1]} bytes")
    return int(word)


def count(word: str) -> int:
    """Return how many rounds there are."""
    if not word.isdecimal() or not int(word):
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of rounds, 1 or more")
    return int(word)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    made = ExactParser(
        prog="verbena bench rpc",
        description="Measure calls of verbena.rpc by each strategy, and of asyncio, uvloop, ZeroMQ"
        " and gRPC where they are installed, in turn. The answer has 64 bytes at most.",
    )
    made.add_argument(
        "--sizes",
        metavar="BYTES",
        type=request_size,
        nargs="+",
        help="bytes of a request (64 to 1 MiB)",
    )
    made.add_argument("--rounds", metavar="N", type=count, default=9, help="rounds of each (9)")
    made.add_argument(
        "--only", metavar="NAME", nargs="+", choices=[each.name for each in contenders()]
    )
    made.add_argument(
        "--simulated",
        action="store_true",
        help="in a simulated fabric: over cables of 5 m, 1 km and 10 km, idle and loaded",
    )
    return made


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    if arguments and arguments[0] in ("-h", "--help"):
        parser().print_help()
        return 0
    if not arguments or arguments[0] != "rpc":
        print(OTHERS_HERE, file=sys.stderr)
        return 2
    made = parser()
    asked = made.parse_args(arguments[1:])
    return guarded(made.prog, lambda: _run(asked))


def _run(asked: argparse.Namespace) -> int:
    if asked.simulated:
        show_simulated(asked.sizes or list(SIMULATED_SIZES))
        return 0
    sizes = asked.sizes or list(SIZES)
    chosen = [each for each in contenders() if not asked.only or each.name in asked.only]

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    result = measure_live(sizes, asked.rounds, chosen, progress)
    print(*table(result, sizes, [each.name for each in chosen]), sep="\n")
    print(*conclusions(result, sizes), sep="\n")
    return 0


def table(result: RpcMeasurement, sizes: list[int], names: list[str]) -> list[str]:
    """Return the lines of the table: µs of a call in the best round.

    A strategy that cannot carry a request of a size has "too large" there.
    """
    lines = [f"µs of a call (median of the best round), client and server on {result.cores}", ""]
    heads = [size_text(size) for size in sizes]
    lines.append(" " * 16 + "".join(f"{head:>10}" for head in heads))
    for name in names:
        if name in result.skipped:
            lines.append(f"{name:<16}  skipped: {result.skipped[name]}")
            continue
        shown = [f"{_cell(result.best(name, size), name, size):>10}" for size in sizes]
        lines.append(f"{name:<16}" + "".join(shown))
    return lines


def _cell(taken: float | None, name: str, size: int) -> str:
    if taken is not None:
        return format(taken, ".1f")
    return "too large" if size > LARGEST[name] else ""


def conclusions(result: RpcMeasurement, sizes: list[int]) -> list[str]:
    """Say which strategy wins at which size, and how the default compares with gRPC."""
    lines = [""]
    for size, name in winners(result, sizes, list(STRATEGIES)).items():
        lines.append(f"{size_text(size)}: {name} is the fastest strategy")
    for other in ("gRPC", "uvloop"):
        for size in sizes:
            ours, theirs = result.best("default", size), result.best(other, size)
            if ours is not None and theirs is not None:
                lines.append(f"{size_text(size)}: {other} takes {theirs / ours:.1f} times as long")
    return lines


def show_simulated(sizes: list[int]) -> None:
    """Print a table for each distance, idle and loaded."""
    for length in DISTANCES:
        for loaded in (False, True):
            times = measure_simulated(sizes, length, loaded)
            state = "loaded" if loaded else "idle"
            print(f"{length:g} m of cable, {state}: µs of virtual time of a call")
            print(" " * 12 + "".join(f"{size_text(size):>10}" for size in sizes))
            for way in SIMULATED_WAYS:
                shown = [f"{_cell(times[way].get(size), way, size):>10}" for size in sizes]
                print(f"{way:<12}" + "".join(shown))
            since = crossover(times, "inline", "rendezvous")
            where = f"from {size_text(since)} on" if since is not None else "at none of these sizes"
            print(f"rendezvous is not slower than inline {where}\n", flush=True)
