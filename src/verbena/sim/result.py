# SPDX-License-Identifier: Apache-2.0
"""What one run of a scenario measured, as NumPy arrays.

``Scenario.run`` makes a ``ScenarioResult``; ``sweep``, the plots, the timeline and the Parquet
files read it. It does not refer to the world, whose memory is free after the run.
"""

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
    from verbena.sim.recovery import Recovery
    from verbena.sim.scenario_connect import ConnectReport
    from verbena.sim.scenario_inside import InsideReport
    from verbena.sim.scenario_management import ManagementReport

__all__ = ["FLOWS", "LINKS", "NEVER", "QUEUES", "ScenarioResult", "status_name"]

NEVER = 2**64 - 1
MOST_CHANGES = 6  # changes of routes whose times a summary gives
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
    """What one run of a scenario measured.

    ``end``: "done"; "time", the duration is over; "deadlock", ``blocked`` has the links whose
    packets wait for each other; "stalled", no event is left and flows have not ended, because what
    they lost is not sent again; "interrupted". ``time`` is the virtual time at the end in ps.
    ``wall`` is the time that the run took in seconds; it is NaN in a result that was read from
    files.

    ``flows``, ``links`` and ``queues`` are structured arrays, whose columns
    ``pandas.DataFrame(result.flows)`` has.

    ``flows`` [n] of FLOWS: ``source`` and ``target`` are indices in ``nodes``; those of multicast
    groups follow behind the last node (``end_name`` returns the name). ``traffic`` is an index in
    ``traffic``.
    ``start`` and ``finish`` are in ps; ``finish`` is NEVER for a flow that has not finished, or was
    refused. ``state`` is an index in ("waiting", "running", "done", "failed", "refused",
    "incomplete"), and ``status`` the ibv_wc_status of a flow that failed. ``done`` is the number of
    bytes that were delivered (RC and TCP: and acknowledged). ``lost`` is the number of bytes of UC
    and UD that will never be delivered; a flow with such bytes ends as "incomplete" in place of
    "done".

    ``links`` [l] of LINKS: what each directed link sent, in the order of Tables.links. ``stalled``
    is the time in ps during which packets waited for credits or the end of a pause, ``queue_max``
    the longest queue in bytes.

    ``queues`` [q] of QUEUES: the sampled queues; ``times`` [t]: when, in ps; ``queued`` [t, q]: the
    bytes that waited; ``paused`` [t, q]: whether the other end of the link had paused the queue.

    ``delivered`` [k, traffic]: the bytes that the flows of each traffic had delivered by the times
    ``delivered_at`` [k] in ps, which are some hundred from 0 to the end. ``throughput`` computes
    rates from them.

    ``packets`` has the numbers of packets that were sent, delivered, dropped, and under way at the
    end.
    ``wrong`` is None, or a sentence about packets or credits that do not add up, which is a defect
    of the simulator. ``notes`` are remarks about the scenario and the run. ``captures_lost`` is the
    number of packets that could not be written to files.

    ``management``: what the subnet manager did, if [management] has one. ``recovery``: what became
    of the flows after the first link went down, if routes are made anew. ``connects``: what became
    of the connections of each [[connect]]. ``insides``: what the insides of hosts did, if there is
    [inside]. Results that were read from files have none of these.

    ``settings``: those of the scenario after all changes, as ``Scenario.make(result.settings)``
    takes them. ``variant``: the name of the variant, or "". ``changes``: other changed settings, by
    key.
    ``version``: that of Verbena.
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
    link_events: tuple[tuple[int, bool, int], ...] = ()  # (link, whether it came up, ps)
    route_changes: tuple[int, ...] = ()  # ps
    fabric: Fabric | None = None
    captures_lost: int = 0
    delivered_at: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    delivered: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 0), np.uint64))
    management: ManagementReport | None = None
    recovery: Recovery | None = None
    connects: tuple[ConnectReport, ...] = ()
    insides: tuple[InsideReport, ...] = ()
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
        """Return the flows of one traffic, by name or index, or all flows. Raises ValueError."""
        if traffic is None:
            return self.flows
        number = self._traffic_number(traffic)
        chosen: NDArray[np.void] = self.flows[self.flows["traffic"] == number]
        return chosen

    def _traffic_number(self, traffic: str | int) -> int:
        """Return the index of a traffic, which is given by name or index. Raises ValueError."""
        if not isinstance(traffic, str):
            return whole_number("traffic", traffic, 0, len(self.traffic) - 1)
        if traffic not in self.traffic:
            raise ValueError(f"no traffic {traffic!r}: there is {', '.join(self.traffic)}")
        return self.traffic.index(traffic)

    def durations(self, traffic: str | int | None = None) -> NDArray[np.int64]:
        """Return the times from start to finish of flows that are done, in ps, as int64 [done
        flows].

        Raises ValueError if there is no such traffic.
        """
        flows = self.of(traffic)
        flows = flows[flows["state"] == DONE]
        times: NDArray[np.int64] = (flows["finish"] - flows["start"]).astype(np.int64)
        return times

    def goodput(self, traffic: str | int | None = None) -> float:
        """Return the bits per second of these flows together, from the first start to the last
        finish.

        Bytes that have arrived of unfinished flows count, up to the end of the run. Refused flows
        are left out. Raises ValueError if there is no such traffic.
        """
        flows = self.of(traffic)
        # The `start` of a waiting flow may be a delay, which is no time of the run.
        flows = flows[~np.isin(flows["state"], (WAITING, REFUSED))]
        if not len(flows):
            return 0.0
        last = int(np.minimum(flows["finish"], np.uint64(self.time)).max())
        span = last - int(flows["start"].min())
        return float(flows["done"].sum()) * 8e12 / span if span > 0 else 0.0

    def throughput(self, traffic: str | int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return times [k] in ps, and the bits per second [k] that a traffic delivered around each
        of them.

        Bytes of RC and TCP count when they are acknowledged. After a recovery, one acknowledgement
        covers all that had waited for it, so a rate may be higher than a link's. Raises ValueError
        if there is no such traffic.
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
        """The name of each row of ``links``."""
        return self._link_names.all()

    def link_name(self, link: int) -> str:
        """Return the name of a directed link as scenarios have it: "s0-h2", or "s0[3]-s1[4]" where
        several cables join the same nodes. Raises ValueError."""
        return self._link_names.name(whole_number("link", link, 0, len(self.links) - 1))

    def end_name(self, number: int) -> str:
        """Return the name of a flow's source or target, which is a host or a group. Raises
        ValueError."""
        some = len(self.nodes)
        number = whole_number("number", number, 0, some + len(self.groups) - 1)
        return self.nodes[number] if number < some else self.groups[number - some]

    def link(self, name: str) -> int:
        """Return the row in ``links`` of a directed link: "s0-h2", "s0[3]-s1[4]" or "s0[3]".

        Raises ValueError if no link or more than one has the name.
        """
        return self._link_names.find(name)

    def queue(self, link: int, class_: int = 0) -> NDArray[np.uint32]:
        """Return the bytes that waited at ``times`` for a directed link, as uint32 [t].

        Raises ValueError if the queue was not sampled.
        """
        whole_number("link", link, 0, len(self.links) - 1)
        whole_number("class_", class_, 0, 255)
        place = np.nonzero((self.queues["link"] == link) & (self.queues["class"] == class_))[0]
        if not len(place):
            raise ValueError(f"the queue of {self.link_name(link)} was not sampled")
        column: NDArray[np.uint32] = self.queued[:, place[0]]
        return column

    @property
    def failures(self) -> dict[str, dict[str, int]]:
        """The number of failed flows, by traffic and by the completion status that gives the
        reason."""
        found: dict[str, dict[str, int]] = {}
        for number, name in enumerate(self.traffic):
            for status, count in self._failures(number).items():
                reasons = found.setdefault(name, {})  # several traffics may have one name
                reasons[status] = reasons.get(status, 0) + count
        return found

    def _failures(self, traffic: int) -> dict[str, int]:
        flows = self.of(traffic)
        failed = flows["status"][flows["state"] == FAILED]
        seen = zip(*np.unique(failed, return_counts=True), strict=True)
        return {status_name(int(status)): int(count) for status, count in seen}

    @property
    def dropped(self) -> dict[str, int]:
        """The number of dropped packets, by the reason."""
        counts = {reason: int(self.links[f"dropped_{reason}"].sum()) for reason in DROPS}
        return {reason: count for reason, count in counts.items() if count}

    # ---- in words --------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return a text of several lines about the run."""
        wall = "" if math.isnan(self.wall) else f", simulated in {self.wall:.2f} s"
        lines = [f"{self.name}: {self._end()} after {self._times()}{wall} ({self.events:,} events)"]
        lines += [self._traffic_line(number, name) for number, name in enumerate(self.traffic)]
        lines += self._link_lines() + self._route_line() + self._management_lines()
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
        """Return when the traffic was done, and how long the run lasted if that was longer."""
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
        """Return whether a traffic is TCP without ECN. Switches mark its segments nevertheless."""
        tables = self.settings.get("traffic", ())
        table = tables[traffic] if traffic < len(tables) else {}
        ecn = self.settings.get("tcp", {}).get("ecn") or table.get("control") == "dctcp"
        return table.get("transport") == "tcp" and not ecn

    def _route_line(self) -> list[str]:
        """Return the line with the first times at which routes changed."""
        if not self.route_changes:
            return []
        shown = ", ".join(time_text(at) for at in self.route_changes[:MOST_CHANGES])
        more = len(self.route_changes) - MOST_CHANGES
        return [f"  routes made anew at {shown}{f' and {more} more times' if more > 0 else ''}"]

    def _management_lines(self) -> list[str]:
        """Return lines about sweeps of the subnet manager, recovered flows, connections, and
        insides."""
        lines = []
        if self.management is not None:
            lines += self.management.lines([at for _, up, at in self.link_events])
        if self.recovery is not None:
            lines.append(self.recovery.line())
        lines += [each.line() for each in self.connects]
        if self.insides:
            from verbena.sim.scenario_inside import inside_lines

            lines += inside_lines(self.insides)
        return [f"  {line}" for line in lines]

    def _failure_lines(self) -> list[str]:
        return [
            f"  FAILED: {count} of {len(self.of(number))} {_flows_of(name)}: "
            f"{status}{REASONS.get(status, '')}{self._taken_down() if status in REASONS else ''}"
            for number, name in enumerate(self.traffic)
            for status, count in self._failures(number).items()
        ]

    def _taken_down(self) -> str:
        """Return which link the scenario took down first, since packets may have been lost
        there."""
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
        """Write flows.parquet, links.parquet, queues.parquet and throughput.parquet.

        The folder is made. Needs pyarrow (pip install pyarrow). Raises TypeError, OSError.
        """
        from verbena.sim import parquet

        parquet.write(self, path_of("folder", folder))

    @classmethod
    def from_parquet(cls, folder: str | Path) -> ScenarioResult:
        """Return a result that ``to_parquet`` wrote, without ``fabric``, which the files do not
        have.

        Raises TypeError, OSError, and ValueError for files of another version.
        """
        from verbena.sim import parquet

        return parquet.read(path_of("folder", folder))

    def timeline(self, path: str | Path) -> None:
        """Write trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

        Raises TypeError, OSError.
        """
        from verbena.sim import timeline

        timeline.write(self, path_of("path", path))

    def plot(self, folder: str | Path, format: str = "png") -> list[Path]:
        """Draw throughput, queues, completion times and links, and return the paths of the
        pictures.

        The folder is made. ``format``: "png", "svg" or "pdf". Needs matplotlib. Raises TypeError,
        OSError, ValueError.
        """
        from verbena.sim import plots

        return plots.write(self, path_of("folder", folder), format)


# What a completion status means for a flow; flows end with no others that need words.
REASONS = {
    "RETRY_EXC_ERR": ", no answer within the timeout at any try: lost on the way, or later than it"
}


def _flows_of(name: str) -> str:
    """Return "flows of NAME". A traffic without a name has that of its pattern, which may be
    "flows"."""
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
    """Return an array of this dtype with these columns."""
    made = np.zeros(length, kind)
    for name, column in columns.items():
        made[name] = column
    return made
