# SPDX-License-Identifier: Apache-2.0
"""Sessions of a target without a network, for the tests of its commands."""

from __future__ import annotations

from verbena.nvmeof.admin import Limits, Portal
from verbena.nvmeof.commands import SGL_KEYED, AdminOpcode, Command, FabricsType, Sgl
from verbena.nvmeof.fabrics import ConnectData, Property, RequestData
from verbena.nvmeof.session import TargetSession
from verbena.nvmeof.stores import MemoryStore
from verbena.nvmeof.subsystems import Subsystem, TargetModel

NQN = "nqn.2026-01.org.example:disk0"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000077"
HOST_ID = bytes.fromhex("00000000000040008000000000000077")
NOTHING = Sgl(SGL_KEYED, 0, 0, 0)
LIMITS = Limits()


def subsystem_model(size: int = 1 << 20, block_size: int = 512) -> TargetModel:
    model = TargetModel()
    subsystem = Subsystem(NQN)
    subsystem.add(MemoryStore(size), block_size)
    model.add(subsystem)
    return model


def session_of(model: TargetModel, qid: int = 0, entries: int = 32) -> TargetSession:
    request = RequestData(qid=qid, hrqsize=entries, hsqsize=entries - 1)
    return TargetSession(model, request, Portal("10.77.0.1", 4420), LIMITS, lambda: 1.0)


def connect_command(qid: int = 0, sqsize: int = 31, kato: int = 5000, recfmt: int = 0) -> Command:
    return Command(
        AdminOpcode.FABRICS,
        0x40,
        1,
        FabricsType.CONNECT,
        Sgl(SGL_KEYED, 0x1000, 1024, 5),
        recfmt | qid << 16,
        sqsize,
        kato,
    )


def connect_data(
    nqn: str = NQN, cntlid: int = 0xFFFF, host_nqn: str = HOST_NQN, host_id: bytes = HOST_ID
) -> bytes:
    return ConnectData(host_id=host_id, cntlid=cntlid, subsystem_nqn=nqn, host_nqn=host_nqn).pack()


def property_set(offset: int, value: int) -> Command:
    return Command(
        AdminOpcode.FABRICS, 0x40, 2, FabricsType.PROPERTY_SET, NOTHING, 0, offset, value
    )


def property_get(offset: int, is_long: bool = False) -> Command:
    return Command(
        AdminOpcode.FABRICS, 0x40, 2, FabricsType.PROPERTY_GET, NOTHING, int(is_long), offset
    )


def enabled(model: TargetModel, nqn: str = NQN) -> TargetSession:
    """An admin session whose controller is enabled and has granted queues."""
    session = session_of(model)
    session.execute(connect_command(), connect_data(nqn))
    session.execute(property_set(Property.CC, 0x460001), b"")
    if not session.controller or not session.controller.is_discovery:
        session.execute(Command(9, 0x40, 3, 0, NOTHING, 7, 3 | 3 << 16), b"")
    return session


def ready_session(model: TargetModel | None = None, qid: int = 1) -> TargetSession:
    """An I/O session that takes commands."""
    model = model or subsystem_model()
    admin = enabled(model)
    assert admin.controller is not None
    session = session_of(model, qid, 128)
    session.execute(connect_command(qid, 127, 0), connect_data(cntlid=admin.controller.cntlid))
    return session
