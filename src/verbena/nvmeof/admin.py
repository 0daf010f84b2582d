# SPDX-License-Identifier: Apache-2.0
"""Commands of a target's admin queue, but for Connect: ``HANDLERS`` is their table.

``execute_admin`` is called with a command and the data that came with it, and returns a ``Reply``;
None if the command stays and waits for an event. Nothing here does I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .commands import EVERY_NAMESPACE, AdminOpcode, Command, FabricsType
from .controller import (
    DISCOVERY_EVENTS,
    KEEP_ALIVE_UNIT_MS,
    MOST_EVENTS,
    MOST_QUEUES,
    NAMESPACE_EVENTS,
    VERSION,
    TargetController,
)
from .identify import (
    IDENTIFY_SIZE,
    SGLS_IN_CAPSULE,
    SGLS_KEYED,
    ControllerKind,
    IdentifyController,
    IdentifyNamespace,
    IdentifyWhat,
    OptionalCommand,
    pack_descriptors,
    pack_namespace_list,
)
from .logs import (
    AddressFamily,
    DiscoveryEntry,
    LogPage,
    SubsystemKind,
    pack_changed,
    pack_discovery,
    pack_effects,
    pack_smart,
    part_of,
)
from .replies import Failure, Reply
from .status import Status
from .subsystems import Namespace

__all__ = ["Limits", "Portal", "execute_admin"]

_ALL_RESERVATIONS = 0b1111110  # every type
_PERSISTENCE = 1  # Persist Through Power Loss is supported
_SHARED, _SEVERAL_CONTROLLERS = 1, 2
_TRAFFIC_IS_LIFE = 1 << 6
_LONG_HOST_ID = 1 << 0


class Portal(NamedTuple):
    """Where hosts reach the target, as they are told."""

    address: str
    port: int

    @property
    def family(self) -> AddressFamily:
        """The family of its address."""
        return AddressFamily.IPV6 if ":" in self.address else AddressFamily.IPV4


class Limits(NamedTuple):
    """What a target's transport can do."""

    queue_entries: int = 128
    in_capsule: int = 4096
    transfer_shift: int = 8  # MDTS: 2^8 pages of 4 KiB

    @property
    def transfer(self) -> int:
        """The most bytes of a command."""
        return 4096 << self.transfer_shift


def execute_admin(
    controller: TargetController, command: Command, data: bytes, portal: Portal, limits: Limits
) -> Reply | None:
    """Execute a command. Raises Failure."""
    if command.opcode == AdminOpcode.FABRICS:
        return _fabrics(controller, command)
    if command.opcode == AdminOpcode.ASYNC_EVENT:
        controller.wait_for_event(command.cid)
        return None
    if controller.is_discovery and command.opcode not in _OF_DISCOVERY:
        raise Failure(Status.INVALID_OPCODE)
    handler = HANDLERS.get(command.opcode)
    if handler is None:
        raise Failure(Status.INVALID_OPCODE)
    return handler(Asked(controller, command, data, portal, limits))


class Asked(NamedTuple):
    """A command with all that its handler may need."""

    controller: TargetController
    command: Command
    data: bytes
    portal: Portal
    limits: Limits


def _fabrics(controller: TargetController, command: Command) -> Reply:
    is_long, offset = bool(command.cdw10 & 7), command.cdw11
    if command.cdw10 & 7 > 1:
        raise Failure(Status.INVALID_FIELD)
    if command.fabrics_type == FabricsType.PROPERTY_GET:
        return controller.get_property(offset, is_long)
    if command.fabrics_type == FabricsType.PROPERTY_SET:
        value = command.cdw12 | command.cdw13 << 32
        return controller.set_property(offset, is_long, value)
    if command.fabrics_type == FabricsType.CONNECT:
        raise Failure(Status.COMMAND_SEQUENCE)
    raise Failure(Status.INVALID_OPCODE)


# ---- Identify ------------------------------------------------------------------------------------


