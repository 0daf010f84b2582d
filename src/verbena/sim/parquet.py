# SPDX-License-Identifier: Apache-2.0
"""Results as Parquet files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena.sim.result import FLOWS, LINKS, QUEUES, ScenarioResult, structured

__all__ = ["arrow", "read", "write"]

KEY = b"verbena"
PLAIN = ("name", "seed", "end", "time", "wall", "events", "nodes", "traffic", "classes", "packets",
         "wrong", "blocked", "notes", "link_events")  # fmt: skip


def arrow() -> Any:
    """PyArrow. Raises ModuleNotFoundError that says what to install."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Parquet needs pyarrow: pip install pyarrow", name=error.name
        ) from None
    return pyarrow


def write(result: ScenarioResult, folder: Path) -> None:
    """flows.parquet with all that is no array in its metadata, links.parquet, queues.parquet.

    queues.parquet has a row for each queue and time: time, link, class, bytes, paused.
    """
    pyarrow = arrow()
    folder.mkdir(parents=True, exist_ok=True)
    plain = json.dumps({name: getattr(result, name) for name in PLAIN}).encode()
    rows, many = len(result.times), len(result.queues)
    samples = {
        "time": np.repeat(result.times, many),
        "link": np.tile(result.queues["link"], rows),
        "class": np.tile(result.queues["class"], rows),
        "bytes": result.queued.reshape(-1),
        "paused": result.paused.reshape(-1),
    }
    tables = {
        "flows": {name: result.flows[name] for name in FLOWS.names or ()},
        "links": {name: result.links[name] for name in LINKS.names or ()},
        "queues": samples,
    }
    for name, columns in tables.items():
        table = pyarrow.table({key: np.ascontiguousarray(value) for key, value in columns.items()})
        table = table.replace_schema_metadata({KEY: plain})
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")


def read(folder: Path) -> ScenarioResult:
    pyarrow = arrow()
    tables = {
        name: pyarrow.parquet.read_table(folder / f"{name}.parquet")
        for name in ("flows", "links", "queues")
    }
    found = (tables["flows"].schema.metadata or {}).get(KEY)
    if found is None:
        raise ValueError(f"{folder}/flows.parquet is no result of Verbena's")
    plain = json.loads(found)
    for name in ("nodes", "traffic", "classes", "blocked", "notes"):
        plain[name] = tuple(plain[name])
    plain["link_events"] = tuple(map(tuple, plain["link_events"]))
    return ScenarioResult(
        flows=_array(tables["flows"], FLOWS),
        links=_array(tables["links"], LINKS),
        **_samples(tables["queues"]),
        **plain,
    )


def _array(table: Any, kind: np.dtype[np.void]) -> NDArray[np.void]:
    columns = {name: table[name].to_numpy() for name in kind.names or ()}
    return structured(kind, columns, table.num_rows)


def _samples(table: Any) -> dict[str, Any]:
    time = table["time"].to_numpy()
    times, first = np.unique(time, return_index=True)
    many = len(time) // len(times) if len(times) else 0
    columns = {name: table[name].to_numpy()[:many] for name in ("link", "class")}
    shape = (len(times), many)
    return {
        "queues": structured(QUEUES, columns, many),
        "times": times[np.argsort(first)],
        "queued": table["bytes"].to_numpy().reshape(shape),
        "paused": table["paused"].to_numpy(zero_copy_only=False).reshape(shape),
    }
