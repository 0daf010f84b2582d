# SPDX-License-Identifier: Apache-2.0
"""The connection manager: InfiniBand's (IBA 12), and Linux's rdma_cm on it (IBA annex A11).

``RdmaCm`` has identifiers with ports, as programs of librdmacm use them; ``InfinibandCm`` has the
exchange of messages below. Both are without input and output: the owner passes MADs and time, and
takes datagrams and events. A call that is refused raises ``CmError``, whose ``refusal`` is a row of
one table.
"""

from __future__ import annotations

from .addresses import CmAddress, CmFamily
from .connection import CmAccept, CmConnect, CmConnection
from .counters import CmCounters
from .host import (
    AddressAnswer,
    CmHost,
    CmRequest,
    JoinGroup,
    LeaveGroup,
    LocalInterface,
    QueryPath,
    ResolveAddress,
)
from .identifier import IdState, QpKind, RdmaId
from .infiniband_cm import InfinibandCm
from .machine import CmEvent, CmEventKind, CmState
from .qp_attributes import QpAttributes, QpMask, QpTarget
from .rdma_cm import RdmaCm
from .rdma_events import (
    RdmaConnectionParameters,
    RdmaDatagramParameters,
    RdmaEvent,
    RdmaEventKind,
)
from .refusals import CmError, CmRefusal
from .resolution import CmResolution, SidrQuestion
from .routes import CmDatagram, CmDevice, CmPort, CmRoute, MadAddress, MadArrival
from .settings import CmSettings

__all__ = [
    "AddressAnswer",
    "CmAccept",
    "CmAddress",
    "CmConnect",
    "CmConnection",
    "CmCounters",
    "CmDatagram",
    "CmDevice",
    "CmError",
    "CmEvent",
    "CmEventKind",
    "CmFamily",
    "CmHost",
    "CmPort",
    "CmRefusal",
    "CmRequest",
    "CmResolution",
    "CmRoute",
    "CmSettings",
    "CmState",
    "IdState",
    "InfinibandCm",
    "JoinGroup",
    "LeaveGroup",
    "LocalInterface",
    "MadAddress",
    "MadArrival",
    "QpAttributes",
    "QpKind",
    "QpMask",
    "QpTarget",
    "QueryPath",
    "RdmaCm",
    "RdmaConnectionParameters",
    "RdmaDatagramParameters",
    "RdmaEvent",
    "RdmaEventKind",
    "RdmaId",
    "ResolveAddress",
    "SidrQuestion",
]