def _identify(asked: Asked) -> Reply:
    what = asked.command.cdw10 & 0xFF
    if asked.command.sgl.length != IDENTIFY_SIZE:
        raise Failure(Status.SGL_DATA_LENGTH)
    if asked.controller.is_discovery and what != IdentifyWhat.CONTROLLER:
        raise Failure(Status.INVALID_FIELD)
    made = IDENTIFY.get(what)
    if made is None:
        raise Failure(Status.INVALID_FIELD)
    return Reply(0, made(asked))


def _identify_controller(asked: Asked) -> bytes:
    controller, limits = asked.controller, asked.limits
    subsystem = controller.subsystem
    discovery = controller.is_discovery
    data = IdentifyController(
        serial=subsystem.serial,
        model="Verbena",
        firmware="1",
        multipath=0 if discovery else _SEVERAL_CONTROLLERS,
        max_transfer=limits.transfer_shift,
        cntlid=controller.cntlid,
        version=VERSION,
        async_events=DISCOVERY_EVENTS if discovery else NAMESPACE_EVENTS,
        attributes=_LONG_HOST_ID | _TRAFFIC_IS_LIFE,
        kind=ControllerKind.DISCOVERY if discovery else ControllerKind.IO,
        abort_limit=3,
        event_limit=MOST_EVENTS - 1,
        firmware_updates=3,  # one slot, which is read-only
        log_attributes=0b110,
        keep_alive=1,
        max_commands=limits.queue_entries,
        namespaces=0 if discovery else 1024,
        optional_commands=0
        if discovery
        else OptionalCommand.COMPARE
        | OptionalCommand.DATASET_MANAGEMENT
        | OptionalCommand.WRITE_ZEROES
        | OptionalCommand.RESERVATIONS,
        write_cache=any(each.store.is_volatile for each in subsystem.namespaces.values()),
        sgls=SGLS_KEYED | (SGLS_IN_CAPSULE if limits.in_capsule and not discovery else 0),
        max_namespaces=0 if discovery else 1024,
        subsystem_nqn=subsystem.nqn,
        command_capsule=(64 + (0 if discovery else limits.in_capsule)) // 16,
        response_capsule=1,
        max_descriptors=1,
    )
    return data.pack()


def _namespace_of(asked: Asked) -> Namespace | None:
    nsid = asked.command.nsid
    if nsid in (0, EVERY_NAMESPACE):
        raise Failure(Status.INVALID_NAMESPACE)
    return asked.controller.subsystem.namespaces.get(nsid)


def _identify_namespace(asked: Asked) -> bytes:
    namespace = _namespace_of(asked)
    if namespace is None:
        return bytes(IDENTIFY_SIZE)
    data = IdentifyNamespace(
        size=namespace.blocks,
        capacity=namespace.blocks,
        used=namespace.blocks,
        sharing=_SHARED,
        reservations=_ALL_RESERVATIONS
        | (_PERSISTENCE if namespace.reservations.can_persist else 0),
        attributes=int(namespace.store.is_read_only),
        nguid=namespace.nguid,
        format_shift=namespace.shift,
    )
    return data.pack()


def _identify_list(asked: Asked) -> bytes:
    if asked.command.nsid >= EVERY_NAMESPACE - 1:
        raise Failure(Status.INVALID_NAMESPACE)
    return pack_namespace_list(asked.controller.subsystem.namespaces, asked.command.nsid)


def _identify_descriptors(asked: Asked) -> bytes:
    namespace = _namespace_of(asked)
    if namespace is None:
        raise Failure(Status.INVALID_NAMESPACE)
    return pack_descriptors(namespace.nguid, namespace.uuid)


def _identify_nothing(asked: Asked) -> bytes:
    if asked.command.cdw11 >> 24:  # another command set than NVM's
        raise Failure(Status.INVALID_FIELD)
    return bytes(IDENTIFY_SIZE)


