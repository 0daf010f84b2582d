# SPDX-License-Identifier: Apache-2.0
"""Random worlds: fabrics, switches, adapters, insides, traffic and failures in any combination.

    python -m tests.sim.random_world FIRST LAST

runs the seeds from FIRST to before LAST and prints what came of each. Whatever a world is, its
books balance, what is to lose nothing loses nothing without a warning before, its clock goes on,
and a second run, by several threads, is equal to the byte.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from tests.sim.fabrics import GIGABIT, MICROSECOND
from verbena import fabrics
from verbena.sim import World, add_group, build, levels
from verbena.sim._world import STATES
from verbena.sim.inside import Inside, InsideCounters

STEPS = 12
EVENTS = 300_000  # after which a world is left alone
BLOCK = 64  # bytes, of credits


@dataclass
class Case:
    """A world, and what of it may lose packets."""

    world: World
    draw: Random
    mtu: int
    classes: list[dict[str, Any]]
    loses: bool = False
    groups: bool = False
    refused: list[str] = field(default_factory=list)
    insides: list[Inside] = field(default_factory=list)

    def flows(self, source: Any, target: Any, **given: Any) -> None:
        """Refusals are as good as flows, if they are ValueErrors."""
        try:
            self.world.add_flows(source, target, **given)
        except ValueError as error:
            self.refused.append(str(error))


def some(draw: Random, chance: float, **values: Any) -> dict[str, Any]:
    """One of each list, each with this chance."""
    return {name: draw.choice(those) for name, those in values.items() if draw.random() < chance}


def congestion(draw: Random) -> dict[str, Any] | None:
    kind = draw.choice([None, None, "dcqcn", "cct", "hpcc"])
    if kind == "dcqcn":
        return {"kind": kind, "set": draw.choice(["paper", "adapter"]), "notice_interval": 0}
    if kind == "cct":
        gaps = sorted(draw.random() * 20 for _ in range(draw.choice([1, 5, 127])))
        return {"kind": kind, "gaps": [0.0, *gaps], "timer": draw.choice([10**6, 10**9])}
    if kind == "hpcc":
        return {"kind": kind, "base_rtt": draw.choice([1, 10, 100]) * MICROSECOND}
    return None


def new_world(draw: Random, mtu: int, threads: int, has_insides: bool) -> World:
    """An inside computes three settings itself, so a world with insides has none of these."""
    tcp = some(
        draw, 0.3, mss=[64, min(mtu, 1460)], least_rto=[10**7, 10**9], ecn=[True], jitter=[0, 10**7]
    )
    number, control = draw.randrange(1000), congestion(draw)
    settings = some(
        draw,
        0.4,
        framing=["ethernet", "infiniband", "bare"],
        timeout=[0, 1, 8, 10],
        retry_count=[0, 1, 3],
        rd_atomic=[1, 128],
        window=[1, 4096],
        ack_bytes=[65536],
        burst=[64],
        notice_level=[None, 5],
        doorbell=[1000, MICROSECOND],
        bus_rate=[64 * GIGABIT, GIGABIT],
        receive_latency=[MICROSECOND],
        hop_limit=[1, 3, 64],
        recovery=["go-back-0"],
    )
    for name in ("doorbell", "bus_rate", "receive_latency") if has_insides else ():
        settings.pop(name, None)
    return World(number, threads=threads, mtu=mtu, congestion=control, tcp=tcp, **settings)


def switch_class(draw: Random, frame: int) -> dict[str, Any]:
    made: dict[str, Any] = {"flow": draw.choice(["lossy", "credits", "pauses"])}
    if made["flow"] == "lossy":
        made |= some(draw, 0.5, alpha=[0.01, 0.5, 4.0])
    elif made["flow"] == "credits":
        made["room"] = draw.choice([frame + BLOCK, 16 << 10, 256 << 10])
    else:
        stop = draw.choice([1, 8 << 10, 64 << 10])
        made |= draw.choice([{"stop": stop, "go": draw.choice([0, stop])}, {"alpha": 0.5}])
        made["spare"] = draw.choice([0, 1 << 20])
    return made | some(draw, 0.3, mark=[(0, 1000, 0.0), (1000, 50_000, 0.01), (0, 1, 1.0)])


def switch(draw: Random, classes: list[dict[str, Any]]) -> dict[str, Any]:
    """What all switches of the world are; without classes they have one queue for each port."""
    made = some(
        draw,
        0.3,
        buffer=[1, 5000, 64 << 10, 16 << 20],
        fecn=[1, 10_000],
        fecn_at=["root", "output"],
        cut_through=[64],
        balance=["packet"],
        floods=[True],
    )
    if not classes:
        return made | some(draw, 0.4, mark=[(1000, 20_000, 0.5)])
    made["lanes"] = classes
    made |= some(
        draw,
        0.2,
        turns=["arrival"],
        management=[100, 1 << 16],
        lifetime=[MICROSECOND, 100 * MICROSECOND],
        remembers=[True],
        fecn_at=["input"],
        watchdog=[{"detect": 10 * MICROSECOND}, {"detect": 200 * MICROSECOND, "action": "forward"}],
    )
    if draw.random() < 0.3:
        made["high"] = [(draw.randrange(len(classes)), draw.randrange(1, 255))]
        made["high_limit"] = draw.choice([0, 1, 255])
    return made


def cabled(draw: Random) -> fabrics.Fabric:
    wiring: Any = {
        "rate": draw.choice(["1GbE", "10GbE", "100GbE", "HDR", "NDR"]),
        "delay_ns": draw.choice([0, 1, 1000, 50_000]),
    }
    kinds = [
        lambda: fabrics.one_switch(draw.choice([2, 5]), **wiring),
        lambda: fabrics.diamond(2, 3, **wiring),
        lambda: fabrics.chain(3, 2, **wiring),
        lambda: fabrics.ring(5, 2, **wiring),
        lambda: fabrics.torus((3, 3), 1, **wiring),
        lambda: fabrics.fat_tree(4, **wiring),
        lambda: fabrics.dragonfly(1, 2, 2, **wiring),
    ]
    return draw.choice(kinds)()


def routed(draw: Random, fabric: fabrics.Fabric) -> fabrics.Routes:
    engines = ["minhop", "ecmp", "updn", "dfsssp"]
    if fabric.name.startswith("dragonfly"):
        engines += ["valiant", "ugal"]
    return fabrics.route(fabric, draw.choice(engines))


def accidents(case: Case) -> None:
    """Cables that are pulled, and adapters that break."""
    draw, world = case.draw, case.world
    cables = world.links()[["node", "port"]]
    for node, port in draw.sample(cables.tolist(), draw.choice([0, 0, 1, 2])):
        down = draw.randrange(300 * MICROSECOND)
        world.set_link(node, port, False, down)
        if draw.random() < 0.8:
            world.set_link(node, port, True, down + draw.randrange(1, 200 * MICROSECOND))
    if case.classes and draw.random() < 0.15:
        end = draw.choice([None, 500 * MICROSECOND])
        try:
            world.pause_storm(0, draw.randrange(200 * MICROSECOND), end)
        except ValueError as error:
            case.refused.append(str(error))


def with_insides(case: Case, draw: Random) -> None:
    """Some hosts or all of them have an inside."""
    share = draw.choice([0.2, 1.0])
    for host in range(case.world.hosts):
        if draw.random() < share:
            case.insides.append(case.world.inside(host, **inside(draw)))


def inside(draw: Random) -> dict[str, Any]:
    """The keywords of one host's inside."""
    pcie = some(
        draw, 0.5, generation=[1, 5], lanes=[1, 16], mps=[128, 4096], mrrs=[128, 4096], tags=[1, 64]
    )
    hca = some(
        draw, 0.4, blueflame=[False], inline=[64, 1024], cqe=[32, 128], batch=[4, 64], mtt=[1, 256]
    )
    made: dict[str, Any] = {"pcie": pcie, "hca": hca}
    made["cpu"] = some(draw, 0.5, ghz=[0.1, 3.0], cores=[1, 2, 7], post=[0, 10_000], poll=[0])
    made["cache"] = some(draw, 0.4, ddio=[False], buffer=[1, 1 << 24])
    if draw.random() < 0.4:
        made["iommu"] = {"entries": draw.choice([1, 64]), **some(draw, 0.5, walks=[4], miss=[0])}
    if draw.random() < 0.5:
        made["interrupts"] = some(draw, 0.6, time=[0, 8_000_000], packets=[1, 16])
    return made | some(draw, 0.2, slices=[0, 1000])


