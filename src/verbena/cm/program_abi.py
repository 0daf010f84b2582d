# SPDX-License-Identifier: Apache-2.0
"""The structures of Linux' rdma_user_cm.h as a program reads them: events, attributes, addresses.

``Id`` calls these; agent/ucm_commands.py has the commands. Offsets are those of the structures. A
GID's index is taken from the bytes, unless the device's answer has the GID itself.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.rdma_events import RdmaConnectionParameters, RdmaEventKind

from .device import DeviceAnswer

__all__ = [
    "AddressVector",
    "DatagramParameters",
    "IdAddresses",
    "IdEvent",
    "ProgramAttributes",
    "parse_addresses",
    "parse_attributes",
    "parse_event",
]

_EVENT = struct.Struct("=QIIi")
_CONN = struct.Struct("=II256s8B")
_UD = struct.Struct("=II32s256sB")
_AH = struct.Struct("=16sIBBBxHBBBBB")
_EVENT_PARAM_AT = 20
_AH_IN_UD_AT = 8
_GID_INDEX_IN_AH_AT = 20
_DATAGRAM_KINDS = (RdmaEventKind.MULTICAST_JOIN, RdmaEventKind.MULTICAST_ERROR)


@dataclass(frozen=True, slots=True)
class AddressVector:
    """struct ib_uverbs_ah_attr. ``sgid`` is the source's GID where ``sgid_index`` is not known."""

    dgid: bytes
    flow_label: int
    sgid_index: int
    hop_limit: int
    traffic_class: int
    dlid: int
    sl: int
    src_path_bits: int
    static_rate: int
    is_global: bool
    port: int
    sgid: bytes | None

    @classmethod
    def unpack(cls, data: bytes, sgid: bytes | None) -> AddressVector:
        """Return it from its 32 bytes."""
        dgid, flow, index, hops, tclass, dlid, sl, bits, rate, has_grh, port = _AH.unpack_from(data)
        return cls(dgid, flow, index, hops, tclass, dlid, sl, bits, rate, bool(has_grh), port, sgid)


@dataclass(frozen=True, slots=True)
class DatagramParameters:
    """rdma_ud_param: where datagrams go."""

    qpn: int
    qkey: int
    address: AddressVector
    private_data: bytes


@dataclass(frozen=True, slots=True)
class IdEvent:
    """An event: of the identifier with ``uid``; ``number`` is a new one's for CONNECT_REQUEST.

    ``status`` is 0, a negative errno, or the reason of a REJ or the status of a SIDR_REP.
    """

    uid: int
    number: int
    kind: RdmaEventKind
    status: int
    parameters: bytes
    sgid: bytes | None

    @property
    def connection(self) -> RdmaConnectionParameters:
        """What it says of a connection."""
        qpn, qkey, private, length, srq, resources, depth, flow, retry, rnr, _ = _CONN.unpack_from(
            self.parameters
        )
        return RdmaConnectionParameters(
            qpn, private[:length], resources, depth, bool(flow), retry, rnr, bool(srq), qkey
        )

    @property
    def datagram(self) -> DatagramParameters:
        """What it says of datagrams."""
        qpn, qkey, address, private, length = _UD.unpack_from(self.parameters)
        vector = AddressVector.unpack(address, self.sgid)
        return DatagramParameters(qpn, qkey, vector, private[:length])


def parse_event(answer: DeviceAnswer) -> IdEvent:
    """Return the event of a GET_EVENT's answer."""
    uid, number, kind, status = _EVENT.unpack_from(answer.data)
    parameters = answer.data[_EVENT_PARAM_AT:]
    sgid = answer.gid if answer.gid_index_at else None
    return IdEvent(uid, number, RdmaEventKind(kind), status, parameters, sgid)


@dataclass(frozen=True, slots=True)
class ProgramAttributes:
    """struct ib_uverbs_qp_attr: ``mask`` says which attributes count."""

    mask: int
    path_mtu: int
    qkey: int
    rq_psn: int
    sq_psn: int
    dest_qpn: int
    access: int
    address: AddressVector
    pkey_index: int
    max_rd_atomic: int
    max_dest_rd_atomic: int
    min_rnr_timer: int
    port: int
    timeout: int
    retry_count: int
    rnr_retry: int


def parse_attributes(answer: DeviceAnswer) -> ProgramAttributes:
    """Return the attributes of an INIT_QP_ATTR's answer."""
    data = answer.data
    (mask,) = struct.unpack_from("=I", data)
    (path_mtu,) = struct.unpack_from("=I", data, 12)
    qkey, rq_psn, sq_psn, dest_qpn, access = struct.unpack_from("=5I", data, 20)
    (pkey_index,) = struct.unpack_from("=H", data, 124)
    vector = AddressVector.unpack(data[40:72], answer.gid if answer.gid_index_at else None)
    return ProgramAttributes(
        mask, path_mtu, qkey, rq_psn, sq_psn, dest_qpn, access, vector, pkey_index, *data[130:137]
    )


@dataclass(frozen=True, slots=True)
class IdAddresses:
    """struct rdma_ucm_query_addr_resp: ``guid`` and ``port`` are 0 without a device."""

    guid: int
    port: int
    p_key: int
    source: CmAddress | None
    destination: CmAddress | None


def parse_addresses(data: bytes) -> IdAddresses:
    """Return the addresses of a QUERY's answer."""
    guid, port, p_key = struct.unpack_from(">QBxH", data)
    source_length, length = struct.unpack_from("=HH", data, 12)
    source = _parse_ip(data[16 : 16 + source_length])
    return IdAddresses(guid, port, p_key, source, _parse_ip(data[144 : 144 + length]))


def _parse_ip(data: bytes) -> CmAddress | None:
    if len(data) < 16:
        return None
    (family,) = struct.unpack_from("=H", data)
    (port,) = struct.unpack_from(">H", data, 2)
    if family == socket.AF_INET:
        return CmAddress(CmFamily.IPV4, data[4:8], port)
    if family != socket.AF_INET6:
        return None
    (scope,) = struct.unpack_from("=I", data, 24)
    return CmAddress(CmFamily.IPV6, data[8:24], port, scope)
