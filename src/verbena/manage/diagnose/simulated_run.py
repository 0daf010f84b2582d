# SPDX-License-Identifier: Apache-2.0
"""What a run of ``verbena.sim`` has measured, as the sweeps before and after it would see it.

``verbena diagnose --world`` calls ``snapshots_of_result``. The result is read by duck typing, since
the simulator is above this package. Stalls for credits and pauses are XmitWait, in words of time;
damaged packets are the receiver's errors, and other drops are XmitDiscards of the sender.
"""

from __future__ import annotations

from typing import Any

from .fabric_snapshot import FabricSnapshot, FlowTrouble, PortKey

__all__ = ["snapshots_of_result"]

PS = 1e12
WORD_BITS = 32
PACKET_BYTES = 4096
DISCARDED = ("full", "lifetime", "headroom", "watchdog")


def snapshots_of_result(
    result: Any, routes: Any | None = None
) -> tuple[FabricSnapshot, FabricSnapshot]:
    """Return the sweeps before and after a ``ScenarioResult``.

    ``routes`` are its ``Routes``; with them pairs of hosts that lose packets show the link.
    """
    before, after = _nodes(result, 0.0), _nodes(result, result.time / PS)
    for row in result.links:
        out = PortKey(result.nodes[row["node"]], int(row["port"]))
        into = PortKey(result.nodes[row["to_node"]], int(row["to_port"]))
        for snapshot in (before, after):
            snapshot.connect(out, into)
            for key in (out, into):
                snapshot.port(key).gbps = float(row["rate"]) / 1e9
        damaged = int(row["dropped_damaged"])
        after.add_counters(
            out,
            {
                "xmit_packets": int(row["packets"]),
                "xmit_data": int(row["bytes"]) // 4,
                "xmit_wait": int(float(row["stalled"]) / PS * float(row["rate"]) / WORD_BITS),
                "xmit_discards": sum(int(row[f"dropped_{reason}"]) for reason in DISCARDED),
            },
        )
        after.add_counters(into, {"symbol_errors": damaged, "rcv_errors": damaged})
    if routes is not None:
        _note_tables(after, routes)
        _note_flows(after, result)
    return before, after


def _nodes(result: Any, time: float) -> FabricSnapshot:
    snapshot = FabricSnapshot(time)
    switches = set(result.fabric.switches) if result.fabric is not None else set[str]()
    for name in result.nodes:
        snapshot.add_node(name, is_switch=name in switches)
    return snapshot


def _note_tables(snapshot: FabricSnapshot, routes: Any) -> None:
    tables = routes.tables
    for node, port, lid in zip(tables.end_node, tables.end_port, tables.lid, strict=True):
        snapshot.nodes[tables.names[node]].lids[int(port)] = range(int(lid), int(lid) + 1)
    if routes.lft.dtype.itemsize > 1:
        return  # switches with more than 254 ports have no such tables
    for number, row in enumerate(routes.lft):
        snapshot.nodes[tables.switch_name(number)].table = row.tobytes()


def _note_flows(snapshot: FabricSnapshot, result: Any) -> None:
    names = result.nodes
    for flow in result.flows:
        if flow["target"] < len(names):
            sent = max(1, int(flow["bytes"]) // PACKET_BYTES)
            lost = int(flow["retransmissions"])
            snapshot.flows.append(
                FlowTrouble(names[flow["source"]], names[flow["target"]], lost, sent)
            )