def traffic(case: Case, way: fabrics.Routes) -> None:
    draw, hosts = case.draw, case.world.hosts
    count = draw.choice([1, 4, 20])
    source = np.array([draw.randrange(hosts) for _ in range(count)])
    target = (source + [draw.randrange(1, hosts) for _ in range(count)]) % hosts
    transport = draw.choice(["rc", "rc", "uc", "ud", "tcp"])
    given = some(
        draw,
        0.3,
        start=[1000, 100 * MICROSECOND],
        reserve=[GIGABIT, 10 * GIGABIT],
        reserve_buffer=[2 * case.mtu + 200, 64 << 10],
        depth=[2, 64],
        message=[1000, case.mtu, 65_536],
        management=[True],
        back_level=[draw.randrange(16)],
    )
    if transport == "rc":
        given |= some(draw, 0.7, operation=["write", "read", "send"])
    if transport == "tcp":
        given |= some(draw, 0.7, control=["reno", "cubic", "dctcp"])
    if count > 1 and draw.random() < 0.2:
        given["after"] = [[i, i + 1] for i in range(count - 1)]
    given.setdefault("level", levels(way, source, target))
    case.loses |= "management" in given
    size = draw.choice([1, 100, 3 * case.mtu + 1, 1 << 16, 1 << 20])
    case.flows(source, target, size=size, transport=transport, **given)


