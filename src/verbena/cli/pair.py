# SPDX-License-Identifier: Apache-2.0
"""`verbena pair`: starts a server, and its client as soon as the server listens; ends both.

The server is a process group of its own, so that its sockets are found. The client has the
terminal. The server's lines come through a pipe and are marked, so that the two outputs can be told
apart. sides.py starts the processes, reads their output and ends them.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from verbena import launch
from verbena.cli import listening, notes, run, sides
from verbena.cli.exact import ExactParser

WAIT, GRACE = 15.0, 5.0  # seconds
POLL = 0.01
EXAMPLE = "verbena pair -- ib_write_bw -- ib_write_bw localhost"
SERVER, CLIENT = 0, 1
TIMED_OUT = 124  # what timeout(1) says
RUN = r"(?<!\S)(\S*/)?verbena run\s"
STARTERS = r"(?<![\w.-])(sudo|su|doas|env|ssh|runuser|setpriv|chroot|nsenter|docker|podman|srun)\s"
FIRST_SIGNAL = 128  # the exit status of a program that a signal ended is higher
OPTIONS = [*run.OPTIONS, "wait=", "grace="]
Words = list[str]
Process = subprocess.Popen[bytes]


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena pair",
        usage="verbena pair [OPTIONS of verbena run] [--wait SECONDS] [--grace SECONDS]\n"
        "                    [--] SERVER [ARGUMENT ...] -- CLIENT [ARGUMENT ...]",
        description="Start a server over Verbena, and its client as soon as the server listens for "
        "connections (TCP, a Unix socket, or librdmacm). The server's lines are marked with "
        "'server: '. When the client has ended, a server that still runs after --grace is ended, "
        "and so are all processes that the two have started.",
        epilog=f"As in: {EXAMPLE}. The exit status is the client's, or the server's if only that "
        f"failed; 128 + N after signal N; 1: the server ended well before it listened; "
        f"{TIMED_OUT}: it did not listen in time.",
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
        help=f"how long one side may run when the other has ended ({GRACE:g}): the server whether "
        "or not its client failed, the client if its server failed",
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
    options, words = run.parse(arguments, made, OPTIONS, most_hosts=2)
    run.check_netdevs(made, options)
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
    environments = environments_of(options)
    try:
        programs = [
            os.path.abspath(run.find_checked(words[0], environment))
            for words, environment in zip((server, client), environments, strict=True)
        ]
        if options.capture:
            run.begin_capture(options.capture)
    except run.ProgramError as error:
        say(str(error))
        return error.status
    sides.go_on_in_child()
    with sides.ended_together() as end_all:
        two = Pair(programs, (server, client), environments, options.wait, options.grace)
        try:
            status = two.run()
        except sides.EndedBySignal as ending:
            two.say_ended_by(ending.number)
            raise
        finally:
            end_all()
            two.hear_out()
        two.output.check()
    return status


def environments_of(options: argparse.Namespace) -> list[dict[str, str]]:
    """Return the environments of the server and of its client, which may be at other hosts."""
    made = []
    for side in (SERVER, CLIENT):
        if len(options.hosts) > 1:
            run.take_host(options, options.hosts[side])
        made.append(run.environment_of(options) | {launch.COMMAND: "pair"})
    return made


def say(text: str) -> None:
    with suppress(OSError):  # if the terminal is gone, the two must still be ended
        print(f"verbena pair: {text}", file=sys.stderr, flush=True)


def may_lose_environment(words: Words) -> bool:
    """Return whether these words start a program that starts others: a shell, sudo and the like.

    A program that looks for the device itself, and fails before, prints the reason itself. One
    behind `verbena run` has the environment again, but may have lost the file for notes.
    """
    text = " ".join(words)
    if re.search(RUN, text):
        return False
    return os.path.basename(words[0]) in run.shells() or re.search(STARTERS, text) is not None


def state_of(process: Process | None, number: int) -> str:
    """Return the state of a side at the moment at which signal `number` ends it."""
    if process is None:
        return "was not started"
    status = process.poll()
    return "still runs" if status in (None, -number) else f"has ended {sides.how_it_ended(status)}"


class Pair:
    """A server and its client, from the server's start to the end of both."""

    def __init__(
        self,
        programs: list[str],
        words: tuple[Words, Words],
        environments: list[dict[str, str]],
        wait: float,
        grace: float,
    ) -> None:
        self.programs, self.words = programs, words
        self.environments = environments
        self.notes = [notes.keep(each) for each in self.environments]
        self.wait, self.grace = wait, grace
        self.output = sides.Output(sys.stdout.fileno())
        self.readers: list[threading.Thread] = []
        self.server: Process | None = None
        self.client: Process | None = None
        self.waits_for = "the server to listen"
        self.names = [
            f"the {role}, {os.path.basename(words[0])},"
            for role, words in zip(("server", "client"), words, strict=True)
        ]

    def run(self) -> int:
        """Start the client when the server listens, and wait for both; their exit status."""
        status = self.run_both()
        if 0 < status < FIRST_SIGNAL:
            self.say_who_lost_verbena()
        return status

    def run_both(self) -> int:
        server = self.start(sides.start_server, SERVER)
        self.server = server
        self.readers.append(self.output.reader(server.stdout, b"server: "))
        if not self.await_listening(server):
            return self.say_unheard(server)
        self.waits_for = "the client to end"
        client = self.start(sides.start_client, CLIENT)
        self.client = client
        if client.stdout:
            self.readers.append(self.output.reader(client.stdout))
        status = self.await_client(client, server)
        sides.end(client)
        self.waits_for = "the server to end"
        of_server = self.await_server(server)
        return status or of_server

    def start(self, how: Callable[..., Process], which: int) -> Process:
        kept = self.notes[which]
        return how(
            self.programs[which],
            self.words[which],
            self.environments[which],
            () if kept is None else (kept,),
        )

    def say_who_lost_verbena(self) -> None:
        """After a failure name each side that never looked for a device: it may lack the
        environment."""
        both = zip(self.names, self.words, (self.server, self.client), self.notes, strict=True)
        lost = [
            name
            for name, words, process, kept in both
            if process
            and process.returncode not in (run.CANNOT_RUN, run.NOT_FOUND)
            and may_lose_environment(words)
            and notes.is_set(kept, notes.DEVICE) is False
        ]
        if lost:
            they, their = ("they", "their") if len(lost) > 1 else ("it", "its")
            say(
                f"{' and '.join(lost)} never looked for a device of Verbena; if {they} should "
                f"have, {their} environment was lost on the way (sudo, env -i, ssh): put "
                "`verbena run` right before the program, as in sudo verbena run PROGRAM"
            )

    def say_ended_by(self, number: int) -> None:
        """Print, when a signal ends the two, what this process waited for and which of them ran.

        timeout(1) and a terminal send the signal to the client, too, so a side that has just died
        of the same signal counts as running.
        """
        if number not in sides.ENDING:  # this process's parent was killed: there is no reader
            return
        states = "; ".join(
            f"{name} {state_of(process, number)}"
            for name, process in zip(self.names, (self.server, self.client), strict=True)
        )
        name = sides.signal_name(number)
        say(f"{name} ends both while this waited for {self.waits_for}: {states}")

    def status_of(self, process: Process, which: int, seconds: float) -> int:
        """Its exit status, once it has ended; a signal that ended it is named.

        Raises subprocess.TimeoutExpired.
        """
        status = process.wait(timeout=seconds)
        if status < 0:
            say(f"{self.names[which]} ended {sides.how_it_ended(status)}")
        return sides.shell_status(status)

    def hear_out(self) -> None:
        """Print the rest of the output of the two, which have ended."""
        for reader in self.readers:
            reader.join(GRACE)

    def say_unheard(self, server: Process) -> int:
        name = os.path.basename(self.words[0][0])
        if server.poll() is None:
            say(f"{name} does not listen after {self.wait:g} s")
            return TIMED_OUT
        say(f"{name} ended before it listened {sides.how_it_ended(server.returncode)}")
        return sides.shell_status(server.returncode) or 1

    def await_listening(self, server: Process) -> bool:
        deadline = time.monotonic() + self.wait
        while server.poll() is None and time.monotonic() < deadline:
            self.output.check()
            if listening.group_listens(
                server.pid, self.environments[SERVER].get(launch.FABRIC, "")
            ):
                return True
            time.sleep(POLL)
        return False

    def await_client(self, client: Process, server: Process) -> int:
        """Return the client's exit status. If its server fails, it is ended after the time of
        grace."""
        while True:
            try:
                return self.status_of(client, CLIENT, 0.2)
            except subprocess.TimeoutExpired:
                self.output.check()
                if server.poll():
                    break
        self.waits_for = "the client to end, as the server has failed"
        with suppress(subprocess.TimeoutExpired):
            return self.status_of(client, CLIENT, self.grace)
        how = sides.how_it_ended(server.returncode)
        say(
            f"{self.names[SERVER]} ended {how}; "
            f"{self.names[CLIENT]} still runs after {self.grace:g} s and is ended"
        )
        return sides.shell_status(server.returncode)

    def await_server(self, server: Process) -> int:
        """Return the server's exit status; 0 if it still runs, as a server for many clients
        does."""
        with suppress(subprocess.TimeoutExpired):
            return self.status_of(server, SERVER, self.grace)
        if self.grace:  # with --grace 0 the user expects that
            say(
                f"{self.names[SERVER]} still ran {self.grace:g} s after the client's end "
                "and was ended"
            )
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=1)
        return 0
