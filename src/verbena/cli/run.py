# SPDX-License-Identifier: Apache-2.0
"""`verbena run`: replaces this process by a program that finds Verbena's device.

verbena.cli starts main(). pair.py and env.py share its options and its checks.
"""

from __future__ import annotations

import argparse
import getopt
import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from verbena import _ports, _variables, launch
from verbena.cli import notes
from verbena.cli.elf import obstacle, sanitizers
from verbena.cli.exact import ExactParser

# As in shells: wrong usage; the program was found and cannot be run; it was not found.
USAGE, CANNOT_RUN, NOT_FOUND = 2, 126, 127


OPTIONS = ["help", "shared-heap", "log=", "spin=", "netdev=", "link-layer=", "pkeys=", "device",
           "devices=", "port=", "part-id=", "fault=", "capture=", "capture-direct",
           "capture-bytes=", "fabric=", "host="]  # fmt: skip


class DeviceAction(argparse.Action):
    """`--device` begins another device, which has no ports yet."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object
    ) -> None:
        if namespace.port:
            parser.error("put --port behind the --device that it is a port of")
        namespace.device = [*(namespace.device or []), []]


class PortAction(argparse.Action):
    """`--port` is a port of the `--device` before it, or of every device where there is none."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if namespace.device:
            namespace.device[-1].append(values)
        else:
            namespace.port = [*(namespace.port or []), values]


