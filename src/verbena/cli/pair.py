# SPDX-License-Identifier: Apache-2.0
"""`verbena pair`: start a server, and its client as soon as the server listens; end both.

The server is a process group of its own, since what it started has to end with it. The client has
the terminal. The server's lines come through a pipe and are marked, so that the two can be told
apart.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from verbena.cli import listening, run

WAIT, GRACE = 15.0, 5.0  # seconds
POLL = 0.01
EXAMPLE = "verbena pair -- ib_write_bw -- ib_write_bw localhost"
TIMED_OUT = 124  # what timeout(1) says
OPTIONS = [*run.OPTIONS, "wait=", "grace="]
Words = list[str]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="verbena pair",
        usage="verbena pair [OPTIONS of verbena run] [--wait SECONDS] [--grace SECONDS]\n"
        "                    [--] SERVER [ARGUMENT ...] -- CLIENT [ARGUMENT ...]",
        description="Start a server over Verbena, and its client as soon as the server listens for "
        "connections (TCP, or a Unix socket). The server's lines are marked with 'server: '. When "
        "the client has ended, a server that goes on is ended.",
        epilog=f"As in: {EXAMPLE}. The exit status is the client's, or the server's if only that "
        f"failed; 128 + N after signal N; {TIMED_OUT}: the server did not listen in time.",
    )
    run.add_options(made)
    made.add_argument(
        "--wait",
        metavar="SECONDS",
        type=seconds,
        default=WAIT,
        help=f"how long the server may take until it listens ({WAIT:g})",
    )
    made.add_argument(
        "--grace",
        metavar="SECONDS",
        type=seconds,
        default=GRACE,
        help=f"how long one may go on when the other has ended ({GRACE:g}): a server at all, a "
        "client if its server failed",
    )
    return made


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def parse(arguments: Words) -> tuple[argparse.Namespace, Words, Words]:
    """The options, the server's words and the client's."""
    made = parser()
    options, words = run.parse(arguments, made, OPTIONS)
    if "--" not in words:
        made.error(f"name a server and, behind another --, its client, as in: {EXAMPLE}")
    middle = words.index("--")
    server, client = words[:middle], words[middle + 1 :]
    if not server or not client:
        made.error(f"name the {'client' if server else 'server'}, too, as in: {EXAMPLE}")
    return options, server, client


def main(arguments: Words) -> int:
    """Run `verbena pair` and return the exit status of the two."""
    options, server, client = parse(arguments)
    environment = run.environment_of(options)
    try:
        commands = [
            [os.fspath(run.find_checked(words[0], environment)), *words[1:]]
            for words in (server, client)
        ]
        if options.capture:
            run.begin_capture(options.capture)
    except run.ProgramError as error:
        print(f"verbena pair: {error}", file=sys.stderr)
        return error.status
    sys.stdout.flush()
    with sigterm_as_exit(), serving(commands[0], environment) as process:
        return talk(process, commands[1], environment, options.wait, options.grace)


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """SIGTERM unwinds, as Ctrl-C does, so that nothing is left running."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def serving(command: Words, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The server, started; at the end it and all that it started are ended, and its lines shown."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    assert process.stdout is not None
    reader = threading.Thread(target=show, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(GRACE)


def show(lines: IO[bytes]) -> None:
    """Each line of the server's, marked."""
    for line in lines:
        sys.stdout.write(f"server: {line.decode(errors='replace').rstrip()}\n")
        sys.stdout.flush()


def talk(
    server: subprocess.Popen[bytes],
    command: Words,
    environment: dict[str, str],
    wait: float,
    grace: float,
) -> int:
    """Start the client when the server listens, and wait for both; their exit status."""
    name = os.path.basename(os.fspath(server.args[0]))  # type: ignore[index, arg-type]
    if not await_listening(server, wait):
        if server.poll() is None:
            print(f"verbena pair: {name} does not listen after {wait:g} s", file=sys.stderr)
            return TIMED_OUT
        print(f"verbena pair: {name} ended before it listened", file=sys.stderr)
        return shell_status(server.returncode) or 1
    client = subprocess.Popen(command, env=environment)
    try:
        status = await_client(client, server, grace)
    finally:
        end(client)
    return status or await_server(server, grace)


def await_listening(server: subprocess.Popen[bytes], limit: float) -> bool:
    deadline = time.monotonic() + limit
    while server.poll() is None and time.monotonic() < deadline:
        if listening.group_listens(server.pid):
            return True
        time.sleep(POLL)
    return False


def await_client(
    client: subprocess.Popen[bytes], server: subprocess.Popen[bytes], grace: float
) -> int:
    """Its exit status. When its server has failed it may go on for so long, and is ended then."""
    while True:
        try:
            return shell_status(client.wait(timeout=0.2))
        except subprocess.TimeoutExpired:
            if server.poll():
                break
    with suppress(subprocess.TimeoutExpired):
        return shell_status(client.wait(timeout=grace))
    return shell_status(server.returncode)


def await_server(server: subprocess.Popen[bytes], grace: float) -> int:
    """Its exit status; 0 when it goes on, as a server for many clients does."""
    with suppress(subprocess.TimeoutExpired):
        return shell_status(server.wait(timeout=grace))
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(timeout=1)
    return 0


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate it if it still runs, and kill it if it does not mind."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
            return
        process.kill()
        process.wait()


def shell_status(status: int) -> int:
    """As a shell gives it: 128 + N after signal N."""
    return status if status >= 0 else 128 - status
