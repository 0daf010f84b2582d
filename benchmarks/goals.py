# SPDX-License-Identifier: Apache-2.0
"""All rows of the report, and those of verbs programs.

command.py selects rows, and runner.py measures them. python_goals.py and simulation_goals.py have
the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks import plain_scripts, verbs_scripts
from benchmarks.connections import AgentStart, ConnectionTime
from benchmarks.crowded import Crowded
from benchmarks.engine import EngineAlone
from benchmarks.goal import Better, Goal, Section
from benchmarks.iperf import Iperf
from benchmarks.python_cases import OpenDevice, Wakeup, Walk
from benchmarks.python_goals import calls, collectives, dask, disks
from benchmarks.simulation_goals import computers, fabric, insides, manage
from benchmarks.ucx import Ucx
from verbena.measure import tcp
from verbena.measure.case import KIB, MIB, Memory, Unit, size_text
from verbena.measure.perftest import PACKETS_ONLY, Perftest
from verbena.measure.scripts import Script

SIZES = (4 * KIB, 64 * KIB, MIB, 64 * MIB)
# A goal "as the peer" allows this much for noise.
ALIKE = 0.95
IDLE_BOUND = 0.1


def select(quick: bool, pattern: str | None) -> list[Goal]:
    """The goals to measure. Raises ValueError when nothing matches."""
    chosen = [goal for goal in all_goals() if goal.quick or not quick]
    chosen = [goal for goal in chosen if pattern is None or goal.matches(pattern)]
    if not chosen:
        names = "\n  ".join(dict.fromkeys(goal.name for goal in all_goals()))
        raise ValueError(f"no row matches {pattern!r}; there are:\n  {names}")
    return [shortened(goal) for goal in chosen] if quick else chosen


def shortened(goal: Goal) -> Goal:
    """The goal with shorter walks."""
    ours, peer = goal.ours, goal.peer
    if isinstance(ours, Walk) and isinstance(peer, Walk):
        return replace(goal, ours=replace(ours, total=256 * MIB),
                       peer=replace(peer, total=256 * MIB))  # fmt: skip
    return goal


def all_goals() -> list[Goal]:
    rows = [
        shared,
        own,
        python,
        packets,
        waiting,
        fabric,
        insides,
        computers,
        manage,
        connections,
        collectives,
        dask,
        calls,
        disks,
        reference,
    ]
    return [goal for row in rows for goal in row()]


def shared() -> Iterator[Goal]:
    """Memory that peers reach by one copy."""
    section, memory = Section.SHARED, Memory.SHARED
    yield latency(section, Perftest("write_lat"), Ucx("ucp_put_lat"), 1.0, quick=True)
    yield latency(section, Perftest("read_lat"), None, 0.2)
    yield latency(section, Perftest("atomic_lat"), None, 0.2)
    yield bandwidth(section, "write", 8, memory, memory, 3.0, quick=True)
    for size in SIZES:
        yield bandwidth(section, "write", size, memory, memory, 1.0, quick=size == MIB)
    yield cold(section, own=False, bound=1.3)
    yield latency(section, Perftest("send_lat"), Ucx("tag_lat"), 1.0, quick=True)
    for size in (8, *SIZES):
        bound = 1.0 if size == 64 * MIB else 1.5
        yield bandwidth(section, "send", size, memory, memory, bound, quick=size == 8)


def own() -> Iterator[Goal]:
    """Memory that the program allocated by itself. 8-byte SENDs do not use it, so their peer is
    UCX's fastest transport."""
    section, memory = Section.OWN, Memory.OWN
    yield latency(section, Perftest("write_lat", memory=memory), None, 0.6, quick=True)
    yield latency(section, Perftest("read_lat", memory=memory), None, None)
    yield latency(section, Perftest("atomic_lat", memory=memory), None, None)
    yield bandwidth(section, "write", 8, memory, memory, None)
    for size in SIZES:
        yield bandwidth(section, "write", size, memory, memory, 1.0, quick=size == MIB)
    yield cold(section, own=True, bound=None)
    yield latency(section, Perftest("send_lat", memory=memory), Ucx("tag_lat"), 1.0)
    yield bandwidth(section, "send", 8, memory, Memory.SHARED, 1.5)
    for size in SIZES:
        yield bandwidth(section, "send", size, memory, memory, 1.0)


