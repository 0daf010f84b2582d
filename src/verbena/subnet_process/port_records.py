# SPDX-License-Identifier: Apache-2.0
"""What a program's library says of a host's port, as bytes of the page (port/fabric.h).

``PortPage`` writes these records, and the library copies struct ibv_port_attr out of them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from verbena.manage.smp_attributes import PortInfo

if TYPE_CHECKING:
    from verbena.manage.agents import NodePort

__all__ = ["GIDS", "RECORD_BYTES", "port_gids", "port_record"]

RECORD_BYTES, P_KEYS, GIDS = 320, 32, 8
_ATTRIBUTES = struct.Struct("=3Ii4I3H10BHxxI")  # struct ibv_port_attr of rdma-core 60
_SPEED = struct.Struct("=I")
MESSAGE_MOST = 0x7FFF_FFFF
INFINIBAND = 1
LANES = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}  # by the code of a width
# By the bit of a speed in ibv_port_attr: 100 Mb/s of one lane.
RATES = {1: 25, 2: 50, 4: 100, 8: 100, 16: 140, 32: 250, 64: 500, 128: 1000, 256: 2000}
FDR10 = 8


def port_gids(port: NodePort) -> list[bytes]:
    """Return the port's GID table: the subnet's prefix and each GUID; an empty entry is b""."""
    prefix = bytes(port.info[8:16])
    guids = [bytes(port.guids[at : at + 8]) for at in range(0, len(port.guids), 8)][:GIDS]
    return [prefix + guid if any(guid) else b"" for guid in guids]


def _speed(port: NodePort, info: PortInfo) -> int:
    settings = port.settings("active")
    if info.link_speed_ext_active2:
        return 256
    if info.link_speed_ext_active:
        return int(info.link_speed_ext_active) << 4
    return FDR10 if settings.fdr10 else int(info.link_speed_active) or 1


def port_record(port: NodePort, identity: int, generation: int) -> bytes:
    """Return a port's record."""
    info = PortInfo.unpack(port.info)
    speed, gids = _speed(port, info), port_gids(port)
    width = int(info.link_width_active)
    keys = struct.unpack(f">{len(port.p_keys) // 2}H", port.p_keys)[:P_KEYS]
    attributes = _ATTRIBUTES.pack(
        port.state,
        info.mtu_cap,
        info.neighbor_mtu or info.mtu_cap,
        len(gids),
        info.capability_mask,
        MESSAGE_MOST,
        info.p_key_violations,
        info.q_key_violations,
        P_KEYS,
        info.lid,
        info.master_sm_lid,
        info.lmc,
        info.vl_cap,
        info.master_sm_sl,
        info.subnet_timeout,
        info.init_type_reply,
        width,
        min(speed, 128),
        port.physical_state,
        INFINIBAND,
        0,
        info.capability_mask2,
        speed,
    )
    head = struct.pack("=IIQ", generation, identity, 0)
    rate = _SPEED.pack(LANES.get(width, 1) * RATES.get(speed, RATES[1]))
    record = (
        head + attributes + rate + struct.pack(f"={P_KEYS}H", *keys, *(0,) * (P_KEYS - len(keys)))
    )
    record += b"".join(gid.ljust(16, b"\0") for gid in gids)
    return record.ljust(RECORD_BYTES, b"\0")
