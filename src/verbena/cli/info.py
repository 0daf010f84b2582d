# SPDX-License-Identifier: Apache-2.0
"""`verbena info`: the device, its limits and GIDs, the ways to peers, and who has it open."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from verbena import verbs
from verbena.agent.client import describe_agent
from verbena.cli.devices import RARE, gid_rows
from verbena.cli.exact import ExactParser
from verbena.cli.probe import ProbeError, Reach, probe
from verbena.cli.running import Counters, Running, running, total
from verbena.cli.survey import DeviceView, devices
from verbena.cli.table import aligned
from verbena.verbs import library
from verbena.version import full_version


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena info",
        description="Describe Verbena's device as a program of this user sees it here, try "
        "between two processes how they reach each other's memory, and list the processes of this "
        "user that have the device open, with their counters that are not 0, and the agent, which "
        "manages connections.",
        epilog="VERBENA_CARRIER=direct or roce forces a way to peers, VERBENA_COPY=shared, cma or "
        "bounce one to their memory, for tests.",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def yes(value: bool) -> str:
    return "yes" if value else "no"


def own_memory(reach: Reach) -> str:
    return f"{reach.own_memory} (because {reach.reason})" if reach.reason else reach.own_memory


def reach_text(reach: Reach) -> str:
    rows = [
        ["memory that Verbena allocated", f"shared mapping: {yes(reach.shared_memory)}"],
        ["a program's own memory", own_memory(reach)],
    ]
    return "How a peer's memory is reached, tried now between two processes:\n" + aligned(
        rows, "  "
    )


def device_text(device: DeviceView, path: str) -> str:
    rows = [
        ["device", device.name],
        ["node GUID", device.guid],
        ["firmware", device.firmware],
        ["Verbena", full_version()],
        ["library", path],
    ]
    for port in device.ports:
        rare = [f"{name} {text(port)}" for name, text in RARE.items() if text(port)]
        facts = [port.state, port.link_layer, f"active MTU {port.mtu} B", *rare]
        rows.append([f"port {port.number}", ", ".join(facts)])
        rows.append(["longest message", f"{port.max_message} B"])
    return aligned(rows)


def roce(device: str) -> dict[str, Any]:
    """Return RoCE's state in a device: "udp_port" and "local_peers", or "reason"."""
    with verbs.open_device(device) as context:
        return dict((context.describe() or {}).get("roce", {}))


def roce_text(found: dict[str, Any]) -> str:
    """Return the text that says how peers on this host and on others are reached."""
    if "udp_port" not in found:
        rows = [
            ["other hosts", f"not reached: {found.get('reason', 'the library has no RoCE port')}"],
            ["this host", "direct, without packets"],
        ]
    else:
        port = f"RoCE v2 packets, UDP port {found['udp_port']}"
        by_packets = "packets too (VERBENA_CARRIER=roce)"
        rows = [
            ["other hosts", port],
            ["this host", by_packets if found["local_peers"] else "direct, without packets"],
        ]
    return "Ways to peers:\n" + aligned(rows, "  ")


def counters_line(counters: Counters) -> str:
    """Those that are not 0.

    >>> counters_line({"direct": {"sends": 2, "reads": 0}, "udp": {"sent": 0}})
    'direct.sends 2'
    """
    found = (
        f"{part}.{name} {value}"
        for part, named in counters.items()
        for name, value in named.items()
        if value
    )
    return ", ".join(found) or "nothing counted yet"


def running_text(processes: list[Running]) -> str:
    if not processes:
        return "Processes of this user that have the device open: none"
    rows = [
        [each.device, str(each.pid), each.program, counters_line(each.counters)]
        for each in processes
    ]
    if len(processes) > 1:
        rows.append(["all", "", "", counters_line(total(processes))])
    return "Processes of this user that have the device open, and what they counted:\n" + aligned(
        rows, "  "
    )


def agent() -> dict[str, Any] | None:
    """Return what the agent says of itself, None if there is none; "error": it does not answer."""
    try:
        return describe_agent()
    except OSError as error:
        return {"error": str(error) or "it does not answer"}


def agent_text(found: dict[str, Any] | None) -> str:
    """Return the text about the agent.

    >>> agent_text(None)
    'The agent, which manages connections for librdmacm: none runs'
    """
    title = "The agent, which manages connections for librdmacm:"
    if found is None or "error" in found:
        return f"{title} {'none runs' if found is None else found['error']}"
    counted = ", ".join(f"{name} {value}" for name, value in found["messages"].items())
    rows = [
        ["process", str(found["pid"])],
        ["programs", ", ".join(map(str, found["programs"])) or "none"],
        ["listening", ", ".join(found["listening"]) or "nobody"],
        ["groups", ", ".join(found["groups"]) or "none"],
        ["connections", str(found["connections"])],
        *[
            ["backlog full", f"{where}: {count} requests dropped; its program has to read faster"]
            for where, count in sorted(found.get("full_backlogs", {}).items())
        ],
        ["messages", counted or "none yet"],
    ]
    return f"{title}\n" + aligned(rows, "  ")


def limits_text(device: DeviceView) -> str:
    return "Limits:\n" + aligned([[k, str(v)] for k, v in device.limits.items()], "  ")


def as_json(
    found: list[DeviceView],
    path: str,
    ways: list[dict[str, Any]],
    reach: Reach,
    processes: list[Running],
    manager: dict[str, Any] | None,
) -> dict[str, Any]:
    """The member "roce" of the whole is that of the first device."""
    listed = [asdict(device) | {"roce": way} for device, way in zip(found, ways, strict=True)]
    return {
        "version": full_version(),
        "library": path,
        "devices": listed,
        "roce": ways[0] if ways else {},
        "peer_memory": asdict(reach),
        "processes": [asdict(process) for process in processes],
        "counters": total(processes),
        "agent": manager,
    }


def main(arguments: list[str]) -> int:
    """Run `verbena info`. Returns its exit status."""
    options = parser().parse_args(arguments)
    processes = list(running())
    path, found = library.find(), devices()
    ways = [roce(device.name) for device in found]
    try:
        reach = probe()
    except ProbeError as error:
        print(f"verbena info: {error}. verbena doctor may say why.", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(as_json(found, path, ways, reach, processes, agent()), indent=2))
        return 0
    for device, way in zip(found, ways, strict=True):
        first = 2 if len(device.ports) == 1 else 1  # the column before is the port's number
        gids = "GIDs:\n" + aligned([row[first:] for row in gid_rows([device])], "  ")
        parts = (device_text(device, path), gids, limits_text(device), roce_text(way))
        print(*parts, sep="\n\n", end="\n\n")
    print(running_text(processes), agent_text(agent()), reach_text(reach), sep="\n\n")
    return 0