def latency(
    section: Section, ours: Perftest, peer: Ucx | None, bound: float | None, quick: bool = False
) -> Goal:
    kind = ours.test.removesuffix("_lat").upper().replace("ATOMIC", "atomic")
    span = "half round trip" if ours.test in ("write_lat", "send_lat") else "whole"
    return Goal(section, f"{kind} latency, 8 B, {span}", ours, peer, bound, Better.LOWER, quick)


def bandwidth(
    section: Section,
    kind: str,
    size: int,
    memory: Memory,
    peer_memory: Memory,
    bound: float | None,
    quick: bool = False,
) -> Goal:
    what = "rate" if size == 8 else "bandwidth"
    peer = Ucx("ucp_put_bw" if kind == "write" else "tag_bw", size, peer_memory)
    ours = Perftest(f"{kind}_bw", size, memory)
    return Goal(section, f"{kind.upper()} {what}, {size_text(size)}", ours, peer, bound,
                Better.HIGHER, quick)  # fmt: skip


def cold(section: Section, own: bool, bound: float | None) -> Goal:
    ours = Walk(verbs_scripts.write_cold, "verbs, 1 MiB WRITEs", arguments=(("own", own),))
    peer = Walk(plain_scripts.memcpy_cold, "libc memcpy")
    return Goal(section, "WRITE bandwidth, cold: 1 MiB each, walking 1 GiB", ours, peer, bound)


def python() -> Iterator[Goal]:
    section = Section.PYTHON
    ours = Script(verbs_scripts.write_latency, "qp.write, mr.wait_u64", Unit.MICROSECONDS)
    yield Goal(section, "WRITE latency, 8 B, half round trip", ours, None, 0.3, Better.LOWER, True)
    ours = Script(verbs_scripts.write_batches, "qp.post_many, cq.poll", Unit.MICROSECONDS)
    yield Goal(section, "WRITE, 8 B, each of a batch of 64", ours, None, 0.03, Better.LOWER, True)
    for memory in Memory:
        for size in (64 * KIB, MIB):
            yield python_bandwidth(size, memory)
    yield Goal(section, "import and open the device", OpenDevice(), None, 0.15, Better.LOWER, True)
    ours = Script(verbs_scripts.connect, "create_qp, bring_up", Unit.MICROSECONDS)
    yield Goal(section, "QP from create to RTS", ours, None, 50.0, Better.LOWER, True)


def python_bandwidth(size: int, memory: Memory) -> Goal:
    arguments = (("size", size), ("own", memory is Memory.OWN))
    ours = Script(verbs_scripts.write_bandwidth, "qp.post_many, cq.wait", Unit.BANDWIDTH, arguments)
    where = "own memory" if memory is Memory.OWN else "pd.alloc"
    peer = Perftest("write_bw", size, memory)
    return Goal(Section.PYTHON, f"WRITE bandwidth, {size_text(size)}, {where}", ours, peer, ALIKE)


def packets() -> Iterator[Goal]:
    """RoCE packets, with the ICRC made and checked, beside TCP."""
    section = Section.PACKETS
    for kind in ("write", "send"):
        for mtu in (4096, 1024):
            ours = Perftest(f"{kind}_bw", MIB, path_mtu=mtu)
            quick = kind == "write" and mtu == 4096
            name = f"{kind.upper()} bandwidth, 1 MiB, path MTU {mtu}, against"
            put = Ucx("ucp_put_bw", MIB, over_tcp=True)
            yield Goal(section, f"{name} UCX", ours, put, 1.2, quick=quick)
            yield Goal(section, f"{name} large writes to TCP", ours, Iperf("1M"), 0.9)
            yield Goal(section, f"{name} TCP", ours, Iperf(), 2.0)
    ours = Perftest("read_bw", MIB, path_mtu=4096)
    yield Goal(section, "READ bandwidth, 1 MiB, path MTU 4096", ours, Iperf("1M"), None)
    yield Goal(section, COLD, cold_packets(), None, COLD_BOUND)
    ours = Perftest("send_lat", path_mtu=1024)
    peer = Ucx("tag_lat", over_tcp=True)
    yield Goal(section, "SEND latency, 8 B, half round trip", ours, peer, 1.0, Better.LOWER, True)
    for kind, test in (("write", "ucp_put_bw"), ("send", "tag_bw")):
        ours, peer = Perftest(f"{kind}_bw", path_mtu=1024), Ucx(test, over_tcp=True)
        yield Goal(section, f"{kind.upper()} rate, 8 B", ours, peer, 3.0, quick=kind == "send")
    for operation in ("WRITE", "SEND"):
        name = f"the engine alone, {operation} of 64 KiB, data packets of 4096"
        yield Goal(section, name, EngineAlone(operation, 64 * KIB), None, 6.0)


