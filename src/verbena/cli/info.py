# SPDX-License-Identifier: Apache-2.0
"""`verbena info`: the device, its limits and GIDs, and how peers' memory is reached here."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from verbena.cli.devices import gid_rows
from verbena.cli.probe import ProbeError, Reach, probe
from verbena.cli.survey import DeviceView, devices
from verbena.cli.table import aligned
from verbena.verbs import library


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="verbena info",
        description="Describe Verbena's device as a program of this user sees it here, and try "
        "between two processes how they reach each other's memory.",
        epilog="VERBENA_COPY=shared, cma or bounce forces a way, for tests.",
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
        ["library", path],
    ]
    for port in device.ports:
        rows.append([f"port {port.number}", f"{port.state}, {port.link_layer}, MTU {port.mtu} B"])
        rows.append(["longest message", f"{port.max_message} B"])
    return aligned(rows)


def limits_text(device: DeviceView) -> str:
    return "Limits:\n" + aligned([[k, str(v)] for k, v in device.limits.items()], "  ")


def as_json(found: list[DeviceView], path: str, reach: Reach) -> dict[str, Any]:
    listed = [asdict(device) for device in found]
    return {"library": path, "devices": listed, "peer_memory": asdict(reach)}


def main(arguments: list[str]) -> int:
    """Runs `verbena info`."""
    options = parser().parse_args(arguments)
    path, found = library.find(), devices()
    try:
        reach = probe()
    except ProbeError as error:
        print(f"verbena info: {error}. verbena doctor may say why.", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(as_json(found, path, reach), indent=2))
        return 0
    for device in found:
        gids = "GIDs:\n" + aligned([row[2:] for row in gid_rows([device])], "  ")
        print(device_text(device, path), gids, limits_text(device), sep="\n\n")
    print(f"\n{reach_text(reach)}")
    return 0
