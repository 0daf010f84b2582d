# SPDX-License-Identifier: Apache-2.0
"""The inside of simulated hosts: its settings with their sources, and what a run has cost.

``World.inside`` and the table [inside] of scenarios read keywords with these structures and hand
the parameters, in ps and bytes, to the core once (src/native/sim/inside.h), which charges them for
each request, packet and completion. ``World.inside`` returns an ``Inside``, which reads what it has
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, field
from numpy.typing import NDArray

from verbena.host.errors import HostError
from verbena.host.pcie import Pcie
from verbena.sim.kernel_settings import KERNEL, KernelSettings, printed_kernel
from verbena.sim.settings import SIZE, TIME, Settings

if TYPE_CHECKING:
    from verbena.host.cost_list import Use
    from verbena.host.used_costs import UsedCosts

__all__ = [
    "COSTS", "NO_FLOW", "SOURCES", "TLPS", "CpuSettings", "HcaSettings", "Inside", "InsideCounters",
    "InsideSettings", "InterruptSettings", "IommuSettings", "LinkCounters", "MemorySettings",
    "PcieSettings", "parameters", "printed_costs",
]  # fmt: skip

COSTS = ("post", "doorbell", "poll", "interrupt", "wakeup", "syscall")
TLPS = ("write", "read", "data", "msi")
NO_FLOW = 2**32 - 1  # of slices: a program's, or its sockets'
_Cycles = Annotated[int, Meta(ge=0, le=10**9)]
_Some = Annotated[int, Meta(ge=1, le=2**20)]
_Most = Annotated[int, SIZE, Meta(ge=1, le=2**40)]
_Page = Annotated[int, SIZE, Meta(ge=1, le=2**31)]
_Delay = Annotated[int, TIME, Meta(ge=0, le=10**12)]
_MOST_COSTS = 200  # names of programs' own: a slice has a byte for what it shows
_LONGEST = 10**15  # ps that a program computes at a time


def checked_charge(name: str, us: float | None, cycles: int | None) -> float:
    """Return the us or cycles that a program charges, which are right for any host, with an inside
    or without. Raises ValueError and TypeError."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"charge: the first argument is the name of a cost, not {name!r}")
    if name in (*COSTS, "spin"):
        raise ValueError(f"charge: {name!r} is a cost of the adapter's driver: take another name")
    if name in KERNEL:
        raise ValueError(f"charge: {name!r} is a cost of the host's kernel: take another name")
    given = us if cycles is None else cycles
    if (us is None) == (cycles is None) or given is None:
        raise TypeError("charge: give either us or cycles")
    if not isinstance(given, int | float):
        raise TypeError(f"charge: {given!r} is no number of us or cycles")
    if not given >= 0 or given == inf or (us is not None and us * 10**6 > _LONGEST):
        raise ValueError(f"charge: {given} is no time from 0 to 1000 s")
    return given


_SHIFT = 20  # the core counts the time of a byte and of a cycle in units of 2**-20 ps


class CpuSettings(Settings):
    """Cores, their clock, and cycles for each thing that a program does."""

    ghz: Annotated[float, Meta(gt=0, le=100)] = 3.0
    cores: Annotated[int, Meta(ge=1, le=240)] = 1
    post: _Cycles = 80
    doorbell: _Cycles = 100
    poll: _Cycles = 60
    interrupt: _Cycles = 1500
    wakeup: _Cycles = 4500
    syscall: _Cycles = 1000


class PcieSettings(Settings):
    """The link between root complex and adapter: the fields of ``verbena.host.Pcie``."""

    generation: Literal[1, 2, 3, 4, 5] = 3
    lanes: Literal[1, 2, 4, 8, 16] = 8
    mps: Annotated[Literal[128, 256, 512, 1024, 2048, 4096], SIZE] = 256
    mrrs: Annotated[Literal[128, 256, 512, 1024, 2048, 4096], SIZE] = 512
    round_trip: _Delay = 900_000
    tags: _Some = 64


class IommuSettings(Settings):
    """Entries of the IOTLB, 0: there is no IOMMU; ps of a walk, and walks at a time."""

    entries: Annotated[int, Meta(ge=0, le=2**20)] = 0
    page: _Page = 4096
    miss: _Delay = 330_000
    walks: Annotated[int, Meta(ge=1, le=1024)] = 1


class MemorySettings(Settings):
    """Where the adapter's reads are answered, and the memory that a connection's data go
    through."""

    ddio: bool = True
    beyond: _Delay = 70_000
    buffer: _Most = 1 << 20


class InterruptSettings(Settings):
    """A moderated interrupt comes ``time`` after the first completion, or with the last of
    ``packets``. ``time`` 0: each completion raises one, unless its process runs already."""

    time: _Delay = 0
    packets: Annotated[int, Meta(ge=1, le=2**31)] = 2**31


