# SPDX-License-Identifier: Apache-2.0
"""Results as trace events (JSON), which Perfetto and chrome://tracing show.

``ScenarioResult.timeline`` calls ``write``. A host is a process and its flows are slices in it. A
sampled queue is a counter of its node, and the throughput of a traffic is a counter of process 0,
the fabric. Hosts with an inside have rows of their cores and links (``timeline_inside``). Links
that go up or down and routes that change are instants.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from verbena._trace_events import PS_PER_US, named_process, named_row, write_events
from verbena.sim._world import STATES
from verbena.sim.result import NEVER, REFUSED, ScenarioResult

__all__ = ["events", "write"]

COUNTS = ("bytes", "done", "lost", "retransmissions", "marks", "notices", "timeouts")
WAITING = STATES.index("waiting")


def write(result: ScenarioResult, path: Path) -> None:
    """Write the events to a file. Raises OSError."""
    write_events(path, events(result))


def events(result: ScenarioResult) -> Iterator[dict[str, Any]]:
    """Yield the trace events. Times are in microseconds, which the format prescribes."""
    yield named_process(0, "fabric")
    for number, name in enumerate(result.nodes):
        yield named_process(number + 1, name)
    yield from _flows(result)
    yield from _throughput(result)
    yield from _queues(result)
    if result.insides:
        from verbena.sim.timeline_inside import inside_events

        yield from inside_events(result.insides, result.flows)
    for link, up, at in result.link_events:
        if at <= result.time:  # the run may have ended before the event
            name = f"{result.link_name(link)} {'up' if up else 'down'}"
            yield _instant(name, at, int(result.links["node"][link]) + 1)
    for at in result.route_changes:
        yield _instant("routes made anew", at, 0)


def _instant(name: str, at: int, process: int) -> dict[str, Any]:
    """Return an instant that is drawn across the whole timeline."""
    return {"ph": "i", "s": "g", "name": name, "ts": at / PS_PER_US, "pid": process, "tid": 0}


def _flows(result: ScenarioResult) -> Iterator[dict[str, Any]]:
    """Yield the slices. Flows of one host that overlap are put into different rows."""
    free: dict[int, list[int]] = {}  # for each host, when each of its rows is free
    for number in np.argsort(result.flows["start"], kind="stable").tolist():
        flow = result.flows[number]
        if flow["state"] == WAITING:
            continue
        if flow["state"] == REFUSED:
            yield _refusal(result, flow)
            continue
        start, finish = int(flow["start"]), int(flow["finish"])
        finish = result.time if finish == NEVER else finish
        rows = free.setdefault(int(flow["source"]), [])
        row = next((n for n, at in enumerate(rows) if at <= start), len(rows))
        if row == len(rows):
            yield from named_row(int(flow["source"]) + 1, row + 1, f"flows {row + 1}")
        rows[row : row + 1] = [finish]
        yield {
            "ph": "X",
            "name": f"{_traffic(result, flow)} to {result.end_name(flow['target'])}",
            "cat": "flow",
            "ts": start / PS_PER_US,
            "dur": (finish - start) / PS_PER_US,
            "pid": int(flow["source"]) + 1,
            "tid": row + 1,
            "args": {
                "flow": number,
                "state": STATES[flow["state"]],
                **{name: int(flow[name]) for name in COUNTS},
            },
        }


def _refusal(result: ScenarioResult, flow: Any) -> dict[str, Any]:
    """Return an instant for a refused flow, of which nothing was sent."""
    return {
        "ph": "i",
        "s": "p",
        "name": f"{_traffic(result, flow)} to {result.end_name(flow['target'])} refused",
        "ts": int(flow["start"]) / PS_PER_US,
        "pid": int(flow["source"]) + 1,
        "tid": 0,
    }


def _traffic(result: ScenarioResult, flow: Any) -> str:
    number = int(flow["traffic"])
    return result.traffic[number] if number < len(result.traffic) else "flow"


def _throughput(result: ScenarioResult) -> Iterator[dict[str, Any]]:
    """Yield the throughput of each traffic in Gb/s, from one recorded time to the next."""
    for number, name in enumerate(result.traffic):
        for at, rate in zip(result.delivered_at, result.throughput(number)[1], strict=False):
            yield {
                "ph": "C",
                "name": f"throughput of {name}",
                "ts": int(at) / PS_PER_US,
                "pid": 0,
                "args": {"Gb/s": round(float(rate) / 1e9, 3)},
            }


def _queues(result: ScenarioResult) -> Iterator[dict[str, Any]]:
    """Yield the counters where they change. Queues that were always empty are left out."""
    classes = len(result.classes) > 1
    for column, queue in enumerate(result.queues):
        values = result.queued[:, column]
        if not values.any():
            continue
        link, class_ = int(queue["link"]), int(queue["class"])
        name = f"queue of {result.link_name(link)}"
        if classes and class_ < len(result.classes):
            name += f", {result.classes[class_]}"
        changes = np.concatenate([[True], values[1:] != values[:-1]])
        for row in np.nonzero(changes)[0].tolist():
            yield {
                "ph": "C",
                "name": name,
                "ts": int(result.times[row]) / PS_PER_US,
                "pid": int(result.links["node"][link]) + 1,
                "args": {"bytes": int(values[row])},
            }
