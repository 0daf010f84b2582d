# SPDX-License-Identifier: Apache-2.0
"""`verbena fabric`: an InfiniBand subnet that runs until Ctrl-C, and questions to one that runs.

verbena.cli starts main(). The subnet is verbena.subnet_process; programs are attached to its hosts
by `verbena run --fabric NAME --host HOST`.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verbena.cli.exact import ExactParser
from verbena.manage.errors import MadError
from verbena.subnet_process.client import control_fabric, running_fabrics, the_fabric

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.manage.agents import Subnet
    from verbena.sim import Scenario
    from verbena.sim.live_subnets import SimulatedTraffic
    from verbena.subnet_process.running import LiveFabric

FAILED = 1
END_WITHIN = 10.0  # seconds
DEFAULT_NAME = "fabric"
ENGINES = ("minhop", "updn", "ftree", "dor", "sssp", "dfsssp", "dragonfly")


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena fabric",
        usage="verbena fabric TOPOLOGY [--name NAME] [--sm builtin|none] [--sm-host HOST]\n"
        "                      [--engine ENGINE] [--sm-priority N] [--partitions FILE]\n"
        "                      [--sm-set NAME=VALUE]… [--loss LINK=CHANCE]… [--rate LINK=RATE]…\n"
        "                      [--keep-lids] [--detach]\n"
        "       verbena fabric SCENARIO --simulated [--pace FACTOR] [--sm …] [--sm-host HOST]\n"
        "                      [--name NAME] [--detach]\n"
        "       verbena fabric --list | --status | --cut LINK | --restore LINK |\n"
        "                      --loss LINK=CHANCE… | --rate LINK=RATE… | --stop [--name NAME]",
        description="Play an InfiniBand subnet, with its switches, adapters and their management "
        "agents, for programs of this user that are attached to its hosts by `verbena run --fabric "
        "NAME --host HOST`: OpenSM, infiniband-diags and what else uses libibumad.",
        epilog="A LINK is A-B, the names of two nodes, or A:1, a node and its port. Of --loss and "
        "--rate it may be all: each link. A CHANCE is 1% or 0.01 of the packets, as of a fault "
        "rule. A RATE is 1xSDR, to which the link trains, or 10Gb/s, which its ends take of data; "
        "full ends both.",
    )
    made.add_argument(
        "topology",
        metavar="TOPOLOGY",
        nargs="?",
        help="a file that ibnetdiscover has printed, a topology of ibsim, a scenario of `verbena "
        "sim` (.toml) or a graph (.dot); or a topology with its sizes, as clos2:8, fat_tree:4, "
        "torus:4x4,hosts=2, xgft:4x4,1x2 or one_switch:8,rate=4xHDR",
    )
    made.add_argument("--name", metavar="NAME", help=f"the fabric's name ({DEFAULT_NAME})")
    made.add_argument(
        "--sm",
        choices=("builtin", "none"),
        default="builtin",
        help="builtin: Verbena's own subnet manager runs in it; none: it waits for a program that "
        "is one, such as OpenSM",
    )
    made.add_argument(
        "--sm-host",
        metavar="HOST",
        help="the host, or the switch, at whose port the built-in manager is (the first host)",
    )
    made.add_argument(
        "--keep-lids",
        action="store_true",
        help="begin with the LIDs of the file, which a subnet manager then keeps",
    )
    made.add_argument(
        "--detach",
        action="store_true",
        help="go on in the background, and return when programs can be attached",
    )
    made.add_argument(
        "--engine",
        choices=ENGINES,
        help="how the built-in manager routes (minhop)",
    )
    made.add_argument(
        "--sm-priority",
        metavar="N",
        type=int,
        help="the built-in manager's priority, 0 to 15, beside other managers (0, as OpenSM's)",
    )
    made.add_argument(
        "--partitions",
        metavar="FILE",
        help="the partitions that the built-in manager sets: a file as OpenSM's -P takes it",
    )
    made.add_argument(
        "--sm-set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="another setting of the built-in manager, such as lmc=1, sweep_interval=2 or "
        "enforce_partitions=no; an unknown name lists them",
    )
    made.add_argument(
        "--simulated",
        action="store_true",
        help="simulate the fabric and the traffic of a scenario with [management], in virtual time "
        "that follows the clock; the traffic begins when all ports are ACTIVE, and a report is "
        "printed at the end",
    )
    made.add_argument(
        "--pace",
        metavar="FACTOR",
        type=float,
        default=1.0,
        help="virtual seconds for each second of the clock, as far as the machine can (1.0)",
    )
    asks = made.add_mutually_exclusive_group()
    asks.add_argument("--list", action="store_true", help="name the fabrics that run")
    asks.add_argument("--status", action="store_true", help="describe a fabric that runs")
    asks.add_argument("--stop", action="store_true", help="end a fabric that runs")
    asks.add_argument("--cut", metavar="LINK", help="let a link of it fail")
    asks.add_argument("--restore", metavar="LINK", help="repair a link of it")
    add_link_options(made)
    return made


def add_link_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--loss",
        metavar="LINK=CHANCE",
        action="append",
        default=[],
        help="let a link lose packets, MADs and data, in both directions: with a topology from its "
        "start, otherwise of a fabric that runs; 0 ends it",
    )
    made.add_argument(
        "--rate",
        metavar="LINK=RATE",
        action="append",
        default=[],
        help="give a link another rate, which holds for data in both directions: with a topology "
        "from its start, otherwise of a fabric that runs",
    )


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    if options.list:
        print(*running_fabrics() or ["no fabric runs"], sep="\n")
        return 0
    options.losses = [loss_of(made, text) for text in options.loss]
    options.rates = [rate_of(made, text) for text in options.rate]
    changes = options.cut is not None or options.restore is not None
    if options.status or options.stop or changes:
        if options.topology:
            made.error("name a running fabric by --name, in place of a topology")
        if options.loss or options.rate:
            made.error("--loss and --rate stand by themselves, or beside a topology")
        return ask(options)
    if (options.loss or options.rate) and not options.topology:
        return change_links(options)
    if not options.topology:
        made.error("name a topology, as in: verbena fabric clos2:8")
    return run(made, options)


# ---- a running fabric ----------------------------------------------------------------------------


def ask(options: argparse.Namespace) -> int:
    name = the_fabric(options.name)
    if options.status:
        print(*described(control_fabric(name, {"do": "status"})), sep="\n")
        return 0
    if options.stop:
        ended = control_fabric(name, {"do": "stop"})
        pid = ended["pid"]
        wait_for_end(name)
        print(f"{name}, process {pid}, has ended")
        print(*ended["report"], sep="\n", end="\n" if ended["report"] else "")
        return 0
    is_cut = options.cut is not None
    link, word = (options.cut, "cut") if is_cut else (options.restore, "restore")
    ends = control_fabric(name, {"do": word, "link": link})["ends"]
    print(f"the link between {ends} is {'cut' if is_cut else 'repaired'}")
    return 0


def change_links(options: argparse.Namespace) -> int:
    name = the_fabric(options.name)
    for link, chance in options.losses:
        ends = control_fabric(name, {"do": "loss", "link": link, "chance": chance})["ends"]
        print(lossy_line(ends, chance))
    for link, rate in options.rates:
        ends = control_fabric(name, {"do": "rate", "link": link, "rate": rate})["ends"]
        print(slow_line(ends, rate))
    return 0


def lossy_line(ends: str, chance: float) -> str:
    return (
        f"{ends} loses {100 * chance:.6g} % of the packets" if chance else f"{ends} loses nothing"
    )


def slow_line(ends: str, rate: str) -> str:
    return f"{ends} has the rate of its ports" if rate == "full" else f"{ends} has the rate {rate}"


def rate_of(made: argparse.ArgumentParser, text: str) -> tuple[str, str]:
    """Return the link and the rate of LINK=RATE."""
    from verbena.subnet_process.link_limits import link_limits

    link, equals, rate = text.rpartition("=")
    if not equals or not link or not rate:
        made.error(f"--rate {text}: write LINK=RATE, as in h1-s0=10Gb/s, all=1xSDR or h1-s0=full")
    try:
        link_limits(rate)
    except MadError as error:
        made.error(f"--rate {text}: {error}")
    return link, rate


def loss_of(made: argparse.ArgumentParser, text: str) -> tuple[str, float]:
    """Return the link and the chance of LINK=CHANCE, which is that of a fault rule."""
    from verbena import fault

    link, equals, word = text.rpartition("=")
    try:
        number = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
        fault.text(fault.Drop(chance=number))
    except ValueError:
        equals = ""
    if not equals or not link:
        made.error(f"--loss {text}: write LINK=CHANCE, as in h1-s0=1% or all=0.01")
    return link, number


def wait_for_end(name: str) -> None:
    """Until the name is free."""
    deadline = time.monotonic() + END_WITHIN
    while name in running_fabrics() and time.monotonic() < deadline:
        time.sleep(0.01)


def described(status: dict[str, Any]) -> list[str]:
    """Return the lines of `--status`."""
    lines = [
        f"{status['name']}: {status['topology']}, {status['hosts']} hosts and "
        f"{status['switches']} switches, process {status['pid']}",
        "ports: " + ", ".join(f"{n} {state}" for state, n in sorted(status["ports"].items())),
        f"subnet manager: {status['manager']}",
        *status["traffic"],
    ]
    (first, low), (last, high) = status["addresses"]
    lines.append(f"addresses for librdmacm: {low} ({first}) to {high} ({last}), by the topology")
    if status["loss"]:
        each = (f"{link} {100 * chance:.6g} %" for link, chance in status["loss"].items())
        lines.append(f"lossy links, each by one end: {', '.join(each)}")
    if status["slow"]:
        each = (f"{link} {rate}" for link, rate in status["slow"].items())
        lines.append(f"links with another rate, each by one end: {', '.join(each)}")
    if status["cut"]:
        lines.append(f"cut links, each by one end: {', '.join(status['cut'])}")
    for host, pids in sorted(status["programs"].items()):
        lines.append(f"{host}: {', '.join(f'process {pid}' for pid in pids)}")
    if status["refused"]:
        lines.append(
            f"{status['refused']} messages were refused, which no program of Verbena sends"
        )
    if status["failures"]:
        lines.append(
            f"{status['failures']} requests have failed within Verbena: its output says why"
        )
    return lines


# ---- running one ---------------------------------------------------------------------------------


def fabric_of(topology: str) -> Fabric:
    """Return the fabric that the command line names. Raises OSError or ValueError."""
    if topology.endswith(".toml"):
        from verbena.sim import Scenario

        return Scenario.load(topology).fabric
    from verbena.subnet_process import topologies

    return topologies.fabric_of(topology)


def run(made: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from verbena._accepting import raise_descriptor_limit
    from verbena.subnet_process.built_in import settings_of
    from verbena.subnet_process.running import make_fabric

    name = options.name or DEFAULT_NAME
    if not name.isprintable() or any(letter in "/@ " for letter in name) or len(name) > 40:
        made.error(f"{name!r} is no name: letters, digits and - are, at most 40")
    changes = list(options.sm_set)
    if options.sm_priority is not None:
        changes.append(f"priority={options.sm_priority}")
    if (changes or options.partitions) and options.simulated:
        made.error(
            "--sm-priority, --partitions and --sm-set are for the built-in manager of a subnet in "
            "memory; a scenario has such settings in [management]"
        )
    if (changes or options.partitions) and options.sm == "none":
        made.error(
            "--sm-priority, --partitions and --sm-set are for the built-in manager, which --sm "
            "none leaves out: give them to the manager that you start, as OpenSM's options"
        )
    partitions = Path(options.partitions).read_text() if options.partitions else None
    settings = settings_of(options.engine or "minhop", partitions, changes)
    scenario = scenario_of(made, options) if options.simulated else None
    fabric = fabric_of(options.topology) if scenario is None else scenario.fabric
    ready = detach() if options.detach else None
    has_manager = options.sm == "builtin"
    sm_host = (options.sm_host or fabric.hosts[0]) if has_manager else None
    try:
        simulated = None if scenario is None else simulated_of(scenario, options.pace, sm_host)
        live = make_fabric(
            fabric,
            name,
            sm_host=sm_host,
            settings=settings,
            keep_lids=options.keep_lids,
            simulated=simulated,
            report=report,
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        print(
            f"verbena fabric: a fabric {name!r} runs already: give this one another name (--name), "
            f"or end that one (`verbena fabric --stop --name {name}`)",
            file=sys.stderr,
        )
        return FAILED
    try:
        assert live.control is not None
        changed = [lossy_line(live.control.lose(*loss), loss[1]) for loss in options.losses]
        changed += [slow_line(live.control.slow(*rate), rate[1]) for rate in options.rates]
    except MadError:
        live.server.close()
        raise
    lines = ready_lines(live, name, fabric, detached=ready is not None)
    lines += "".join(f"  {line}\n" for line in changed)
    if ready is None:
        print(lines, end="", flush=True)
    else:
        ready(lines)
    raise_descriptor_limit()  # every program at its hosts takes some
    gc.freeze()  # the subnet's many objects live as long as the process
    signal.signal(signal.SIGTERM, interrupt)
    try:
        live.server.run()
    except KeyboardInterrupt:
        print()
    finally:
        live.server.close()
    if simulated is not None and ready is None:
        print(*simulated[1].report(), sep="\n")
    return 0


def scenario_of(made: argparse.ArgumentParser, options: argparse.Namespace) -> Scenario:
    """Return the scenario whose fabric is to be simulated. Raises OSError or ValueError."""
    from verbena.sim import Scenario

    if options.keep_lids:
        made.error('--keep-lids is for a subnet in memory; [management] begin = "managed" has LIDs')
    if options.engine:
        made.error("--engine is for a subnet in memory; a scenario has it in [management]")
    if not options.pace > 0:
        made.error("--pace is a number above 0")
    return Scenario.load(options.topology)


def simulated_of(
    scenario: Scenario, pace: float, sm_host: str | None
) -> tuple[Subnet, SimulatedTraffic]:
    """Return the subnet of a scenario whose virtual time follows the clock, and its traffic."""
    from verbena.sim.live_subnets import SimulatedSubnet, SimulatedTraffic
    from verbena.sim.paced import PacedScenario

    paced = PacedScenario(scenario, pace, manager=sm_host)
    return SimulatedSubnet(paced), SimulatedTraffic(paced)


def interrupt(*_: object) -> None:
    """End the server's loop, as Ctrl-C does: it may be asleep."""
    raise KeyboardInterrupt