class HcaSettings(Settings):
    """How requests reach the adapter. ``mtt`` 0: it has all translations."""

    blueflame: bool = True
    inline: Annotated[int, SIZE, Meta(ge=0, le=1024)] = 0
    cqe: Annotated[Literal[32, 64, 128], SIZE] = 64
    batch: Annotated[int, Meta(ge=1, le=64)] = 1
    mtt: Annotated[int, Meta(ge=0, le=2**22)] = 0
    page: _Page = 4096


class InsideSettings(Settings):
    """The keywords of ``World.inside``, and the keys of [inside].

    ``interrupts`` None: cores poll their completion queues. ``slices``: how many slices of time are
    recorded for ``timeline``.
    """

    cpu: CpuSettings = field(default_factory=CpuSettings)
    pcie: PcieSettings = field(default_factory=PcieSettings)
    iommu: IommuSettings = field(default_factory=IommuSettings)
    cache: MemorySettings = field(default_factory=MemorySettings)
    interrupts: InterruptSettings | None = None
    hca: HcaSettings = field(default_factory=HcaSettings)
    kernel: KernelSettings = field(default_factory=KernelSettings)
    slices: Annotated[int, Meta(ge=0, le=2**28)] = 0

    def __post_init__(self) -> None:
        for name in ("iommu", "hca"):
            page = getattr(self, name).page
            if page < 4096 or page & page - 1:
                raise ValueError(
                    f"{name}.page is {page}: a page is a power of two from 4096 bytes on"
                )

    @property
    def link(self) -> Pcie:
        """The link as ``verbena.host`` computes with it."""
        of = self.pcie
        return Pcie(of.generation, of.lanes, of.mps, of.mrrs, of.round_trip / 1000, of.tags)


