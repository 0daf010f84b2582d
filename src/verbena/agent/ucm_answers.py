# SPDX-License-Identifier: Apache-2.0
"""What librdmacm reads: events, routes, addresses and attributes (Linux' rdma_user_cm.h).

Everything here is packed for a program of this host; offsets are those of the structures. The index
of a GID is left 0: the program's side of the agent fills it in, where ``..._GID_AT`` says.
"""

from __future__ import annotations

import struct
import sys

from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.qp_attributes import QpAttributes
from verbena.manage.cm.rdma_events import RdmaConnectionParameters, RdmaDatagramParameters
from verbena.manage.cm.routes import CmRoute, MadAddress

__all__ = [
    "AF_IB",
    "EVENT_BYTES",
    "EVENT_LAYOUT",
    "INDEX_ABSENT",
    "QP_ATTR_GID_INDEX_AT",
    "QP_ATTR_LAYOUT",
    "QUERY_ADDR",
    "QUERY_ADDR_BYTES",
    "QUERY_ADDR_LAYOUT",
    "QUERY_GID",
    "QUERY_PATH",
    "UD_EVENT_GID_INDEX_AT",
    "USABLE_PATH",
    "ah_attr",
    "conn_event_param",
    "event",
    "gid_sockaddr",
    "path_record",
    "qp_attr",
    "query_addr",
    "query_path",
    "query_route",
    "sockaddr",
    "ud_event_param",
    "user_path",
]

QUERY_ADDR, QUERY_PATH, QUERY_GID = range(3)
QUERY_ADDR_BYTES = 280
EXACTLY = 2  # how MTU, rate and life of a path are meant
EVENT_BYTES = 336
PARAM_BYTES = 304  # the larger of both kinds
AF_IB = 27
INDEX_ABSENT = 0xFFFFFFFF  # ibdev_index: the device is known by its GUID

_AH_ATTR = struct.Struct("=16sIBBBxHBBBBBx")
_USER_PATH = struct.Struct("=16s16s2s2sI4sII2sBBBBBBBBBB")
QP_ATTR_LAYOUT = "II4xI4xIIIII32s52xH4x7B7x"
QUERY_ADDR_LAYOUT = "8sB1x2sHH128s128sI4x"
EVENT_LAYOUT = "QIIi304sIII"
_QP_ATTR = struct.Struct("=" + QP_ATTR_LAYOUT)
_QUERY_ADDR = struct.Struct("=" + QUERY_ADDR_LAYOUT)
_PATH_RECORD = struct.Struct(">8x16s16sHHIBBHHBBB7x")
_REVERSIBLE = 0x80
_EXACT = EXACTLY << 6
_SOCKADDR_IN = struct.Struct("=H2s4s8x")
_IPV4 = int(CmFamily.IPV4)
_SOCKADDR_IB = struct.Struct(">HI16sQQ")
_GID_SOCKADDR = struct.Struct(">2s6x16sQQ8x")
_IB_FAMILY = AF_IB.to_bytes(2, sys.byteorder)
EVERY_BIT = (1 << 64) - 1
_CONN = struct.Struct("=II256s8B")
_UD = struct.Struct("=II32s256sB7x")
_EVENT = struct.Struct("=" + EVENT_LAYOUT)

QP_ATTR_GID_INDEX_AT = 40 + 20
UD_EVENT_GID_INDEX_AT = 20 + 8 + 20


def ah_attr(to: MadAddress | None) -> bytes:
    """Return struct ib_uverbs_ah_attr of an address: 32 bytes, zeros without one."""
    if to is None:
        return bytes(32)
    return _AH_ATTR.pack(
        to.dgid if to.has_grh else bytes(16),
        to.flow_label,
        0,
        to.hop_limit,
        to.traffic_class,
        to.dlid,
        to.sl,
        0,
        0,
        to.has_grh,
        to.port,
    )


def qp_attr(attributes: QpAttributes) -> bytes:
    """Return struct ib_uverbs_qp_attr: 144 bytes."""
    of = attributes
    # fmt: off
    return _QP_ATTR.pack(
        of.mask, of.state, of.path_mtu, of.qkey, of.rq_psn, of.sq_psn, of.dest_qpn, of.access,
        ah_attr(of.address), of.pkey_index, of.max_rd_atomic, of.max_dest_rd_atomic,
        of.min_rnr_timer, of.port, of.timeout, of.retry_count, of.rnr_retry,
    )
    # fmt: on


# ---- addresses ---------------------------------------------------------------------------------


def sockaddr(address: CmAddress) -> bytes:
    """Return struct sockaddr_in, sockaddr_in6 or sockaddr_ib."""
    if address.family == CmFamily.IPV4:
        return _SOCKADDR_IN.pack(_IPV4, address.ip_port.to_bytes(2, "big"), address.host)
    family = struct.pack("=H", address.family)
    if address.family == CmFamily.IPV6:
        flow = struct.pack(">HI", address.ip_port, address.flow_info)
        return family + flow + address.host + struct.pack("=I", address.scope_id)
    return _sockaddr_ib(
        address.host,
        address.service_id,
        address.service_mask,
        address.p_key,
        address.flow_info,
        address.scope_id,
    )


