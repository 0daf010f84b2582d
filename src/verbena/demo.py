# SPDX-License-Identifier: Apache-2.0
"""`verbena demo`: runs RDMA programs and NumPy over Verbena and prints measurements.

verbena.cli starts it; it takes half a minute. Each step prints its command and its result; a step
that fails says what to do, and the others still run.
"""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from verbena import _native, launch
from verbena.measure import arrays, cores, perftest, scripts, tcp
from verbena.measure.case import MIB, Case, Effort, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError

SECONDS = 0.3
# On one core each message of the pingpong waits until the other process has the core.
PINGPONGS, PINGPONGS_ON_ONE_CORE = 100_000, 1000
ARRAY_LENGTH = 131072
GENERAL_ADVICE = "`verbena doctor` says what on this machine is in the way, and what to do."
PLAIN, SHARED = "verbena run --", "verbena run --shared-heap --"
ONE_CORE = (
    "On one core ib_write_lat looks at its own memory until a message is there, and the TCP that\n"
    "polls at its socket: neither lets the other process run, so each message waits for the\n"
    "system to end a time slice. Programs that poll a CQ, as ibv_rc_pingpong does, give way."
)
# Where more programs run than there are cores, both processes seldom run at once: a message of
# ib_write_lat then waits for time slices, and 30,000 messages still end within seconds.
BUSY_RATE = 1e5
BUSY = (
    "The machine is busy (load {load:.1f} on {cores}): times have pauses in them in which other\n"
    "programs run. Run the demo again when those are idle."
)
ACTIVATE = "To go on: `. .venv/bin/activate`, once in each terminal; then `verbena run` is found."
PINGPONG_LINES = ("local address", "remote address", "bytes in", "iters in")


def main(arguments: list[str]) -> int:
    """Run `verbena demo`; exit status 1 when a step failed."""
    argparse.ArgumentParser(
        prog="verbena demo",
        description="Run Debian's ibv_rc_pingpong and ib_write_bw over Verbena, write a NumPy "
        "array into another process's memory, and compare with a TCP socket.",
    ).parse_args(arguments)
    _native.library_dir()
    where = cores.choose()
    print("RDMA on this machine, without an RDMA adapter: a demonstration of Verbena")
    passed = [attempt(step, where) for step in (pingpong, write_bandwidth, numpy_array, table)]
    show(ACTIVATE)
    return 0 if all(passed) else 1


def attempt(step: Callable[[Cores], None], where: Cores) -> bool:
    """Run a step. Returns whether it passed."""
    try:
        step(where)
    except (MeasureError, OSError) as error:
        show(f"FAILED: {error}")
        show(f"What to do: {advice(str(error))}")
        return False
    return True


def advice(problem: str) -> str:
    """Return what to do about a failure. An error that names a package has the command already."""
    if "apt-get" in problem:
        return "install that package, then run the demo again."
    if "in time" in problem and busy():
        return busy() + "\nOr: " + GENERAL_ADVICE
    return GENERAL_ADVICE


def busy() -> str:
    """Return what to say of a machine whose cores are all in use, or ""."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return BUSY.format(load=load, cores=counted(cores)) if load > cores else ""


def counted(number: int) -> str:
    return "one core" if number == 1 else f"{number} cores"


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def show(text: str) -> None:
    print(textwrap.indent(text, "    "), flush=True)


def show_commands(words: Sequence[str], prefix: str) -> None:
    command = " ".join([prefix, Path(words[0]).name, *words[1:]])
    show(f"$ {command} &\n$ {command} 127.0.0.1")


def pingpong(where: Cores) -> None:
    """Debian's ibv_rc_pingpong between two processes."""
    title("1. Debian's ibv_rc_pingpong, as it is, between two processes")
    count = PINGPONGS if where.distinct else PINGPONGS_ON_ONE_CORE
    words = [perftest.find("ibv_rc_pingpong"), "-g", "1", "-n", str(count)]
    show_commands(words, PLAIN)
    _, said = perftest.run_pair(words, where, launch.environment())
    lines = [line for line in said.splitlines() if any(part in line for part in PINGPONG_LINES)]
    if not any("iters in" in line for line in lines):
        raise MeasureError(f"ibv_rc_pingpong printed no result: {said.strip()[-200:]!r}")
    show("\n".join(line.strip() for line in lines))


def write_bandwidth(where: Cores) -> None:
    """Debian's ib_write_bw; --shared-heap makes each WRITE one copy."""
    title("2. Debian's ib_write_bw, 1 MiB into the other process's memory, again and again")
    words = [perftest.find("ib_write_bw"), "-F", "-x", "1", "-s", str(MIB), "-n", "5000"]
    show_commands(words, SHARED)
    _, said = perftest.run_pair(words, where, launch.environment(shared_heap=True))
    perftest.data_row(said)  # raises when there is no result
    lines = said.splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("#bytes"))
    show("\n".join(" ".join(line.split()) for line in lines[start : start + 2]))


def numpy_array(where: Cores) -> None:
    """Write an array into the other process, which waits for a notification and verifies it."""
    title("3. A NumPy array into another process's memory, from Python")
    show("mr = pd.reg_mr(array)\nqp.write(mr, remote_addr, rkey)")
    found = scripts.run(arrays.array, where, seconds=0, count=ARRAY_LENGTH)
    writer, target = found["pids"]
    if not found["equal"]:
        raise MeasureError(f"process {target} found other numbers than process {writer} wrote")
    show(
        f"process {writer} wrote {ARRAY_LENGTH:,} float64 into process {target}: its first write "
        f"took {found['seconds'] * 1e6:,.0f} µs;\nprocess {target} found every number correct"
    )


def table(where: Cores) -> None:
    """Verbena beside a TCP socket, measured in turn."""
    title(f"4. Measured just now between two processes on {where}")
    columns = {
        "Verbena": (perftest.Perftest("write_lat"), perftest.Perftest("write_bw", MIB)),
        "TCP socket": (tcp_latency(False), tcp_bandwidth()),
        "TCP, polling": (tcp_latency(True), None),
    }
    values = [[name, *(measured(case, where) for case in cases)] for name, cases in columns.items()]
    labels = ["", "8 bytes, half a round trip", "1 MiB pieces, bandwidth"]
    for cells in zip(labels, *values, strict=True):
        show(f"{cells[0]:<28}" + "".join(f"{cell:>16}" for cell in cells[1:]))
    show(
        "Verbena: ib_write_lat and ib_write_bw with --shared-heap; TCP: loopback, from Python.\n"
        "Verbena's figures are those of a copy within one host, by the thread that posts; TCP\n"
        "goes through the kernel, twice. Neither says anything of a network between two hosts."
    )
    if not where.distinct:
        show(ONE_CORE)
    elif busy():
        show(busy())


def tcp_latency(polling: bool) -> Case:
    return scripts.Script(tcp.tcp_latency, "TCP", Unit.MICROSECONDS, (("polling", polling),))


def tcp_bandwidth() -> Case:
    return scripts.Script(tcp.tcp_bandwidth, "TCP", Unit.BANDWIDTH, (("size", MIB),))


def measured(case: Case | None, where: Cores) -> str:
    """A measured value with its unit."""
    if case is None:
        return ""
    slow = where.distinct and case.unit is Unit.MICROSECONDS and busy()
    value = case.measure(Effort(SECONDS, BUSY_RATE if slow else None), where).value
    return f"{value:,.0f} {case.unit}" if value >= 100 else f"{value:.2f} {case.unit}"
