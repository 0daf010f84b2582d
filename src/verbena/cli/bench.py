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
    CLIENTS,
    SIMULATED_WAYS,
    Contender,
    Part,
    RpcMeasurement,
    contenders,
    crossover,
    crowds,
    measure_live,
    measure_simulated,
    responders,
    winners,
)

SIZES = (64, 1024, 4096, 16 << 10, 64 << 10, 1 << 20)
SIMULATED_SIZES = (64, 1024, 4096, 16 << 10, 64 << 10, 256 << 10)
DISTANCES = (5.0, 1000.0, 10_000.0)
STRATEGIES = ("inline", "ring", "rendezvous", "datagram")
RESPONSES = ("inline", "write", "rendezvous")
OTHERS = tuple(each.name for each in contenders() if not each.kind.startswith("verbena"))
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
        " and gRPC where they are installed, in turn: requests of several sizes, which are answered"
        " with 64 bytes at most; responses of several sizes; and several clients at once.",
    )
    made.add_argument(
        "--sizes",
        metavar="BYTES",
        type=request_size,
        nargs="+",
        help="bytes of a request, and of a response (64 to 1 MiB)",
    )
    made.add_argument("--rounds", metavar="N", type=count, default=9, help="rounds of each (9)")
    made.add_argument(
        "--only",
        metavar="NAME",
        nargs="+",
        choices=[each.name for each in contenders()],
        help="whom to measure of " + ", ".join(each.name for each in contenders()) + "; requests"
        " alone",
    )
    made.add_argument(
        "--parts",
        metavar="PART",
        nargs="+",
        choices=[each.value for each in Part],
        help="what to measure of " + ", ".join(Part) + " (all)",
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
    parts = asked.parts or ([Part.REQUESTS] if asked.only else list(Part))
    shows = {Part.REQUESTS: _show_requests, Part.RESPONSES: _show_responses}
    for number, part in enumerate(each for each in Part if each in parts):
        if number:
            print()
        if part is Part.CLIENTS:
            _show_clients(asked.rounds)
        else:
            shows[part](sizes, asked)
    return 0


def _show_requests(sizes: list[int], asked: argparse.Namespace) -> None:
    chosen = [each for each in contenders() if not asked.only or each.name in asked.only]
    result = _measured(sizes, asked.rounds, chosen)
    print(*table(result, sizes, [each.name for each in chosen]), sep="\n")
    print(*conclusions(result, sizes), sep="\n", flush=True)


def _show_responses(sizes: list[int], asked: argparse.Namespace) -> None:
    chosen = responders()
    result = _measured(sizes, asked.rounds, chosen)
    about = "of a call (median of the best round), by the form of its response"
    print(*table(result, sizes, [each.name for each in chosen], about), sep="\n")
    print("", *strategy_lines(result, sizes, RESPONSES, "form of a response"), sep="\n", flush=True)


def _show_clients(rounds: int) -> None:
    chosen, numbers = crowds(), list(CLIENTS)
    result = _measured(numbers, rounds, chosen)
    about = "from one response of 64 bytes to the next (mean of the best round), by receives"
    heads = [f"{number} client{'s' * (number > 1)}" for number in numbers]
    names = [each.name for each in chosen]
    print(*table(result, numbers, names, about, heads), sep="\n", flush=True)


def _measured(sizes: list[int], rounds: int, chosen: list[Contender]) -> RpcMeasurement:
    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    return measure_live(sizes, rounds, chosen, progress)


def table(
    result: RpcMeasurement,
    sizes: list[int],
    names: list[str],
    about: str = "of a call (median of the best round)",
    heads: list[str] | None = None,
) -> list[str]:
    """Return the lines of the table: µs in the best round; ``about`` says which.

    A strategy that cannot carry a request of a size has "too large" there. ``heads`` are those of
    the columns where these are no sizes.
    """
    where = f"client and server on {result.cores}"
    lines = [f"µs {about}, {where}", ""]
    heads = heads or [size_text(size) for size in sizes]
    lines.append(" " * 16 + "".join(f"{head:>11}" for head in heads))
    for name in names:
        if name in result.skipped:
            lines.append(f"{name:<16}  skipped: {result.skipped[name]}")
            continue
        shown = [f"{_cell(result.best(name, size), name, size):>11}" for size in sizes]
        lines.append(f"{name:<16}" + "".join(shown))
    return lines


def _cell(taken: float | None, name: str, size: int) -> str:
    if taken is not None:
        return format(taken, ".1f")
    return "too large" if size > LARGEST.get(name, size) else ""


def conclusions(result: RpcMeasurement, sizes: list[int]) -> list[str]:
    """Say which strategy wins at which size, and how the default compares with it and others."""
    lines = ["", *strategy_lines(result, sizes, STRATEGIES, "strategy")]
    for other in OTHERS:
        for size in sizes:
            ours, theirs = result.best("default", size), result.best(other, size)
            if ours is not None and theirs is not None:
                lines.append(f"{size_text(size)}: {other} takes {theirs / ours:.1f} times as long")
    return lines


def strategy_lines(
    result: RpcMeasurement, sizes: list[int], names: tuple[str, ...], what: str
) -> list[str]:
    """Say for each size which of the strategies is the fastest, and how near the default is to it.

    A size has no line if fewer than two were measured; it says so where not all were.
    """
    lines = []
    for size, best in winners(result, sizes, list(names)).items():
        able = [name for name in names if size <= LARGEST.get(name, size)]
        measured = result.known(able, size)
        if len(measured) < 2:
            continue
        of = "" if len(measured) == len(able) else f" of those measured ({', '.join(measured)})"
        line = f"{size_text(size)}: {best} is the fastest {what}{of}"
        default = result.best("default", size)
        if default is not None:
            line += f"; the default takes {default / measured[best]:.2f} times as long"
        lines.append(line)
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
