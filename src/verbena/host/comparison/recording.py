# SPDX-License-Identifier: Apache-2.0
"""The timelines of several ways in one file: each way has processes of its own, from time 0 on.

``verbena compare --timeline`` makes a ``Recording`` and gives it to ``compare_ways``. A way begins
its part when its measured transfer does, and ends it when nothing of the transfer is left to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from verbena._arguments import checked_class
from verbena._trace_events import PS_PER_US, Event, write_events
from verbena.host.errors import HostError, HostTypeError

MOST_BYTES = 1 << 20


class Follows(Protocol):
    """What has seen a transfer: ``verbena.host.timeline.Timeline``, or the rows of tcp_rows.py."""

    def events(self) -> Iterator[Event]:
        """Names of processes and rows first, then what happened by time."""

    def close(self) -> None:
        """Sees nothing more."""


@checked_class(HostTypeError)
class Recording:
    """Parts by the title of their way, in the order in which they were begun."""

    def __init__(self) -> None:
        self.title = ""  # of the way that begins its part next
        self._parts: list[tuple[str, int, Follows]] = []

    @staticmethod
    def check(size: int) -> None:
        """HostError for a transfer that has too many transactions to show each."""
        if size > MOST_BYTES:
            raise HostError(
                f"{size:,} bytes: a timeline shows each transaction, so it has at most "
                f"{MOST_BYTES >> 20} MiB for each way"
            )

    def begin(self, start: int, timeline: Follows) -> None:
        """Adds a part; ``start`` is its time 0, in ps."""
        self._parts.append((self.title, start, timeline))

    def end(self) -> None:
        """The part that was begun last sees nothing more."""
        self._parts[-1][2].close()

    def events(self) -> Iterator[Event]:
        """All parts as trace events; processes and arrows have numbers of their own."""
        processes = arrows = 0
        for title, start, timeline in self._parts:
            events = list(timeline.events())
            for event in events:
                yield _moved(event, title, start, processes, arrows)
            processes = max((processes + event["pid"] for event in events), default=processes)
            arrows += max((event["id"] for event in events if "id" in event), default=0)

    def write(self, path: Path) -> None:
        """Writes a file for https://ui.perfetto.dev or chrome://tracing. Raises OSError."""
        write_events(path, self.events())


def _moved(event: Event, title: str, start: int, processes: int, arrows: int) -> Event:
    made = {**event, "pid": event["pid"] + processes}
    if "ts" in made:
        made["ts"] = max(0.0, round(made["ts"] - start / PS_PER_US, 6))
    if "id" in made:
        made["id"] += arrows
    if made["ph"] == "M" and made["name"] == "process_name":
        made["args"] = {"name": f"{title}: {event['args']['name']}"}
    return made
