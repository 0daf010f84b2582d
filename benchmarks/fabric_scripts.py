# SPDX-License-Identifier: Apache-2.0
"""Workloads of the simulated fabric: python -m benchmarks.fabric_scripts NAME ARGUMENTS

W1: 64 hosts send to one through one switch. W2, W3, W4: a random permutation on a k-ary fat-tree,
k = 8, 16, 32, with d-mod-k routes. 1 MiB for each flow, 100 Gb/s, 1 µs a link, MTU 4096. A hop is
one packet, data or acknowledgement, over one link. Programs are in fabric_programs. ARGUMENTS is
a JSON object; the result is printed as one line of JSON. W2P and W3P are W2 and W3 as people run
them: framed as RoCE v2, with equal-cost routes, pauses, marks, and DCQCN.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks import fabric_programs
from verbena import fabrics, sim
from verbena.manage.agents import MadPacket, subnet_of_fabric
from verbena.manage.sm import SmSettings, SubnetManager
from verbena.measure.case import KIB, MIB

ARITY = {"W2": 8, "W3": 16, "W4": 32}
LOSSLESS = {"flow": "pauses", "stop": 512 * KIB, "go": 384 * KIB, "spare": 256 * KIB}
PAUSES = {"lanes": [{**LOSSLESS, "mark": (100 * KIB, 400 * KIB, 0.2)}], "buffer": 32 * MIB}
DCQCN = {"kind": "dcqcn", "set": "adapter"}
# Fat-trees of three tiers: children and parents of each.
LARGE = {65536: ((32, 32, 64), (1, 32, 32)), 131072: ((32, 64, 64), (1, 32, 32))}
# The exact time of W1: 64 MiB, one more packet, four delays and two acknowledgements.
W1_END = 64 * MIB * 80 + 4096 * 80 + 4 * 1_000_000 + 2 * 64 * 80
PACKETS = 1_000_000
CONNECTIONS, PAIRS_OF_HOSTS = 100_000, 50


def prepared(name: str) -> tuple[fabrics.Routes, fabrics.Workload]:
    """The routes and flows of a workload."""
    if name == "W1":
        fabric = fabrics.one_switch(65, rate="100GbE", delay_ns=1000)
        return fabrics.route(fabric, "minhop"), fabrics.incast(64, MIB)
    arity = ARITY[name.removesuffix("P")]
    fabric = fabrics.fat_tree(arity, rate="100GbE", delay_ns=1000)
    engine = "ecmp" if name.endswith("P") else "ftree"
    return fabrics.route(fabric, engine), fabrics.permutation(arity**3 // 4, MIB)


def filled(routes: fabrics.Routes, work: fabrics.Workload) -> sim.World:
    """A world with these flows; with pauses and DCQCN where routes have equal-cost sets."""
    if routes.groups is None:
        world = sim.World(framing="bare")
        sim.build(world, routes)
    else:
        world = sim.World(framing="ethernet", congestion=DCQCN)
        sim.build(world, routes, switch=PAUSES)
    flows = work.flows
    world.add_flows(flows["src"], flows["dst"], flows["bytes"], flows["start"])
    return world


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def workload(seconds: float, name: str) -> dict[str, float]:
    """Repeat the workload for ``seconds``; return hops per second, seconds of set-up with routing,
    and bytes for each host.

    Raises RuntimeError when a run has a wrong result.
    """
    start = time.perf_counter()
    routes, work = prepared(name)
    gc.collect()
    before = resident()
    world = filled(routes, work)
    set_up = time.perf_counter() - start
    host_bytes = (resident() - before) / world.hosts
    hops, spent = 0, 0.0
    while not spent or spent < seconds:
        if spent:
            world = filled(routes, work)
        start = time.perf_counter()
        end = world.run()
        spent += time.perf_counter() - start
        hops += int(world.links()["packets"].sum())
        must_be_right(name, world, end)
    return {"hops": hops / spent, "set_up": set_up, "host_bytes": host_bytes}


def must_be_right(name: str, world: sim.World, end: str) -> None:
    wrong = world.check(at_rest=True)
    last = int(world.flows()["finish"].max())
    if end != "done" or wrong or (name == "W1" and last != W1_END):
        raise RuntimeError(f"{name} ended with {end!r} at {last} ps: {wrong}")


def large(seconds: float, hosts: int) -> dict[str, float]:
    """Seconds until a fat-tree of so many hosts has its routes and runs, and bytes of memory.

    Raises RuntimeError when flows between its ends do not arrive.
    """
    del seconds
    start = time.perf_counter()
    fabric = fabrics.xgft(*LARGE[hosts], rate="100GbE", delay_ns=1000)
    world = sim.World(framing="ethernet")
    sim.build(world, fabrics.route(fabric, "ftree"))
    world.add_flows([0, hosts - 1, hosts // 2], [hosts - 1, 1, hosts // 3], MIB)
    end = world.run()
    if world.hosts != hosts or end != "done":
        raise RuntimeError(f"{world.hosts} hosts ended with {end!r}")
    return {"set_up": time.perf_counter() - start, "memory": peak()}


def peak() -> int:
    """The most bytes of this process that were in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def simpy(seconds: float, name: str) -> dict[str, float]:
    """Hops a second of the same workload in SimPy."""
    from benchmarks import simpy_model

    del seconds  # one run takes longer than that
    routes, work = prepared(name)
    model = simpy_model.Model(routes, work)
    start = time.perf_counter()
    model.run()
    spent = time.perf_counter() - start
    last = max(model.finish)
    if name == "W1" and last != W1_END:
        raise RuntimeError(f"the model of W1 ended at {last} ps, and not at {W1_END}")
    return {"hops": model.hops / spent}


