# SPDX-License-Identifier: Apache-2.0
"""The files below /sys and /dev of a host of the fabric, whose contents are those of its ports now.

A program asks for the list once (role TREE), and for a file's contents whenever it opens it (role
FILE). Names and formats are those of Linux' Documentation/ABI/stable/sysfs-class-infiniband. Files
that are the same on every device of Verbena are the program's own.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.manage.agents.pma import port_total
from verbena.manage.errors import MadError
from verbena.manage.smp_attributes import PortInfo

from .messages import Welcome

if TYPE_CHECKING:
    from verbena.manage.agents import NodeAgent, NodePort

    from .live_subnet import LiveSubnet
    from .server import FabricConnection

__all__ = ["DEVICE", "HostFiles", "HostFilesRole"]

DEVICE = "verbena0"
MOST_P_KEYS = 32  # hca/layout.h
UMAD_ABI = 5
STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
PHYSICAL_STATES = (
    *("<unknown>", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp"),
    *("LinkErrorRecovery", "Phy Test"),
)
COUNTERS = {
    "symbol_error": "symbol_errors",
    "link_error_recovery": "link_error_recovery",
    "link_downed": "link_downed",
    "port_rcv_errors": "rcv_errors",
    "port_rcv_remote_physical_errors": "rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors": "rcv_switch_relay_errors",
    "port_xmit_discards": "xmit_discards",
    "port_xmit_constraint_errors": "xmit_constraint_errors",
    "port_rcv_constraint_errors": "rcv_constraint_errors",
    "local_link_integrity_errors": "local_link_integrity_errors",
    "excessive_buffer_overrun_errors": "excessive_buffer_overrun_errors",
    "VL15_dropped": "vl15_dropped",
    "port_xmit_wait": "xmit_wait",
    "port_xmit_data": "xmit_data",
    "port_rcv_data": "rcv_data",
    "port_xmit_packets": "xmit_packets",
    "port_rcv_packets": "rcv_packets",
    "unicast_xmit_packets": "unicast_xmit_packets",
    "unicast_rcv_packets": "unicast_rcv_packets",
    "multicast_xmit_packets": "multicast_xmit_packets",
    "multicast_rcv_packets": "multicast_rcv_packets",
}
Contents = Callable[[], str]


class HostFiles:
    """The files of one host: their contents by path, and the list of all."""

    def __init__(self, node: NodeAgent) -> None:
        self.node = node
        self.files: dict[str, Contents] = {}
        self.devices: list[str] = []
        self._add_device()
        for port in node.end_ports():
            self._add_port(port)
            self._add_umad(port.number)
        self.files["/sys/class/infiniband_mad/abi_version"] = lambda: f"{UMAD_ABI}"

    def listed(self) -> str:
        """Return a line for each file: its kind, its path, and for a device the port's number."""
        return "".join([*self.devices, *(f"f {path}\n" for path in self.files)])

    def _add_device(self) -> None:
        node, folder = self.node, f"/sys/class/infiniband/{DEVICE}"
        self.files |= {
            f"{folder}/node_guid": lambda: _guid(node.guid),
            f"{folder}/sys_image_guid": lambda: _guid(int.from_bytes(node.node_info[4:12], "big")),
            f"{folder}/node_desc": lambda: bytes(node.description).rstrip(b"\0").decode(),
        }

    def _add_port(self, port: NodePort) -> None:
        folder = f"/sys/class/infiniband/{DEVICE}/ports/{port.number}"
        counted = self.node.surroundings.read_counters

        def get(name: str) -> int:
            return int(PortInfo.get(port.info, name))

        def counter(name: str) -> Contents:
            def total() -> str:
                counted()
                return str(port_total(port, name))

            return total

        own: dict[str, Contents] = {
            "lid": lambda: f"{port.lid:#x}",
            "sm_lid": lambda: f"{port.master_sm_lid:#x}",
            "sm_sl": lambda: f"{get('master_sm_sl')}",
            "lid_mask_count": lambda: f"{get('lmc')}",
            "state": lambda: f"{port.state}: {_named(STATES, port.state)}",
            "phys_state": lambda: (
                f"{port.physical_state}: {_named(PHYSICAL_STATES, port.physical_state)}"
            ),
            "rate": lambda: _rate(port),
            "cap_mask": lambda: f"{get('capability_mask'):#010x}",
            "link_layer": lambda: "InfiniBand",
            "gids/0": lambda: _gid(get("gid_prefix"), port.guid),
        }
        for n in range(min(len(port.p_keys) // 2, MOST_P_KEYS)):
            own[f"pkeys/{n}"] = lambda n=n: f"0x{port.p_keys[2 * n : 2 * n + 2].hex()}"  # type: ignore[misc]
        own |= {f"counters/{name}": counter(total) for name, total in COUNTERS.items()}
        self.files |= {f"{folder}/{name}": made for name, made in own.items()}

    def _add_umad(self, number: int) -> None:
        place = number - 1
        for kind, device, minor in (("u", "umad", place), ("i", "issm", 64 + place)):
            self.devices.append(f"{kind} /dev/infiniband/{device}{place} {number}\n")
            folder = f"/sys/class/infiniband_mad/{device}{place}"
            self.files |= {
                f"{folder}/ibdev": lambda: DEVICE,
                f"{folder}/port": lambda: f"{number}",
                f"{folder}/dev": lambda minor=minor: f"231:{minor}",  # type: ignore[misc]
            }


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else "<unknown>"


def _guid(guid: int) -> str:
    text = f"{guid:016x}"
    return ":".join(text[at : at + 4] for at in range(0, 16, 4))


def _gid(prefix: int, guid: int) -> str:
    return f"{_guid(prefix)}:{_guid(guid)}"


def _rate(port: NodePort) -> str:
    """As Linux has it: "100 Gb/sec (4X EDR)", and 2.5 Gb/sec for a lane of SDR."""
    rate = port.settings("active").rate
    if rate is None or not rate.lanes:
        return "2.5 Gb/sec (1X SDR)"
    return f"{rate.gbps:g} Gb/sec ({rate.lanes}X {rate.speed})"


class HostFilesRole:
    """Serves the roles TREE and FILE."""

    def __init__(self, live: LiveSubnet) -> None:
        self.live = live
        self._hosts: dict[str, HostFiles] = {}

    def of(self, host: str) -> HostFiles:
        """Return the files of a host. Raises MadError if there is no such host."""
        node = self.live.host(host)
        found = self._hosts.get(host)
        if found is None or found.node is not node:
            found = self._hosts[host] = HostFiles(node)
        return found

    def tree(self, connection: FabricConnection) -> Welcome:
        """Serve role TREE."""
        try:
            return Welcome(0, self.of(connection.hello.host).listed().encode())
        except MadError as error:
            return Welcome.refused(errno.ENODEV, str(error))

    def file(self, connection: FabricConnection) -> Welcome:
        """Serve role FILE: the data of the hello are the path."""
        hello = connection.hello
        try:
            made = self.of(hello.host).files.get(hello.data.decode(errors="replace"))
        except MadError as error:
            return Welcome.refused(errno.ENODEV, str(error))
        return Welcome(errno.ENOENT) if made is None else Welcome(0, f"{made()}\n".encode())
