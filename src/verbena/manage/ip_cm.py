# SPDX-License-Identifier: Apache-2.0
"""The RDMA IP CM service (IBA annex A11): addresses in a REQ's private data, and service IDs.

Connection managers that speak with Linux's rdma_cm put the header in front of the program's private
data in a REQ and in a SIDR_REQ.
"""

from __future__ import annotations

import ipaddress
from typing import Self

from .codes import Code, quick_members
from .errors import MadError
from .record import Record, bits, octets

__all__ = [
    "IP_CM_HEADER_BYTES",
    "REQ_PROGRAM_BYTES",
    "SIDR_REQ_PROGRAM_BYTES",
    "UDP_PORT_SPACE_QKEY",
    "IpAddress",
    "IpCmHeader",
    "PortSpace",
    "service_id",
    "service_port",
]

IP_CM_HEADER_BYTES = 36
REQ_PROGRAM_BYTES = 92 - IP_CM_HEADER_BYTES  # what is left to the program
SIDR_REQ_PROGRAM_BYTES = 216 - IP_CM_HEADER_BYTES
UDP_PORT_SPACE_QKEY = 0x01234567  # of Linux's rdma_cm, for UD QPs of the spaces UDP and IB

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@quick_members
class PortSpace(Code):
    """Port spaces of rdma_cm, the third 16 bits of a service ID."""

    IPOIB = 0x0002
    TCP = 0x0106
    UDP = 0x0111
    IB = 0x013F


def service_id(space: int, port: int) -> int:
    """Return the ServiceID of a port of a port space. Raises MadError for one over 16 bits."""
    if not (0 <= space <= 0xFFFF and 0 <= port <= 0xFFFF):
        raise MadError(f"a port space and a port have 16 bits, and these are {space} and {port}")
    return space << 16 | port


def service_port(service: int) -> tuple[PortSpace, int]:
    """Return port space and port of a ServiceID. Raises MadError if it is of no port space."""
    if not 0 <= service >> 16 <= 0xFFFF:
        raise MadError(f"ServiceID {service:#018x} belongs to no port space of the RDMA IP CM")
    return PortSpace(service >> 16), service & 0xFFFF


class IpCmHeader(Record, size=IP_CM_HEADER_BYTES):
    """The first 36 bytes of private data. An IPv4 address is in the last 4 of its 16 bytes."""

    major_version: int = bits(0, 0, 4, "0; a receiver refuses another.")
    minor_version: int = bits(0, 4, 4, "0; a receiver refuses another.")
    ip_version: int = bits(1, 0, 4, "4 or 6.")
    source_port: int = bits(2, 0, 16, "Port of the sender.")
    source_bytes: bytes = octets(4, 16, "IP address of the sender.")
    destination_bytes: bytes = octets(20, 16, "IP address of the receiver.")

    @classmethod
    def between(cls, source: str | IpAddress, port: int, destination: str | IpAddress) -> Self:
        """Return the header of a connection. Raises MadError unless both are IPv4 or both IPv6."""
        try:
            ends = [ipaddress.ip_address(end) for end in (source, destination)]
        except ValueError as error:
            raise MadError(str(error)) from None
        if ends[0].version != ends[1].version:
            raise MadError(f"{source} and {destination} are not of the same IP version")
        packed = [end.packed.rjust(16, b"\0") for end in ends]
        return cls(
            ip_version=ends[0].version,
            source_port=port,
            source_bytes=packed[0],
            destination_bytes=packed[1],
        )

    @property
    def source(self) -> IpAddress:
        """IP address of the sender. Raises MadError if the version is neither 4 nor 6."""
        return self._address(self.source_bytes)

    @property
    def destination(self) -> IpAddress:
        """IP address of the receiver. Raises MadError if the version is neither 4 nor 6."""
        return self._address(self.destination_bytes)

    def _address(self, data: bytes) -> IpAddress:
        if self.ip_version == 4:
            return ipaddress.IPv4Address(data[12:])
        if self.ip_version == 6:
            return ipaddress.IPv6Address(data)
        raise MadError(f"the IP version of an RDMA IP CM header is {self.ip_version}, not 4 or 6")