IDENTIFY: dict[int, Callable[[Asked], bytes]] = {
    IdentifyWhat.NAMESPACE: _identify_namespace,
    IdentifyWhat.CONTROLLER: _identify_controller,
    IdentifyWhat.ACTIVE_NAMESPACES: _identify_list,
    IdentifyWhat.DESCRIPTORS: _identify_descriptors,
    IdentifyWhat.COMMAND_SET_NAMESPACE: _identify_nothing,
    IdentifyWhat.COMMAND_SET_CONTROLLER: _identify_nothing,
}


# ---- log pages -----------------------------------------------------------------------------------


def _get_log_page(asked: Asked) -> Reply:
    command = asked.command
    page, keeps = command.cdw10 & 0xFF, bool(command.cdw10 & 0x8000)
    length = ((command.cdw10 >> 16 | (command.cdw11 & 0xFFFF) << 16) + 1) * 4
    offset = command.cdw12 | command.cdw13 << 32
    if offset & 3:
        raise Failure(Status.INVALID_FIELD)
    if length != command.sgl.length or length > asked.limits.transfer:
        raise Failure(Status.SGL_DATA_LENGTH)
    made = LOGS.get(page)
    if made is None or asked.controller.is_discovery != (page == LogPage.DISCOVERY):
        raise Failure(Status.INVALID_LOG_PAGE)
    data = part_of(made(asked), offset, length)
    asked.controller.log_was_read(page, keeps)
    return Reply(0, data)


def _smart(asked: Asked) -> bytes:
    found = list(asked.controller.subsystem.namespaces.values())
    return pack_smart(
        sum(each.reads for each in found),
        sum(each.read_bytes for each in found),
        sum(each.writes for each in found),
        sum(each.written_bytes for each in found),
    )


def _discovery(asked: Asked) -> bytes:
    controller, portal = asked.controller, asked.portal
    kinds = [(SubsystemKind.CURRENT_DISCOVERY, controller.subsystem.nqn)]
    kinds += [
        (SubsystemKind.NVM, each.nqn)
        for each in controller.model.subsystems.values()
        if each.allows(controller.host_nqn)
    ]
    entries = [
        DiscoveryEntry(
            family=portal.family,
            kind=kind,
            requirements=4,  # flow control of the submission queue may be off
            service=str(portal.port),
            nqn=nqn,
            address=portal.address,
        )
        for kind, nqn in kinds
    ]
    return pack_discovery(controller.model.generation, entries)


LOGS: dict[int, Callable[[Asked], bytes]] = {
    LogPage.ERRORS: lambda asked: b"",
    LogPage.SMART: _smart,
    LogPage.FIRMWARE: lambda asked: b"",
    LogPage.CHANGED_NAMESPACES: lambda asked: pack_changed(
        list(asked.controller.changed_namespaces)
    ),
    LogPage.EFFECTS: lambda asked: pack_effects(),
    LogPage.DISCOVERY: _discovery,
}


# ---- features ------------------------------------------------------------------------------------

_WRITE_CACHE, _QUEUES, _EVENTS, _KEEP_ALIVE, _HOST_ID = 0x06, 0x07, 0x0B, 0x0F, 0x81
_RESERVATION_PERSISTENCE = 0x83
_FEATURES_OF_DISCOVERY = (_EVENTS, _KEEP_ALIVE)