def from_keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords in which a ``Pcie`` and times in words are as the structures take them.

    Raises ValueError.
    """
    from verbena.sim.units import bytes_of, picoseconds

    made = {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()
    }
    link = made.get("pcie")
    if isinstance(link, Pcie):
        made["pcie"] = {
            **{
                name: getattr(link, name) for name in ("generation", "lanes", "mps", "mrrs", "tags")
            },
            "round_trip": round(link.round_trip_ns * 1000),
        }
    for name, keys, read in (
        ("pcie", ("round_trip",), picoseconds),
        ("iommu", ("miss",), picoseconds),
        ("cache", ("beyond",), picoseconds),
        ("interrupts", ("time",), picoseconds),
        ("cache", ("buffer",), bytes_of),
        ("iommu", ("page",), bytes_of),
        ("hca", ("page", "inline"), bytes_of),
    ):
        part = made.get(name)
        if not isinstance(part, dict):
            continue
        for key in keys:
            if isinstance(part.get(key), str):
                try:
                    part[key] = read(part[key])
                except ValueError as error:
                    raise ValueError(f"{name}.{key} {error}") from None
    return made


def parameters(given: InsideSettings) -> dict[str, Any]:
    """Return the fields of ``struct vb_inside_config``. Raises ValueError."""
    cpu, pcie, iommu, hca = given.cpu, given.pcie, given.iommu, given.hca
    try:
        usable = given.link.usable_gbps
    except HostError as error:
        raise ValueError(f"pcie: {error}") from None
    moderated = given.interrupts or InterruptSettings()
    return {
        "byte_time": round(8000 / usable * 2**_SHIFT),
        "round_trip": pcie.round_trip,
        "memory": 0 if given.cache.ddio else given.cache.beyond,
        "cycle": round(1000 / cpu.ghz * 2**_SHIFT),
        "mps": pcie.mps,
        "mrrs": pcie.mrrs,
        "tags": pcie.tags,
        "cores": cpu.cores,
        "cost": [getattr(cpu, name) for name in COSTS],
        "inline_most": hca.inline,
        "cqe": hca.cqe,
        "batch": hca.batch,
        "iommu_entries": iommu.entries,
        "iommu_page": iommu.page,
        "iommu_walks": iommu.walks,
        "iommu_miss": iommu.miss,
        "mtt_entries": hca.mtt,
        "mtt_page": hca.page,
        "interrupt_time": moderated.time,
        "interrupt_packets": moderated.packets,
        "buffer": given.cache.buffer,
        "slices": given.slices,
        "blueflame": hca.blueflame,
        "interrupts": given.interrupts is not None,
    }


# ---- what it has cost ---------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkCounters:
    """One direction of a PCIe link. ``busy``: ps. ``tlps`` has the transactions and their bytes by
    kind: "write", "read" (requests), "data" (completions of reads), "msi"."""

    bytes: int
    busy: int
    tlps: Mapping[str, tuple[int, int]]

    @property
    def transactions(self) -> int:
        return sum(count for count, _ in self.tlps.values())


@dataclass
class OwnCost:
    """What programs have charged under a name of theirs, or the kernel for their sockets.

    ``number``: its ``what`` in slices. ``each``: cycles of a cost of the kernel; None: a program's.
    ``merged``: frames that raised no interrupt of their own, beside the name "interrupt".
    """

    number: int
    times: int = 0
    cycles: int = 0
    each: float | None = None
    merged: int = 0

    def add(self, times: int) -> float:
        """Count a cost of the kernel so many times. Returns its cycles."""
        assert self.each is not None
        self.times += times
        self.cycles = round(self.times * self.each)
        return times * self.each


@dataclass(frozen=True)
class InsideCounters:
    """What the inside of one host has done until now.

    ``elapsed``: ps. ``cycles``: by the name of the cost, of all cores, with the names of programs
    (``Inside.charge``); "spin" is polling that found nothing. ``busy``, ``idle``, ``spinning``:
    ps of all cores; busy + spinning + idle is elapsed times cores. ``up`` leads to memory and
    processor, ``down`` to the adapter. ``copied``: bytes that the kernel copied for sockets.
    ``headers``: bytes of its frames' headers that the adapter has read from memory, and written to
    it; ``fetched`` and ``placed`` are those of payload.
    """

    elapsed: int
    cores: int
    cycles: Mapping[str, int]
    busy: int
    spinning: int
    up: LinkCounters
    down: LinkCounters
    requests: int
    doorbells: int
    blueflames: int
    inlined: int
    fetched: int
    placed: int
    completions: int
    interrupts: int
    merged: int
    iotlb: tuple[int, int]
    mtt: tuple[int, int]
    copied: int = 0
    headers: tuple[int, int] = (0, 0)

    @property
    def idle(self) -> int:
        return self.elapsed * self.cores - self.busy - self.spinning


def counted(
    raw: Mapping[str, Any], given: InsideSettings, own: Mapping[str, OwnCost], elapsed: int
) -> InsideCounters:
    """Return what the core has counted until ``elapsed`` ps as InsideCounters."""
    cpu = given.cpu
    busy = sum(done - max(0, free - elapsed) for done, free, _ in raw["core"])
    spinning = sum(spun for *_, spun in raw["core"])
    cycles = {
        name: count * getattr(cpu, name) for name, count in zip(COSTS, raw["cost"], strict=True)
    }
    for name, cost in own.items():
        cycles[name] = cycles.get(name, 0) + cost.cycles
    raised = own.get("interrupt", OwnCost(0))
    counts = dict(raw["counters"])
    counts["interrupts"] += raised.times
    counts["merged"] += raised.merged
    links = {
        name: LinkCounters(
            raw[name]["bytes"], raw[name]["busy"], dict(zip(TLPS, raw[name]["tlp"], strict=True))
        )
        for name in ("up", "down")
    }
    return InsideCounters(
        elapsed,
        cpu.cores,
        {
            **cycles,
            "spin": round(spinning * cpu.ghz / 1000),
        },
        busy,
        spinning,
        links["up"],
        links["down"],
        **counts,
        headers=raw["headers"],
        iotlb=raw["iotlb"],
        mtt=raw["mtt"],
        copied=sum(own[name].times for name in ("copy_l3", "copy_memory") if name in own),
    )


_MEMORY = "order of magnitude, from memory"
SOURCES = {
    "pcie": "headers, completions and the usable rate: the model of pcie-bench (SIGCOMM 2018)",
    "pcie.round_trip": "pcie-bench, at 128 B, by a reader's notes; machines differ tenfold",
    "cache.beyond": "a read gains 54 to 75 ns in the processor's cache (pcie-bench)",
    "iommu.miss": "334 ns in the measurements of pcie-bench",
    "cpu.syscall": "630 to 730 cycles of user and kernel were published in 2018, 250 to 500 ns "
    "later; with mitigations",
    "cpu.interrupt": _MEMORY,
    "cpu.wakeup": f"1.5 us at 3 GHz: {_MEMORY}",
    "cpu.post": f"60 to 100 cycles: {_MEMORY}",
    "cpu.doorbell": f"a posted store: {_MEMORY}",
    "cpu.poll": _MEMORY,
    "hca": "sizes of requests and completions as in Linux' driver mlx5",
}


def printed_costs(given: InsideSettings) -> str:
    """Return the costs that are used as lines, each with its source."""
    lines = []
    for part in ("cpu", "pcie", "iommu", "cache", "interrupts", "hca"):
        table = getattr(given, part)
        for name in table.__struct_fields__ if table is not None else ():
            key = f"{part}.{name}"
            source = SOURCES.get(key, SOURCES.get(part, ""))
            lines.append(f"{key:<22} {getattr(table, name)!s:<12} {source}".rstrip())
    return "\n".join(lines)


class Inside:
    """The inside of one simulated host, which ``World.inside`` returns. ``host``: its number."""

    def __init__(
        self,
        host: int,
        settings: InsideSettings,
        own: dict[str, OwnCost],
        raw: Callable[[], tuple[int, Mapping[str, Any]]],
        slices: Callable[[], NDArray[Any]],
        compute: Callable[[int, int, int], int],
    ) -> None:
        self.host = host
        self.settings = settings
        self._own = own
        self._raw = raw
        self._slices = slices
        self._compute = compute

    @property
    def costs(self) -> tuple[str, ...]:
        """COSTS, and behind them those of the kernel and of programs, in the order of their use."""
        return (*COSTS, *(name for name in self._own if name not in COSTS))

    def charge(
        self, name: str, *, us: float | None = None, cycles: int | None = None, core: int = 0
    ) -> int:
        """Let a core work for a program, behind what it has to do. Returns the ps until the end.

        ``name``: of the cost, which counters and slices show. ``us`` or ``cycles``: how long. The
        world is not running. ``verbena.sim.charge`` calls it and waits. Raises ValueError and
        TypeError.
        """
        took = self._time_of(name, us, cycles)
        cores = self.settings.cpu.cores
        if not isinstance(core, int) or not 0 <= core < cores:
            raise ValueError(
                f"charge: core is {core!r}, and h{self.host} has cores 0 to {cores - 1}"
            )
        own = self._own.setdefault(name, OwnCost(len(self.costs)))
        own.times += 1
        own.cycles += round(took * self.settings.cpu.ghz / 1000)
        return self._compute(core, own.number, took)

    def spend(self, name: str, times: int) -> int:
        """Let the first core do so many times what a cost of the kernel is for, behind what it has
        to do. Returns the ps until the end. ``kernel.Kernel`` calls it for sockets."""
        own = self._own.get(name) or self._kernel_cost(name)
        return self._compute(0, own.number, round(own.add(times) * 1000 / self.settings.cpu.ghz))

    def register(self, length: int, pinned: bool) -> None:
        """Let the first core register so many bytes, and pin and map their pages of ``hca.page``
        bytes, unless they are registered on demand."""
        self.spend("registration", 1)
        if pinned:
            self.spend("registration_page", -(-length // self.settings.hca.page))

    def _kernel_cost(self, name: str) -> OwnCost:
        is_basic = name in COSTS
        each = getattr(self.settings.cpu if is_basic else self.settings.kernel, name)
        number = COSTS.index(name) if is_basic else len(self.costs)
        return self._own.setdefault(name, OwnCost(number, each=each))

    def merge(self, frames: int) -> None:
        """Count frames that came without an interrupt of their own."""
        (self._own.get("interrupt") or self._kernel_cost("interrupt")).merged += frames

    def _time_of(self, name: str, us: float | None, cycles: int | None) -> int:
        """Return the ps of a charge that is allowed."""
        given = checked_charge(name, us, cycles)
        named = sum(own.each is None for own in self._own.values())
        if name not in self._own and named == _MOST_COSTS:
            raise ValueError(f"charge: a host has at most {_MOST_COSTS} names of costs")
        took = given * (1e6 if cycles is None else 1000 / self.settings.cpu.ghz)
        if not 0 <= took <= _LONGEST:
            raise ValueError(f"charge: {given} is no time from 0 to 1000 s")
        return round(took)

    def counters(self) -> InsideCounters:
        """Return what it has done until now. The world is not running."""
        now, raw = self._raw()
        return counted(raw, self.settings, self._own, now)

    def slices(self) -> NDArray[Any]:
        """Return SLICE_ROW [slices]: what cores and links did, as far as "slices" says.

        ``row`` is a core, or 252 to 255: PCIe up, PCIe down, memory, wire. ``what`` is the index in
        ``costs`` or TLPS, ``flow`` NO_FLOW of programs and their sockets. Each is behind what it
        follows from, so slices of a link may overlap. The world is not running.
        """
        return self._slices()

    def uses(self) -> Iterator[Use]:
        """Return what it has used of the list of costs, one use after the other."""
        from verbena.sim.used_costs import uses_of_inside

        return uses_of_inside(self.settings, self._own, self.counters())

    def used_costs(self) -> UsedCosts:
        """Return what it has used until now of the list of costs, with how often and the sources.
        The world is not running."""
        from verbena.host.used_costs import summed

        return summed(self.uses())

    def printed_costs(self) -> str:
        """Return the costs that are used as lines, each with its source, and those of programs."""
        lines = [printed_costs(self.settings), *printed_kernel(self.settings.kernel, self._own)]
        for name, own in self._own.items():
            if own.each is not None:
                continue
            text = f"cycles of a program, charged {own.times:,} times"
            lines.append(f"{name:<22} {own.cycles!s:<12} {text}")
        return "\n".join(lines)
