# SPDX-License-Identifier: Apache-2.0
"""What a run of a scenario measured, as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verbena.sim._world import DROPS, STATES
from verbena.sim.units import size_text, time_text

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = ["FLOWS", "LINKS", "NEVER", "QUEUES", "ScenarioResult"]

NEVER = 2**64 - 1
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


@dataclass(frozen=True)
class ScenarioResult:
    """What one run measured.

    ``end``: "done"; "time" (the duration is over); "deadlock" (``blocked`` names the links whose
    packets wait for each other); "stalled" (nothing is to happen any more, and flows have not
    ended: what they lost is not sent again); "interrupted". ``time`` is the virtual time in ps,
    ``wall`` the seconds that it took.

    ``flows`` [n] of FLOWS: times in ps, ``finish`` NEVER for flows that have not, or were refused;
    ``traffic`` is the place in ``traffic`` of what made it, ``state`` a place in ("waiting",
    "running", "done", "failed", "refused", "incomplete"), ``status`` the ibv_wc_status of one that
    failed. ``done`` are bytes that were delivered (of RC and TCP: and acknowledged), ``lost`` those
    of UC and UD that never will be: a flow of which some are lost ends as "incomplete", and not as
    "done". ``links`` [l] of LINKS, in the order of Tables.links: what each direction sent;
    ``stalled`` is the time in ps for which packets waited, paused or without credits,
    ``queue_max`` the longest queue in bytes.

    ``queues`` [q] of QUEUES are those that were sampled, ``times`` [t] when, ``queued`` [t, q] the
    bytes that waited, ``paused`` [t, q] whether the other end had stopped them.

    ``packets`` counts what was sent, delivered, dropped and under way at the end; ``wrong`` is
    None, or says what does not add up. ``notes`` are remarks about the scenario. ``captures_lost``:
    packets that could not be written to files.
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
    fabric: Fabric | None = None
    captures_lost: int = 0

    # ---- flows ---------------------------------------------------------------------------------

    def of(self, traffic: str | int | None = None) -> NDArray[np.void]:
        """The flows of one traffic, by name or place, or all. Raises ValueError."""
        if traffic is None:
            return self.flows
        if isinstance(traffic, str):
            if traffic not in self.traffic:
                raise ValueError(f"no traffic {traffic!r}: there is {', '.join(self.traffic)}")
            traffic = self.traffic.index(traffic)
        chosen: NDArray[np.void] = self.flows[self.flows["traffic"] == traffic]
        return chosen

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

    # ---- links ---------------------------------------------------------------------------------

    def link_name(self, link: int) -> str:
        """A directed link as one reads it: "s0[3] to h2[1]"."""
        at = self.links[link]
        return (
            f"{self.nodes[at['node']]}[{at['port']}] to "
            f"{self.nodes[at['to_node']]}[{at['to_port']}]"
        )

    def link(self, source: str, target: str) -> int:
        """The first directed link between two nodes. Raises ValueError."""
        for name in (source, target):
            if name not in self.nodes:
                raise ValueError(f"there is no node {name!r}")
        ends = self.nodes.index(source), self.nodes.index(target)
        found = np.nonzero((self.links["node"] == ends[0]) & (self.links["to_node"] == ends[1]))[0]
        if not len(found):
            raise ValueError(f"no link leads from {source} to {target}")
        return int(found[0])

    def queue(self, link: int, class_: int = 0) -> NDArray[np.uint32]:
        """[t]: what waited at ``times`` for a directed link. Raises ValueError if not sampled."""
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
        return {_status_name(int(status)): int(count) for status, count in seen}

    @property
    def dropped(self) -> dict[str, int]:
        """Packets by the reason for which they were dropped."""
        counts = {reason: int(self.links[f"dropped_{reason}"].sum()) for reason in DROPS}
        return {reason: count for reason, count in counts.items() if count}

    # ---- in words --------------------------------------------------------------------------------

    def summary(self) -> str:
        """Some lines about all of it."""
        lines = [
            f"{self.name}: {self._end()} after {time_text(self.time)}, "
            f"simulated in {self.wall:.2f} s ({self.events:,} events)"
        ]
        lines += [self._traffic_line(number, name) for number, name in enumerate(self.traffic)]
        lines += self._link_lines()
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
            return f"stalled, {unfinished} flows never end,"
        if self.end == "time" and unfinished:
            return f"ended with {unfinished} flows unfinished"
        return {"time": "done", "deadlock": "DEADLOCK"}.get(self.end, self.end)

    def _traffic_line(self, number: int, name: str) -> str:
        flows, times = self.of(number), self.durations(number)
        ended = f"{len(times)} of {len(flows)} flows"
        words = [f"{ended} of {size_text(flows['bytes'].mean())}" if len(flows) else ended]
        if len(times):
            middle, high = np.percentile(times, (50, 99))
            words.append(f"median {time_text(middle)}")
            if len(times) > 1:
                words.append(f"p99 {time_text(high)}")
        words.append(f"{self.goodput(number) / 1e9:.3g} Gb/s")
        for what in ("retransmissions", "marks", "timeouts"):
            if len(flows) and (count := int(flows[what].sum())):
                words.append(f"{count} {what}")
        if failed := int((flows["state"] == FAILED).sum()):
            words.append(f"{failed} failed")
        if refused := int((flows["state"] == REFUSED).sum()):
            words.append(f"{refused} refused")
        if incomplete := int((flows["state"] == INCOMPLETE).sum()):
            words.append(f"{incomplete} incomplete")
        if lost := int(flows["lost"].sum()):
            words.append(f"{size_text(lost)} lost")
        return f"  {name}: {', '.join(words)}"

    def _failure_lines(self) -> list[str]:
        return [
            f"  FAILED: {count} of {len(self.of(number))} flows of {name}: "
            f"{status}{REASONS.get(status, '')}"
            for number, name in enumerate(self.traffic)
            for status, count in self._failures(number).items()
        ]

    def _link_lines(self) -> list[str]:
        if not len(self.links):
            return []
        busiest = int(self.links["utilisation"].argmax())
        longest = int(self.links["queue_max"].argmax())
        lines = [
            f"  busiest link: {self.link_name(busiest)}, "
            f"{self.links['utilisation'][busiest]:.0%} of the time",
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

        parquet.write(self, Path(folder))

    @classmethod
    def from_parquet(cls, folder: str | Path) -> ScenarioResult:
        """What ``to_parquet`` wrote; ``fabric`` is not kept. Raises OSError, ValueError."""
        from verbena.sim import parquet

        return parquet.read(Path(folder))

    def timeline(self, path: str | Path) -> None:
        """Trace events that Perfetto (ui.perfetto.dev) and chrome://tracing open."""
        from verbena.sim import timeline

        timeline.write(self, Path(path))

    def plot(self, folder: str | Path) -> list[Path]:
        """Pictures of queues, flow completion times and links; needs matplotlib."""
        from verbena.sim import plots

        return plots.write(self, Path(folder))


# What the status of a flow that failed means here; others are of no flow.
REASONS = {
    "RETRY_EXC_ERR": ", no answer within the timeout at any try: lost on the way, or later than it"
}


def _status_name(status: int) -> str:
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
