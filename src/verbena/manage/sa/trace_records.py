# SPDX-License-Identifier: Apache-2.0
"""TraceRecords: the nodes of a path in their order (IBA 15.2.5.19), for GetTraceTable."""

from __future__ import annotations

from ..attribute_ids import SaStatus
from ..sa_records import PathRecord, TraceRecord
from ..sm.discovered import SubnetPort
from .path_metrics import PathMetrics
from .refusal import SaRefusal

__all__ = ["trace_records"]


def trace_records(
    path: PathRecord, source: SubnetPort, metrics: PathMetrics, prefix: int, generation: int
) -> list[TraceRecord]:
    """Return a record for each node of a path, from the source to the destination.

    IDs are GUIDs; ``generation`` counts the sweeps, since IDs are valid for one of them only.
    Raises SaRefusal if the tables lead nowhere.
    """
    links = metrics.walk(source, path.dlid)
    if links is None:
        raise SaRefusal(SaStatus.NO_RECORDS, f"no path leads from {source!r} to LID {path.dlid}")
    found = []
    entry: SubnetPort | None = None
    for out, into in links:
        found.append(_record(entry, out, prefix, generation))
        entry = into
    found.append(_record(entry or source, None, prefix, generation))
    return found


def _record(
    entry: SubnetPort | None, out: SubnetPort | None, prefix: int, generation: int
) -> TraceRecord:
    node = (out or entry).node  # type: ignore[union-attr]
    entry_number = entry.number if entry else 0
    out_number = out.number if out else 0
    return TraceRecord(
        gid_prefix=prefix,
        id_generation=generation & 0xFFFF,
        node_type=node.kind,
        node_id=node.guid,
        chassis_id=node.node_info.system_image_guid,
        entry_port_id=_port_id(entry),
        exit_port_id=_port_id(out),
        entry_port=entry_number,
        exit_port=out_number,
    )


def _port_id(port: SubnetPort | None) -> int:
    """Return the GUID of an end port; a switch's external port has that of its switch."""
    return 0 if port is None else port.guid or port.node.guid