def gid_sockaddr(gid: bytes, service_id: int) -> bytes:
    """Return struct sockaddr_ib of a GID with a whole service ID."""
    return _GID_SOCKADDR.pack(_IB_FAMILY, gid, service_id, EVERY_BIT)


def _sockaddr_ib(gid: bytes, service: int, mask: int, p_key: int, flow: int, scope: int) -> bytes:
    return (
        _IB_FAMILY
        + _SOCKADDR_IB.pack(p_key, flow, gid, service, mask)
        + scope.to_bytes(8, sys.byteorder)
    )


# ---- queries -----------------------------------------------------------------------------------


def query_route(
    guid: int, paths: list[bytes], source: bytes, destination: bytes, port: int
) -> bytes:
    """Return struct rdma_ucm_query_route_resp: 208 bytes. ``paths`` are those of user_path."""
    data = bytearray(208)
    struct.pack_into(">Q", data, 0, guid)
    for number, path in enumerate(paths[:2]):
        data[8 + 64 * number : 72 + 64 * number] = path
    data[136 : 136 + min(len(source), 28)] = source[:28]
    data[164 : 164 + min(len(destination), 28)] = destination[:28]
    struct.pack_into("=IBxxxII", data, 192, len(paths[:2]), port, INDEX_ABSENT, 0)
    return bytes(data)


def query_addr(guid: int, pkey: int, source: bytes, destination: bytes, port: int) -> bytes:
    """Return struct rdma_ucm_query_addr_resp: 280 bytes; of QUERY ADDR and of QUERY GID."""
    return _QUERY_ADDR.pack(
        *(guid.to_bytes(8, "big"), port, pkey.to_bytes(2, "big"), len(source), len(destination)),
        *(source, destination, INDEX_ABSENT),
    )


def user_path(route: CmRoute) -> bytes:
    """Return struct ib_user_path_rec: 64 bytes, which QUERY_ROUTE has."""
    return _USER_PATH.pack(
        route.dgid,
        route.sgid,
        *(lid.to_bytes(2, "big") for lid in (route.dlid, route.slid)),
        0,
        route.flow_label.to_bytes(4, "big"),
        1,
        route.mtu,
        route.p_key.to_bytes(2, "big"),
        route.hop_limit,
        route.traffic_class,
        1,
        route.sl,
        EXACTLY,
        EXACTLY,
        route.rate,
        EXACTLY,
        route.packet_life,
        0,
    )


def path_record(route: CmRoute) -> bytes:
    """Return the PathRecord of a route, as it is on the wire."""
    return _PATH_RECORD.pack(
        *(route.dgid, route.sgid, route.dlid, route.slid),
        *(route.flow_label << 8 | route.hop_limit, route.traffic_class, _REVERSIBLE | 1),
        *(route.p_key, route.sl, _EXACT | route.mtu, _EXACT | route.rate),
        _EXACT | route.packet_life,
    )


USABLE_PATH = 0x1 | 0x2 | 0x28
"""GMP, primary, both directions."""


def query_path(records: list[bytes], room: int) -> bytes:
    """Return struct rdma_ucm_query_path_resp with as many PathRecords as there is room for."""
    fitting = records[: max(room - 8, 0) // 72]
    head = struct.pack("=II", len(fitting), 0)
    return head + b"".join(struct.pack("=II", USABLE_PATH, 0) + record for record in fitting)


# ---- events ------------------------------------------------------------------------------------


def conn_event_param(param: RdmaConnectionParameters) -> bytes:
    """Return struct rdma_ucm_conn_param of an event."""
    return _CONN.pack(
        param.qpn,
        param.qkey,
        param.private_data,
        len(param.private_data),
        param.srq,
        param.responder_resources,
        param.initiator_depth,
        param.flow_control,
        param.retry_count,
        param.rnr_retry_count,
        0,
    )


def ud_event_param(param: RdmaDatagramParameters) -> bytes:
    """Return struct rdma_ucm_ud_param of an event."""
    return _UD.pack(
        param.qpn,
        param.qkey,
        ah_attr(param.address),
        param.private_data,
        len(param.private_data),
    )


def event(
    uid: int,
    identifier: int,
    number: int,
    status: int = 0,
    param: bytes = b"",
    ece: tuple[int, int] = (0, 0),
    room: int = EVENT_BYTES,
) -> bytes:
    """Return struct rdma_ucm_event_resp, cut to the room that an older program has."""
    return _EVENT.pack(uid, identifier, number, status, param, 0, *ece)[:room]
