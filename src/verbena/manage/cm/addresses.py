# SPDX-License-Identifier: Apache-2.0
"""Addresses of rdma_cm's identifiers: IPv4, IPv6 with a scope, and AF_IB.

``RdmaCm`` and its owner use them; the owner translates sockaddr structures. What counts as a
wildcard is Linux's: zero and loopback addresses alike (``cma_any_addr``).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from enum import IntEnum

from ..codes import gid_text, quick_members
from ..errors import MadError
from ..ip_cm import service_id

__all__ = ["CmAddress", "CmFamily"]

_EVERY = (1 << 64) - 1
_LOOPBACK_GID = bytes(15) + b"\1"


@quick_members
class CmFamily(IntEnum):
    """Address families, with Linux's numbers."""

    UNSPECIFIED = 0
    IPV4 = 2
    IPV6 = 10
    IB = 27


@dataclass(slots=True, unsafe_hash=True)
class CmAddress:
    """An address of an identifier. ``host`` has 4 bytes (IPv4) or 16 (IPv6, and AF_IB's GID).

    Nobody changes one. To make one of a frozen class takes 0.9 µs and not 0.2, and a connection
    needs ten.

    With AF_IB the port is the lower 16 bits of ``service_id``, and ``service_mask`` says which bits
    of it count; ``p_key`` is AF_IB's alone, ``scope_id`` IPv6's.
    """

    family: CmFamily
    host: bytes
    ip_port: int = 0
    scope_id: int = 0
    flow_info: int = 0
    p_key: int = 0
    service_id: int = 0
    service_mask: int = 0

    @classmethod
    def ip(cls, text: str, port: int = 0, scope_id: int = 0) -> CmAddress:
        """Return an IP address with a port. Raises MadError for another text."""
        try:
            found = ipaddress.ip_address(text)
        except ValueError as error:
            raise MadError(str(error)) from None
        if found.version == 6 and not scope_id and (found.scope_id or "").isdecimal():
            scope_id = int(found.scope_id or 0)
        family = CmFamily.IPV4 if found.version == 4 else CmFamily.IPV6
        return cls(family, found.packed, port, scope_id)

    @classmethod
    def ib(
        cls, gid: bytes = bytes(16), service_id: int = 0, mask: int = _EVERY, p_key: int = 0
    ) -> CmAddress:
        """Return an address of AF_IB."""
        masked = service_id & mask
        return cls(CmFamily.IB, gid, p_key=p_key, service_id=masked, service_mask=mask)

    @classmethod
    def wildcard(cls, family: CmFamily = CmFamily.IPV4) -> CmAddress:
        """Return the address that stands for every address of the family."""
        return cls(family, bytes(4 if family == CmFamily.IPV4 else 16))

    @property
    def port(self) -> int:
        """The port; 0: none yet."""
        if self.family == CmFamily.IB:
            return self.service_id & self.service_mask & 0xFFFF
        return self.ip_port

    @property
    def is_zero(self) -> bool:
        """0.0.0.0/8, :: or a zero GID."""
        return not self.host[0] if self.family == CmFamily.IPV4 else not any(self.host)

    @property
    def is_loopback(self) -> bool:
        """127.0.0.0/8 or ::1."""
        if self.family == CmFamily.IPV4:
            return self.host[0] == 127
        return self.host == _LOOPBACK_GID

    @property
    def is_any(self) -> bool:
        """A wildcard of rdma_cm: zero or loopback."""
        return self.is_zero or self.is_loopback

    @property
    def is_link_local(self) -> bool:
        """An IPv6 address of fe80::/10, which means something on one interface alone."""
        return self.family == CmFamily.IPV6 and self.host[0] == 0xFE and self.host[1] & 0xC0 == 0x80

    @property
    def gid(self) -> bytes:
        """The GID of the address on RoCE; IPv4 is mapped (::ffff:a.b.c.d)."""
        if self.family == CmFamily.IPV4:
            return bytes(10) + b"\xff\xff" + self.host
        return self.host

    def with_port(self, port: int) -> CmAddress:
        """Return a copy with another port."""
        if self.family == CmFamily.IB:
            masked = self.service_id & self.service_mask & ~0xFFFF
            return replace(self, service_id=masked | port, service_mask=_EVERY)
        return CmAddress(self.family, self.host, port, self.scope_id, self.flow_info)

    def service_in(self, space: int) -> int:
        """Return the service ID of the address in a port space; AF_IB's says it itself."""
        if self.family == CmFamily.IB:
            return self.service_id
        return service_id(space, self.port)

    def is_same_host(self, other: CmAddress) -> bool:
        """Whether both are one address, ports aside."""
        return self.family == other.family and self.host == other.host

    def __str__(self) -> str:
        if self.family == CmFamily.IB:
            return f"{gid_text(self.host)} service {self.service_id:#018x}"
        text = str(ipaddress.ip_address(self.host))
        if self.family == CmFamily.IPV4:
            return f"{text}:{self.port}"
        return f"[{text}{f'%{self.scope_id}' if self.scope_id else ''}]:{self.port}"
