# SPDX-License-Identifier: Apache-2.0
"""`verbena disk`: disks over RDMA (NVMe over Fabrics): serve, list, attach, bench, study.

The commands are thin: verbena.nvmeof does the work. `serve` and `attach` run until Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import re
import signal
import socket
import sys
from contextlib import AsyncExitStack
from math import inf
from uuid import UUID

from verbena import nvmeof
from verbena.cli import give_up_stdout, guarded
from verbena.cli.exact import ExactParser
from verbena.cm import ConnectionManagerError
from verbena.nvmeof.load import Load, Pattern, measure
from verbena.nvmeof.nbd import NbdExport

from .disk_study import add_study, run_study, show_study, study_of

_FAILED = 1
_LEAST_BLOCK = 512
_MOST_DEPTH = 1023  # of the queue's 1024 entries; a target may have fewer
_OFFERS_NOTHING = "the target offers this host no subsystem"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size_of(word: str) -> int:
    """Return a size as 4096, 64k, 1M or 2G."""
    found = re.fullmatch(r"(\d+)([kmgt]?)(?:i?b)?", word.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{word!r} is no size: 4096, 64k, 1M and 2G are")
    return int(found[1]) * _UNITS[found[2]]


def block_bytes(word: str) -> int:
    """Return a size in whole blocks of the smallest disks."""
    size = size_of(word)
    if not size or size % _LEAST_BLOCK:
        raise argparse.ArgumentTypeError(f"{word} is not whole blocks of {_LEAST_BLOCK} bytes")
    return size


def seconds_of(word: str) -> float:
    """Return for how long a disk is measured."""
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds, more than 0")
    return seconds


def depth_of(word: str) -> int:
    """Return how many commands are under way at a time."""
    if not word.isdecimal() or not 1 <= int(word) <= _MOST_DEPTH:
        raise argparse.ArgumentTypeError(f"{word!r} is not from 1 to {_MOST_DEPTH} commands")
    return int(word)


def default_nqn() -> str:
    """Return the name of the subsystem that `serve` has where it is given none."""
    host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower()) or "host"
    return f"nqn.2026-01.org.verbena:{host}"


# ---- the command's words -------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the parser of `verbena disk`."""
    made: argparse.ArgumentParser = ExactParser(
        prog="verbena disk",
        description="Disks over RDMA: NVMe over Fabrics, with Linux (nvme-rdma, nvmet-rdma) or "
        "Verbena on the other side.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    listing = commands.add_parser("list", help="list the disks that a target offers")
    _add_target(listing, has_nqn=False)
    _add_attach(commands)
    _add_bench(commands)
    add_study(commands, size_of)
    for each in commands.choices.values():
        each.set_defaults(parser=each)  # whose errors name the subcommand
    return made


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="offer files, block devices and memory as disks",
        description="Offer files, block devices and memory as disks. Each is a namespace of one "
        "subsystem, in the order of the command. Runs until Ctrl-C.",
    )
    serve.add_argument("files", nargs="*", metavar="FILE", help="a file or a block device")
    serve.add_argument(
        "--memory", type=block_bytes, action="append", default=[], metavar="SIZE",
        help="a disk in memory, as 1G; may be given several times",
    )  # fmt: skip
    serve.add_argument("--nqn", default=default_nqn(), help="its name; default: %(default)s")
    serve.add_argument("--listen", metavar="ADDRESS", help="default: every address")
    serve.add_argument("--port", type=int, default=nvmeof.PORT, help="default: %(default)s")
    serve.add_argument(
        "--block-size", type=int, choices=(512, 4096), default=512, help="default: %(default)s"
    )
    serve.add_argument(
        "--allow", action="append", metavar="NQN",
        help="let this host use the disks, and no others; may be given several times",
    )  # fmt: skip
    serve.add_argument(
        "--state", metavar="FOLDER",
        help="keep reservations that hosts want to persist here; default: beside each file",
    )  # fmt: skip
    serve.add_argument("--read-only", action="store_true", help="refuse to write")
    serve.add_argument("--direct", action="store_true", help="go around the page cache (O_DIRECT)")


def _add_target(command: argparse.ArgumentParser, has_nqn: bool = True) -> None:
    command.add_argument("host", metavar="HOST", help="the target's address or name")
    if has_nqn:
        command.add_argument("--nqn", help="the subsystem; default: the only one there is")
    command.add_argument("--port", type=int, default=nvmeof.PORT, help="default: %(default)s")
    command.add_argument("--host-nqn", default="", help="this host's name, for lists of hosts")
    command.add_argument("--host-id", type=UUID, help="this host's identifier, a UUID")
    command.add_argument("--source", metavar="ADDRESS", help="this host's address to connect from")


