# SPDX-License-Identifier: Apache-2.0
"""The rows of the report: what is measured, the peer, and the bound on their ratio.

command.py selects rows, and runner.py measures them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from benchmarks import plain_scripts, verbs_scripts
from benchmarks.connections import AgentStart, ConnectionTime
from benchmarks.crowded import Crowded
from benchmarks.dask_cases import DaskComm
from benchmarks.engine import EngineAlone
from benchmarks.fabric import FabricRun
from benchmarks.iperf import Iperf
from benchmarks.opensm import OpenSm, OpenSmSweep
from benchmarks.python_cases import OpenDevice, Wakeup, Walk
from benchmarks.rank_cases import RankCall
from benchmarks.ucx import Ucx
from verbena.measure import tcp
from verbena.measure.case import KIB, MIB, Case, Memory, Unit, size_text
from verbena.measure.perftest import PACKETS_ONLY, Perftest
from verbena.measure.scripts import Script

SIZES = (4 * KIB, 64 * KIB, MIB, 64 * MIB)
# A goal "as the peer" allows this much for noise.
ALIKE = 0.95
IDLE_BOUND = 0.1
TIMES = "\N{MULTIPLICATION SIGN}"


class Section(Enum):
    """Parts of the report, in order."""

    SHARED = "C programs with `verbena run --shared-heap`"
    OWN = "C programs with their own memory"
    PYTHON = "From Python"
    PACKETS = "RoCE v2 packets over loopback"
    WAITING = "Waiting"
    FABRIC = "Simulated fabrics, one thread"
    COMPUTERS = "Simulated computers and cables, one thread"
    MANAGE = "Subnet management"
    CONNECTIONS = "Connections by librdmacm"
    COLLECTIVES = "Collective calls, two ranks"
    DASK = "Dask"
    REFERENCE = "For reference, without a goal"


class Better(Enum):
    """Whether lower or higher values are better."""

    LOWER = "≤"
    HIGHER = "≥"


@dataclass(frozen=True)
class Goal:
    """A row: ours should be `better` than `bound`, times the peer's value if there is a peer.

    Without a bound the row only informs. `quick` rows are those of `--quick`.
    """

    section: Section
    name: str
    ours: Case
    peer: Case | None = None
    bound: float | None = None
    better: Better = Better.HIGHER
    quick: bool = False

    def cases(self) -> Iterator[Case]:
        yield self.ours
        if self.peer:
            yield self.peer

    @property
    def latency(self) -> bool:
        """Return whether the row is a message's latency, so that line.py's time is its scale."""
        named = "latency" in self.name or "half round trip" in self.name
        return named and self.ours.unit is Unit.MICROSECONDS

    def met(self, ours: float, peer: float | None) -> bool | None:
        """Whether the goal is met; None when there is none.

        A ratio is rounded to two digits, as it is printed; more are below the clock's resolution.
        """
        if self.bound is None:
            return None
        value = ours if self.peer is None or peer is None else round(ours / peer, 2)
        return value <= self.bound if self.better is Better.LOWER else value >= self.bound

    def text(self) -> str:
        """Return the goal as text for the report."""
        if self.bound is None:
            return f"beside {self.peer.label}" if self.peer else ""
        times = f" {TIMES} {self.peer.label}" if self.peer else f" {self.ours.unit}"
        return f"{self.better.value} {self.bound:,.9g}{times}"

    def matches(self, pattern: str) -> bool:
        """Whether `pattern`, a part of it or a shell pattern, is the row's section and name."""
        text = f"{self.section.value}: {self.name}".replace("`", "").lower()
        return pattern.lower() in text or fnmatchcase(text, pattern.lower())


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
        computers,
        manage,
        connections,
        collectives,
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


