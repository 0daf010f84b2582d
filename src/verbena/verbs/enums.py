# SPDX-License-Identifier: Apache-2.0
"""The codes of libibverbs, with the values of its ABI and without the ``IBV_`` prefix.

Where the PyPI package ``ibverbs`` has an enum, the name and the members are the same here.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "MTU",
    "AccessFlags",
    "AtomicCap",
    "EventType",
    "GidType",
    "LinkLayer",
    "MRAdvice",
    "MWType",
    "NodeType",
    "OdpCaps",
    "OdpTransportCaps",
    "PlacementType",
    "PortState",
    "QPAttrMask",
    "QPState",
    "QPType",
    "SRQAttrMask",
    "SendFlags",
    "TransportType",
    "WCFlags",
    "WCOpcode",
    "WCStatus",
    "WROpcode",
]


class AccessFlags(IntFlag):
    """The operations that a memory region or a queue pair permits (``ibv_access_flags``)."""

    LOCAL_WRITE = 1 << 0
    REMOTE_WRITE = 1 << 1
    REMOTE_READ = 1 << 2
    REMOTE_ATOMIC = 1 << 3
    MW_BIND = 1 << 4
    ZERO_BASED = 1 << 5
    ON_DEMAND = 1 << 6
    HUGETLB = 1 << 7
    FLUSH_GLOBAL = 1 << 8
    FLUSH_PERSISTENT = 1 << 9
    RELAXED_ORDERING = 1 << 20


class MWType(IntEnum):
    """Kind of a memory window (``ibv_mw_type``)."""

    TYPE_1 = 1
    TYPE_2 = 2


class MRAdvice(IntEnum):
    """The advice of ``PD.advise_mr`` for on-demand regions (``ibv_advise_mr_advice``)."""

    PREFETCH = 0
    PREFETCH_WRITE = 1
    PREFETCH_NO_FAULT = 2


class OdpCaps(IntFlag):
    """On-demand paging at all (``ibv_odp_general_caps``)."""

    SUPPORT = 1 << 0
    SUPPORT_IMPLICIT = 1 << 1


class OdpTransportCaps(IntFlag):
    """On-demand paging of a transport's operations (``ibv_odp_transport_cap_bits``)."""

    SEND = 1 << 0
    RECV = 1 << 1
    WRITE = 1 << 2
    READ = 1 << 3
    ATOMIC = 1 << 4
    SRQ_RECV = 1 << 5
    FLUSH = 1 << 6
    ATOMIC_WRITE = 1 << 7


class QPType(IntEnum):
    """Transport service of a queue pair (``ibv_qp_type``)."""

    RC = 2
    UC = 3
    UD = 4
    RAW_PACKET = 8
    XRC_SEND = 9
    XRC_RECV = 10
    DRIVER = 0xFF


class QPState(IntEnum):
    """State of a queue pair (InfiniBand specification 10.3.1)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6
    UNKNOWN = 7

    def __str__(self) -> str:
        return self.name


class QPAttrMask(IntFlag):
    """Which attributes ``QP.modify`` changes (``ibv_qp_attr_mask``)."""

    STATE = 1 << 0
    CUR_STATE = 1 << 1
    EN_SQD_ASYNC_NOTIFY = 1 << 2
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    ALT_PATH = 1 << 14
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    PATH_MIG_STATE = 1 << 18
    CAP = 1 << 19
    DEST_QPN = 1 << 20
    RATE_LIMIT = 1 << 25


class SRQAttrMask(IntFlag):
    """Which attributes ``SRQ.modify`` changes (``ibv_srq_attr_mask``)."""

    MAX_WR = 1 << 0
    LIMIT = 1 << 1


class WROpcode(IntEnum):
    """Operation of a send work request (``ibv_wr_opcode``)."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    LOCAL_INV = 7
    BIND_MW = 8
    SEND_WITH_INV = 9
    TSO = 10
    FLUSH = 14  # only QP.flush posts it
    ATOMIC_WRITE = 15


class PlacementType(IntFlag):
    """What a FLUSH guarantees for the bytes written before it (``ibv_placement_type``)."""

    GLOBAL = 1 << 0
    PERSISTENT = 1 << 1


class SendFlags(IntFlag):
    """How a send work request is carried out (``ibv_send_flags``)."""

    FENCE = 1 << 0
    SIGNALED = 1 << 1
    SOLICITED = 1 << 2
    INLINE = 1 << 3
    IP_CSUM = 1 << 4


class WCStatus(IntEnum):
    """Outcome of a work request (``ibv_wc_status``; InfiniBand specification 11.6.2)."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21
    TM_ERR = 22
    TM_RNDV_INCOMPLETE = 23


class WCOpcode(IntEnum):
    """Kind of request that completed (``ibv_wc_opcode``); undefined in an error completion."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    TSO = 7
    FLUSH = 8
    ATOMIC_WRITE = 9
    RECV = 1 << 7
    RECV_RDMA_WITH_IMM = (1 << 7) + 1


class WCFlags(IntFlag):
    """Which fields of a completion are set (``ibv_wc_flags``)."""

    GRH = 1 << 0
    WITH_IMM = 1 << 1
    IP_CSUM_OK = 1 << 2
    WITH_INV = 1 << 3
    TM_SYNC_REQ = 1 << 4
    TM_MATCH = 1 << 5
    TM_DATA_VALID = 1 << 6


class MTU(IntEnum):
    """Path MTU codes (``ibv_mtu``); ``nbytes`` is the size in bytes."""

    MTU_256 = 1
    MTU_512 = 2
    MTU_1024 = 3
    MTU_2048 = 4
    MTU_4096 = 5

    @property
    def nbytes(self) -> int:
        """Payload bytes in one packet."""
        return int(128 << self.value)


class PortState(IntEnum):
    """Logical state of a port (``ibv_port_state``)."""

    NOP = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class LinkLayer(IntEnum):
    """Link layer of a port (``IBV_LINK_LAYER_*``)."""

    UNSPECIFIED = 0
    INFINIBAND = 1
    ETHERNET = 2


class NodeType(IntEnum):
    """Kind of device (``ibv_node_type``)."""

    UNKNOWN = -1
    CA = 1
    SWITCH = 2
    ROUTER = 3
    RNIC = 4
    USNIC = 5
    USNIC_UDP = 6
    UNSPECIFIED = 7


class TransportType(IntEnum):
    """Transport of a device (``ibv_transport_type``)."""

    UNKNOWN = -1
    IB = 0
    IWARP = 1
    USNIC = 2
    USNIC_UDP = 3
    UNSPECIFIED = 4


class AtomicCap(IntEnum):
    """How far a device's atomics are atomic (``ibv_atomic_cap``)."""

    NONE = 0
    HCA = 1
    GLOB = 2


class GidType(IntEnum):
    """Kind of a GID table entry (``ibv_gid_type``)."""

    IB = 0
    ROCE_V1 = 1
    ROCE_V2 = 2


class EventType(IntEnum):
    """Asynchronous events of a device (``ibv_event_type``)."""

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    PATH_MIG = 6
    PATH_MIG_ERR = 7
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    LID_CHANGE = 11
    PKEY_CHANGE = 12
    SM_CHANGE = 13
    SRQ_ERR = 14
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16
    CLIENT_REREGISTER = 17
    GID_CHANGE = 18
    WQ_FATAL = 19
