# SPDX-License-Identifier: Apache-2.0
"""Results as Parquet files, for programs that read tables.

``ScenarioResult.to_parquet`` and ``from_parquet`` call ``write`` and ``read``. The tables have
names in place of numbers, null for what has not happened, and units in the metadata of the fields.
What is written and read again is the same result, except for its fabric and the wall time of the
run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena._files import writing
from verbena.sim._world import STATES
from verbena.sim.inside_tables import INSIDE_UNITS, inside_columns, slice_columns
from verbena.sim.parquet_reports import SWEEP_UNITS, packed, sweep_columns, unpacked
from verbena.sim.result import FLOWS, LINKS, NEVER, QUEUES, ScenarioResult, status_name, structured

__all__ = ["arrow", "read", "with_metadata", "with_units", "write"]

KEY = b"verbena"
FORMAT = 3
# "wall" is left out, so that two runs with one seed write equal files.
PLAIN = ("name", "version", "settings", "variant", "changes", "seed", "end", "time", "events",
         "nodes", "groups", "traffic", "classes", "packets", "wrong", "blocked", "notes",
         "link_events", "route_changes")  # fmt: skip
TUPLES = ("nodes", "groups", "traffic", "classes", "blocked", "notes", "route_changes")
STATUSES = tuple(map(status_name, range(256)))
UNITS = {
    **dict.fromkeys(("time", "start", "finish", "delay", "stalled"), "ps"),
    **dict.fromkeys(("bytes", "done", "lost", "queue_max", "delivered"), "B"),
    "rate": "bit/s",
    "utilisation": "1",
    **{name: "packets" for name in (*(LINKS.names or ()), "retransmissions", "notices")
       if name in ("packets", "marks", "pauses", "retransmissions", "notices")
       or name.startswith("dropped_")},
}  # fmt: skip


def arrow() -> Any:
    """Return PyArrow. Raises ModuleNotFoundError, which says what to install."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Parquet needs pyarrow: pip install pyarrow", name=error.name
        ) from None
    return pyarrow


def with_units(table: Any, units: dict[str, str]) -> Any:
    """Return the table with the unit of each column that has one in the field's metadata
    ("unit")."""
    for place, field in enumerate(table.schema):
        if field.name in units:
            noted = field.with_metadata({"unit": units[field.name]})
            table = table.cast(table.schema.set(place, noted))
    return table


def with_metadata(table: Any, plain: dict[str, Any]) -> Any:
    """Return the table with these values as JSON in the metadata of its schema ("verbena")."""
    return table.replace_schema_metadata({KEY: json.dumps(plain).encode()})


def write(result: ScenarioResult, folder: Path) -> None:
    """Write flows.parquet, links.parquet, queues.parquet and throughput.parquet into a folder.

    The metadata of each file has all that is not an array. queues.parquet has a row for each queue
    and time: time, link, class, bytes, paused. throughput.parquet has a row for each traffic and
    time: time, traffic, delivered. With a subnet manager there is sweeps.parquet, with a row for
    each of its sweeps; with insides insides.parquet, with a row for each host that has one, and
    inside_slices.parquet if slices were recorded. Links have the names that they have everywhere,
    "s0-h1". Raises OSError.
    """
    pyarrow = arrow()
    with writing(folder, "the folder of tables"):
        folder.mkdir(parents=True, exist_ok=True)
    plain = {"format": FORMAT, **{name: getattr(result, name) for name in PLAIN}}
    if reports := packed(result):
        plain["reports"] = reports
    names = _Names(pyarrow, result)
    if result.management is not None:
        sweeps = with_metadata(pyarrow.table(sweep_columns(result.management)), plain)
        path = folder / "sweeps.parquet"
        pyarrow.parquet.write_table(with_units(sweeps, SWEEP_UNITS), path)
    for name, columns in _inside_tables(result):
        table = with_metadata(pyarrow.table(columns), plain)
        path = folder / f"{name}.parquet"
        pyarrow.parquet.write_table(with_units(table, INSIDE_UNITS), path)
    for name, columns in (
        ("flows", _flow_columns(names, result)),
        ("links", _link_columns(names, result)),
        ("queues", _queue_columns(names, result)),
        ("throughput", _throughput_columns(names, result)),
    ):
        table = with_metadata(pyarrow.table(columns), plain)
        pyarrow.parquet.write_table(with_units(table, UNITS), folder / f"{name}.parquet")


