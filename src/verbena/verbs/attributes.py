# SPDX-License-Identifier: Apache-2.0
"""The attribute structs of libibverbs as dataclasses; names are those of the C fields.

The compiled binding makes and reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .enums import (
    MTU,
    AccessFlags,
    AtomicCap,
    EventType,
    GidType,
    LinkLayer,
    OdpCaps,
    OdpTransportCaps,
    PortState,
    QPState,
    QPType,
)

if TYPE_CHECKING:
    from ._verbs import CQ, QP, SRQ

__all__ = [
    "AHAttr",
    "AsyncEvent",
    "DeviceAttr",
    "Gid",
    "GidEntry",
    "MemoryAttr",
    "PortAttr",
    "QPAttr",
    "QPCap",
    "QPInitAttr",
    "SRQAttr",
]

_V4_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Gid:
    """A 16-byte global identifier, in network byte order."""

    raw: bytes

    @property
    def subnet_prefix(self) -> int:
        """The upper 64 bits."""
        return int.from_bytes(self.raw[:8], "big")

    @property
    def interface_id(self) -> int:
        """The lower 64 bits."""
        return int.from_bytes(self.raw[8:], "big")

    @property
    def is_ipv4_mapped(self) -> bool:
        """True for ``::ffff:a.b.c.d``, the GID of an IPv4 address (RoCE v2)."""
        return self.raw.startswith(_V4_MAPPED)

    def __bool__(self) -> bool:
        """False for the zero GID of an empty table entry."""
        return any(self.raw)

    def __bytes__(self) -> bytes:
        return self.raw

    def __str__(self) -> str:
        return ":".join(self.raw[i : i + 2].hex() for i in range(0, 16, 2))


@dataclass(frozen=True, slots=True)
class GidEntry:
    """One entry of a port's GID table; ``ndev_ifindex`` is the network interface's, 0 if none."""

    gid: Gid
    gid_index: int
    port_num: int
    gid_type: GidType
    ndev_ifindex: int


@dataclass(frozen=True, slots=True)
class DeviceAttr:
    """Capabilities of a device (``ibv_device_attr``); GUIDs in host byte order, sizes in bytes."""

    fw_ver: str
    node_guid: int
    sys_image_guid: int
    max_mr_size: int
    page_size_cap: int
    vendor_id: int
    vendor_part_id: int
    hw_ver: int
    max_qp: int
    max_qp_wr: int
    device_cap_flags: int
    max_sge: int
    max_sge_rd: int
    max_cq: int
    max_cqe: int
    max_mr: int
    max_pd: int
    max_qp_rd_atom: int
    max_res_rd_atom: int
    max_qp_init_rd_atom: int
    atomic_cap: AtomicCap
    max_mw: int
    max_mcast_grp: int
    max_mcast_qp_attach: int
    max_total_mcast_qp_attach: int
    max_ah: int
    max_srq: int
    max_srq_wr: int
    max_srq_sge: int
    max_pkeys: int
    local_ca_ack_delay: int
    phys_port_cnt: int


@dataclass(frozen=True, slots=True)
class MemoryAttr:
    """Size of device memory in bytes, and the operations on on-demand regions
    (``ibv_odp_caps``)."""

    max_dm_size: int
    odp_general: OdpCaps
    odp_rc: OdpTransportCaps
    odp_uc: OdpTransportCaps
    odp_ud: OdpTransportCaps
    odp_xrc: OdpTransportCaps


@dataclass(frozen=True, slots=True)
class PortAttr:
    """State and limits of a port (``ibv_port_attr``); widths and speeds are ABI codes."""

    state: PortState
    max_mtu: MTU
    active_mtu: MTU
    gid_tbl_len: int
    port_cap_flags: int
    max_msg_sz: int
    bad_pkey_cntr: int
    qkey_viol_cntr: int
    pkey_tbl_len: int
    lid: int
    sm_lid: int
    lmc: int
    max_vl_num: int
    sm_sl: int
    subnet_timeout: int
    init_type_reply: int
    active_width: int
    active_speed: int
    phys_state: int
    link_layer: LinkLayer
    flags: int
    port_cap_flags2: int


@dataclass(slots=True)
class AHAttr:
    """The address of an AH, or of the peer of an RC or UC QP.

    ``dgid`` is the peer's 16-byte GID, ``sgid_index`` the index of the local GID; on RoCE both are
    needed. On an InfiniBand port ``dlid`` with ``is_global=False`` is an address, too.
    """

    dgid: bytes | Gid = bytes(16)
    sgid_index: int = 0
    dlid: int = 0
    is_global: bool = True
    port_num: int = 1
    hop_limit: int = 64
    traffic_class: int = 0
    sl: int = 0
    flow_label: int = 0
    src_path_bits: int = 0
    static_rate: int = 0


@dataclass(slots=True)
class QPCap:
    """Capacity of a QP: requests, SGEs per request, and bytes of inline data."""

    max_send_wr: int
    max_recv_wr: int
    max_send_sge: int
    max_recv_sge: int
    max_inline_data: int


@dataclass(slots=True)
class QPInitAttr:
    """The parameters of ``PD.create_qp``.

    ``recv_cq`` defaults to ``send_cq``. With ``srq`` the QP has no receive queue of its own.
    ``sq_sig_all`` makes every send complete, with ``SIGNALED`` or without.
    """

    send_cq: CQ
    recv_cq: CQ | None = None
    qp_type: QPType = QPType.RC
    max_send_wr: int = 128
    max_recv_wr: int = 128
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0
    srq: SRQ | None = None
    sq_sig_all: bool = False


@dataclass(frozen=True, slots=True)
class QPAttr:
    """A QP's attributes as ``QP.query`` returns them (``ibv_qp_attr``).

    ``timeout`` is the ABI's code: 4.096 µs times 2**timeout, 0 for never. ``min_rnr_timer`` is a
    code too (InfiniBand specification, table 45).
    """

    qp_state: QPState
    cur_qp_state: QPState
    path_mtu: int
    path_mig_state: int
    qkey: int
    rq_psn: int
    sq_psn: int
    dest_qp_num: int
    qp_access_flags: AccessFlags
    cap: QPCap
    ah_attr: AHAttr
    pkey_index: int
    sq_draining: bool
    max_rd_atomic: int
    max_dest_rd_atomic: int
    min_rnr_timer: int
    port_num: int
    timeout: int
    retry_cnt: int
    rnr_retry: int


@dataclass(frozen=True, slots=True)
class SRQAttr:
    """Capacity of an SRQ, and the number of receives below which it raises its limit event (0:
    disarmed)."""

    max_wr: int
    max_sge: int
    srq_limit: int


@dataclass(frozen=True, slots=True)
class AsyncEvent:
    """An event of a device or of one of its objects; it is acknowledged already.

    ``element`` is the CQ, QP or SRQ concerned, None for a port's or the device's event and for an
    object that is closed by now; ``port_num`` is 0 unless the event is a port's. ``text`` says why
    a QP went to ERR, as that the peer's process ended; it is "" for other events and unknown
    reasons.
    """

    event_type: EventType
    element: CQ | QP | SRQ | None = field(default=None)
    port_num: int = 0
    text: str = ""
