# SPDX-License-Identifier: Apache-2.0
"""perftest in every mode that it has for these transports: a table of modes, and one short run of
each. The connection manager's (-R, -z, -T) and those for one vendor's adapters are left out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.programs.pairs import Pair, start_pair
from tests.programs.results import rows
from tests.suite.outcome import Outcome, of_pair
from tests.suite.processes import start
from tests.support import end_group

ITERATIONS = 24  # a multiple of the lists of requests
LIMIT = 60.0  # seconds for a run
COMMON = ("-F", "-n", str(ITERATIONS))
ROCE = ("-x", "1")
INFINIBAND = ("--link-layer", "infiniband")
KNOWN = ("--part-id", "4119")  # an adapter with which perftest uses inline data and ibv_wr_* calls

VERBS = ("send", "write", "read", "atomic")
TRANSPORTS = {
    "send": ("RC", "UC", "UD", "XRC"),
    "write": ("RC", "UC", "XRC"),
    "read": ("RC", "XRC"),
    "atomic": ("RC", "XRC"),
}
KINDS = ("bw", "lat")


@dataclass(frozen=True)
class Option:
    """Options of perftest, and to which programs and transports they apply."""

    arguments: tuple[str, ...]
    kinds: tuple[str, ...] = KINDS
    verbs: tuple[str, ...] = VERBS
    transports: tuple[str, ...] = ("RC", "UC", "UD", "XRC")
    known: bool = False
    infiniband: bool = False  # on an InfiniBand port, so without a GID
    says: str = ""  # what the client's output has besides its table
    shows: str = ""  # what it has in place of its table
    counted: bool = True  # it runs for a number of iterations and not for a time

    def __str__(self) -> str:
        return " ".join(self.arguments)


def option(arguments: str, **fields: object) -> Option:
    return Option(tuple(arguments.split()), **fields)  # type: ignore[arg-type]


NUMBER = "(?m)^[0-9.]+\\s*$"
AVERAGE = "(?m)^ \\d+[ \\t]+\\d+[ \\t]+[0-9.]+"
CYCLES = f"(?m)^ \\d+ +{ITERATIONS} +[0-9.]+ "  # and -nan, where they are many

BW = ("bw",)
LAT = ("lat",)
SEND = ("send",)
SIZED = ("send", "write", "read")
OPTIONS = (
    option(""),
    option("--use_old_post_send", known=True, says="ibv_wr\\* API +: OFF"),
    option("", known=True, says="ibv_wr\\* API +: ON"),
    option("-I 32 -s 32", known=True, verbs=("send", "write")),
    option("-I 32 -s 32 --use_old_post_send", known=True, verbs=("send", "write")),
    option("-a", verbs=SIZED),
    option("-s 1", verbs=SIZED),
    option("-s 1000", verbs=SIZED),
    option("-s 300001", verbs=SIZED, transports=("RC", "UC", "XRC")),
    option("-m 256"),
    option("-m 1024"),
    option("-b", kinds=BW),
    option("-b --report-both", kinds=BW),
    option("-q 4", kinds=BW),
    option("-q 4 -b", kinds=BW),
    option("-q 4 --mr_per_qp", kinds=BW),
    option("-e", verbs=("send", "read", "atomic"), says="Test with events"),
    option("-e -X 1", verbs=("send", "read", "atomic"), says="Test with events"),
    option("-e -b -q 2", kinds=BW, verbs=("send",), says="Test with events"),
    option("-l 8", kinds=BW, verbs=SIZED),
    option("-l 8 -q 2", kinds=BW, verbs=SIZED),
    option("--recv_post_list 8", kinds=BW, verbs=SEND),
    option("-l 8 --recv_post_list 8 --use-srq", kinds=BW, verbs=SEND),
    option("-Q 1", kinds=BW),
    option("-Q 16 -s 1024", kinds=BW, verbs=SIZED),
    option("-N", kinds=BW),
    option("-t 8"),
    option("-t 1", kinds=BW),
    # With less room than there are messages an unreliable transport may lose one, for which
    # perftest waits.
    option("-r 8", verbs=SEND, transports=("RC", "XRC")),
    option("-r 8 -t 8 -e", verbs=SEND, transports=("RC", "XRC")),
    option("-r 64", verbs=SEND),
    option("-o 1", verbs=("read", "atomic")),
    option("-o 16", verbs=("read", "atomic")),
    option("-A CMP_AND_SWAP", verbs=("atomic",)),
    option("-A FETCH_AND_ADD", verbs=("atomic",)),
    option("--use-srq", verbs=SEND),
    # All queue pairs together get as many receives as one sends (perftest_parameters.c limits
    # rx_depth to the iterations): enough for a transport that waits, or with time to post more.
    option("--use-srq -q 4", kinds=BW, verbs=SEND, transports=("RC", "XRC")),
    option("--use-srq -q 4 -D 1 -s 1024", kinds=BW, verbs=SEND, counted=False),
    option("--use-srq -e", verbs=SEND),
    option("-D 1", shows=AVERAGE),
    option("-D 1 -f 0 --cpu_util", kinds=BW, counted=False),
    option("-D 1 -b", kinds=BW, counted=False),
    option("-u 10"),
    option("-S 3"),
    option("--tclass 96"),
    option("--pkey_index 0"),
    option("-d verbena0 -i 1"),
    option("--force-link Ethernet"),
    option("--odp", verbs=SIZED),
    option("--use_hugepages", verbs=SIZED),
    option("--disable_pcie_relaxed"),
    option("--inline_recv 32", verbs=SEND),
    option("--perform_warm_up"),
    option("--perform_warm_up -Q 1", kinds=BW, verbs=("atomic",)),
    option("--dont_xchg_versions"),
    option("--wait_destroy 1", kinds=BW),
    option("--reversed", kinds=BW),
    option("--report_gbits", kinds=BW, says="BW average\\[Gb/sec\\]"),
    option("--output bandwidth", kinds=BW, shows=NUMBER),
    option("--output message_rate", kinds=BW, shows=NUMBER),
    option("--output latency", kinds=LAT, shows=NUMBER),
    option("--out_json --out_json_file /dev/null"),
    option("-w 0.001 -y 0.000001", kinds=BW),
    option("--rate_limit 1 --rate_limit_type SW", kinds=BW, verbs=SIZED),
    option("--rate_limit 1 --rate_limit_type SW --burst_size 4", kinds=BW, verbs=SIZED),
    option("--rate_limit 10 --rate_limit_type HW", kinds=BW, verbs=SIZED),
    option("--rate_limit 10 --rate_limit_type HW", infiniband=True, kinds=BW, verbs=SIZED),
    option("--force-link IB", infiniband=True),
    option("-W counters/port_xmit_data", kinds=BW, shows="counters/port_xmit_data=\\d"),
    option("-C", kinds=LAT, shows=CYCLES),
    option("-H", kinds=LAT, says="observations|#, "),
    option("-U", kinds=LAT, says="#, "),
    option("--latency_gap 10", kinds=LAT),
    option("-g", verbs=SEND, transports=("UD",)),
    option("-O", kinds=BW),
)


@dataclass(frozen=True)
class Mode:
    verb: str
    kind: str
    transport: str
    option: Option

    @property
    def program(self) -> str:
        return f"ib_{self.verb}_{self.kind}"

    @property
    def where(self) -> str:
        return f"{self.program} {self.transport}"

    def __str__(self) -> str:
        return f"{self.program} -c {self.transport} {self.option}"


def label(chosen: Option) -> str:
    """As the page and the tests call it."""
    text = f"`{chosen}`" if chosen.arguments else "no options"
    text += ", as an adapter that it knows" if chosen.known else ""
    return f"{text}, on an InfiniBand port" if chosen.infiniband else text


def modes() -> Iterator[Mode]:
    """All, in the order of the options."""
    for chosen in OPTIONS:
        for verb in chosen.verbs:
            for kind in chosen.kinds:
                for transport in TRANSPORTS[verb]:
                    if transport in chosen.transports:
                        yield Mode(verb, kind, transport, chosen)


NO_HUGE_PAGES = "the machine has no huge pages set aside"
# What perftest itself does not do, or not here: the pattern of its words, and the reason.
# Words of perftest, why they are no defect of the device, and of which modes that is so.
REFUSALS: tuple[tuple[str, str, Callable[[Mode], bool]], ...] = (
    (
        r"QP failed to accept HW rate limit",
        "perftest asks that of connected queue pairs on InfiniBand links",
        lambda mode: not mode.option.infiniband or mode.transport == "UD",
    ),
    (
        r"Unable to query port 2 attributes",
        "it wants a second port",
        lambda mode: "-O" in mode.option.arguments,
    ),
    (
        r"Please configure hugepages",
        NO_HUGE_PAGES,
        lambda mode: "--use_hugepages" in mode.option.arguments,
    ),
    (r"ODP does not support UC", "perftest does not have it", lambda mode: mode.transport == "UC"),
    (
        r"not compatible with versions older than",
        "perftest does not have it any more",
        lambda mode: "--dont_xchg_versions" in mode.option.arguments,
    ),
)

# What perftest 4.5 does wrong by itself: options and program, and what.
FAULTS = {
    ("--perform_warm_up", "ib_atomic_bw"): "perftest waits for completions that it has not asked "
    "for, as it does with -Q 1; later releases do",
}


def outcome(mode: Mode, env: dict[str, str] | None = None) -> Outcome:
    """What becomes of a run."""
    fault = FAULTS.get((str(mode.option), mode.program))
    return Outcome("skipped", fault) if fault else judge(mode, run(mode, env))


def run(mode: Mode, env: dict[str, str] | None = None) -> Pair:
    """Both sides of one run, with `env` on top of this environment."""
    program = shutil.which(mode.program)
    if program is None:
        raise FileNotFoundError(f"{mode.program} is not installed")
    chosen = mode.option
    options = (*(KNOWN if chosen.known else ()), *(INFINIBAND if chosen.infiniband else ()))
    address = () if chosen.infiniband else ROCE
    command = (program, *COMMON, *address, "-c", mode.transport, *chosen.arguments)
    running = start_pair(start, *command, options=options, env=env)
    try:
        return running.finish(LIMIT)
    finally:
        end_group(running.client)
        end_group(running.server)


def problem(mode: Mode, pair: Pair) -> str:
    """What is missing in the output of a run that ended well; "" if nothing is."""
    output = pair.client.output
    if mode.option.says and not re.search(mode.option.says, output):
        return f"the output does not say {mode.option.says!r}"
    if mode.option.shows:
        return "" if re.search(mode.option.shows, output) else "it measured nothing"
    table = rows(output)
    if not table:
        return "it measured nothing"
    short = [row for row in table if row.iterations % ITERATIONS]
    return f"iterations are missing: {short}" if short and mode.option.counted else ""


def judge(mode: Mode, pair: Pair) -> Outcome:
    """What became of a run."""
    said = f"{pair.client.output}\n{pair.server.output}"
    for words, reason, applies in REFUSALS:
        if applies(mode) and re.search(words, said):
            return Outcome("skipped", reason, str(pair))
    return of_pair(pair, problem(mode, pair))