def _inside_tables(result: ScenarioResult) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and columns of the files about insides."""
    if result.insides:
        yield "insides", inside_columns(result.insides, result.nodes)
    if any(len(report.slices) for report in result.insides):
        yield "inside_slices", slice_columns(result.insides, result.nodes)


class _Names:
    """Converts columns of numbers to columns of names, and back."""

    def __init__(self, pyarrow: Any, result: ScenarioResult) -> None:
        self.pyarrow = pyarrow
        self.ends = (*result.nodes, *result.groups)
        self.traffic = _apart(result.traffic)
        some = len(result.classes)
        self.classes = (
            (*_apart(result.classes), *(str(n) for n in range(some, 256))) if some else ()
        )
        self.links = result.link_names

    def of(self, names: Sequence[str], numbers: NDArray[Any]) -> Any:
        """Return the names of the numbers; the numbers themselves if there are no names."""
        if not names:
            return np.ascontiguousarray(numbers)
        made = self.pyarrow.array(names, self.pyarrow.string())
        return made.take(self.pyarrow.array(numbers.astype(np.int64)))

    def back(self, names: Sequence[str], column: Any) -> NDArray[Any]:
        """Return the numbers of the names. Raises ValueError for a name that is not in the list."""
        if not names:
            numbers: NDArray[Any] = column.to_numpy()
            return numbers
        known = self.pyarrow.array(names, self.pyarrow.string())
        found: NDArray[Any] = self.pyarrow.compute.index_in(column, value_set=known).to_numpy()
        if len(found) and (np.isnan(found.astype(float)).any()):
            raise ValueError("names that are not in the file's own lists")
        return found


def _apart(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with a number after each that occurred before: "flows", "flows (2)"."""
    made: list[str] = []
    for name in names:
        count = 1
        while (own := name if count == 1 else f"{name} ({count})") in made:
            count += 1
        made.append(own)
    return tuple(made)


def _flow_columns(names: _Names, result: ScenarioResult) -> dict[str, Any]:
    flows, array = result.flows, names.pyarrow.array
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(flows[name]) for name in FLOWS.names or ()
    }
    for name in ("source", "target"):
        columns[name] = names.of(names.ends, flows[name])
    columns["traffic"] = names.of(names.traffic, flows["traffic"])
    columns["class"] = names.of(names.classes, flows["class"])
    columns["state"] = names.of(STATES, flows["state"])
    columns["finish"] = array(columns["finish"], mask=flows["finish"] == NEVER)
    status = names.of(STATUSES, flows["status"])
    columns["status"] = names.pyarrow.compute.if_else(
        array(flows["status"] != 0), status, names.pyarrow.scalar(None, names.pyarrow.string())
    )
    return columns


def _link_columns(names: _Names, result: ScenarioResult) -> dict[str, Any]:
    links = result.links
    columns = {"link": names.of(names.links, np.arange(len(links)))}
    columns |= {name: np.ascontiguousarray(links[name]) for name in LINKS.names or ()}
    for name in ("node", "to_node"):
        columns[name] = names.of(result.nodes, links[name])
    return columns


def _queue_columns(names: _Names, result: ScenarioResult) -> dict[str, Any]:
    rows, many = len(result.times), len(result.queues)
    return {
        "time": np.repeat(result.times, many),
        "link": names.of(names.links, np.tile(result.queues["link"], rows)),
        "class": names.of(names.classes, np.tile(result.queues["class"], rows)),
        "bytes": result.queued.reshape(-1),
        "paused": result.paused.reshape(-1),
    }


