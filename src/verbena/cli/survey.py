# SPDX-License-Identifier: Apache-2.0
"""Queries the devices of a libibverbs, as plain data for tables and JSON.

`verbena devices` and `verbena info` call devices(). Opening a device raises VerbsError.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from verbena import verbs

LINK_LAYERS = {
    verbs.LinkLayer.UNSPECIFIED: "Unspecified",
    verbs.LinkLayer.INFINIBAND: "InfiniBand",
    verbs.LinkLayer.ETHERNET: "Ethernet",
}
GID_TYPES = {
    verbs.GidType.IB: "IB",
    verbs.GidType.ROCE_V1: "RoCE v1",
    verbs.GidType.ROCE_V2: "RoCE v2",
}


@dataclass(frozen=True)
class GidView:
    """An entry of a port's GID table. `address` is the GID as an IPv4 or IPv6 address."""

    index: int
    address: str
    type: str
    interface: str


@dataclass(frozen=True)
class PortView:
    """A port; `mtu` and `max_message` are in bytes.

    `lid` is 0 on Ethernet. `pkeys` is the P_Key table up to its last entry that is not empty.
    """

    number: int
    state: str
    link_layer: str
    mtu: int
    max_message: int
    lid: int
    lmc: int
    pkeys: list[int]
    gids: list[GidView]


@dataclass(frozen=True)
class DeviceView:
    """A device with its ports; `limits` are the numbers of ibv_query_device by their names."""

    name: str
    guid: str
    firmware: str
    limits: dict[str, int]
    ports: list[PortView]


def address_text(gid: bytes) -> str:
    """Return the IPv4 or IPv6 address of a GID as text.

    >>> address_text(bytes(10) + bytes([255, 255, 10, 0, 0, 1]))
    '10.0.0.1'
    """
    address = ipaddress.IPv6Address(gid)
    return str(address.ipv4_mapped or address)


def interface_name(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:  # 0: none; or it went away
        return ""


def gid_view(entry: verbs.GidEntry) -> GidView:
    return GidView(
        index=entry.gid_index,
        address=address_text(entry.gid.raw),
        type=GID_TYPES[entry.gid_type],
        interface=interface_name(entry.ndev_ifindex),
    )


def pkey_table(context: verbs.Context, number: int, length: int) -> list[int]:
    table = [context.query_pkey(number, index) for index in range(length)]
    while table and not table[-1]:
        table.pop()
    return table


def port_view(context: verbs.Context, number: int) -> PortView:
    port = context.query_port(number)
    table = [entry for entry in context.query_gid_table() if entry.port_num == number]
    return PortView(
        number=number,
        state=port.state.name,
        link_layer=LINK_LAYERS[port.link_layer],
        mtu=port.active_mtu.nbytes,
        max_message=port.max_msg_sz,
        lid=port.lid,
        lmc=port.lmc,
        pkeys=pkey_table(context, number, port.pkey_tbl_len),
        gids=[gid_view(entry) for entry in table],
    )


def limits(attributes: Any) -> dict[str, int]:
    names = [name for name in dir(attributes) if name.startswith("max_")]
    return {name: int(getattr(attributes, name)) for name in names}


def device_view(device: verbs.Device) -> DeviceView:
    """Open a device and query it. Raises VerbsError."""
    with device.open() as context:
        attributes = context.query_device()
        ports = range(1, attributes.phys_port_cnt + 1)
        return DeviceView(
            name=device.name,
            guid=f"{device.guid:016x}",
            firmware=attributes.fw_ver,
            limits=limits(attributes),
            ports=[port_view(context, number) for number in ports],
        )


def devices(library: str | None = None) -> list[DeviceView]:
    """Return the devices that `library` finds: "packaged" (Verbena's), "system", or a path."""
    return [device_view(device) for device in verbs.get_device_list(library)]
