# SPDX-License-Identifier: Apache-2.0
"""RDMA verbs for Python, over any library with libibverbs' ABI.

    from verbena import verbs

    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        cq = ctx.create_cq(64)
        mr = pd.alloc(4096, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE)
        qp = pd.create_qp(send_cq=cq)

Names are those of the PyPI package ``ibverbs`` where both have the object. ``library``, or the
environment's VERBENA_LIBRARY, chooses the libibverbs (see ``verbena.verbs.library``).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ._verbs import (
    AH,
    CQ,
    DM,
    MR,
    MW,
    PD,
    QP,
    SGE,
    SRQ,
    TD,
    WC,
    XRCD,
    CompChannel,
    Context,
    Device,
    Library,
    ParentDomain,
    RecvWR,
    SendWR,
    devices_of,
    inc_rkey,
)
from .attributes import (
    AHAttr,
    AsyncEvent,
    DeviceAttr,
    Gid,
    GidEntry,
    MemoryAttr,
    PortAttr,
    QPAttr,
    QPCap,
    QPInitAttr,
    SRQAttr,
)
from .connect import (
    ConnectOptions,
    QPInfo,
    address_of,
    bring_up,
    bring_up_ud,
    connect_pair,
    connect_rc,
    local_qp_info,
)
from .enums import (
    MTU,
    AccessFlags,
    AtomicCap,
    EventType,
    GidType,
    LinkLayer,
    MRAdvice,
    MWType,
    NodeType,
    OdpCaps,
    OdpTransportCaps,
    PlacementType,
    PortState,
    QPAttrMask,
    QPState,
    QPType,
    SendFlags,
    SRQAttrMask,
    TransportType,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from .errors import CompletionError, ConnectError, VerbsError
from .here import place
from .library import load

if TYPE_CHECKING:
    from .records import recv_dtype as recv_dtype
    from .records import send_dtype as send_dtype
    from .records import wc_dtype as wc_dtype

__all__ = [
    "AH",
    "CQ",
    "DM",
    "MR",
    "MTU",
    "MULTICAST_QPN",
    "MW",
    "PD",
    "QP",
    "SGE",
    "SRQ",
    "TD",
    "WC",
    "XRCD",
    "AHAttr",
    "AccessFlags",
    "AsyncEvent",
    "AtomicCap",
    "CompChannel",
    "CompletionError",
    "ConnectError",
    "ConnectOptions",
    "Context",
    "Device",
    "DeviceAttr",
    "EventType",
    "Gid",
    "GidEntry",
    "GidType",
    "Library",
    "LinkLayer",
    "MRAdvice",
    "MWType",
    "MemoryAttr",
    "NodeType",
    "OdpCaps",
    "OdpTransportCaps",
    "ParentDomain",
    "PlacementType",
    "PortAttr",
    "PortState",
    "QPAttr",
    "QPAttrMask",
    "QPCap",
    "QPInfo",
    "QPInitAttr",
    "QPState",
    "QPType",
    "RecvWR",
    "SRQAttr",
    "SRQAttrMask",
    "SendFlags",
    "SendWR",
    "TransportType",
    "VerbsError",
    "WCFlags",
    "WCOpcode",
    "WCStatus",
    "WROpcode",
    "address_of",
    "bring_up",
    "bring_up_ud",
    "connect_pair",
    "connect_rc",
    "get_device_list",
    "inc_rkey",
    "local_qp_info",
    "open_device",
    "recv_dtype",
    "send_dtype",
    "wc_dtype",
]

MULTICAST_QPN = 0xFFFFFF
"""The ``remote_qpn`` of a datagram to a multicast group."""

_DTYPES = ("recv_dtype", "send_dtype", "wc_dtype")


def get_device_list(library: str | None = None) -> list[Device]:
    """Return the devices that ``library`` (see ``verbena.verbs.library``) finds; there may be none.

    A program on a simulated host (``verbena.sim.run``) gets that host's adapter.
    """
    here = place.get()
    return here.devices() if here else devices_of(load(library))


def open_device(name: str | None = None, library: str | None = None) -> Context:
    """Open the device ``name``, or the first one. Raises VerbsError(ENODEV) when there is none."""
    devices = get_device_list(library)
    for device in devices:
        if name in (None, device.name):
            return device.open()
    found = ", ".join(device.name for device in devices) or "none"
    wanted = f"no RDMA device is called {name!r}" if name else "there is no RDMA device"
    if place.get():
        raise VerbsError(errno.ENODEV, f"{wanted}; this simulated host has: {found}")
    raise VerbsError(
        errno.ENODEV, f"{wanted}; {load(library).path} finds: {found} (VERBENA_LIBRARY chooses it)"
    )


def __getattr__(name: str) -> Any:
    """Return the dtypes of the batch calls, so that NumPy is imported only if they are used."""
    if name not in _DTYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import records

    return getattr(records, name)