class ProgramError(Exception):
    """A program that cannot be started, with the exit status that says so."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena run",
        usage="verbena run [--shared-heap] [--log LEVEL] [--spin US] [--netdev NAME]\n"
        "                   [--link-layer LAYER] [--pkeys LIST] [--port PORT ...]\n"
        "                   [--devices N | --device [--port PORT ...] ...]\n"
        "                   [--part-id N] [--fault RULES] [--fabric NAME] [--host HOST]\n"
        "                   [--capture FILE [--capture-direct] [--capture-bytes N]]\n"
        "                   [--] PROGRAM [ARGUMENT ...]",
        description="Start a dynamically linked verbs program over Verbena, and all that it starts "
        "in turn. The program takes the place of this process: its exit status is the result.",
        epilog="Peers on this host are reached directly, others by RoCE v2 packets. With the "
        "variable VERBENA_CARRIER=roce packets reach all of them, with VERBENA_CARRIER=direct "
        "there are no packets. "
        "Exit status 127: there is no such program; 126: it cannot run over Verbena.",
    )
    add_options(made)
    return made


def add_options(made: argparse.ArgumentParser) -> None:
    """Add the options that `run`, `pair` and `env` share: arguments of launch.environment()."""
    made.add_argument(
        "--shared-heap",
        action="store_true",
        help="serve the program's large allocations from shared memory, so that peers reach them "
        "with one copy (a forked child gets a copy of them)",
    )
    made.add_argument(
        "--log",
        metavar="LEVEL",
        choices=[level.value for level in launch.LogLevel],
        help="what Verbena prints on stderr: errors, info, counters or debug",
    )
    made.add_argument(
        "--spin",
        metavar="US",
        type=microseconds,
        help="how long a wait for a completion event spins before it sleeps, in microseconds",
    )
    made.add_argument(
        "--netdev",
        metavar="NAME",
        help="the interface that the device uses, as an adapter belongs to one: its "
        "addresses are the GIDs, its MTU is the port's (default: every interface)",
    )
    made.add_argument(
        "--link-layer",
        metavar="LAYER",
        choices=[layer.value for layer in launch.LinkLayer],
        help="ethernet (RoCE) or infiniband: a port with a LID, for programs that name no GID; it "
        "reaches the processes of this host, and sends no packets",
    )
    made.add_argument(
        "--pkeys",
        metavar="LIST",
        type=pkey_table,
        help="the port's P_Key table, as in 0xffff,0x8001: a QP's pkey_index selects an entry "
        "of it (up to 32 entries; default: the default partition alone, 0xffff)",
    )
    made.add_argument(
        "--port",
        metavar="PORT",
        action=PortAction,
        type=port,
        help="a port of the adapter, given once or twice, in place of --link-layer: ethernet or "
        "infiniband and the port's settings, as in ethernet,netdev=eth0 or "
        "infiniband,lid=8,lmc=1,pkeys=0xffff+0x8001",
    )
    made.add_argument(
        "--devices",
        metavar="N",
        type=device_count,
        help="how many devices there are, verbena0, verbena1 and so on, each with the ports that "
        "the options say (1)",
    )
    made.add_argument(
        "--device",
        action=DeviceAction,
        nargs=0,
        help="once for each device, in place of --devices, and in front of its --port options",
    )
    made.add_argument(
        "--part-id",
        metavar="N",
        type=part_number,
        help="the vendor_part_id that the device reports: perftest, for example, uses inline data "
        "and the ibv_wr_* calls only with adapters that it knows (4119 is one)",
    )
    add_fabric_options(made)
    add_packet_options(made)


def add_fabric_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--fabric",
        metavar="NAME",
        help="attach the program to a host of this InfiniBand fabric, which `verbena fabric` runs; "
        "needed where several run",
    )
    made.add_argument(
        "--host",
        metavar="HOST",
        action="append",
        help="the host of the fabric; its adapter is the program's verbena0 (with `verbena pair` "
        "also two, of the server and of its client: --host h0,h1 or --host h0 --host h1)",
    )


def add_packet_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--fault",
        metavar="RULES",
        type=fault_rules,
        help="inject faults into packets, as in 'drop 1%%; delay 2ms opcode=read-response; seed 7'",
    )
    made.add_argument(
        "--capture",
        metavar="FILE",
        help="write the packets of all processes into FILE, which Wireshark opens",
    )
    made.add_argument(
        "--capture-direct",
        action="store_true",
        help="with --capture: also requests that reach a peer on this host without packets, as the "
        "packets that an adapter would send",
    )
    made.add_argument(
        "--capture-bytes",
        metavar="N",
        type=capture_bytes,
        help="with --capture: keep the first N bytes of each packet",
    )


def meant_by(option: str, names: list[str]) -> str:
    """Return a hint for the message about an unknown option: the option that is most like it."""
    from difflib import get_close_matches

    near = get_close_matches(option, [name.rstrip("=") for name in names], 1)
    return f" (is --{near[0]} meant?)" if near else ""


def parse(
    arguments: list[str],
    options: argparse.ArgumentParser,
    names: list[str],
    most_hosts: int = 1,
    letters: str = "h",
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the program's words: all from the first that is no option,
    unchanged. Programs may be at ``most_hosts`` hosts of a fabric, as ``attach`` says; ``letters``
    are the short options, as getopt has them."""
    try:
        _, words = getopt.getopt(arguments, letters, names)
    except getopt.GetoptError as error:
        options.error(f"{error}{meant_by(error.opt, names)}")
    ours = [word for word in arguments[: len(arguments) - len(words)] if word != "--"]
    parsed = options.parse_args(ours)
    for line in _variables.misspelt(os.environ):
        print(f"{options.prog}: {line}", file=sys.stderr)
    has_file = parsed.capture or os.environ.get("VERBENA_CAPTURE")
    if not has_file and (parsed.capture_direct or parsed.capture_bytes is not None):
        options.error("name the file to capture into: --capture FILE")
    if parsed.device and parsed.devices is not None:
        options.error("--devices is how often there is a --device: leave it out")
    try:
        attach(parsed, most_hosts)
        set_ports(dict(os.environ), parsed)
    except (ValueError, OSError) as error:
        options.error(str(error))
    return parsed, words


