# SPDX-License-Identifier: Apache-2.0
"""What Linux' host and target said to each other, read by the tables here, and answered by them."""

from __future__ import annotations

import pytest

from tests.nvmeof.roce_capture import Message, messages
from tests.nvmeof.sessions import ready_session, session_of, subsystem_model
from verbena.nvmeof.commands import (
    CAPSULE,
    COMPLETION,
    SGL_IN_CAPSULE,
    SGL_KEYED_INVALIDATE,
    AdminOpcode,
    Command,
    FabricsType,
    IoOpcode,
    pack_command_capsule,
    parse_command,
)
from verbena.nvmeof.fabrics import Capabilities, Configuration, ConnectData, Property
from verbena.nvmeof.identify import (
    IdentifyController,
    IdentifyNamespace,
    parse_descriptors,
    parse_namespace_list,
)
from verbena.nvmeof.logs import LogPage, SubsystemKind, parse_discovery
from verbena.nvmeof.status import Status, status_of_wire

TARGET = "10.77.0.2"
NAMES = ["1-discover", "2-connect-identify", "3-write-4k-inline", "5-read-4k", "7-flush"]


def commands_of(name: str) -> list[tuple[Message, Command]]:
    return [
        (each, parse_command(each.payload))
        for each in messages(name)
        if each.kind == "send" and each.source != TARGET
    ]


def data_of(name: str) -> list[tuple[Command, bytes]]:
    """The commands whose data the target wrote, with these; in order, one at a time."""
    found, last = [], None
    for each in messages(name):
        if each.kind == "send" and each.source != TARGET:
            command = parse_command(each.payload)
            last = command if command.opcode != AdminOpcode.ASYNC_EVENT else last
        elif each.kind == "write":
            assert last is not None
            found.append((last, each.payload))
    return found


@pytest.mark.parametrize("name", [*NAMES, "9-disconnect"])
def test_commands_are_packed_as_they_came(name: str) -> None:
    found = commands_of(name)
    assert found
    for message, command in found:
        assert pack_command_capsule(command) == message.payload[:CAPSULE]
        assert command.uses_sgl


@pytest.mark.parametrize("name", NAMES)
def test_completions(name: str) -> None:
    sent = {command.cid for _, command in commands_of(name)}
    answers = [each for each in messages(name) if each.kind == "send" and each.source == TARGET]
    assert answers
    for each in answers:
        _, _, _, cid, status = COMPLETION.unpack(each.payload)
        assert cid in sent
        assert status_of_wire(status) == (Status.SUCCESS, False)


def test_the_order_of_connecting() -> None:
    """The steps of facts that a target relies on: Connect, properties, Identify, logs, features."""
    steps = []
    for _, command in commands_of("2-connect-identify"):
        if command.opcode == AdminOpcode.FABRICS:
            steps.append(FabricsType(command.fabrics_type).name)
        elif command.opcode == IoOpcode.READ and command.sgl.length == 4096 and command.nsid == 1:
            steps.append("READ")
        else:
            steps.append(AdminOpcode(command.opcode).name)
    assert steps[:9] == [
        "CONNECT",
        "PROPERTY_GET",
        "PROPERTY_SET",
        "PROPERTY_GET",
        "PROPERTY_GET",
        "PROPERTY_SET",
        "PROPERTY_GET",
        "PROPERTY_GET",
        "IDENTIFY",
    ]
    assert steps[12:14] == ["SET_FEATURES", "CONNECT"]


def test_connect() -> None:
    (first, command), *_ = commands_of("2-connect-identify")
    assert command.sgl.kind == SGL_KEYED_INVALIDATE
    assert command.sgl.length == ConnectData.SIZE
    (data,) = [
        each.payload
        for each in messages("2-connect-identify")
        if each.kind == "response" and each.qpn == first.qpn and len(each.payload) == 1024
    ][:1]
    said = ConnectData.parse(data)
    assert said.cntlid == 0xFFFF
    assert said.subsystem_nqn == "nqn.2026-01.org.example:disk0"
    assert said.host_nqn.endswith("-000000000077")
    assert said.pack() == data


def test_connect_of_a_queue_in_the_capsule() -> None:
    (payload,) = [m.payload for m, _ in commands_of("2-connect-identify") if len(m.payload) > 64]
    command = parse_command(payload)
    assert (command.sgl.kind, command.sgl.length) == (SGL_IN_CAPSULE, 1024)
    assert command.cdw10 >> 16 == 1
    assert command.cdw11 == 127
    assert ConnectData.parse(payload[64:]).cntlid == 1