def _set_features(asked: Asked) -> Reply:
    feature, value = asked.command.cdw10 & 0xFF, asked.command.cdw11
    controller = asked.controller
    if controller.is_discovery and feature not in _FEATURES_OF_DISCOVERY:
        raise Failure(Status.INVALID_FIELD)
    if asked.command.cdw10 >> 31:
        raise Failure(Status.FEATURE_NOT_SAVEABLE)
    if feature == _QUEUES:
        wanted = max(value & 0xFFFF, value >> 16) + 1
        if wanted > 0xFFFF:
            raise Failure(Status.INVALID_FIELD)
        if len(controller.queues) > 1:
            raise Failure(Status.COMMAND_SEQUENCE)
        controller.granted_queues = min(wanted, MOST_QUEUES)
        granted = controller.granted_queues - 1
        return Reply(granted | granted << 16)
    if feature == _EVENTS:
        allowed = DISCOVERY_EVENTS if controller.is_discovery else NAMESPACE_EVENTS
        controller.event_mask = value & allowed
        return Reply(value)
    if feature == _KEEP_ALIVE:
        controller.keep_alive_ms = -(-value // KEEP_ALIVE_UNIT_MS) * KEEP_ALIVE_UNIT_MS
        return Reply()
    if feature == _RESERVATION_PERSISTENCE:
        return Reply(waiting=_set_persistence(asked, bool(value & 1)))
    if feature == _HOST_ID:
        raise Failure(Status.COMMAND_SEQUENCE)
    if feature == _WRITE_CACHE:
        raise Failure(Status.FEATURE_NOT_CHANGEABLE)
    raise Failure(Status.INVALID_FIELD)


def _set_persistence(asked: Asked, persists: bool) -> Awaitable[None] | None:
    """Set the PTPL state of one namespace, or of each that has one. Raises Failure."""
    known = asked.controller.subsystem.namespaces
    if asked.command.nsid == EVERY_NAMESPACE:
        chosen = [each for each in known.values() if each.reservations.can_persist]
    else:
        found = _namespace_of(asked)
        if found is None:
            raise Failure(Status.INVALID_NAMESPACE)
        chosen = [found]
    waiting = [
        made
        for each in chosen
        if (made := each.change_reservations(lambda state: state.set_persistence(persists)))
    ]

    async def all_of_them() -> None:
        await asyncio.gather(*waiting)

    return all_of_them() if waiting else None


def _get_features(asked: Asked) -> Reply:
    feature = asked.command.cdw10 & 0xFF
    controller = asked.controller
    if controller.is_discovery and feature not in _FEATURES_OF_DISCOVERY:
        raise Failure(Status.INVALID_FIELD)
    if feature == _QUEUES:
        granted = max(controller.granted_queues, 1) - 1
        return Reply(granted | granted << 16)
    if feature == _EVENTS:
        return Reply(controller.event_mask)
    if feature == _KEEP_ALIVE:
        return Reply(controller.keep_alive_ms)
    if feature == _WRITE_CACHE:
        return Reply(1)
    if feature == _RESERVATION_PERSISTENCE:
        namespace = _namespace_of(asked)
        if namespace is None:
            raise Failure(Status.INVALID_NAMESPACE)
        return Reply(int(namespace.reservations.persists))
    if feature == _HOST_ID:
        if not asked.command.cdw11 & 1 or asked.command.sgl.length != 16:
            raise Failure(Status.INVALID_FIELD)
        return Reply(0, controller.host_id)
    raise Failure(Status.INVALID_FIELD)


# ---- others --------------------------------------------------------------------------------------


def _abort(asked: Asked) -> Reply:
    """Abort a command of the admin queue that waits; all others are under way."""
    qid, cid = asked.command.cdw10 & 0xFFFF, asked.command.cdw10 >> 16
    aborted = qid == 0 and asked.controller.stop_waiting(cid)
    if aborted:
        session = asked.controller.queues.get(0)
        if session is not None:
            session.on_aborted(cid)
    return Reply(int(not aborted))


HANDLERS: dict[int, Callable[[Asked], Reply]] = {
    AdminOpcode.IDENTIFY: _identify,
    AdminOpcode.GET_LOG_PAGE: _get_log_page,
    AdminOpcode.SET_FEATURES: _set_features,
    AdminOpcode.GET_FEATURES: _get_features,
    AdminOpcode.KEEP_ALIVE: lambda asked: asked.controller.keep_alive(),
    AdminOpcode.ABORT: _abort,
}
_OF_DISCOVERY = frozenset(
    {
        AdminOpcode.IDENTIFY,
        AdminOpcode.GET_LOG_PAGE,
        AdminOpcode.SET_FEATURES,
        AdminOpcode.GET_FEATURES,
        AdminOpcode.KEEP_ALIVE,
    }
)