def packets(seconds: float) -> dict[str, float]:
    """Bytes for each of a million packets that wait in one queue."""
    del seconds
    world = sim.World(framing="bare", mtu=256, window=2**32 - 1, timeout=0)
    switch = world.add_switch(2)
    world.connect(world.add_host(), 0, switch, 0, rate=10**12, delay=0)
    world.connect(world.add_host(), 0, switch, 1, rate=10**9, delay=0)
    world.set_routes(switch, [0, 1])
    world.add_flows(0, 1, 256 * 10 * PACKETS)
    world.run(until=10**6)
    before, there = resident(), 0
    while there < PACKETS:
        world.run(until=world.now + 10**7)
        count = world.packets
        there = count["sent"] - count["delivered"] - count["dropped"]
    # In whole bytes: resident memory is counted in pages, and Python's own varies.
    return {"packet_bytes": round((resident() - before) / there)}


def connections(seconds: float) -> dict[str, float]:
    """Bytes for each queue pair of 100,000 connections, with everything that comes with them."""
    del seconds
    hosts = 2 * PAIRS_OF_HOSTS
    routes = fabrics.route(fabrics.one_switch(hosts, rate="100GbE", delay_ns=1000), "minhop")
    world = sim.World(framing="bare", timeout=0)
    sim.build(world, routes)
    source = np.arange(CONNECTIONS) % PAIRS_OF_HOSTS
    before = resident()
    world.add_flows(source, source + PAIRS_OF_HOSTS, MIB)
    world.run(until=1)
    return {"qp_bytes": round((resident() - before) / (2 * CONNECTIONS))}


def programs(seconds: float) -> dict[str, float]:
    """Messages a second between Python programs, and seconds for a callback: medians of runs."""
    values = {}
    for measure in (fabric_programs.ping_pong, fabric_programs.stream, fabric_programs.callbacks):
        found: list[float] = []
        end = time.perf_counter() + seconds
        while not found or time.perf_counter() < end:
            found.append(measure())
        values[measure.__name__] = statistics.median(found)
    return values


def subnet_up(seconds: float, radix: int) -> dict[str, float]:
    """Processor time in which our manager brings up clos2(radix) in memory, agents included."""
    del seconds
    subnet = subnet_of_fabric(fabrics.clos2(radix))
    manager = SubnetManager(subnet.node("h0").ports[1].guid, SmSettings(engine="minhop"))

    def send(packets: list[MadPacket]) -> None:
        for packet in packets:
            subnet.inject("h0", packet)

    subnet.attach("h0", lambda packet: send(manager.receive(packet, subnet.now)))
    gc.collect()
    begin = time.process_time()
    send(manager.start(subnet.now))
    taken = time.process_time() - begin
    assert manager.sweeps == 1
    assert not manager.problems
    return {"subnet_up": taken}


SCRIPTS: dict[str, Callable[..., dict[str, float]]] = {
    function.__name__: function
    for function in (workload, large, simpy, packets, connections, programs, subnet_up)
}


def main(name: str, arguments: str) -> None:
    print(json.dumps(SCRIPTS[name](**json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
