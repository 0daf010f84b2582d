# SPDX-License-Identifier: Apache-2.0
"""`verbena diagnose`: says what is wrong in a fabric, whom to suspect, and what to do.

verbena.cli starts main(). The rules are verbena.manage.diagnose; this reads the sources that the
options name: a umad device, a running `verbena fabric`, a simulated scenario, or saved output.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from verbena.cli.exact import ExactParser

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.manage.diagnose import FabricSnapshot, FlowTrouble

NOTHING, SUSPECTS, USAGE = 0, 1, 2
DEVICE = "/dev/infiniband/umad0"
INTERVAL = 5.0
LONGEST = 1e9  # seconds between two sweeps: 30 years

Sweeps = tuple["FabricSnapshot | None", "FabricSnapshot"]


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena diagnose",
        usage="verbena diagnose [OPTION ...] --umad [DEVICE]\n"
        "       verbena diagnose [OPTION ...] --fabric NAME [--host HOST]\n"
        "       verbena diagnose [OPTION ...] --world SCENARIO [--variant NAME]\n"
        "       verbena diagnose [OPTION ...] FILE ... [--before FILE ...]",
        description="Name the suspects of a fabric: bad cables, slow hosts, wrong settings, wrong "
        "cables, broken routes. Nothing is changed in it.",
        epilog="FILEs have what ibnetdiscover, iblinkinfo, ibqueryerrors, perfquery and dump_lfts "
        "have printed, in any order. Two sweeps some time apart show what happens now, one shows "
        "totals since somebody cleared the counters. Exit status: 0 nothing was found, 1 there are "
        "suspects, 2 wrong usage.",
    )
    made.add_argument("files", nargs="*", type=Path, metavar="FILE", help="saved output")
    made.add_argument(
        "--before",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="output that was saved earlier; --interval says how many seconds before",
    )
    made.add_argument(
        "--umad",
        nargs="?",
        const=DEVICE,
        metavar="DEVICE",
        help="sweep the fabric behind this device (%(const)s)",
    )
    made.add_argument("--fabric", metavar="NAME", help="sweep a fabric that `verbena fabric` runs")
    made.add_argument(
        "--host", metavar="HOST", default="h0", help="the host of it that asks (%(default)s)"
    )
    made.add_argument("--world", metavar="SCENARIO", help="simulate a scenario, and diagnose it")
    made.add_argument("--variant", metavar="NAME", help="a variant of the scenario")
    made.add_argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        help=f"between two sweeps ({INTERVAL:g}; 0: one sweep)",
    )
    made.add_argument(
        "--intended",
        metavar="TOPOLOGY",
        help="the cables that there should be: a file of ibnetdiscover or ibsim, a graph (.dot), a "
        "scenario (.toml), or clos2:8 and the like",
    )
    made.add_argument(
        "--flows",
        type=Path,
        metavar="FILE",
        help="a CSV file: source, target, packets lost (sent again), packets sent, of pairs of "
        "hosts; the link on which they are lost is found by their ways",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    sources = [options.umad, options.fabric, options.world, options.files or None]
    if sum(source is not None for source in sources) != 1:
        made.error("name one source: --umad, --fabric, --world, or files")
    if options.before and not options.files:
        made.error("--before goes with files: the others sweep twice themselves (--interval)")
    if options.interval is not None and not 0 <= options.interval <= LONGEST:  # nan, too
        made.error(
            f"--interval {options.interval:g}: it is a number of seconds, from 0 to {LONGEST:g}"
        )
    try:
        intended = intended_of(options.intended)
        before, now = sweeps_of(options)
        if options.flows is not None:
            now.flows += flows_within(read_flows(options.flows), now, options.flows)
    except (OSError, ValueError) as error:
        print(f"verbena diagnose: {error}", file=sys.stderr)
        return USAGE
    return tell(before, now, intended, as_json=options.json)


def tell(
    before: FabricSnapshot | None, now: FabricSnapshot, intended: Fabric | None, *, as_json: bool
) -> int:
    """Print what is found, and return the exit status."""
    from verbena.manage.diagnose import (
        FaultSeverity,
        diagnose,
        findings_as_json,
        findings_as_text,
    )

    found = diagnose(now, before, intended=intended)
    print(findings_as_json(found, now) if as_json else findings_as_text(found, now))
    suspects = any(each.severity > FaultSeverity.NOTE for each in found)
    if suspects:
        return SUSPECTS
    return NOTHING if now.can_judge else USAGE


def intended_of(topology: str | None) -> Fabric | None:
    """Return the intended fabric. Raises OSError or ValueError."""
    from verbena.cli.fabric import fabric_of

    try:
        return fabric_of(topology) if topology is not None else None
    except UnicodeDecodeError:
        raise no_text(topology) from None


def no_text(path: object) -> ValueError:
    return ValueError(f"{path} is no text: it has bytes that are not UTF-8")


def text_of(path: Path) -> str:
    """Read a file. Raises OSError, or ValueError that names it."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise no_text(path) from None