def collectives() -> Iterator[Goal]:
    """From Python, beside Open MPI by mpi4py; without goals."""
    for call, sizes in (
        ("barrier", (0,)),
        ("all_reduce", (8, MIB, 32 * MIB)),
        ("all_to_all", (MIB,)),
    ):
        for nbytes in sizes:
            name = f"{call}, {size_text(nbytes)}" if nbytes else call
            for transport, peer in (("tcp", "TCP"), ("vader", "shared memory")):
                other = RankCall(call, nbytes, transport)
                yield Goal(
                    Section.COLLECTIVES,
                    f"{name}, beside {peer}",
                    RankCall(call, nbytes),
                    other,
                    None,
                    Better.LOWER,
                )


def dask() -> Iterator[Goal]:
    """Beside Dask's own comm over TCP."""
    for name, what, unit, bound, better in (
        ("small message, there and back", "small", Unit.MICROSECONDS, 0.8, Better.LOWER),
        ("array of 100 MB between two processes", "array", Unit.BANDWIDTH, 2.0, Better.HIGHER),
        # 1.3 times as fast
        ("shuffle of 1 GiB between four workers", "shuffle", Unit.SECONDS, 0.77, Better.LOWER),
    ):
        ours, peer = DaskComm(what, "verbena", unit), DaskComm(what, "tcp", unit)
        yield Goal(Section.DASK, name, ours, peer, bound, better)


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


# Packet-hops a second, in millions; and how many times SimPy's.
HOPS = {"W1": (10.0, 55.0), "W2": (6.0, 45.0), "W3": (4.0, None), "W4": (2.0, None)}
# Five and six times the 2.4 and 0.97 M/s of csg-htsim's RoCE with pauses on such a machine.
PAUSED_HOPS = {"W2P": (12.0, "128 hosts"), "W3P": (5.8, "1,024 hosts")}
WORKLOADS = {
    "W1": "64 hosts into one port",
    "W2": "a permutation on 128 hosts",
    "W3": "a permutation on 1,024 hosts",
    "W4": "a permutation on 8,192 hosts",
}


def fabric() -> Iterator[Goal]:
    """Packet-hops: one packet, data or acknowledgement, over one link."""
    section = Section.FABRIC
    for name, (rate, times) in HOPS.items():
        ours, quick = simulated(name, "hops", Unit.MILLIONS, 1e-6), name in ("W1", "W2")
        title = f"{name}, packet-hops: {WORKLOADS[name]}"
        yield Goal(section, title, ours, None, rate, quick=quick)
        if times:
            yield Goal(section, f"{name}, against SimPy", ours, in_simpy(name), times)
    for name, (rate, what) in PAUSED_HOPS.items():
        title = f"{name}, packet-hops: {what} with pauses, ECMP and DCQCN"
        ours = simulated(name, "hops", Unit.MILLIONS, 1e-6)
        yield Goal(section, title, ours, None, rate, quick=name == "W2P")
    for hosts, seconds, memory in ((65536, 15.0, 1.5), (131072, 60.0, 3.0)):
        arguments = (("hosts", hosts),)
        ours = FabricRun("large", "set_up", "sim.World", Unit.SECONDS, arguments)
        title = f"{hosts:,} hosts, set-up with routing"
        yield Goal(section, title, ours, None, seconds, Better.LOWER)
        ours = FabricRun("large", "memory", "sim.World", Unit.KIBIBYTES, arguments, scale=1 / KIB)
        title = f"{hosts:,} hosts, memory in all"
        yield Goal(section, title, ours, None, memory * MIB, Better.LOWER)
    for name, bound in (("W3", 1.0), ("W4", 20.0)):
        ours = simulated(name, "set_up", Unit.SECONDS, 1.0)
        title = f"{name}, set-up with routing"
        yield Goal(section, title, ours, None, bound, Better.LOWER)
    ours = simulated("W3", "host_bytes", Unit.KIBIBYTES, 1 / KIB)
    yield Goal(section, "W3, memory for each host", ours, None, 32.0, Better.LOWER)
    ours = FabricRun("packets", "packet_bytes", "sim.World", Unit.BYTES)
    yield Goal(section, "memory for each packet on its way", ours, None, 64.0, Better.LOWER)
    ours = FabricRun("connections", "qp_bytes", "sim.World", Unit.BYTES)
    yield Goal(section, "memory for each queue pair", ours, None, 1024.0, Better.LOWER)
    for value, what in (("ping_pong", "each answered"), ("stream", "a stream")):
        ours = FabricRun("programs", value, "aio.AsyncQP", Unit.MILLIONS, scale=1e-6)
        yield Goal(section, f"messages of Python programs, {what}", ours, None, 0.1, quick=True)
    ours = FabricRun("programs", "callbacks", "cq.poll", Unit.MICROSECONDS, scale=1e6)
    title = "a completion, polled and handed to a Python function"
    yield Goal(section, title, ours, None, 0.15, Better.LOWER, True)