def attach(parsed: argparse.Namespace, most_hosts: int) -> None:
    """Find the fabric and the hosts that options name: ``hosts``, of which ``host`` is the first.

    Raises ValueError or OSError, which say what to do.
    """
    parsed.hosts = parsed.host or []
    parsed.host = None
    if parsed.fabric is None and not parsed.hosts:
        return
    from verbena.subnet_process.client import the_fabric

    if not parsed.hosts:
        raise ValueError("name the host of the fabric to which the program is attached: --host h0")
    given = (parsed.link_layer, parsed.port, parsed.devices, parsed.device, parsed.pkeys)
    if any(each is not None for each in (*given, parsed.netdev)):
        raise ValueError(
            "the ports are those of the fabric's host: leave out what describes ports. P_Keys are "
            "the subnet manager's to set: OpenSM reads partitions by its option -P"
            ", and `verbena fabric` by --partitions"
        )
    if most_hosts > 1 and len(parsed.hosts) == 1:
        parsed.hosts = parsed.hosts[0].split(",")
    if len(parsed.hosts) > most_hosts:
        allowed = "one host" if most_hosts == 1 else "the hosts of the server and of its client"
        raise ValueError(f"--host names {', '.join(parsed.hosts)}, and can name {allowed}")
    parsed.fabric = the_fabric(parsed.fabric)
    for host in reversed(parsed.hosts):
        take_host(parsed, host)


def take_host(parsed: argparse.Namespace, host: str) -> None:
    """Give the program the ports of a host of the fabric. Raises OSError."""
    from verbena.subnet_process.client import control_fabric

    ports = control_fabric(parsed.fabric, {"do": "host", "host": host})["ports"]
    parsed.host, parsed.port = host, ["infiniband"] * min(int(ports), _ports.PORTS_MOST)


def set_ports(environment: dict[str, str], parsed: argparse.Namespace) -> None:
    launch.set_ports(
        environment,
        parsed.netdev,
        parsed.link_layer,
        parsed.pkeys,
        parsed.port,
        parsed.device or parsed.devices,
    )


def netdevs(parsed: argparse.Namespace) -> list[str]:
    """Return the interfaces that options name, not those of variables."""
    ports = [*(parsed.port or ()), *(port for each in parsed.device or () for port in each)]
    named = [parsed.netdev, *(_ports.parse_port(port).netdev for port in ports)]
    return [name for name in named if name is not None]


def check_netdevs(options: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """End the process, as wrong usage does, when an option names an interface that is not there."""
    for netdev in netdevs(parsed):
        from socket import if_nameindex

        known = [name for _, name in if_nameindex()]
        if netdev not in known:
            options.error(f"there is no interface {netdev}, only: {', '.join(known)}")


def microseconds(text: str) -> int:
    value = int(text) if text.isdecimal() else -1
    if not 0 <= value <= launch.SPIN_MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of microseconds up to {launch.SPIN_MOST}"
        )
    return value


