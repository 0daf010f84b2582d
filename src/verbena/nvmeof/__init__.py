# SPDX-License-Identifier: Apache-2.0
"""NVMe over Fabrics by RDMA: disks of a target, and hosts that use them, for asyncio.

    async with nvmeof.Target(model) as target:              # a target: subsystems with disks
        await target.serve()

    async with await nvmeof.connect("server", nqn) as controller:      # a host
        disk = controller.disks[1]
        await disk.write(0, b"..." )
        data = await disk.read(0, 4096)

The other side may be Linux' ``nvme-rdma`` or ``nvmet-rdma``, or SPDK. Blocks go by RDMA between the
host's memory and the target's; Python sees the commands, and not the data.
"""

from __future__ import annotations

from .admin import Limits, Portal
from .disk import Disk
from .errors import CommandFailed, ConnectionLost, FormatError, NvmeError, Refused
from .fabrics import DISCOVERY_NQN, PORT
from .host import HostController, HostState, connect, discover
from .link import HostOptions
from .logs import DiscoveryEntry, SubsystemKind
from .reservation_files import ReservationFile, ReservationFileError
from .reservations import RegisterAction, ReservationType
from .server import Target
from .status import Status
from .stores import DelayedStore, FileStore, MemoryStore, Store
from .subsystems import Namespace, Subsystem, TargetModel

__all__ = [
    "DISCOVERY_NQN",
    "PORT",
    "CommandFailed",
    "ConnectionLost",
    "DelayedStore",
    "DiscoveryEntry",
    "Disk",
    "FileStore",
    "FormatError",
    "HostController",
    "HostOptions",
    "HostState",
    "Limits",
    "MemoryStore",
    "Namespace",
    "NvmeError",
    "Portal",
    "Refused",
    "ReservationFile",
    "ReservationFileError",
    "RegisterAction",
    "ReservationType",
    "Status",
    "Store",
    "Subsystem",
    "SubsystemKind",
    "Target",
    "TargetModel",
    "connect",
    "discover",
]