def computers() -> Iterator[Goal]:
    """The inside of a computer, and 256 stations on 1,000 m of cable at 10 Mb/s."""
    section = Section.COMPUTERS

    def of(script: str, value: str, **arguments: Any) -> FabricRun:
        label = "lan.Csma" if script == "cable" else "host.Computer"
        given = tuple(arguments.items())
        return FabricRun(script, value, label, Unit.MILLIONS, given, needs=(), scale=1e-6)

    ours = of("instructions", "instructions")
    yield Goal(section, "instructions of a processor", ours, None, 80.0, quick=True)
    for kind in ("load", "store"):
        for link, where, bound in ((False, "", 2.0), (True, ", over a PCIe link", None)):
            ours = of("accesses", "accesses", kind=kind, link=link)
            title = f"{kind}s of a device in Python{where}"
            yield Goal(section, title, ours, None, bound, quick=not link)
    for size, load, how in ((512, 0.3, "load 0.3"), (64, None, "saturated"),
                            (1518, None, "saturated")):  # fmt: skip
        ours = of("cable", "frames", stations=256, frame_bytes=size, length_m=1000, load=load)
        title = f"256 stations on a cable, frames of {size:,} bytes, {how}"
        yield Goal(section, title, ours, None, 2.0)


def manage() -> Iterator[Goal]:
    """Processor time to bring a subnet up: ours has all agents in it, OpenSM's has no ibsim."""
    for radix, hosts in ((36, "648"), (64, "2,048")):
        ours = FabricRun(
            "subnet_up", "subnet_up", "SubnetManager", Unit.SECONDS, (("radix", radix),)
        )
        title = f"a subnet of {hosts} hosts, processor time until it is up"
        yield Goal(Section.MANAGE, title, ours, OpenSm(radix), 0.5, Better.LOWER)
    for radix, hosts in ((36, "648"), (64, "2,048")):
        live = OpenSmSweep(radix, "verbena fabric")
        title = f"OpenSM brings {hosts} hosts up, time on the wall"
        yield Goal(Section.MANAGE, title, live, OpenSmSweep(radix, "ibsim"), 1.0, Better.LOWER)


def connections() -> Iterator[Goal]:
    """Unmodified programs that connect through the agent."""
    section = Section.CONNECTIONS
    yield Goal(section, "connections a second", ConnectionTime(rate=True), None, 3000.0)
    title = "a connection, from resolving the address until it is established"
    yield Goal(section, title, ConnectionTime(), None, 350.0, Better.LOWER)
    title = "10,000 at once, connections a second"
    yield Goal(section, title, ConnectionTime(10_000, rate=True))
    yield Goal(section, "start of the agent", AgentStart(), None, 0.15, Better.LOWER)


def in_simpy(name: str) -> FabricRun:
    needs = ("networkx", "simpy")
    return FabricRun("simpy", "hops", "SimPy", Unit.MILLIONS, (("name", name),), needs, 1e-6)


def simulated(name: str, value: str, unit: Unit, scale: float) -> FabricRun:
    return FabricRun("workload", value, "sim.World", unit, (("name", name),), scale=scale)


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