def _throughput_columns(names: _Names, result: ScenarioResult) -> dict[str, Any]:
    rows, many = result.delivered.shape
    return {
        "time": np.repeat(result.delivered_at, many),
        "traffic": names.of(names.traffic, np.tile(np.arange(many), rows)),
        "delivered": result.delivered.reshape(-1),
    }


# ---- back ----------------------------------------------------------------------------------------


def read(folder: Path) -> ScenarioResult:
    pyarrow = arrow()
    tables = {
        name: pyarrow.parquet.read_table(folder / f"{name}.parquet")
        for name in ("flows", "links", "queues", "throughput")
    }
    found = (tables["flows"].schema.metadata or {}).get(KEY)
    plain = {} if found is None else json.loads(found)
    if plain.pop("format", None) != FORMAT:
        raise ValueError(f"{folder}/flows.parquet is no result that this version of Verbena reads")
    reports = plain.pop("reports", {})
    slices: dict[str, Any] = {}
    if any(each["slices"] for each in reports.get("insides", ())):
        slices = pyarrow.parquet.read_table(folder / "inside_slices.parquet").to_pydict()
    found_reports = unpacked(reports, slices)
    for name in TUPLES:
        plain[name] = tuple(plain[name])
    plain["link_events"] = tuple(map(tuple, plain["link_events"]))
    nodes = {name: number for number, name in enumerate(plain["nodes"])}
    plain["wall"] = math.nan
    empty = ScenarioResult(
        flows=np.zeros(0, FLOWS), links=_links_back(tables["links"], nodes), **plain
    )
    names = _Names(pyarrow, empty)
    return ScenarioResult(
        flows=_flows_back(names, tables["flows"]),
        links=empty.links,
        **_queues_back(names, tables["queues"]),
        delivered_at=tables["throughput"]["time"].to_numpy()[:: max(1, len(empty.traffic))],
        delivered=tables["throughput"]["delivered"].to_numpy().reshape(-1, len(empty.traffic)),
        **plain,
        **found_reports,
    )


def _flows_back(names: _Names, table: Any) -> NDArray[np.void]:
    fill = names.pyarrow.compute.fill_null
    back = {
        "source": names.ends,
        "target": names.ends,
        "traffic": names.traffic,
        "class": names.classes,
        "state": STATES,
        "status": STATUSES,
    }
    columns = {}
    for name in FLOWS.names or ():
        column = table[name]
        if name == "status":
            column = fill(column, STATUSES[0])
        elif name == "finish":
            column = fill(column, names.pyarrow.scalar(NEVER, names.pyarrow.uint64()))
        columns[name] = names.back(back.get(name, ()), column)
    return structured(FLOWS, columns, table.num_rows)


def _links_back(table: Any, nodes: dict[str, int]) -> NDArray[np.void]:
    columns = {name: table[name] for name in LINKS.names or ()}
    made = {
        name: [nodes[node] for node in column.to_pylist()]
        if name in ("node", "to_node")
        else column.to_numpy()
        for name, column in columns.items()
    }
    return structured(LINKS, made, table.num_rows)


def _queues_back(names: _Names, table: Any) -> dict[str, Any]:
    time = table["time"].to_numpy()
    times, first = np.unique(time, return_index=True)
    many = len(time) // len(times) if len(times) else 0
    some = table.slice(0, many)
    columns = {
        "link": names.back(names.links, some["link"]),
        "class": names.back(names.classes, some["class"]),
    }
    shape = (len(times), many)
    return {
        "queues": structured(QUEUES, columns, many),
        "times": times[np.argsort(first)],
        "queued": table["bytes"].to_numpy().reshape(shape),
        "paused": table["paused"].to_numpy(zero_copy_only=False).reshape(shape),
    }
