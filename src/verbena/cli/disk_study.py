# SPDX-License-Identifier: Apache-2.0
"""`verbena disk study`: hosts and disks on a simulated fabric, and what limits them.

The hosts and the targets are verbena.nvmeof's own, and their packets are simulated. Disks and
processors are queues with service times. Beside that: the same disks without a network, and the
bounds that TCP has there, whose bytes are sent by simulated TCP.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from verbena import nvmeof
from verbena.nvmeof.load import Load, LoadResult, Pattern, measure

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = ["Study", "StudyRow", "run_study", "show_study"]

_NQN = "nqn.2026-01.org.verbena:study"
_DISK_BYTES = 16 << 20
_PS = 10**12
_TCP_BYTES = 64 << 20  # of all hosts: enough for TCP to find its rate


@dataclass(frozen=True)
class Study:
    """So many hosts, each of which reads one of the disks; times in seconds."""

    hosts: int = 4
    disks: int = 2
    rate: str = "25GbE"
    size: int = 4096
    depth: int = 32
    commands: int = 1000
    disk_seconds: float = 100e-6
    channels: int = 16
    processor_seconds: float = 5e-6
    tcp_processor_seconds: float = 20e-6

    def __post_init__(self) -> None:
        if not 1 <= self.disks <= 64 or not 1 <= self.hosts <= 64:
            raise ValueError("a study has 1 to 64 hosts, and as many disks")
        if self.disk_seconds <= 0:
            raise ValueError("a disk takes some time: --disk-us is more than 0")
        if min(self.processor_seconds, self.tcp_processor_seconds) < 0:
            raise ValueError("a service time is not negative")
        if self.channels < 1 or self.depth < 1 or self.commands < self.depth:
            raise ValueError("channels and depth are 1 at least, and commands at least the depth")


@dataclass(frozen=True)
class StudyRow:
    """A way to the disks: how fast it is, and how busy what it needs is, from 0 to 1."""

    name: str
    rate: float
    latency: float | None
    busy: dict[str, float]

    @property
    def limit(self) -> str:
        """What is busiest; the hosts, if nothing is."""
        name = max(self.busy, key=lambda each: self.busy[each])
        return name if self.busy[name] > 0.85 else "the hosts: a deeper queue would get more"


class DiskModel:
    """A disk of ``channels`` requests at a time, behind a processor that serves one command."""

    def __init__(self, study: Study, processor_seconds: float) -> None:
        memory = nvmeof.MemoryStore(_DISK_BYTES)
        self.disk = nvmeof.DelayedStore(memory, study.disk_seconds, study.channels)
        self.processor = nvmeof.DelayedStore(self.disk, processor_seconds)

    def busy(self, study: Study, seconds: float) -> tuple[float, float]:
        """Return how busy the disk and the processor were."""
        return (
            self.disk.busy_seconds / study.channels / seconds,
            self.processor.busy_seconds / seconds,
        )


def run_study(study: Study) -> list[StudyRow]:
    """Return the rows: local, RDMA, TCP."""
    return [run_local(study), run_rdma(study), run_tcp(study)]


def _fabric(study: Study) -> Fabric:
    from verbena import fabrics

    return fabrics.one_switch(study.disks + study.hosts, rate=study.rate, length_m=10)


# ---- the disks alone -----------------------------------------------------------------------------


def run_local(study: Study) -> StudyRow:
    """The hosts' requests at the disks themselves, without a network or its processor time."""
    from verbena import sim

    models: list[DiskModel] = []
    latencies: list[float] = []

    async def load(store: nvmeof.Store, number: int) -> None:
        loop = asyncio.get_running_loop()
        view = memoryview(bytearray(study.size))
        for _ in range(study.commands // study.depth):
            begun = loop.time()
            waiting = store.read(number * study.size % _DISK_BYTES, view)
            if waiting is not None:
                await waiting
            latencies.append(loop.time() - begun)

    async def program() -> float:
        models.extend(DiskModel(study, 0.0) for _ in range(study.disks))
        begun = asyncio.get_running_loop().time()
        loads = [
            load(models[host % study.disks].disk, slot)
            for host in range(study.hosts)
            for slot in range(study.depth)
        ]
        await asyncio.gather(*loads)
        return asyncio.get_running_loop().time() - begun

    seconds = sim.run({"h0": program}, _fabric(study)).returned["h0"]
    busy = max(each.busy(study, seconds)[0] for each in models)
    return StudyRow("local", len(latencies) / seconds, _median(latencies), {"the disk": busy})


def _median(latencies: list[float]) -> float:
    return sorted(latencies)[len(latencies) // 2]


# ---- RDMA ----------------------------------------------------------------------------------------


def run_rdma(study: Study) -> StudyRow:
    """Hosts and targets of verbena.nvmeof on the simulated fabric."""
    from verbena import sim

    models: list[DiskModel] = []
    spans: list[tuple[float, float]] = []

    async def target() -> None:
        model = nvmeof.TargetModel()
        subsystem = nvmeof.Subsystem(_NQN)
        disk = DiskModel(study, study.processor_seconds)
        models.append(disk)
        subsystem.add(disk.processor, 4096 if study.size % 4096 == 0 else 512)
        model.add(subsystem)
        async with nvmeof.Target(model) as serving:
            await serving.serve()

    def host(number: int) -> Callable[[], Coroutine[Any, Any, LoadResult]]:
        async def program() -> LoadResult:
            await asyncio.sleep(1e-3)  # the targets listen
            clock = asyncio.get_running_loop().time
            options = nvmeof.HostOptions(
                keep_alive=0.0, entries=max(2, study.depth + 1), loss_timeout=0.0
            )
            name = f"h{number % study.disks}"
            async with await nvmeof.connect(name, _NQN, options=options) as controller:
                await asyncio.sleep(max(0.0, 0.2 - clock()))  # all begin at once
                load = Load(
                    Pattern.RANDOM_READ,
                    study.size,
                    study.depth,
                    commands=study.commands,
                    seed=number,
                )
                begun = clock()
                result = await measure(controller.disks[1], load, clock)
                spans.append((begun, clock()))
                return result

        return program

    targets = {f"h{number}": target for number in range(study.disks)}
    hosts = {f"h{study.disks + number}": host(number) for number in range(study.hosts)}
    result = sim.run({**targets, **hosts}, _fabric(study), background=set(targets))
    results: list[LoadResult] = [result.returned[name] for name in hosts]
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    disk = max(each.busy(study, seconds)[0] for each in models)
    processor = max(each.busy(study, seconds)[1] for each in models)
    sending = float(max(result.world.links()["busy"])) / _PS
    busy = {
        "the disk": disk,
        "the processor": processor,
        "the fabric": sending / seconds,
    }
    latencies = [each for one in results for each in one.latencies]
    return StudyRow("RDMA", len(latencies) / seconds, _median(latencies), busy)


# ---- TCP -----------------------------------------------------------------------------------------


def run_tcp(study: Study) -> StudyRow:
    """The least of three bounds: the disks', the processors', and TCP's over the links."""
    from verbena import fabrics, sim

    world = sim.World()
    routes = fabrics.route(_fabric(study))
    sim.build(world, routes)
    size = _TCP_BYTES // study.hosts
    sources = [number % study.disks for number in range(study.hosts)]
    targets = [study.disks + number for number in range(study.hosts)]
    world.add_flows(sources, targets, size, transport="tcp")
    assert world.run() == "done"
    seconds = float(max(world.flows()["finish"])) / _PS
    used = min(study.disks, study.hosts)
    bounds = {
        "the disk": used * study.channels / study.disk_seconds if study.disk_seconds else None,
        "the processor": used / study.tcp_processor_seconds
        if study.tcp_processor_seconds
        else None,
        "the fabric": size * study.hosts / study.size / seconds,
    }
    alone = study.disk_seconds + study.tcp_processor_seconds
    by_hosts = study.hosts * study.depth / alone if alone else None
    rate = min(each for each in (*bounds.values(), by_hosts) if each is not None)
    busy = {name: rate / bound if bound else 0.0 for name, bound in bounds.items()}
    return StudyRow("TCP", rate, None, busy)


# ---- the command ---------------------------------------------------------------------------------


def add_study(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    size_of: Callable[[str], int],
) -> None:
    """Add the words of `verbena disk study`."""
    study = commands.add_parser(
        "study",
        help="simulate hosts and disks, and say what limits them",
        description="Simulate hosts that read disks over a fabric, each host one of the disks, in "
        "virtual time: by RDMA, by TCP (bounds), and the disks alone.",
    )
    known = Study()
    study.add_argument("--hosts", type=int, default=known.hosts, help="default: %(default)s")
    study.add_argument("--disks", type=int, default=known.disks, help="default: %(default)s")
    study.add_argument("--rate", default=known.rate, help="of a link; default: %(default)s")
    study.add_argument("--size", type=size_of, default=known.size, help="of a read; default: 4k")
    study.add_argument("--depth", type=int, default=known.depth, help="default: %(default)s")
    study.add_argument(
        "--commands", type=int, default=known.commands, help="of a host; default: %(default)s"
    )
    study.add_argument(
        "--disk-us", type=float, default=100.0, help="that the disk takes; default: %(default)s"
    )
    study.add_argument(
        "--channels", type=int, default=known.channels, help="reads at a time; default: %(default)s"
    )
    study.add_argument(
        "--processor-us", type=float, default=5.0,
        help="of the target's processor for a command by RDMA; default: %(default)s",
    )  # fmt: skip
    study.add_argument(
        "--tcp-processor-us", type=float, default=20.0,
        help="and by TCP; default: %(default)s",
    )  # fmt: skip


def study_of(options: argparse.Namespace) -> Study:
    """Return the study of the command's words. Raises ValueError."""
    return replace(
        Study(),
        hosts=options.hosts,
        disks=options.disks,
        rate=options.rate,
        size=options.size,
        depth=options.depth,
        commands=options.commands,
        disk_seconds=options.disk_us / 1e6,
        channels=options.channels,
        processor_seconds=options.processor_us / 1e6,
        tcp_processor_seconds=options.tcp_processor_us / 1e6,
    )


def show_study(rows: list[StudyRow]) -> str:
    """Return the rows as a table."""
    lines = ["way      reads/s  half within   disk  processor  fabric  limited by"]
    for row in rows:
        shares = (
            f"{row.busy[name]:.0%}" if name in row.busy else "-"
            for name in ("the disk", "the processor", "the fabric")
        )
        disk, processor, fabric = shares
        half = "-" if row.latency is None else f"{row.latency * 1e6:.0f} us"
        lines.append(
            f"{row.name:<6}{row.rate:>10,.0f}{half:>13}{disk:>7}{processor:>11}{fabric:>8}"
            f"  {row.limit}"
        )
    return "\n".join(lines)