def detach() -> Callable[[str], None]:
    """Go on in a child, and return there what lets this process print a text and end.

    This process ends with status 0 then, or with the child's status if that ends before. The child
    neither has nor writes to the streams of the caller then: their readers may end.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writing)
        with open(reading, "rb") as pipe:
            told = pipe.read()
        if told:
            with suppress(OSError):
                os.write(1, told)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    os.close(reading)
    os.setsid()

    def ready(text: str) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.close(null)
        with suppress(OSError):  # the caller may have ended
            os.write(writing, text.encode())
        os.close(writing)

    return ready


def ready_lines(live: LiveFabric, name: str, fabric: Fabric, *, detached: bool) -> str:
    """Return the lines that say what runs, and how programs are attached."""
    end = f"`verbena fabric --stop --name {name}` ends it" if detached else "Ctrl-C ends it"
    host = fabric.hosts[1] if len(fabric.hosts) > 1 else fabric.hosts[0]
    described = live.describe_manager()
    program = "opensm" if described is None else "ibnetdiscover"
    manager = "none: start one at a host" if described is None else described
    lines = [
        f"verbena fabric: {name} is ready, process {os.getpid()}; {end}",
        f"  {len(fabric.hosts)} hosts and {len(fabric.switches)} switches ({fabric.name})",
        f"  subnet manager: {manager}",
        f"  attach a program:  verbena run --fabric {name} --host {host} -- {program}",
        f"  let a link fail:   verbena fabric --name {name} --cut {host}:1",
    ]
    return "".join(f"{line}\n" for line in lines)


def report(line: str) -> None:
    print(f"verbena fabric: {line}", file=sys.stderr, flush=True)