def device_count(text: str) -> int:
    try:
        return _ports.count_of_devices(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def part_number(text: str) -> int:
    value = int(text) if text.isdecimal() else -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 32 bits")
    return value


def pkey_table(text: str) -> tuple[int, ...]:
    try:
        return _ports.parse_pkeys(text, ",")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; a list is as 0xffff,0x8001") from error


def port(text: str) -> str:
    try:
        _ports.parse_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def fault_rules(text: str) -> str:
    from verbena import fault

    try:
        fault.check(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def capture_bytes(text: str) -> int:
    allowed = launch.CAPTURE_BYTES
    value = int(text) if text.isdecimal() else -1
    if value not in allowed:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of bytes from {allowed[0]} to {allowed[-1]}"
        )
    return value


def begin_capture(file: str) -> None:
    from verbena import capture

    try:
        capture.begin(file)
    except OSError as error:
        raise ProgramError(USAGE, f"cannot capture into {file}: {error.strerror}") from error


def find_program(name: str, path: str) -> Path:
    """Return where the shell would find the program. Raises ProgramError."""
    found = shutil.which(name, path=path)
    if found:
        return Path(found)
    if "/" in name and os.path.isdir(name):
        raise ProgramError(CANNOT_RUN, f"{name} is a folder, not a program")
    if "/" in name and os.path.exists(name):
        raise ProgramError(CANNOT_RUN, f"{name} is not executable: chmod +x {name}")
    where = "" if "/" in name else " in PATH"
    raise ProgramError(NOT_FOUND, f"there is no program {name}{where}{package_hint(name)}")


PACKAGES = {
    "ibverbs-utils": r"ibv_(asyncwatch|devices|devinfo|(rc|srq|uc|ud|xsrq)_pingpong)",
    "perftest": r"ib_(atomic|read|send|write)_(bw|lat)|raw_ethernet_(bw|lat|burst_lat|fs_rate)",
    "ucx-utils": r"ucx_(info|perftest|read_profile)",
}


def package_hint(name: str) -> str:
    package = next((p for p, names in PACKAGES.items() if re.fullmatch(names, name)), None)
    return f"; on Debian: apt install {package}" if package else ""


def check(program: Path) -> None:
    """Raise ProgramError when the dynamic linker would not load Verbena's libraries."""
    try:
        found = obstacle(program)
    except PermissionError:  # execute-only: it cannot be checked, and may still work
        return
    except FileNotFoundError as error:
        raise ProgramError(
            CANNOT_RUN, f"the interpreter of {program}, {error.filename}, does not exist"
        ) from error
    if found:
        text = f"{program} cannot run over Verbena: {found.reason}. {found.advice}"
        raise ProgramError(CANNOT_RUN, text)


def start(program: Path, words: list[str], environment: dict[str, str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, words, environment)
    except OSError as error:
        raise ProgramError(CANNOT_RUN, f"cannot start {program}: {error.strerror}") from error


def warn_debugger() -> None:
    """Print a hint when this process runs in gdb, which then shows Python and not the program."""
    with suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text().splitlines()
        tracer = int(next(line for line in status if line.startswith("TracerPid:")).split()[1])
        if tracer and Path(f"/proc/{tracer}/comm").read_text().startswith("gdb"):
            print(
                "verbena run: this debugger follows Python, which is about to become the program; "
                "it is easier the other way round: verbena run -- gdb --args PROGRAM",
                file=sys.stderr,
            )


def keep_notes(words: list[str], environment: dict[str, str]) -> None:
    """Have the program report at its end if it used the network and never looked for a device.

    An interactive shell is not such a program, and reports nothing. A `verbena pair` around this
    process is told that the program has the environment.
    """
    notes.set_inherited(environment, notes.DEVICE)
    if len(words) == 1 and Path(words[0]).name in shells():
        environment.pop(notes.VARIABLE, None)
        return
    notes.keep(environment)


def shells() -> set[str]:
    with suppress(OSError):
        lines = Path("/etc/shells").read_text().split()
        return {Path(line).name for line in lines if line.startswith("/")}
    return {"sh", "bash", "dash", "zsh", "fish"}


def environment_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment for a program that is started with these options (add_options)."""
    return launch.environment(
        shared_heap=options.shared_heap,
        log=options.log,
        spin_us=options.spin,
        netdev=options.netdev,
        link_layer=options.link_layer,
        pkeys=options.pkeys,
        ports=options.port,
        devices=options.device or options.devices,
        part_id=options.part_id,
        faults=options.fault,
        capture=options.capture,
        capture_direct=options.capture_direct,
        capture_bytes=options.capture_bytes,
        fabric=options.fabric,
        host=options.host,
    )


def find_checked(name: str, environment: dict[str, str]) -> Path:
    """Return the program, into which Verbena's libraries can be loaded. Raises ProgramError."""
    program = find_program(name, environment["PATH"])
    check(program)
    return program


def main(arguments: list[str]) -> int:
    """Run `verbena run`. Returns an exit status only when the program could not be started."""
    made = parser()
    options, words = parse(arguments, made, OPTIONS)
    check_netdevs(made, options)
    if not words:
        made.error("name the program to start, as in: verbena run -- ibv_devices")
    environment = environment_of(options)
    environment.pop(launch.COMMAND, None)  # set if `verbena pair` started this
    try:
        program = find_checked(words[0], environment)
        if options.capture:
            begin_capture(options.capture)
        launch.in_front(environment, sanitizers(program))
        warn_debugger()
        keep_notes(words, environment)
        start(program, words, environment)
    except ProgramError as error:
        print(f"verbena run: {error}", file=sys.stderr)
        return error.status
    raise AssertionError("execve returned")
