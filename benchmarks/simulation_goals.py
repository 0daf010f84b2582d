# SPDX-License-Identifier: Apache-2.0
"""The rows of simulated fabrics, of computers and cables, and of subnet management.

goals.py lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.fabric import FabricRun
from benchmarks.goal import Better, Goal, Section
from benchmarks.opensm import OpenSm, OpenSmSweep
from verbena.measure.case import KIB, MIB, Unit

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


def insides() -> Iterator[Goal]:
    """An inside at each host costs a simulation at most three times the processor time."""
    names = {
        "whole": "flows of 1 MiB",
        "sends": "SENDs of 4 KiB",
        "writes": "WRITEs of 64 B, one at a time",
        "reads": "READs of 4 KiB",
    }
    for traffic, recorded in ((name, recorded) for recorded in (False, True) for name in names):
        arguments = (("traffic", traffic), ("recorded", recorded))

        def of(value: str, given: tuple[tuple[str, Any], ...] = arguments) -> FabricRun:
            label = f"{value} an inside"
            return FabricRun("inside", value, label, Unit.MICROSECONDS, given, (), 1e6)

        slices = ", slices recorded" if recorded else ""
        title = f"hosts with an inside, a packet's processor time: {names[traffic]}{slices}"
        quick = traffic == "reads"
        yield Goal(Section.FABRIC, title, of("with"), of("without"), 3.0, Better.LOWER, quick)


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


def in_simpy(name: str) -> FabricRun:
    needs = ("networkx", "simpy")
    return FabricRun("simpy", "hops", "SimPy", Unit.MILLIONS, (("name", name),), needs, 1e-6)


def simulated(name: str, value: str, unit: Unit, scale: float) -> FabricRun:
    return FabricRun("workload", value, "sim.World", unit, (("name", name),), scale=scale)
