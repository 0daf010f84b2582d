# SPDX-License-Identifier: Apache-2.0
"""`verbena launch`: starts the ranks of a program that uses verbena.collectives, on this host.

Each rank finds its number, how many there are, and the address of rank 0 in its environment. When
one fails, the others are ended. sides.py starts the processes, reads their output and ends them.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time

from verbena import launch
from verbena.cli import run, sides
from verbena.cli.exact import ExactParser

OPTIONS = [*run.OPTIONS, "ranks=", "address=", "first=", "size=", "grace="]
EXAMPLE = "verbena launch -n 4 -- python program.py"
GRACE = 5.0  # seconds
POLL = 0.01
Process = subprocess.Popen[bytes]


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena launch",
        usage="verbena launch -n RANKS [OPTIONS of verbena run] [--address HOST:PORT]\n"
        "                      [--first RANK --size RANKS] [--grace SECONDS]\n"
        "                      [--] PROGRAM [ARGUMENT ...]",
        description="Start RANKS processes of a program over Verbena, which join a group by "
        "verbena.collectives.join(). Their lines are marked with the rank. When one fails, the "
        "others are ended after --grace.",
        epilog=f"As in: {EXAMPLE}. The exit status is that of the first rank that failed. For "
        "several hosts, start it at each with the same --address and --size, and with its own "
        "--first and -n.",
    )
    run.add_options(made)
    made.add_argument(
        *("-n", "--ranks"), metavar="RANKS", type=count, required=True, help="how many to start"
    )
    made.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="where rank 0 listens (a port of this host that is free)",
    )
    made.add_argument(
        "--first", metavar="RANK", type=int, default=0, help="the first rank of this host (0)"
    )
    made.add_argument("--size", metavar="RANKS", type=count, help="how many of all hosts (-n)")
    made.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=GRACE,
        help=f"how long the others may run when a rank has failed ({GRACE:g})",
    )
    return made


def count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks, from 1 to 4096")
    return value


def main(arguments: list[str]) -> int:
    """Run `verbena launch` and return the exit status of the first rank that failed."""
    made = parser()
    options, words = run.parse(arguments, made, OPTIONS, letters="hn:")
    size = options.size or options.first + options.ranks
    if not words:
        made.error(f"name the program, as in: {EXAMPLE}")
    if options.first < 0 or options.first + options.ranks > size:
        made.error(f"--first and -n name ranks beyond --size {size}")
    if size > options.ranks and options.address is None:
        made.error("ranks of several hosts need the same --address HOST:PORT")
    run.check_netdevs(made, options)
    environment = run.environment_of(options) | {
        "VERBENA_SIZE": str(size),
        "VERBENA_ADDRESS": options.address or f"127.0.0.1:{free_port()}",
    }
    try:
        program = os.path.abspath(run.find_checked(words[0], environment))
        if options.capture:
            run.begin_capture(options.capture)
    except run.ProgramError as error:
        print(f"verbena launch: {error}", file=sys.stderr)
        return error.status
    sides.go_on_in_child()
    output = sides.Output(sys.stdout.fileno())
    readers: list[threading.Thread] = []
    with sides.ended_together():
        processes = []
        for rank in range(options.first, options.first + options.ranks):
            its = environment | {"VERBENA_RANK": str(rank), launch.COMMAND: "run"}
            process = sides.start_server(program, words, its)
            processes.append(process)
            readers.append(output.reader(process.stdout, f"{rank}: ".encode()))
        status = await_ranks(processes, options.first, options.grace)
    for reader in readers:
        reader.join(1)
    output.check()
    return status


def free_port() -> int:
    """Return a port that no socket uses, for rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_ranks(processes: list[Process], first: int, grace: float) -> int:
    """Wait for all ranks; once one has failed, for `grace` seconds. Return its shell status."""
    failed: int | None = None
    deadline = float("inf")
    while time.monotonic() < deadline:
        running = any(process.poll() is None for process in processes)
        if failed is None and (failed := first_failure(processes)) is not None:
            how = sides.how_it_ended(processes[failed].returncode)
            text = f"verbena launch: rank {first + failed} has ended {how}"
            print(text, file=sys.stderr, flush=True)
            deadline = time.monotonic() + grace
        if not running:
            break
        time.sleep(POLL)
    return 0 if failed is None else sides.shell_status(processes[failed].returncode)


def first_failure(processes: list[Process]) -> int | None:
    """Return the place of a process that has failed."""
    ended = ((at, process.poll()) for at, process in enumerate(processes))
    return next((at for at, status in ended if status), None)