COLD = "WRITE bandwidth, cold: 1 MiB each, walking 1 GiB, path MTU 4096"
COLD_BOUND = round(4.5e9 / MIB)


def cold_packets() -> Walk:
    return Walk(
        verbs_scripts.write_cold,
        "verbs, 1 MiB WRITEs",
        arguments=(("own", True), ("path_mtu", 4096)),
        environment=tuple(PACKETS_ONLY.items()),
    )


def waiting() -> Iterator[Goal]:
    section = Section.WAITING
    idle = Script(verbs_scripts.idle, "open, connected, armed", Unit.PERCENT)
    yield Goal(section, "CPU of an idle device", idle, None, IDLE_BOUND, Better.LOWER)
    asleep = Perftest("send_lat", events=True)
    name = "wake-up on a completion channel, half round trip"
    yield Goal(section, name, asleep, Wakeup(), 1.3, Better.LOWER, True)
    for spin in (20, 100):
        spinning = replace(asleep, spin_us=spin)
        name = f"the same, spinning {spin} µs before sleeping"
        yield Goal(section, name, spinning, Wakeup(), None, Better.LOWER)
    yield from crowded(section)


def crowded(section: Section) -> Iterator[Goal]:
    """Both sides poll, and share processors; averages, since a median hides the time slices."""
    how = (("polling", False), ("average", True))
    asleep = Script(tcp.tcp_latency, "TCP, sleeping", Unit.MICROSECONDS, how)
    for mtu, way in ((0, "direct"), (1024, "packets")):
        ours = Perftest("send_lat", average=True, path_mtu=mtu)
        for neighbours, where in ((False, "on one core"), (True, "on two cores with load")):
            name = f"polling {where}, {way}: SEND, 8 B, half round trip, average"
            bound = None if neighbours or mtu else 1.0
            yield Goal(section, name, Crowded(ours, neighbours), Crowded(asleep, neighbours), bound,
                       Better.LOWER)  # fmt: skip


def connections() -> Iterator[Goal]:
    """Unmodified programs that connect through the agent."""
    section = Section.CONNECTIONS
    yield Goal(section, "connections a second", ConnectionTime(rate=True), None, 3000.0)
    title = "a connection, from resolving the address until it is established"
    yield Goal(section, title, ConnectionTime(), None, 350.0, Better.LOWER)
    title = "10,000 at once, connections a second"
    yield Goal(section, title, ConnectionTime(10_000, rate=True))
    yield Goal(section, "start of the agent", AgentStart(), None, 0.15, Better.LOWER)


def reference() -> Iterator[Goal]:
    """Averages instead of medians, and a TCP socket of Python's doing the same."""
    section = Section.REFERENCE
    for test, peer in (("write_lat", "ucp_put_lat"), ("send_lat", "tag_lat")):
        ours = Perftest(test, average=True)
        name = f"{test.removesuffix('_lat').upper()} latency, 8 B, average of all"
        yield Goal(section, name, ours, Ucx(peer, average=True), None, Better.LOWER)
    for polling in (False, True):
        how = "polling" if polling else "sleeping"
        arguments = (("polling", polling),)
        socket = Script(tcp.tcp_latency, f"TCP, {how}", Unit.MICROSECONDS, arguments)
        name = f"WRITE latency, 8 B, against TCP, {how}"
        yield Goal(section, name, Perftest("write_lat"), socket, None, Better.LOWER)
    socket = Script(tcp.tcp_bandwidth, "TCP", Unit.BANDWIDTH, (("size", MIB),))
    yield Goal(section, "WRITE bandwidth, 1 MiB, against TCP", Perftest("write_bw", MIB), socket)