def _add_attach(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    attach = commands.add_parser(
        "attach",
        help="give programs of this host a disk of a target, by NBD",
        description="Connect to a target, and give programs of this host the disk by NBD, at a "
        "Unix socket: qemu-img info nbd+unix:///?socket=PATH. Runs until Ctrl-C; a connection that "
        "is lost is made again.",
    )
    _add_target(attach)
    attach.add_argument("--namespace", type=int, default=1, help="default: %(default)s")
    attach.add_argument("--queues", type=int, default=1, help="default: %(default)s")
    attach.add_argument(
        "--socket", metavar="PATH", default="disk.sock", help="default: %(default)s"
    )


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how fast a disk is",
        description="Measure how fast a disk of a target is. `write` and `randwrite` overwrite it.",
    )
    _add_target(bench)
    bench.add_argument("--namespace", type=int, default=1, help="default: %(default)s")
    bench.add_argument(
        "--pattern", choices=[each.value for each in Pattern], default="randread",
        help="default: %(default)s",
    )  # fmt: skip
    bench.add_argument("--size", type=block_bytes, default=4096, help="of a command; default: 4k")
    bench.add_argument("--depth", type=depth_of, default=32, help="commands at once; default: 32")
    bench.add_argument("--seconds", type=seconds_of, default=2.0, help="default: %(default)s")


