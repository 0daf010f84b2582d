# SPDX-License-Identifier: Apache-2.0
"""A file in the trace event format (JSON), which Perfetto and chrome://tracing show.

The timelines of verbena.sim and verbena.host write theirs with this. Times in events are in
microseconds, as the format has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verbena._files import writing

PS_PER_US = 1e6
Event = dict[str, Any]


def write_events(path: Path, events: Iterable[Event]) -> None:
    """Writes events to a file, one a line. Raises OSError."""
    with writing(path, "the timeline"), path.open("w") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + json.dumps(event))
        file.write("\n]}\n")


def named_process(number: int, name: str) -> Event:
    """Names a process of the timeline, which is a group of rows."""
    return {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}


def named_row(process: int, number: int, name: str) -> list[Event]:
    """Names a row, and puts it at the place of its number."""
    where = {"ph": "M", "pid": process, "tid": number}
    return [
        {**where, "name": "thread_name", "args": {"name": name}},
        {**where, "name": "thread_sort_index", "args": {"sort_index": number}},
    ]
