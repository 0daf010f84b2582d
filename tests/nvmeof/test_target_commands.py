# SPDX-License-Identifier: Apache-2.0
"""A target's answers to commands, without a network: what hosts rely on, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nvmeof.sessions import (
    HOST_ID,
    HOST_NQN,
    LIMITS,
    NOTHING,
    NQN,
    connect_command,
    connect_data,
    enabled,
    property_get,
    property_set,
    ready_session,
    session_of,
    subsystem_model,
)
from verbena.nvmeof.commands import SGL_IN_CAPSULE, SGL_KEYED, Command, Sgl, parse_command
from verbena.nvmeof.controller import ControllerState
from verbena.nvmeof.fabrics import DISCOVERY_NQN, Property, RejectStatus, RequestData
from verbena.nvmeof.identify import (
    IdentifyController,
    IdentifyNamespace,
    parse_descriptors,
    parse_namespace_list,
)
from verbena.nvmeof.logs import LogPage, parse_discovery
from verbena.nvmeof.replies import Failure, Reply
from verbena.nvmeof.session import QueueRefused, SessionState, TargetSession, check_request
from verbena.nvmeof.status import Status
from verbena.nvmeof.stores import MemoryStore
from verbena.nvmeof.subsystems import Subsystem

REPLY = Sgl(SGL_KEYED, 0x1000, 4096, 7)


def failure_of(session: TargetSession, command: Command, data: bytes = b"") -> Failure:
    with pytest.raises(Failure) as caught:
        session.execute(command, data)
    return caught.value


def identify(session: TargetSession, cns: int, nsid: int = 0, cdw11: int = 0) -> bytes:
    reply = session.execute(Command(6, 0x40, 1, nsid, REPLY, cns, cdw11), b"")
    assert reply is not None
    return reply.data


def get_log(
    session: TargetSession, page: int, length: int, offset: int = 0, keeps: bool = False
) -> bytes:
    count = length // 4 - 1
    word = page | keeps << 15 | (count & 0xFFFF) << 16
    sgl = Sgl(SGL_KEYED, 0, length, 7)
    reply = session.execute(
        Command(2, 0x40, 1, 0, sgl, word, count >> 16, offset & 0xFFFFFFFF, offset >> 32), b""
    )
    assert reply is not None
    return reply.data


# ---- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"recfmt": 1}, RejectStatus.FORMAT),
        ({"qid": 65}, RejectStatus.QID),
        ({"hsqsize": 0}, RejectStatus.HSQSIZE),
        ({"hsqsize": 32}, RejectStatus.HSQSIZE),
        ({"hrqsize": 0}, RejectStatus.HRQSIZE),
    ],
)
def test_requests_that_are_refused(changes: dict[str, int], status: RejectStatus) -> None:
    request = replace(RequestData(hrqsize=32, hsqsize=31), **changes)
    with pytest.raises(QueueRefused) as caught:
        check_request(request.pack().ljust(56, b"\0"), 16, LIMITS)
    assert caught.value.private_data == struct.pack("<HH", 0, status)


def test_requests_without_data_or_reads() -> None:
    with pytest.raises(QueueRefused, match="LENGTH"):
        check_request(bytes(31), 16, LIMITS)
    with pytest.raises(QueueRefused, match="IRD"):
        check_request(RequestData(hrqsize=32, hsqsize=31).pack(), 0, LIMITS)


def test_queues_have_what_the_host_asks_for() -> None:
    request = check_request(RequestData(qid=1, hrqsize=16, hsqsize=15).pack(), 1, LIMITS)
    session = session_of(subsystem_model(), 1, 16)
    assert (request.qid, session.entries) == (1, 16)
    assert session_of(subsystem_model(), 1, 1000).entries == LIMITS.queue_entries


@pytest.mark.parametrize(
    ("command", "data", "status", "result"),
    [
        (connect_command(recfmt=1), {}, Status.CONNECT_FORMAT, 0),
        (connect_command(qid=1), {}, Status.CONNECT_PARAMETERS, 42),
        (connect_command(sqsize=0), {}, Status.CONNECT_PARAMETERS, 44),
        (connect_command(sqsize=32), {}, Status.CONNECT_PARAMETERS, 44),
        (connect_command(), {"nqn": NQN + "x"}, Status.CONNECT_PARAMETERS, 0x10100),
        (connect_command(), {"cntlid": 1}, Status.CONNECT_PARAMETERS, 0x10010),
        (connect_command(), {"host_nqn": ""}, Status.CONNECT_HOST, 0x10200),
    ],
)
def test_connects_that_fail(
    command: Command, data: dict[str, str], status: Status, result: int
) -> None:
    session = session_of(subsystem_model())
    failure = failure_of(session, command, connect_data(**data))  # type: ignore[arg-type]
    assert (failure.status, failure.result, failure.is_final) == (status, result, True)
    assert session.state is SessionState.NEW
    session.execute(connect_command(), connect_data())


def test_connect_with_too_little_data() -> None:
    failure = failure_of(session_of(subsystem_model()), connect_command(), bytes(1023))
    assert failure.status is Status.SGL_DATA_LENGTH


def test_nothing_before_connect() -> None:
    session = session_of(subsystem_model())
    assert failure_of(session, property_get(0, True)).status is Status.INVALID_OPCODE
    assert failure_of(session, Command(6, 0x40, 1, 0, REPLY, 1)).status is Status.INVALID_OPCODE


def test_lists_of_hosts() -> None:
    model = subsystem_model()
    model.subsystems[NQN].allow("nqn.2026-01.org.example:other")
    failure = failure_of(session_of(model), connect_command(), connect_data())
    assert failure.status is Status.CONNECT_HOST
    model.subsystems[NQN].allow(HOST_NQN)
    session_of(model).execute(connect_command(), connect_data())


def test_queues_of_a_controller() -> None:
    model = subsystem_model()
    admin = enabled(model)
    assert admin.controller is not None
    cntlid = admin.controller.cntlid

    def join(qid: int, **data: object) -> Status:
        session = session_of(model, qid, 128)
        said = connect_data(**{"cntlid": cntlid, **data})  # type: ignore[arg-type]
        return failure_of(session, connect_command(qid, 127, 0), said).status

    assert join(5) is Status.CONNECT_PARAMETERS  # four were granted
    assert join(1, cntlid=cntlid + 1) is Status.CONNECT_PARAMETERS
    assert join(1, host_nqn=HOST_NQN + "x") is Status.CONNECT_PARAMETERS
    assert join(1, host_id=bytes(16)) is Status.CONNECT_PARAMETERS
    session_of(model, 1, 128).execute(connect_command(1, 127, 0), connect_data(cntlid=cntlid))
    assert join(1) is Status.COMMAND_SEQUENCE
    admin.execute(property_set(Property.CC, 0x460000), b"")
    assert join(2) is Status.COMMAND_SEQUENCE


def test_the_admin_queue_ends_the_controller() -> None:
    model = subsystem_model()
    session = ready_session(model)
    controller = session.controller
    assert controller is not None
    ended: list[int] = []
    session.on_end = lambda: ended.append(1)
    controller.queues[0].end()
    assert ended == [1]
    assert controller.state is ControllerState.GONE
    assert not model.subsystems[NQN].controllers


def test_controllers_have_numbers_of_their_own() -> None:
    model = subsystem_model()
    numbers = {enabled(model).controller.cntlid for _ in range(20)}  # type: ignore[union-attr]
    assert len(numbers) == 20


# ---- properties ----------------------------------------------------------------------------------


def test_enabling_and_shutting_down() -> None:
    session = session_of(subsystem_model())
    session.execute(connect_command(), connect_data())

    def csts() -> int:
        reply = session.execute(property_get(Property.CSTS), b"")
        assert reply is not None
        return reply.result

    assert csts() == 0
    assert session.execute(property_get(Property.CAP, True), b"") == Reply(0x20_0F01_007F)
    assert session.execute(property_get(Property.VS), b"") == Reply(0x10400)
    session.execute(property_set(Property.CC, 0x460000), b"")
    assert csts() == 0
    session.execute(property_set(Property.CC, 0x460001), b"")
    assert csts() == 1
    session.execute(property_set(Property.CC, 0x464001), b"")
    assert csts() == 8
    session.execute(property_set(Property.CC, 0x460000), b"")
    assert csts() == 0
    session.execute(property_set(Property.CC, 0x560001), b"")  # completion entries of 32 bytes
    assert csts() == 2


@pytest.mark.parametrize(
    "command",
    [
        property_get(Property.CAP),
        property_get(Property.CSTS, True),
        property_get(0x20),
        property_set(Property.CSTS, 1),
        property_set(Property.CAP, 1),
        property_get(0, True)._replace(cdw10=2),
    ],
)
def test_properties_that_are_refused(command: Command) -> None:
    session = session_of(subsystem_model())
    session.execute(connect_command(), connect_data())
    assert failure_of(session, command).status is Status.INVALID_FIELD


# ---- what Linux checks ---------------------------------------------------------------------------


def test_identify_is_what_linux_wants() -> None:
    session = enabled(subsystem_model())
    found = IdentifyController.parse(identify(session, 1))
    assert session.controller is not None
    assert found.cntlid == session.controller.cntlid  # "Mismatching cntlid"
    assert found.keep_alive  # an I/O controller without KAS is refused
    assert found.sgls & 0x100005 == 0x100005
    assert found.in_capsule_offset == 0
    assert found.max_commands >= LIMITS.queue_entries
    assert found.command_capsule == (64 + LIMITS.in_capsule) // 16
    assert found.multipath & 2  # else a second controller is refused
    assert not found.multipath & 8
    assert found.subsystem_nqn == NQN
    assert (found.submission_entry, found.completion_entry) == (0x66, 0x44)
    assert found.kind == 1


def test_identify_of_namespaces() -> None:
    model = subsystem_model(1 << 20, 4096)
    session = enabled(model)
    assert parse_namespace_list(identify(session, 2)) == [1]
    assert parse_namespace_list(identify(session, 2, 1)) == []
    found = IdentifyNamespace.parse(identify(session, 0, 1))
    assert (found.size, found.capacity, found.block_size) == (256, 256, 4096)
    assert found.sharing == 1
    assert identify(session, 0, 2) == bytes(4096)  # inactive
    descriptors = parse_descriptors(identify(session, 3, 1))
    assert descriptors[2] == found.nguid
    assert any(descriptors[3])
    assert identify(session, 6) == bytes(4096)
    for cns, nsid in ((0, 0), (0, 0xFFFFFFFF), (3, 2), (2, 0xFFFFFFFE)):
        failure = failure_of(session, Command(6, 0x40, 1, nsid, REPLY, cns))
        assert failure.status is Status.INVALID_NAMESPACE
    assert failure_of(session, Command(6, 0x40, 1, 0, REPLY, 99)).status is Status.INVALID_FIELD
    short = Command(6, 0x40, 1, 0, REPLY._replace(length=512), 1)
    assert failure_of(session, short).status is Status.SGL_DATA_LENGTH


def test_identifiers_are_the_same_after_a_restart_and_differ_else() -> None:
    first, second = (enabled(subsystem_model()) for _ in range(2))
    assert identify(first, 3, 1) == identify(second, 3, 1)
    model = subsystem_model()
    model.subsystems[NQN].add(MemoryStore(4096))
    session = enabled(model)
    assert identify(session, 3, 1) != identify(session, 3, 2)


def test_identifiers_of_two_subsystems_differ() -> None:
    """Linux ignores a namespace whose identifiers another subsystem has: "duplicate IDs"."""
    model = subsystem_model()
    other = Subsystem(NQN + "b")
    other.add(MemoryStore(1 << 20))
    model.add(other)
    first, second = enabled(model), enabled(model, other.nqn)
    pages = [parse_descriptors(identify(each, 3, 1)) for each in (first, second)]
    for kind in (2, 3):  # NGUID and UUID
        assert pages[0][kind] != pages[1][kind]
    found = [IdentifyNamespace.parse(identify(each, 0, 1)) for each in (first, second)]
    assert [each.nguid for each in found] == [each[2] for each in pages]
    assert found[0].eui64 == found[1].eui64 == bytes(8)  # there is none
    serials = [IdentifyController.parse(identify(each, 1)).serial for each in (first, second)]
    assert serials[0] != serials[1]


def test_read_only_namespaces() -> None:
    model = subsystem_model()
    model.subsystems[NQN].add(MemoryStore(4096, is_read_only=True))
    session = ready_session(model)
    assert session.controller is not None
    assert IdentifyNamespace.parse(identify(session.controller.queues[0], 0, 2)).attributes == 1
    write = Command(1, 0x40, 1, 2, Sgl(SGL_KEYED, 0, 512, 1), 0, 0, 0)
    with pytest.raises(Failure, match="NAMESPACE_WRITE_PROTECTED"):
        session.blocks_of(write)


# ---- discovery and logs --------------------------------------------------------------------------


def test_the_discovery_controller() -> None:
    model = subsystem_model()
    hidden = Subsystem("nqn.2026-01.org.example:hidden", hosts=[])
    model.add(hidden)
    session = enabled(model, DISCOVERY_NQN)
    found = IdentifyController.parse(identify(session, 1))
    assert (found.kind, found.subsystem_nqn) == (2, DISCOVERY_NQN)
    assert found.sgls & 4
    assert found.namespaces == 0
    head, entries = parse_discovery(get_log(session, LogPage.DISCOVERY, 3072))
    assert head.records == 2
    assert [each.nqn for each in entries] == [DISCOVERY_NQN, NQN]
    assert (entries[1].address, entries[1].service) == ("10.77.0.1", "4420")
    # Newer hosts read 20 bytes first, and entries by their offset.
    assert get_log(session, LogPage.DISCOVERY, 20) == head.pack()[:20]
    assert get_log(session, LogPage.DISCOVERY, 1024, 2048) == entries[1].pack()
    assert get_log(session, LogPage.DISCOVERY, 1024, 1 << 40) == bytes(1024)
    for command in (
        Command(6, 0x40, 1, 0, REPLY, 2),
        Command(9, 0x40, 1, 0, NOTHING, 7),
    ):
        assert failure_of(session, command).status is Status.INVALID_FIELD
    assert failure_of(session, Command(8, 0x40, 1, 0, NOTHING)).status is Status.INVALID_OPCODE


def test_log_pages() -> None:
    session = enabled(subsystem_model())
    effects = struct.unpack("<1024I", get_log(session, LogPage.EFFECTS, 4096))
    assert effects[6] & 1
    assert effects[256 + 1] & 3 == 3
    assert len(get_log(session, LogPage.SMART, 512)) == 512
    assert get_log(session, LogPage.ERRORS, 64) == bytes(64)
    bad = Command(2, 0x40, 1, 0, Sgl(SGL_KEYED, 0, 16, 1), 0x0C | 3 << 16)
    assert failure_of(session, bad).status is Status.INVALID_LOG_PAGE
    wrong = Command(2, 0x40, 1, 0, Sgl(SGL_KEYED, 0, 12, 1), 0x02 | 3 << 16)
    assert failure_of(session, wrong).status is Status.SGL_DATA_LENGTH


# ---- features, keep-alive, events ----------------------------------------------------------------


def features(session: TargetSession, opcode: int, feature: int, value: int = 0) -> Reply | None:
    return session.execute(Command(opcode, 0x40, 1, 0, NOTHING, feature, value), b"")


def test_features() -> None:
    session = enabled(subsystem_model())
    assert features(session, 9, 7, 1 | 1 << 16) == Reply(1 | 1 << 16)
    assert features(session, 9, 7, 99 | 99 << 16) == Reply(63 | 63 << 16)
    assert features(session, 10, 7) == Reply(63 | 63 << 16)
    features(session, 9, 0x0F, 1234)
    assert features(session, 10, 0x0F) == Reply(1300)
    features(session, 9, 0x0B, 0xFFFFFFFF)
    assert features(session, 10, 0x0B) == Reply(0x100)
    host_id = session.execute(Command(10, 0x40, 1, 0, Sgl(SGL_KEYED, 0, 16, 1), 0x81, 1), b"")
    assert host_id == Reply(0, HOST_ID)
    for command, status in (
        (Command(9, 0x40, 1, 0, NOTHING, 0x81), Status.COMMAND_SEQUENCE),
        (Command(9, 0x40, 1, 0, NOTHING, 0x10), Status.INVALID_FIELD),
        (Command(9, 0x40, 1, 0, NOTHING, 7 | 1 << 31), Status.FEATURE_NOT_SAVEABLE),
        (Command(0x99, 0x40, 1, 0, NOTHING), Status.INVALID_OPCODE),
    ):
        assert failure_of(session, command).status is status


def test_keep_alive() -> None:
    session = enabled(subsystem_model())
    controller = session.controller
    assert controller is not None
    session.execute(Command(0x18, 0x40, 1, 0, NOTHING), b"")
    controller.last_seen = 100.0
    assert not controller.is_expired(106.9)
    assert controller.is_expired(107.1)
    quiet = session_of(subsystem_model())
    quiet.execute(connect_command(kato=0), connect_data())
    assert quiet.controller is not None
    assert not quiet.controller.is_expired(1e9)
    keep_alive = Command(0x18, 0x40, 1, 0, NOTHING)
    assert failure_of(quiet, keep_alive).status is Status.KEEP_ALIVE_INVALID


def test_events() -> None:
    model = subsystem_model()
    session = enabled(model)
    controller = session.controller
    assert controller is not None
    told: list[tuple[int, int]] = []
    controller.on_event = lambda cid, result: told.append((cid, result))
    wait = Command(0x0C, 0x40, 31, 0, NOTHING)
    assert session.execute(wait, b"") is None
    subsystem = model.subsystems[NQN]
    subsystem.add(MemoryStore(4096))
    assert told == [(31, 0x040002)]
    assert session.execute(wait, b"") is None
    subsystem.remove(2)  # the host has not read the log yet
    assert len(told) == 1
    changed = get_log(session, LogPage.CHANGED_NAMESPACES, 4096)
    assert struct.unpack_from("<II", changed) == (2, 0)
    subsystem.add(MemoryStore(4096))
    assert len(told) == 2
    for cid in range(4):
        session.execute(wait._replace(cid=cid), b"")
    assert failure_of(session, wait).status is Status.AER_LIMIT


def test_events_that_are_masked_or_kept() -> None:
    model = subsystem_model()
    session = enabled(model)
    controller = session.controller
    assert controller is not None
    told: list[int] = []
    controller.on_event = lambda cid, result: told.append(result)
    features(session, 9, 0x0B, 0)
    session.execute(Command(0x0C, 0x40, 31, 0, NOTHING), b"")
    model.subsystems[NQN].add(MemoryStore(4096))
    assert not told
    features(session, 9, 0x0B, 0x100)
    model.subsystems[NQN].remove(2)
    assert told
    session.execute(Command(0x0C, 0x40, 31, 0, NOTHING), b"")
    get_log(session, LogPage.CHANGED_NAMESPACES, 4096, keeps=True)
    model.subsystems[NQN].add(MemoryStore(4096))
    assert len(told) == 1


def test_discovery_events() -> None:
    model = subsystem_model()
    session = enabled(model, DISCOVERY_NQN)
    assert session.controller is not None
    told: list[int] = []
    session.controller.on_event = lambda cid, result: told.append(result)
    session.execute(Command(0x0C, 0x40, 31, 0, NOTHING), b"")
    model.add(Subsystem("nqn.2026-01.org.example:more"))
    assert told == [0x70F002]


def test_abort() -> None:
    session = enabled(subsystem_model())
    aborted: list[int] = []
    session.on_aborted = aborted.append
    session.execute(Command(0x0C, 0x40, 31, 0, NOTHING), b"")
    assert session.execute(Command(8, 0x40, 1, 0, NOTHING, 31 << 16), b"") == Reply(0)
    assert session.execute(Command(8, 0x40, 1, 0, NOTHING, 31 << 16), b"") == Reply(1)
    assert aborted == [31]


# ---- blocks --------------------------------------------------------------------------------------


def read(first: int, count: int, length: int | None = None, **fields: int) -> Command:
    sgl = Sgl(SGL_KEYED, 0x1000, count * 512 if length is None else length, 9)
    words = {"cdw10": first & 0xFFFFFFFF, "cdw11": first >> 32, "cdw12": count - 1, **fields}
    return Command(2, 0x40, 1, words.pop("nsid", 1), sgl, **words)


def test_blocks() -> None:
    session = ready_session()
    blocks = session.blocks_of(read(8, 8))
    assert (blocks.offset, blocks.length, blocks.is_durable) == (4096, 4096, False)
    assert session.blocks_of(read(8, 8, cdw12=7 | 1 << 30)).is_durable
    assert session.blocks_of(read(2047, 1)).length == 512


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (read(2048, 1), Status.LBA_RANGE),
        (read(2047, 2), Status.LBA_RANGE),
        (read((1 << 64) - 1, 1), Status.LBA_RANGE),
        (read(0, 1, nsid=2), Status.INVALID_NAMESPACE),
        (read(0, 1, nsid=0xFFFFFFFF), Status.INVALID_NAMESPACE),
        (read(0, 8, 512), Status.SGL_DATA_LENGTH),
        (read(0, 1, 4096), Status.SGL_DATA_LENGTH),
    ],
)
def test_blocks_that_are_refused(command: Command, status: Status) -> None:
    with pytest.raises(Failure, match=status.name):
        ready_session().blocks_of(command)


def test_more_than_a_command_may_move() -> None:
    session = ready_session(subsystem_model(4 << 20))
    with pytest.raises(Failure, match="INVALID_FIELD"):
        session.blocks_of(read(0, 2049))
    assert session.blocks_of(read(0, 2048)).length == 1 << 20


def test_descriptors_that_are_refused() -> None:
    session = ready_session()
    write = Command(1, 0x40, 1, 1, Sgl(SGL_IN_CAPSULE, 0, 512, 0))
    session.check_sgl(write, 512)
    cases = [
        (write._replace(sgl=Sgl(SGL_IN_CAPSULE, 1, 512, 0)), Status.SGL_OFFSET),
        (write._replace(sgl=Sgl(SGL_IN_CAPSULE, (1 << 64) - 1, 512, 0)), Status.SGL_OFFSET),
        (write._replace(opcode=2), Status.SGL_OFFSET),
        (write._replace(sgl=Sgl(0x31, 0, 16, 0)), Status.SGL_TYPE),
        (write._replace(sgl=Sgl(0x00, 0, 16, 0)), Status.INVALID_FIELD),
        (write._replace(flags=0), Status.INVALID_FIELD),
        (write._replace(flags=0x41), Status.INVALID_FIELD),
        (write._replace(flags=0x80), Status.INVALID_FIELD),
    ]
    for command, status in cases:
        with pytest.raises(Failure, match=status.name):
            session.check_sgl(command, 512)


def test_ranges() -> None:
    session = ready_session()
    command = Command(9, 0x40, 1, 1, NOTHING, 1, 4)
    data = struct.pack("<IIQIIQ", 0, 8, 0, 0, 16, 100).ljust(4096, b"\0")
    found = [(each.offset, each.length) for each in session.ranges_of(command, data)]
    assert found == [(0, 4096), (51_200, 8192)]
    assert session.ranges_of(command._replace(cdw11=1), data) == []
    with pytest.raises(Failure, match="SGL_DATA_LENGTH"):
        session.ranges_of(command, data[:31])
    with pytest.raises(Failure, match="LBA_RANGE"):
        session.ranges_of(command, struct.pack("<IIQIIQ", 0, 8, 0, 0, 16, 2040))


def test_flush() -> None:
    session = ready_session()
    flush = Command(0, 0x40, 1, 1, NOTHING)
    assert len(session.flushed_by(flush)) == 1
    assert len(session.flushed_by(flush._replace(nsid=0xFFFFFFFF))) == 1
    with pytest.raises(Failure, match="INVALID_NAMESPACE"):
        session.flushed_by(flush._replace(nsid=9))


def test_no_blocks_while_the_controller_is_not_ready() -> None:
    session = ready_session()
    assert session.controller is not None
    session.controller.queues[0].execute(property_set(Property.CC, 0x464001), b"")
    with pytest.raises(Failure, match="COMMAND_SEQUENCE"):
        session.blocks_of(read(0, 1))


# ---- whatever comes ------------------------------------------------------------------------------


@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.binary(min_size=64, max_size=64), st.binary(max_size=4200)), max_size=8)
)
def test_random_commands(capsules: list[tuple[bytes, bytes]]) -> None:
    """A command is answered, refused by a status, or waits; nothing else happens."""
    model = subsystem_model()
    statuses: set[Status] = set()
    for session in (session_of(model), enabled(model), ready_session(model), session_of(model, 1)):
        for capsule, data in capsules:
            command = parse_command(capsule)
            try:
                session.check_sgl(command, len(data))
                if session.qid and command.opcode in (1, 2, 5, 8):
                    blocks = session.blocks_of(command)
                    assert blocks.offset + blocks.length <= blocks.namespace.store.size
                elif session.qid and command.opcode == 9:
                    session.ranges_of(command, data)
                elif session.qid and command.opcode == 0:
                    session.flushed_by(command)
                else:
                    session.execute(command, data)
            except Failure as failure:
                statuses.add(failure.status)
    assert Status.SUCCESS not in statuses


COMMON = st.builds(
    Command,
    st.sampled_from([0, 1, 2, 5, 6, 8, 9, 10, 12, 13, 14, 17, 21, 24, 127]),
    st.just(0x40),
    st.integers(0, 0xFFFF),
    st.sampled_from([0, 1, 2, 4, 0xFFFFFFFF]),
    st.builds(
        Sgl,
        st.sampled_from([0x40, 0x4F, 1]),
        st.just(0),
        st.sampled_from([0, 16, 512, 4096]),
        st.just(1),
    ),
    st.one_of(st.integers(0, 255), st.integers(0, 0xFFFFFFFF)),
    st.one_of(st.integers(0, 255), st.integers(0, 0xFFFFFFFF)),
    st.one_of(st.integers(0, 255), st.integers(0, 0xFFFFFFFF)),
)


@settings(max_examples=400)
@given(st.lists(st.tuples(COMMON, st.binary(max_size=64)), max_size=10))
def test_random_commands_that_hosts_have(commands: list[tuple[Command, bytes]]) -> None:
    model = subsystem_model()
    statuses: set[Status] = set()
    for session in (enabled(model), ready_session(model)):
        for command, data in commands:
            if session.qid and command.opcode in (0, 1, 2, 5, 8, 9):
                continue
            try:
                reply = session.execute(command, data)
                assert reply is None or len(reply.data) <= command.sgl.length
            except Failure as failure:
                statuses.add(failure.status)
    assert Status.SUCCESS not in statuses
