# SPDX-License-Identifier: Apache-2.0
"""What a run of a scenario measured, as NumPy arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verbena.sim._world import DROPS, STATES
from verbena.sim.arguments import path_of, whole_number
from verbena.sim.units import gigabits_text, size_text, time_text

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.fabrics.links import LinkNames

__all__ = ["FLOWS", "LINKS", "NEVER", "QUEUES", "ScenarioResult", "status_name"]

NEVER = 2**64 - 1
MOST_CHANGES = 6  # of routes, that a summary names
WAITING = STATES.index("waiting")
DONE = STATES.index("done")
FAILED = STATES.index("failed")
REFUSED = STATES.index("refused")
INCOMPLETE = STATES.index("incomplete")

FLOWS = np.dtype(
    [
        ("traffic", "u4"),
        ("source", "u4"),
        ("target", "u4"),
        ("bytes", "u8"),
        ("start", "u8"),
        ("finish", "u8"),
        ("done", "u8"),
        ("lost", "u8"),
        ("retransmissions", "u4"),
        ("marks", "u4"),
        ("notices", "u4"),
        ("timeouts", "u4"),
        ("state", "u1"),
        ("status", "u1"),
        ("class", "u1"),
    ]
)
LINKS = np.dtype(
    [
        ("node", "u4"),
        ("port", "u4"),
        ("to_node", "u4"),
        ("to_port", "u4"),
        ("rate", "u8"),
        ("delay", "u8"),
        ("packets", "u8"),
        ("bytes", "u8"),
        ("utilisation", "f8"),
        ("stalled", "u8"),
        ("queue_max", "u8"),
        ("marks", "u8"),
        ("pauses", "u8"),
        ("storms", "u8"),
        *((f"dropped_{reason}", "u8") for reason in DROPS),
    ]
)
QUEUES = np.dtype([("link", "u4"), ("class", "u4")])


@dataclass(frozen=True, repr=False)
class ScenarioResult:
    """What one run measured.

    ``end``: "done"; "time" (the duration is over); "deadlock" (``blocked`` names the links whose
    packets wait for each other); "stalled" (nothing is to happen any more, and flows have not
    ended: what they lost is not sent again); "interrupted". ``time`` is the virtual time in ps,
    ``wall`` the seconds that it took; a result that comes from files has NaN there.

    ``flows``, ``links`` and ``queues`` are structured arrays: ``pandas.DataFrame(result.flows)``
    has their columns.

    ``flows`` [n] of FLOWS: times in ps, ``finish`` NEVER for flows that have not, or were refused;
    ``source`` and ``target`` are places in ``nodes``, for a multicast group behind the last node
    (``end_name``);
    ``traffic`` is the place in ``traffic`` of what made it, ``state`` a place in ("waiting",
    "running", "done", "failed", "refused", "incomplete"), ``status`` the ibv_wc_status of one that
    failed. ``done`` are bytes that were delivered (of RC and TCP: and acknowledged), ``lost`` those
    of UC and UD that never will be: a flow of which some are lost ends as "incomplete", and not as
    "done". ``links`` [l] of LINKS, in the order of Tables.links: what each direction sent;
    ``stalled`` is the time in ps for which packets waited, paused or without credits,
    ``queue_max`` the longest queue in bytes.

    ``queues`` [q] of QUEUES are those that were sampled, ``times`` [t] when, ``queued`` [t, q] the
    bytes that waited, ``paused`` [t, q] whether the other end had stopped them.

    ``delivered`` [k, traffic]: bytes that the flows of each traffic had delivered by the times
    ``delivered_at`` [k], some hundred from 0 to the end; ``throughput`` makes rates of them.

    ``packets`` counts what was sent, delivered, dropped and under way at the end; ``wrong`` is
    None, or says what does not add up. ``notes`` are remarks on scenario and run.
    ``captures_lost``: packets that could not be written to files.

    What made it: ``settings`` are those of the scenario after all changes, as
    ``Scenario.make(result.settings)`` takes them; ``variant`` the name of the variant, or ""; and
    ``changes`` what was changed beside it, by key. ``version`` is Verbena's.
    """

    name: str
    seed: int
    end: str
    time: int
    wall: float
    events: int
    flows: NDArray[np.void]
    links: NDArray[np.void]
    nodes: tuple[str, ...]
    traffic: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    queues: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, QUEUES))
    times: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    queued: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    paused: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    packets: dict[str, int] = field(default_factory=dict)
    wrong: str | None = None
    blocked: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    link_events: tuple[tuple[int, bool, int], ...] = ()  # link, up, ps
    route_changes: tuple[int, ...] = ()  # ps
    fabric: Fabric | None = None
    captures_lost: int = 0
    delivered_at: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    delivered: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 0), np.uint64))
    settings: dict[str, Any] = field(default_factory=dict)
    variant: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    version: str = ""

    def __repr__(self) -> str:
        what = f"{_flows(len(self.flows))}, {len(self.links)} links"
        return (
            f"<ScenarioResult of {self.name!r}, seed {self.seed}: {self.end} after"
            f" {time_text(self.time)}, {what}; summary() says more>"
        )

    # ---- flows ---------------------------------------------------------------------------------

    def of(self, traffic: str | int | None = None) -> NDArray[np.void]:
        """The flows of one traffic, by name or place, or all. Raises ValueError."""
        if traffic is None:
            return self.flows
        number = self._traffic_number(traffic)
        chosen: NDArray[np.void] = self.flows[self.flows["traffic"] == number]
        return chosen

    def _traffic_number(self, traffic: str | int) -> int:
        """The place of a traffic, which is given by its name or place. Raises ValueError."""
        if not isinstance(traffic, str):
            return whole_number("traffic", traffic, 0, len(self.traffic) - 1)
        if traffic not in self.traffic:
            raise ValueError(f"no traffic {traffic!r}: there is {', '.join(self.traffic)}")
        return self.traffic.index(traffic)

    def durations(self, traffic: str | int | None = None) -> NDArray[np.int64]:
        """[done flows]: from start to finish, in ps; of UC and UD those that arrived whole."""
        flows = self.of(traffic)
        flows = flows[flows["state"] == DONE]
        times: NDArray[np.int64] = (flows["finish"] - flows["start"]).astype(np.int64)
        return times

    def goodput(self, traffic: str | int | None = None) -> float:
        """Bits per second that these flows had together, from the first start to the last end.

        What has arrived of flows that have not ended counts, up to the end of the run. Flows that
        were refused have no part in it.
        """
        flows = self.of(traffic)
        # Of a flow that waits, `start` may be a delay.
        flows = flows[~np.isin(flows["state"], (WAITING, REFUSED))]
        if not len(flows):
            return 0.0
        last = int(np.minimum(flows["finish"], np.uint64(self.time)).max())
        span = last - int(flows["start"].min())
        return float(flows["done"].sum()) * 8e12 / span if span > 0 else 0.0

    def throughput(self, traffic: str | int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times [k] in ps, and bits per second [k] that one traffic delivered around them.

        RC's and TCP's bytes count when they are acknowledged: after a recovery, one acknowledgement
        is for all that had waited for it, and a rate may be more than a link's.
        Raises ValueError where there is no such traffic.
        """
        traffic = self._traffic_number(traffic)
        times = self.delivered_at.astype(float)
        step = np.diff(times)
        rates = np.diff(self.delivered[:, traffic].astype(float)) * 8e12 / np.maximum(step, 1)
        return times[:-1] + step / 2, rates

    # ---- links ---------------------------------------------------------------------------------

    @cached_property
    def _link_names(self) -> LinkNames:
        from verbena.fabrics.links import LinkNames

        ends = (self.links[part] for part in ("node", "port", "to_node", "to_port"))
        return LinkNames(self.nodes, *ends)

    @property
    def link_names(self) -> tuple[str, ...]:
        """[l]: the name of each row of ``links``."""
        return self._link_names.all()

    def link_name(self, link: int) -> str:
        """A directed link as scenarios call it: "s0-h2", one of several cables "s0[3]-s1[4]"."""
        return self._link_names.name(whole_number("link", link, 0, len(self.links) - 1))

    def end_name(self, number: int) -> str:
        """A flow's source or target: a host, or a group."""
        some = len(self.nodes)
        number = whole_number("number", number, 0, some + len(self.groups) - 1)
        return self.nodes[number] if number < some else self.groups[number - some]

    def link(self, name: str) -> int:
        """The place in ``links`` of a directed link: "s0-h2", "s0[3]-s1[4]" or "s0[3]".

        Raises ValueError where there is none, or more than one.
        """
        return self._link_names.find(name)

    def queue(self, link: int, class_: int = 0) -> NDArray[np.uint32]:
        """[t]: what waited at ``times`` for a directed link. Raises ValueError if not sampled."""
        whole_number("link", link, 0, len(self.links) - 1)
        whole_number("class_", class_, 0, 255)
        place = np.nonzero((self.queues["link"] == link) & (self.queues["class"] == class_))[0]
        if not len(place):
            raise ValueError(f"the queue of {self.link_name(link)} was not sampled")
        column: NDArray[np.uint32] = self.queued[:, place[0]]
        return column

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        """Flows that failed, by traffic and by the completion status that says why."""
        found: dict[str, dict[str, int]] = {}
        for number, name in enumerate(self.traffic):
            for status, count in self._failures(number).items():
                reasons = found.setdefault(name, {})  # several may have one name
                reasons[status] = reasons.get(status, 0) + count
        return found

    def _failures(self, traffic: int) -> dict[str, int]:
        flows = self.of(traffic)
        failed = flows["status"][flows["state"] == FAILED]
        seen = zip(*np.unique(failed, return_counts=True), strict=True)
        return {status_name(int(status)): int(count) for status, count in seen}

    @property
    def dropped(self) -> dict[str, int]:
        """Packets by the reason for which they were dropped."""
        counts = {reason: int(self.links[f"dropped_{reason}"].sum()) for reason in DROPS}
        return {reason: count for reason, count in counts.items() if count}

    # ---- in words --------------------------------------------------------------------------------

    def summary(self) -> str:
        """Some lines about all of it."""
        wall = "" if math.isnan(self.wall) else f", simulated in {self.wall:.2f} s"
        lines = [f"{self.name}: {self._end()} after {self._times()}{wall} ({self.events:,} events)"]
        lines += [self._traffic_line(number, name) for number, name in enumerate(self.traffic)]
        lines += self._link_lines() + self._route_line()
        lines.append(self._packet_line())
        lines += [f"  blocked: {' -> '.join(map(self.link_name, self.blocked))}"] * bool(
            self.blocked
        )
        lines += self._failure_lines()
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  WRONG: {self.wrong}"] * (self.wrong is not None)
        return "\n".join(lines)

    def _end(self) -> str:
        unfinished = int((self.flows["state"] < DONE).sum())
        if self.end == "stalled":
            return f"stalled, {_flows(unfinished)} never end{'s' * (unfinished == 1)},"
        if self.end == "time" and unfinished:
            return f"ended with {_flows(unfinished)} unfinished"
        return {"time": "done", "deadlock": "DEADLOCK"}.get(self.end, self.end)

    def _times(self) -> str:
        """When the traffic was done, and how long the run lasted if that was longer."""
        lasted, finish = time_text(self.time), self.flows["finish"]
        if self.end != "done" or not len(finish) or (finish == NEVER).any():
            return lasted
        last = int(finish.max())
        return lasted if last >= self.time else f"{time_text(last)} (the run lasted {lasted})"

    def _traffic_line(self, number: int, name: str) -> str:
        flows, times = self.of(number), self.durations(number)
        ended = f"{len(times)} of {len(flows)} flows"
        words = [f"{ended} of {size_text(flows['bytes'].mean())}" if len(flows) else ended]
        if len(times):
            middle, high = np.percentile(times, (50, 99))
            words.append(f"median {time_text(middle)}")
            if len(times) > 1:
                words.append(f"p99 {time_text(high)}")
        words.append(gigabits_text(self.goodput(number)))
        for what in ("retransmissions", "marks", "timeouts"):
            if len(flows) and (count := int(flows[what].sum())):
                ignored = what == "marks" and self._looks_at_no_mark(number)
                words.append(f"{count} {what}{' (no ECN: ignored)' if ignored else ''}")
        if failed := int((flows["state"] == FAILED).sum()):
            words.append(f"{failed} failed")
        if refused := int((flows["state"] == REFUSED).sum()):
            words.append(f"{refused} refused")
        if incomplete := int((flows["state"] == INCOMPLETE).sum()):
            words.append(f"{incomplete} incomplete")
        if lost := int(flows["lost"].sum()):
            words.append(f"{size_text(lost)} lost")
        return f"  {name}: {', '.join(words)}"

    def _looks_at_no_mark(self, traffic: int) -> bool:
        """Is it TCP without ECN? Switches mark its segments all the same."""
        tables = self.settings.get("traffic", ())
        table = tables[traffic] if traffic < len(tables) else {}
        ecn = self.settings.get("tcp", {}).get("ecn") or table.get("control") == "dctcp"
        return table.get("transport") == "tcp" and not ecn

    def _route_line(self) -> list[str]:
        """When routes were made anew, the first few times."""
        if not self.route_changes:
            return []
        shown = ", ".join(time_text(at) for at in self.route_changes[:MOST_CHANGES])
        more = len(self.route_changes) - MOST_CHANGES
        return [f"  routes made anew at {shown}{f' and {more} more times' if more > 0 else ''}"]

    def _failure_lines(self) -> list[str]:
        return [
            f"  FAILED: {count} of {len(self.of(number))} {_flows_of(name)}: "
            f"{status}{REASONS.get(status, '')}{self._taken_down() if status in REASONS else ''}"
            for number, name in enumerate(self.traffic)
            for status, count in self._failures(number).items()
        ]

    def _taken_down(self) -> str:
        """The first link that the scenario took down, where packets may have been lost."""
        down = [(self.link_name(link), at) for link, up, at in self.link_events if not up]
        if not down:
            return ""
        more = len({name for name, _ in down}) - 1
        others = f", and {more} more" if more else ""
        return f" ({down[0][0]} went down at {time_text(down[0][1])}{others})"

    def _link_lines(self) -> list[str]:
        if not len(self.links):
            return []
        busiest = int(self.links["utilisation"].argmax())
        longest = int(self.links["queue_max"].argmax())
        lines = [
            f"  busiest link: {self.link_name(busiest)}, "
            f"{self.links['utilisation'][busiest]:.0%} of {time_text(self.time)}",
            f"  longest queue: {self.link_name(longest)}, "
            f"{size_text(int(self.links['queue_max'][longest]))}",
        ]
        stalled = int(self.links["stalled"].argmax())
        if self.links["stalled"][stalled]:
            lines.append(
                f"  longest stall: {self.link_name(stalled)}, "
                f"{time_text(int(self.links['stalled'][stalled]))}"
            )
        return lines

    def _packet_line(self) -> str:
        count = self.packets
        reasons = ", ".join(f"{reason} {many}" for reason, many in self.dropped.items())
        return (
            f"  packets: {count['sent']} sent = {count['delivered']} delivered + "
            f"{count['dropped']} dropped{f' ({reasons})' if reasons else ''} + "
            f"{count['under_way']} under way"
        )

    # ---- files ---------------------------------------------------------------------------------

    def to_parquet(self, folder: str | Path) -> None:
        """flows.parquet, links.parquet and queues.parquet, in a folder that is made.

        Needs pyarrow (pip install pyarrow).
        """
        from verbena.sim import parquet

        parquet.write(self, path_of("folder", folder))

    @classmethod
    def from_parquet(cls, folder: str | Path) -> ScenarioResult:
        """What ``to_parquet`` wrote; ``fabric`` is not kept. Raises OSError, ValueError."""
        from verbena.sim import parquet

        return parquet.read(path_of("folder", folder))

    def timeline(self, path: str | Path) -> None:
        """Trace events that Perfetto (ui.perfetto.dev) and chrome://tracing open."""
        from verbena.sim import timeline

        timeline.write(self, path_of("path", path))

    def plot(self, folder: str | Path, format: str = "png") -> list[Path]:
        """Pictures of throughput, queues, completion times and links, in a folder that is made.

        ``format``: "png", "svg" or "pdf". Returns their paths. Needs matplotlib. Raises OSError,
        ValueError.
        """
        from verbena.sim import plots

        return plots.write(self, path_of("folder", folder), format)


# What the status of a flow that failed means here; others are of no flow.
REASONS = {
    "RETRY_EXC_ERR": ", no answer within the timeout at any try: lost on the way, or later than it"
}


def _flows_of(name: str) -> str:
    """A traffic without a name is called after its pattern, which may be "flows"."""
    return "flows" if name == "flows" else f"flows of {name}"


def _flows(count: int) -> str:
    return f"{count} flow{'s' * (count != 1)}"


def status_name(status: int) -> str:
    from verbena.verbs import WCStatus

    try:
        return WCStatus(status).name
    except ValueError:
        return f"status {status}"


def structured(kind: np.dtype[np.void], columns: dict[str, Any], length: int) -> NDArray[np.void]:
    """An array of that kind whose columns are given."""
    made = np.zeros(length, kind)
    for name, column in columns.items():
        made[name] = column
    return made