def test_identify_and_logs_of_linux() -> None:
    found = data_of("2-connect-identify")
    by_cns = {c.cdw10: data for c, data in found if c.opcode == AdminOpcode.IDENTIFY}
    controller = IdentifyController.parse(by_cns[1])
    assert (controller.model, controller.cntlid, controller.kind) == ("Linux", 1, 1)
    assert controller.sgls & 0x100005 == 0x100005
    assert controller.command_capsule == 260
    assert parse_namespace_list(by_cns[2]) == [1]
    assert set(parse_descriptors(by_cns[3])) >= {3}
    namespace = IdentifyNamespace.parse(by_cns[0])
    assert namespace.block_size == 512
    assert namespace.size == namespace.capacity > 0
    for block, kind in ((by_cns[1], IdentifyController), (by_cns[0], IdentifyNamespace)):
        parsed = kind.parse(block)
        assert kind.parse(parsed.pack()) == parsed


def test_the_discovery_log_of_linux() -> None:
    logs = [d for c, d in data_of("1-discover") if c.cdw10 & 0xFF == LogPage.DISCOVERY]
    head, entries = parse_discovery(logs[-1])
    assert head.records == 2
    assert [each.kind for each in entries] == [
        SubsystemKind.CURRENT_DISCOVERY,
        SubsystemKind.NVM,
    ]
    assert (entries[1].address, entries[1].service) == ("10.77.0.2", "4420")


def test_properties_of_linux() -> None:
    commands = [c for _, c in commands_of("2-connect-identify")]
    written = [
        Configuration.parse(c.cdw12)
        for c in commands
        if c.opcode == AdminOpcode.FABRICS and c.fabrics_type == FabricsType.PROPERTY_SET
    ]
    assert [each.enable for each in written] == [False, True]
    capabilities = Capabilities.parse(0x8200F00007F)
    assert (capabilities.queue_entries, capabilities.timeout) == (128, 15)
    assert Property(commands[1].cdw11) is Property.CAP


# ---- the target here answers what Linux' host asked ----------------------------------------------


def test_a_discovery_of_linux_is_answered() -> None:
    """Each command that Linux' host sent to Linux' target succeeds at a target of Verbena."""
    session = session_of(subsystem_model())
    for command, data in requests_of("1-discover"):
        reply = session.execute(without_command_set(command), data)
        assert (reply is None) == (command.opcode == AdminOpcode.ASYNC_EVENT)


def test_a_connection_of_linux_is_answered() -> None:
    model = subsystem_model()
    admin = session_of(model)
    io = session_of(model, qid=1, entries=128)
    for message, (command, data) in zip(
        [m for m, _ in commands_of("2-connect-identify")],
        requests_of("2-connect-identify"),
        strict=True,
    ):
        on_io = len(message.payload) > 64 or (command.opcode == IoOpcode.READ and command.nsid == 1)
        if on_io and command.opcode == IoOpcode.READ:
            assert io.blocks_of(command).length == 4096
        elif command.cdw10 & 0xFF == 0x0C and command.opcode == AdminOpcode.GET_LOG_PAGE:
            continue  # asymmetric access, which a target of Verbena does not say that it has
        elif on_io:
            io.execute(command, data)
        else:
            admin.execute(without_command_set(command), data)
    assert io.controller is admin.controller is not None


def requests_of(name: str) -> list[tuple[Command, bytes]]:
    """Commands with the data that go to the controller: from the capsule, or as it read them."""
    read = [each.payload for each in messages(name) if each.kind == "response"]
    found = []
    for message, command in commands_of(name):
        data = message.payload[CAPSULE:]
        if command.to_controller and command.sgl.length and not data:
            data = read.pop(0)
        found.append((command, data))
    return found


def without_command_set(command: Command) -> Command:
    """Linux chooses all command sets (CC.CSS 110b) where CAP has bit 43, as Linux' target says."""
    is_cc = command.opcode == AdminOpcode.FABRICS and command.cdw11 == Property.CC
    return command._replace(cdw12=command.cdw12 & ~0x70) if is_cc else command


def test_reading_is_answered() -> None:
    session = ready_session()
    (_, command), *_ = commands_of("5-read-4k")
    blocks = session.blocks_of(command)
    assert (blocks.offset, blocks.length) == (800 * 512, 4096)
    (_, flush), *_ = commands_of("7-flush")
    assert session.flushed_by(flush)
