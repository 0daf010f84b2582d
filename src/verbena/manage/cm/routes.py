# SPDX-License-Identifier: Apache-2.0
"""Where MADs come from and go to, on RoCE and InfiniBand alike, and the path of a connection.

The owner makes a ``MadArrival`` of what it knows of a received datagram, and an address handle of a
``MadAddress``. ``CmRoute`` is a path as this side sees it; REQ's primary path is written from it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from ..cm_messages import CmPath, CmReq
from ..codes import IbMtu, IbRate
from ..mad import CmMad
from ..record import Record
from .quick_messages import quick_path
from .settings import ack_timeout_code

__all__ = ["CmDatagram", "CmDevice", "CmPort", "CmRoute", "MadAddress", "MadArrival", "pack_cm"]

_PERMISSIVE = 0xFFFF
_NO_GID = bytes(16)


@dataclass(frozen=True)
class CmPort:
    """A port of the device: its GIDs, index 0 first, and its LID, which is 0 on Ethernet."""

    gids: tuple[bytes, ...]
    number: int = 1
    is_ethernet: bool = True
    lid: int = 0
    p_keys: tuple[int, ...] = (0xFFFF,)

    def p_key_index(self, p_key: int) -> int | None:
        """Return the index of a P_Key, or of one of the same partition; None if there is none."""
        if p_key in self.p_keys:
            return self.p_keys.index(p_key)
        for index, known in enumerate(self.p_keys):
            if known & 0x7FFF == p_key & 0x7FFF:
                return index
        return None


@dataclass(frozen=True)
class CmDevice:
    """The channel adapter: ``ack_delay`` is the time code within which it sends an ACK."""

    ca_guid: int
    ports: tuple[CmPort, ...]
    ack_delay: int = 15

    def port(self, number: int) -> CmPort | None:
        """Return the port with this number, or None."""
        for port in self.ports:
            if port.number == number:
                return port
        return None

    def port_of_gid(self, gid: bytes) -> CmPort | None:
        """Return the port that has a GID, or None."""
        for port in self.ports:
            if gid in port.gids:
                return port
        return None


@dataclass(slots=True, unsafe_hash=True)
class MadAddress:
    """The address handle that a MAD needs. GIDs count if ``has_grh``, as always on Ethernet."""

    port: int
    has_grh: bool
    sgid: bytes = _NO_GID
    dgid: bytes = _NO_GID
    dlid: int = 0
    sl: int = 0
    p_key: int = 0xFFFF
    flow_label: int = 0
    hop_limit: int = 0
    traffic_class: int = 0


@dataclass(slots=True, unsafe_hash=True)
class MadArrival:
    """What is known of a received MAD: ``sgid`` and ``slid`` are the sender's."""

    port: int
    has_grh: bool
    sgid: bytes = _NO_GID
    dgid: bytes = _NO_GID
    slid: int = 0
    sl: int = 0
    p_key: int = 0xFFFF
    flow_label: int = 0
    hop_limit: int = 64
    traffic_class: int = 0

    def reply(self) -> MadAddress:
        """Return the way back to the sender (IBA 13.5.4)."""
        return MadAddress(
            port=self.port,
            has_grh=self.has_grh,
            sgid=self.dgid,
            dgid=self.sgid,
            dlid=self.slid,
            sl=self.sl,
            p_key=self.p_key,
            flow_label=self.flow_label,
            hop_limit=self.hop_limit,
            traffic_class=self.traffic_class,
        )


@dataclass(slots=True)
class CmDatagram:
    """A message to be sent from QP 1 to QP 1 of ``to``, with the header's two numbers."""

    record: Record
    to: MadAddress
    transaction_id: int = 0
    attribute_modifier: int = 0
    _mad: bytes = field(default=b"", repr=False, compare=False)

    @property
    def mad(self) -> bytes:
        """Its MAD of 256 bytes. One to a port of this device needs none."""
        if not self._mad:
            self._mad = pack_cm(self.record, self.transaction_id, self.attribute_modifier)
        return self._mad


# Versions, class and method; Status and reserved bytes; transaction ID; AttributeID and modifier.
_HEAD = struct.Struct(">BBBBIQHHI")
_HEAD_START = (*CmMad().pack()[:4], 0)


def pack_cm(record: Record, tid: int, modifier: int = 0) -> bytes:
    """Return the bytes of the CmMad with a message, as its ``with_attribute`` gives them."""
    try:
        head = _HEAD.pack(*_HEAD_START, tid, record.ATTRIBUTE, 0, modifier)
    except struct.error:
        mad = CmMad(transaction_id=tid).with_attribute(record, modifier)  # says what is wrong
        return mad.pack()
    return head + record.pack()


@dataclass(slots=True, unsafe_hash=True)
class CmRoute:
    """The path of a connection, from this side: ``sgid`` and ``slid`` are its own.

    ``packet_life`` is a time code; 18 is Linux's on RoCE. Up to a hop limit of 1 the path stays in
    the subnet, and LIDs say where it leads; beyond, LIDs in a REQ are permissive (IBA 12.7.11).
    """

    sgid: bytes
    dgid: bytes
    port: int = 1
    is_ethernet: bool = True
    slid: int = 0
    dlid: int = 0
    flow_label: int = 0
    traffic_class: int = 0
    hop_limit: int = 64
    sl: int = 0
    rate: IbRate = IbRate.PORT_CURRENT
    mtu: IbMtu = IbMtu.BYTES_1024
    p_key: int = 0xFFFF
    packet_life: int = 18

    @property
    def has_grh(self) -> bool:
        """Whether its packets have a GRH, which on RoCE v2 is the IP header."""
        return self.is_ethernet or self.hop_limit > 1

    def address(self) -> MadAddress:
        """Return the address of MADs that go along it."""
        # fmt: off
        return MadAddress(
            self.port, self.has_grh, self.sgid, self.dgid, 0 if self.is_ethernet else self.dlid,
            self.sl, self.p_key, self.flow_label, self.hop_limit, self.traffic_class,
        )
        # fmt: on

    def with_life(self, packet_life: int) -> CmRoute:
        """Return a copy with another packet life."""
        return replace(self, packet_life=packet_life)

    def cm_path(self, ack_delay: int) -> CmPath:
        """Return it as a REQ has it (IBA 12.6.5)."""
        is_near = self.hop_limit <= 1
        # fmt: off
        return quick_path(
            (self.slid, self.dlid) if is_near else (_PERMISSIVE, _PERMISSIVE),
            (self.sgid, self.dgid), self.flow_label, self.rate, self.traffic_class,
            self.hop_limit, self.sl, is_near, ack_timeout_code(ack_delay, self.packet_life),
        )
        # fmt: on

    @classmethod
    def of_request(
        cls, req: CmReq, arrival: MadArrival, port: CmPort, primary: CmPath | None = None
    ) -> CmRoute:
        """Return the way back along a REQ's primary path, which the caller may have read already.

        A permissive LID of another subnet's sender is replaced by that of the packet.
        """
        path = primary or req.primary
        is_far = not path.subnet_local and path.local_lid == _PERMISSIVE
        is_ethernet = port.is_ethernet
        # fmt: off
        return cls(
            path.remote_gid, path.local_gid, port.number, is_ethernet, port.lid,
            arrival.slid if is_far else path.local_lid, path.flow_label, path.traffic_class,
            arrival.hop_limit if is_ethernet else path.hop_limit,
            arrival.sl if is_far else path.sl, path.packet_rate, req.path_mtu, req.p_key,
            max(path.local_ack_timeout - 1, 0),
        )
        # fmt: on