def sweeps_of(options: argparse.Namespace) -> Sweeps:
    """Return the earlier sweep, or None, and the later one. Raises OSError or ValueError."""
    if options.files:
        return of_files(options)
    if options.world is not None:
        return of_world(options)
    if options.fabric is not None:
        attach(options)
    return of_device(options.umad, INTERVAL if options.interval is None else options.interval)


def of_files(options: argparse.Namespace) -> Sweeps:
    from verbena.manage.diagnose.saved_output import read_saved

    def read(paths: list[Path], time: float | None) -> FabricSnapshot:
        return read_saved(map(text_of, paths), time, [str(path) for path in paths])

    now = read(options.files, options.interval)
    if not options.before:
        return None, now
    return read(options.before, 0.0), now


def of_world(options: argparse.Namespace) -> Sweeps:
    from verbena.manage.diagnose.simulated_run import snapshots_of_result
    from verbena.sim import Scenario

    scenario = Scenario.load(options.world)
    if options.variant is not None:
        scenario = scenario.variant(options.variant)
    elif scenario.variants:
        scenario = scenario.variant(next(iter(scenario.variants)))
    return snapshots_of_result(scenario.run(), scenario.routes)


def of_device(device: str, interval: float) -> Sweeps:
    from verbena.manage.diagnose import sweep_fabric
    from verbena.manage.diagnose.umad_asker import UmadAsker

    try:
        opened = UmadAsker(device)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}: this host has no such device; --fabric NAME sweeps a fabric that"
            " `verbena fabric` runs"
        ) from None
    with opened as asker:
        start = time.monotonic()
        first = sweep_fabric(asker, 0.0)
        if not interval:
            return None, first
        time.sleep(interval)
        return first, sweep_fabric(asker, time.monotonic() - start)


def attach(options: argparse.Namespace) -> None:
    """Start this command again as a program at a host of the fabric. Raises OSError."""
    from verbena.subnet_process.client import control_fabric, the_fabric

    name = the_fabric(options.fabric)
    control_fabric(name, {"do": "host", "host": options.host})  # raises if there is no such host
    command = [sys.executable, "-m", "verbena", "run", "--fabric", name]
    command += ["--host", options.host, "--", sys.executable, "-m", "verbena", "diagnose", "--umad"]
    for option in ("interval", "intended", "flows"):
        value = getattr(options, option)
        if value is not None:
            command += [f"--{option}", str(value)]
    command += ["--json"] * options.json
    sys.stdout.flush()
    os.execv(command[0], command)


def read_flows(path: Path) -> list[FlowTrouble]:
    """Read pairs of hosts. Raises OSError, or ValueError with the line."""
    from verbena.manage.diagnose import FlowTrouble

    found = []
    for number, row in enumerate(csv.reader(text_of(path).splitlines()), 1):
        words = [word.strip() for word in row]
        is_headline = number == 1 and len(words) == 4 and not words[3].isdecimal()
        if not words or is_headline:
            continue
        if len(words) != 4 or not (words[2].isdecimal() and words[3].isdecimal()):
            raise ValueError(f"{path}, line {number}: it is to be source,target,lost,sent")
        found.append(FlowTrouble(words[0], words[1], int(words[2]), int(words[3])))
    if not found:
        raise ValueError(f"{path} has no line of source,target,lost,sent")
    return found


def flows_within(flows: list[FlowTrouble], now: FabricSnapshot, path: Path) -> list[FlowTrouble]:
    """Return the flows. Raises ValueError if none of them is between hosts that were found."""
    if now.peers and not any({each.source, each.target} <= now.nodes.keys() for each in flows):
        raise ValueError(
            f"{path} has no two hosts of this fabric in a line: it is to be source,target,lost,sent"
        )
    return flows
