# SPDX-License-Identifier: Apache-2.0
"""What work of an operating system costs in processor cycles: a list of named costs, a ledger.

``Core.charge`` and the models of ``tcp_path.py`` and ``receive_path.py`` take their cycles from
here. Each cost is a parameter with the source of its default, and a run prints the costs it used,
since most of them are orders of magnitude and differ among machines.

    costs = Costs(syscall=600)
    ledger = Ledger(costs)
    ledger.add("syscall")
    print(ledger)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isclose

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError

ORDER = "an order of magnitude, from memory; no measurement"
_MEMORY = "order of magnitude, from memory"  # these words are also those of World.inside


@dataclass(frozen=True)
class Cost:
    """``cycles`` for each ``per``, and where the default comes from."""

    name: str
    cycles: float
    per: str
    source: str


_TUNED = "tuned to 42 Gb/s of one core in Cai and others, SIGCOMM 2021"
_LOADS = (
    "about 4, 10, 40 and 120 cycles on a Xeon 5500 (stackoverflow.com/questions/10274355): "
    "an order of magnitude"
)
_COPYING = "27, 15 and 6 GB/s at 3 GHz, measured on a loaded virtual machine"

_CALLS = (
    "630 to 730 cycles of user and kernel were published in 2018, 250 to 500 ns later; with "
    "mitigations"
)
# A page is 0.67 us at 3 GHz.
_PAGES = "500 GB in 87 s, as users measured it (github.com/kvcache-ai/Mooncake, issue 848)"

DEFAULTS: tuple[Cost, ...] = (
    Cost("syscall", 1000, "call", _CALLS),
    Cost("copy_l1", 0.1, "byte", _COPYING),
    Cost("copy_l2", 0.1, "byte", _COPYING),
    Cost("copy_l3", 0.2, "byte", _COPYING),
    Cost("copy_memory", 0.5, "byte", _COPYING),
    Cost("load_l1", 4, "line of 64 bytes", _LOADS),
    Cost("load_l2", 14, "line of 64 bytes", _LOADS),
    Cost("load_l3", 50, "line of 64 bytes", _LOADS),
    Cost("load_memory", 250, "line of 64 bytes", _LOADS),
    Cost("segment_out", 600, "segment (with TSO: of up to 64 KiB)", ORDER),
    Cost("segment_in", 2000, "segment (with GRO: of up to 64 KiB)", ORDER),
    Cost("gro_frame", 150, "frame that GRO joins", ORDER),
    Cost("frame_in", 900, "frame: its descriptor and its page's reference", _TUNED),
    Cost("page", 400, "page of 4 KiB of a receive buffer: allocated, mapped, freed", _TUNED),
    Cost("ack", 800, "acknowledgement, made or taken", ORDER),
    Cost("skb", 400, "socket buffer, allocated and freed", ORDER),
    Cost("doorbell", 100, "posted store to an adapter's register", f"a posted store: {_MEMORY}"),
    Cost("hard_irq", 1500, "interrupt, with its entry and exit", _MEMORY),
    Cost("softirq_poll", 500, "round of the adapter's poll function", ORDER),
    Cost("softirq_packet", 2000, "packet without GRO, in the poll function", ORDER),
    Cost("wakeup", 4500, "wake-up of a process and switch to it", f"1.5 us at 3 GHz: {_MEMORY}"),
    Cost("verbs_post", 80, "request posted to a queue pair", f"60 to 100 cycles: {_MEMORY}"),
    Cost("cq_poll_empty", 20, "poll of a completion queue, nothing there", ORDER),
    Cost("cq_poll", 60, "poll of a completion queue with an entry", _MEMORY),
    Cost("mr_register", 3000, "registration of memory", ORDER),
    Cost("mr_page", 2000, "page of a registration, pinned and mapped", _PAGES),
)
COPY_LEVELS = {level: f"copy_{level}" for level in ("l1", "l2", "l3", "memory")}


def default_cycles(name: str) -> int:
    """The whole cycles of a cost by default; HostError if the list has none of that name."""
    return round(Costs().cycles(name))


@checked_class(HostTypeError)
class Costs:
    """The list with some values changed by name: ``Costs(syscall=432)``."""

    def __init__(self, **changes: float) -> None:
        self._costs = {one.name: one for one in DEFAULTS}
        for name, cycles in changes.items():
            old = self[name]
            if not 0 <= cycles < float("inf"):
                raise HostError(f"the cost {name!r} is a number of cycles from 0, not {cycles}")
            self._costs[name] = Cost(name, cycles, old.per, "set by the caller")

    def __getitem__(self, name: str) -> Cost:
        if name not in self._costs:
            raise HostError(
                f"there is no cost {name!r}: there are {', '.join(sorted(self._costs))}"
            )
        return self._costs[name]

    def cycles(self, name: str) -> float:
        """The cycles of one; HostError names all costs if there is none of that name."""
        return self[name].cycles

    def all(self) -> list[Cost]:
        """The whole list."""
        return list(self._costs.values())


@checked_class(HostTypeError)
@dataclass
class Ledger:
    """What was charged: how often, and how many cycles, by name."""

    costs: Costs = field(default_factory=Costs)
    times: dict[str, float] = field(default_factory=dict)
    cycles: dict[str, float] = field(default_factory=dict)
    copied_bytes: int = 0

    def add(self, name: str, times: float = 1, *, cycles: float | None = None) -> float:
        """Charges a cost of the list so often, or ``cycles`` under a name of one's own; the sum."""
        if times < 0 or (cycles is not None and cycles < 0):
            raise HostError(f"a charge of {name!r} is not negative")
        sum_ = self.costs.cycles(name) * times if cycles is None else cycles
        self.times[name] = self.times.get(name, 0) + times
        self.cycles[name] = self.cycles.get(name, 0) + sum_
        return sum_

    def copy(self, size: int, level: str = "l3", *, cycles: float | None = None) -> float:
        """Charges a copy of ``size`` bytes whose source is in a level: l1, l2, l3 or memory.

        It takes ``cycles``, or what the list says. Raises HostError for another level or a size
        below 0.
        """
        if level not in COPY_LEVELS:
            raise HostError(f"a copy comes from l1, l2, l3 or memory, not from {level!r}")
        if size < 0:
            raise HostError(f"a copy has 0 bytes or more, not {size}")
        self.copied_bytes += size
        return self.add(COPY_LEVELS[level], size, cycles=cycles)

    @property
    def total(self) -> float:
        """All cycles."""
        return sum(self.cycles.values())

    def share(self, *names: str) -> float:
        """The part of all cycles that these costs have."""
        return sum(self.cycles.get(name, 0) for name in names) / self.total if self.total else 0.0

    def __str__(self) -> str:
        """The costs that were used: their cycles, how often, and the source of each."""
        rows = ["cost              cycles     times    of all  for each; source"]
        known: Mapping[str, Cost] = {one.name: one for one in self.costs.all()}
        for name, cycles in sorted(self.cycles.items(), key=lambda pair: -pair[1]):
            cost = known.get(name)
            each = cycles / self.times[name] if self.times[name] else 0
            says = "a name of the caller's"
            if cost is not None:
                is_listed = isclose(each, cost.cycles) or not self.times[name]
                says = f"{cost.per}; {cost.source if is_listed else 'set by the caller'}"
            part = cycles / self.total if self.total else 0
            rows.append(f"{name:15} {each:8g} {self.times[name]:9g} {part:8.1%}  {says}")
        return "\n".join(rows)
