# SPDX-License-Identifier: Apache-2.0
"""The `verbena` program: `verbena COMMAND ...`.

A command is a module with `main(arguments: list[str]) -> int`; it is imported only when it is asked
for, so that `verbena run` starts its program without delay. Exit status 2 means wrong usage.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

Main = Callable[[list[str]], int]

USAGE_ERROR = 2
INTERRUPTED, NOT_READ = 128 + 2, 128 + 13  # as a shell gives SIGINT and SIGPIPE
# What a user can do about an errno whose own text does not say it.
REMEDIES = {
    errno.EMFILE: "raise `ulimit -n`",
    errno.EAGAIN: "raise `ulimit -u`, or the container's --pids-limit",
    errno.ENFILE: "raise fs.file-max",
    errno.EFBIG: "raise `ulimit -f`, or lift it",
}


class Command(NamedTuple):
    """A subcommand and the modules that may hold it, in order of preference."""

    name: str
    summary: str
    modules: tuple[str, ...]

    def module(self) -> str | None:
        """The first of its modules that exists."""
        return next((name for name in self.modules if exists(name)), None)


COMMANDS = (
    Command("run", "start a program over Verbena", ("verbena.cli.run",)),
    Command("pair", "start a server and its client over Verbena", ("verbena.cli.pair",)),
    Command("launch", "start the ranks of a collective program", ("verbena.cli.launch",)),
    Command("env", "print the variables for a whole shell or a CI job", ("verbena.cli.env",)),
    Command("devices", "list the RDMA devices, their ports and GIDs", ("verbena.cli.devices",)),
    Command("info", "describe the device and how peers' memory is reached", ("verbena.cli.info",)),
    Command("doctor", "say what on this machine helps or hinders", ("verbena.cli.doctor",)),
    Command("agent", "manage connections (librdmacm), in the foreground", ("verbena.cli.agent",)),
    Command("fabric", "play an InfiniBand subnet for OpenSM and others", ("verbena.cli.fabric",)),
    Command("disk", "serve and use disks over RDMA (NVMe over Fabrics)", ("verbena.cli.disk",)),
    Command("diagnose", "name what is wrong in a fabric", ("verbena.cli.diagnose",)),
    Command("sim", "simulate traffic on a network, and show it", ("verbena.cli.sim",)),
    Command("compare", "PIO, DMA, TCP and RDMA: what each costs", ("verbena.cli.compare",)),
    Command("step", "show a program instruction by instruction", ("verbena.cli.step",)),
    Command("bench", "measure calls of verbena.rpc, and others'", ("verbena.cli.bench",)),
    Command(
        "demo", "see it work: Debian's programs and NumPy", ("verbena.cli.demo", "verbena.demo")
    ),
)


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package does not exist
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `verbena` program and return its exit status."""
    stand_in_for_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        print(help_text(), file=sys.stderr)
        return USAGE_ERROR
    if words[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if words[0] in ("-V", "--version"):
        from verbena.version import full_version

        print(f"verbena {full_version()}")
        return 0
    return run_command(words[0], words[1:])


def stand_in_for_closed_streams() -> None:
    """Give /dev/null to each standard stream that the caller closed, as in `verbena run ... >&-`.

    Python has None there, which has no flush(), and print(file=None) writes to the other stream.
    The descriptor is not inherited, so a program that is started finds the stream closed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def help_text() -> str:
    lines = [f"  {c.name:<9} {c.summary}" for c in COMMANDS if c.module()]
    return "\n".join(
        [
            "usage: verbena COMMAND ...",
            "",
            "RDMA without the hardware: verbs programs run here, unmodified.",
            "",
            *lines,
            "",
            "verbena COMMAND --help says more; verbena --version names the release.",
        ]
    )


def run_command(name: str, arguments: list[str]) -> int:
    """Import a command and run it, or say which commands there are."""
    command = next((c for c in COMMANDS if c.name == name), None)
    module = command.module() if command else None
    if module is None:
        print(f"verbena: there is no command {name!r}.\n\n{help_text()}", file=sys.stderr)
        return USAGE_ERROR
    return guarded(
        f"verbena {name}", lambda: cast(Main, importlib.import_module(module).main)(arguments)
    )


def guarded(program: str, main: Callable[[], int]) -> int:
    """Return the exit status of `main()`; errors that a user can repair are printed in one line."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        give_up_stdout()
        return NOT_READ
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, ValueError) as error:
        print(f"{program}: {explained(error)}", file=sys.stderr)
        give_up_stdout()
        return 1


def give_up_stdout() -> None:
    """Flush stdout, or discard what cannot be written: Python would try again as it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explained(error: Exception) -> str:
    """Return what went wrong, and what to do about it where that is known."""
    remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{error}: {remedy}" if remedy and remedy not in str(error) else str(error)