def news(case: Case, fabric: fabrics.Fabric) -> None:
    """Datagrams to a multicast group of all hosts."""
    try:
        group = add_group(case.world, fabric, fabric.hosts)
    except ValueError as error:
        case.refused.append(str(error))
        return
    case.groups = True
    case.flows(0, group, size=10_000, transport="ud", multicast=True)


def make(seed: int, threads: int = 1) -> Case:
    draw = Random(seed)
    mtu, fabric = draw.choice([256, 1024, 4096]), cabled(draw)
    way = routed(draw, fabric)
    count = draw.choice([0, 1, 3])
    count = max(count, way.lanes.lanes) if count else 0
    insides = Random(f"{seed} inside")  # its own, so that worlds without are the ones they were
    has_insides = insides.random() < 0.3
    world = new_world(draw, mtu, threads, has_insides)
    classes = [switch_class(draw, world.frame_bytes) for _ in range(count)]
    case = Case(world, draw, mtu, classes)
    case.loses = any(each["flow"] == "lossy" for each in classes)
    errors = draw.choice([0.0] * 8 + [1e-9, 1e-5])
    credits = bool(classes) and all(each["flow"] == "credits" for each in classes)
    extender = draw.choice([0, 0, 1 << 20]) if credits else 0
    build(world, way, switch(draw, classes), errors, extender)
    if has_insides:
        with_insides(case, insides)
    for _ in range(draw.choice([1, 3, 6])):
        traffic(case, way)
    if draw.random() < 0.2:
        news(case, fabric)
    accidents(case)
    if draw.random() < 0.3:
        case.world.sample(10 * MICROSECOND)
    return case


def examine(case: Case, warned: str, end: str) -> None:
    """What holds of any world at any time."""
    world = case.world
    wrong = world.check(at_rest=end == "done")
    links, flows, packets = world.links(), world.flows(), world.packets
    assert wrong is None or ("headroom" in wrong and "spare" in warned), wrong
    assert (links["busy"] <= world.now).all()
    assert (links["stalled"] <= world.now).all()
    if not case.groups:  # there each member's bytes count
        add_up(flows, int(links["rate"].max()))
    assert packets["sent"] >= packets["delivered"] + packets["dropped"]
    for host in case.insides:
        balances(host.counters(), at_rest=end == "done")
    if case.classes and not case.loses:
        assert not links["dropped_full"].any(), "a class without loss lost some"


def balances(seen: InsideCounters, at_rest: bool) -> None:
    """Nothing is lost inside a host: the laws of row C31, at any time."""
    for link in (seen.up, seen.down):
        assert link.bytes == sum(size for _, size in link.tlps.values())
    assert min(seen.busy, seen.spinning, seen.idle) >= 0
    assert seen.interrupts + seen.merged <= seen.completions
    assert not at_rest or seen.interrupts + seen.merged in (0, seen.completions)


def add_up(flows: Any, fastest: int) -> None:
    """What is delivered and lost is sent, all of it at the end; no flow is done before its bytes
    can have crossed the fastest link."""
    sent = flows["done"] + flows["lost"]
    done, incomplete = (flows["state"] == STATES.index(name) for name in ("done", "incomplete"))
    assert (sent <= flows["bytes"]).all()
    assert (sent == flows["bytes"])[done | incomplete].all()
    assert (flows["lost"] == 0)[done].all()
    assert (flows["lost"] > 0)[incomplete].all()
    took = (flows["finish"] - flows["start"])[done]
    assert (took.astype(float) * fastest >= flows["bytes"][done] * 7.99e12).all()


def run(seed: int, threads: int = 1) -> tuple[bytes, bytes, bytes, int, str]:
    case = make(seed, threads)
    world, end = case.world, "time"
    warned = " ".join(str(line) for line in world.advice())
    for _ in range(STEPS):
        end = world.run(until=world.now + case.draw.choice([10, 100, 1000]) * MICROSECOND)
        examine(case, warned, end)
        if end != "time" or world.events > EVENTS:
            break
    counters = "".join(str(world.counters(host)) for host in range(world.hosts)).encode()
    counters += "".join(str(host.counters()) for host in case.insides).encode()
    blocked = str(world.blocked()).encode()
    return world.flows().tobytes(), world.links().tobytes(), counters + blocked, world.events, end


def main(first: int, last: int) -> None:
    for seed in range(first, last):
        print(seed, end=" ", flush=True)
        *measured, events, end = run(seed)
        *again, _, other_end = run(seed, threads=2 + seed % 3)
        assert [*measured, end] == [*again, other_end], "the second run differs"
        print(events, end, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
