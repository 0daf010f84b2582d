# SPDX-License-Identifier: Apache-2.0
"""`verbena devices`: the devices that a program sees, with their ports and GIDs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

from verbena.cli.exact import ExactParser
from verbena.cli.survey import DeviceView, PortView, devices
from verbena.cli.table import aligned

NONE = """no RDMA device found.
Verbena's own is always there; --library system has one only where an adapter and its driver are."""


def parser() -> argparse.ArgumentParser:
    made = ExactParser(
        prog="verbena devices",
        description="List the RDMA devices with the state and the GIDs of their ports. The number "
        "of a GID is what programs take with -g or -x.",
    )
    made.add_argument(
        "--library",
        metavar="WHICH",
        help="whose devices: packaged (Verbena's, the default), system (real adapters), or the "
        "path of a libibverbs",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


# Columns that are shown if a port has something in them.
Text = Callable[[PortView], str]
RARE: dict[str, Text] = {
    "LID": lambda port: str(port.lid or ""),
    "LMC": lambda port: str(port.lmc) if port.lid else "",
    "P_Keys": lambda port: pkeys_text(port.pkeys),
}


def pkeys_text(table: list[int]) -> str:
    """Return the P_Keys, or nothing for the default partition alone."""
    return "" if table == [0xFFFF] else ",".join(f"{pkey:#06x}" for pkey in table)


def device_rows(found: list[DeviceView]) -> Iterator[list[str]]:
    ports = [port for device in found for port in device.ports]
    shown = {name: text for name, text in RARE.items() if any(map(text, ports))}
    yield ["device", "node GUID", "port", "state", "link layer", "MTU", *shown]
    for device in found:
        for port in device.ports:
            facts = [str(port.number), port.state, port.link_layer, str(port.mtu)]
            yield [device.name, device.guid, *facts, *(text(port) for text in shown.values())]


def gid_rows(found: list[DeviceView]) -> Iterator[list[str]]:
    yield ["device", "port", "GID", "address", "type", "interface"]
    for device in found:
        for port in device.ports:
            for gid in port.gids:
                facts = [str(gid.index), gid.address, gid.type, gid.interface]
                yield [device.name, str(port.number), *facts]


def main(arguments: list[str]) -> int:
    """Run `verbena devices`. Returns its exit status: 1 when there is no device."""
    options = parser().parse_args(arguments)
    found = devices(options.library)
    if options.json:
        json.dump([asdict(device) for device in found], sys.stdout, indent=2)
        print()
    elif found:
        print(aligned(list(device_rows(found))), aligned(list(gid_rows(found))), sep="\n\n")
    else:
        print(f"verbena devices: {NONE}", file=sys.stderr)
    return 0 if found else 1
