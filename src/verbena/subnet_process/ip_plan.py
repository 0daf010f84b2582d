# SPDX-License-Identifier: Apache-2.0
"""The IP addresses of a fabric's hosts, which mean something to its connection managers alone.

The ports of the hosts are numbered in the order of the topology: the first 250 have 10.0.0.1 to
10.0.0.250, the next 250 have 10.0.1.1 to 10.0.1.250, and so on. The IPv6 address has the same
number behind fd00::, as fd00::10.0.0.1 or fd00::a00:1. No port changes its addresses.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.manage.agents import NodeAgent, NodePort, Subnet

__all__ = ["IpPlan"]

NETWORK = 10 << 24
NETWORK6 = b"\xfd" + bytes(11)  # a unique local address (RFC 4193)
IN_A_BLOCK = 250


class IpPlan:
    """Addresses by port, and ports by address, which has 4 bytes or 16."""

    def __init__(self, subnet: Subnet) -> None:
        hosts = [node for node in subnet.nodes.values() if not node.is_switch]
        self._ports: list[NodePort] = [port for node in hosts for port in node.end_ports()]
        self._addresses = {port: _address(at) for at, port in enumerate(self._ports)}
        self._owners = {address: port for port, address in self._addresses.items()}
        self._owners |= {NETWORK6 + address: port for address, port in self._owners.items()}

    def of(self, port: NodePort, *, ipv6: bool = False) -> bytes:
        """Return the address of a host's port."""
        return (NETWORK6 if ipv6 else b"") + self._addresses[port]

    def owner(self, address: bytes) -> NodePort | None:
        """Return the port that has an address, or None."""
        return self._owners.get(address)

    def texts(self, node: NodeAgent) -> list[str]:
        """Return the addresses of a host, by its ports."""
        return [_text(self._addresses[port]) for port in node.end_ports()]

    def first_and_last(self) -> list[tuple[str, str]]:
        """Return the names and the addresses of the first port and of the last one."""
        ends = (self._ports[0], self._ports[-1])
        return [(port.node.name, _text(self._addresses[port])) for port in ends]


def _address(at: int) -> bytes:
    block, last = divmod(at, IN_A_BLOCK)
    return (NETWORK + (block << 8) + last + 1).to_bytes(4, "big")


def _text(address: bytes) -> str:
    return str(ipaddress.IPv4Address(address))