# ---- running them --------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)
    made: argparse.ArgumentParser = options.parser
    if options.command == "serve" and not (options.files or options.memory):
        made.error("give a FILE, or --memory SIZE")
    if options.command == "serve" and options.direct and not options.files:
        made.error("--direct is for files, and memory has no page cache to go around")
    state = getattr(options, "state", None)
    if state is not None and not (os.path.isdir(state) and os.access(state, os.W_OK)):
        made.error(f"--state {state}: no folder that can be written; make it first")
    if options.command != "study" and not 0 <= options.port <= 0xFFFF:
        made.error(f"{options.port} is no port")
    return guarded(made.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.command == "study":
        say(show_study(run_study(study_of(options))))
        return 0
    run = {"serve": serve_disks, "list": list_disks, "attach": attach_disk, "bench": bench_disk}
    try:
        asyncio.run(_until_signal(run[options.command](options)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    except (ConnectionManagerError, nvmeof.NvmeError, TimeoutError) as error:
        said = getattr(error, "strerror", None) or str(error) or "the time is over"
        print(f"{options.parser.prog}: {said}", file=sys.stderr)
        return _FAILED
    return 0


async def _until_signal(what: object) -> None:
    """Run it to its end.

    SIGTERM and a terminal that closes end it in order, as Ctrl-C does; under nohup it goes on.
    """
    task: asyncio.Task[None] = asyncio.ensure_future(what)  # type: ignore[call-overload]
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def tell(line: str) -> None:
    """Print a line of `serve`, whose hosts do not depend on who reads it.

    Where the reader has gone, nothing is printed from then on. A line for which there is no room
    is lost.
    """
    try:
        say(line)
    except BrokenPipeError:
        give_up_stdout()
    except OSError:
        pass


def reservation_file(path: str, state: str | None) -> nvmeof.ReservationFile | None:
    """Return where the reservations of a disk persist; None if they cannot.

    That is the folder that --state names, or else beside the disk, if it is a file in a folder
    that can be written.
    """
    if state is not None:
        return nvmeof.ReservationFile.in_folder(state, path)
    folder = os.path.dirname(path) or "."
    if os.path.isfile(path) and os.access(folder, os.W_OK):
        return nvmeof.ReservationFile.beside(path)
    return None


def open_stores(
    options: argparse.Namespace,
) -> list[tuple[str, nvmeof.Store, nvmeof.ReservationFile | None]]:
    """Return the stores of `serve` with what they are, and where their reservations persist.

    Raises OSError, ValueError.
    """
    made: list[tuple[str, nvmeof.Store, nvmeof.ReservationFile | None]] = []
    for number, path in enumerate(options.files):
        for other in options.files[:number]:
            if os.path.exists(path) and os.path.samefile(path, other):
                raise ValueError(f"{path} and {other} are one file, and it is served once")
        store = nvmeof.FileStore(path, options.read_only, options.direct)
        if store.size < options.block_size:
            what = f"{store.size} bytes" if store.size else "no bytes"
            raise ValueError(f"{path} has {what}, and a disk at least {options.block_size}")
        made.append((os.fspath(path), store, reservation_file(path, options.state)))
    for size in options.memory:
        try:
            made.append(("memory", nvmeof.MemoryStore(size, options.read_only), None))
        except (OSError, OverflowError):
            raise OSError(errno.ENOMEM, f"--memory: this host has not {size:,} bytes") from None
    return made


async def serve_disks(options: argparse.Namespace) -> None:
    """`verbena disk serve`."""
    model = nvmeof.TargetModel()
    subsystem = nvmeof.Subsystem(options.nqn, options.allow)
    stores = open_stores(options)
    try:
        for what, store, saved in stores:
            namespace = subsystem.add(store, options.block_size, reservation_file=saved)
            size = namespace.blocks * namespace.block_size
            left = store.size - size
            rest = f"; the last {left} of the file are no whole block, and are not served"
            tell(f"namespace {namespace.nsid}: {what}, {size} bytes{rest if left else ''}")
        model.add(subsystem)
        target = nvmeof.Target(model, host=options.listen, port=options.port, report=tell)
        async with target:
            where = options.listen or "every address"
            tell(f"{options.nqn} at {where}, port {target.port}; Ctrl-C ends it")
            await target.serve()
    finally:
        for _, store, _ in stores:
            store.close()


def _host_options(options: argparse.Namespace, **others: object) -> nvmeof.HostOptions:
    given = {"host_nqn": options.host_nqn, "source": options.source, **others}
    if options.host_id is not None:
        given["host_id"] = options.host_id
    return nvmeof.HostOptions(**given)


async def list_disks(options: argparse.Namespace) -> None:
    """`verbena disk list`."""
    entries = await nvmeof.discover(options.host, options.port, _host_options(options))
    shown = [each for each in entries if each.kind == nvmeof.SubsystemKind.NVM]
    for entry in shown:
        say(f"{entry.nqn} at {entry.address}, port {entry.service}")
    if not shown:
        say(_OFFERS_NOTHING)


async def _only_subsystem(options: argparse.Namespace, host_options: nvmeof.HostOptions) -> str:
    """Return the name of the one subsystem that the target offers. Raises NvmeError."""
    entries = await nvmeof.discover(options.host, options.port, host_options)
    names = [each.nqn for each in entries if each.kind == nvmeof.SubsystemKind.NVM]
    if not names:
        raise nvmeof.Refused(
            f"{_OFFERS_NOTHING}: give with --host-nqn a name that its list of hosts has, which is"
            " --allow of `verbena disk serve`"
        )
    if len(names) > 1:
        found = ", ".join(names)
        raise nvmeof.Refused(f"the target offers several subsystems; name one by --nqn: {found}")
    return names[0]


async def _open_disk(
    stack: AsyncExitStack, options: argparse.Namespace, **others: object
) -> nvmeof.Disk:
    """Connect, and return the namespace. Raises NvmeError."""
    host_options = _host_options(options, **others)
    nqn = options.nqn
    if nqn is None:
        nqn = await _only_subsystem(options, host_options)
    controller = await stack.enter_async_context(
        await nvmeof.connect(options.host, nqn, options.port, host_options)
    )
    disk = controller.disks.get(options.namespace)
    if disk is None:
        found = ", ".join(map(str, controller.disks)) or "none"
        raise nvmeof.Refused(f"{nqn} has no namespace {options.namespace}; it has: {found}")
    return disk


class LossReport:
    """Says on stderr that the target is lost, and what became of it; for ``on_state``."""

    def __init__(self, prog: str, controller: nvmeof.HostController) -> None:
        self._prog = prog
        self._within = controller.options.loss_timeout
        self._is_lost = False

    def __call__(self, state: nvmeof.HostState, why: str) -> None:
        if state is nvmeof.HostState.WAITING and not self._is_lost:
            self._is_lost = True
            self._say(
                f"the target is lost ({why or 'its connection has ended'}): requests wait, and it"
                f" is looked for during {self._within:g} s"
            )
        elif state is nvmeof.HostState.LIVE and self._is_lost:
            self._is_lost = False
            self._say("the target is back")
        elif state is nvmeof.HostState.DEAD:
            self._say("the target did not come back: all requests fail from now on; start it again")

    def _say(self, what: str) -> None:
        print(f"{self._prog}: {what}", file=sys.stderr, flush=True)


async def attach_disk(options: argparse.Namespace) -> None:
    """`verbena disk attach`."""
    async with AsyncExitStack() as stack:
        disk = await _open_disk(stack, options, queues=options.queues)
        disk.controller.on_state = LossReport(options.parser.prog, disk.controller)
        export = await stack.enter_async_context(NbdExport(disk, options.socket))
        say(f"{disk.size} bytes at nbd+unix:///?socket={options.socket}; Ctrl-C ends it")
        await export.wait()


async def bench_disk(options: argparse.Namespace) -> None:
    """`verbena disk bench`."""
    async with AsyncExitStack() as stack:
        entries = max(128, min(1024, options.depth + 1))
        disk = await _open_disk(stack, options, entries=entries)
        load = Load(Pattern(options.pattern), options.size, options.depth, options.seconds)
        room = disk.controller.queues[0].room
        if options.depth > room:
            raise ValueError(
                f"--depth {options.depth}: a queue of this target takes {room} commands at a time;"
                f" give {room} at most"
            )
        result = await measure(disk, load)
    if result.unended:
        say(
            f"the disk is slow: {result.unended} commands had not ended a second after the"
            f" {options.seconds:g} seconds, and are not counted"
        )
    if not result.commands:
        raise nvmeof.NvmeError(
            errno.ETIMEDOUT, "no command has ended in this time: give more --seconds"
        )
    say(
        f"{options.pattern}, {options.size} bytes, depth {options.depth}:"
        f" {result.rate:,.0f} commands/s, {result.bytes_per_second / 1e9:.2f} GB/s"
    )
    say(
        f"latency: half within {result.latency(0.5) * 1e6:.0f} µs,"
        f" 99 % within {result.latency(0.99) * 1e6:.0f} µs;"
        f" {result.processor_seconds / max(1, result.commands) * 1e6:.1f} µs of this processor"
        " for a command"
    )
