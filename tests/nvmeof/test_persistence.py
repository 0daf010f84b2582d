# SPDX-License-Identifier: Apache-2.0
"""Reservations that outlive their target: the file, the commands, and targets that are killed."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import struct
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.nvmeof.conftest import HOST, MIB, NQN, ChildTarget, connected, image, run
from tests.nvmeof.sessions import NOTHING, enabled
from verbena import nvmeof
from verbena.cli.disk import reservation_file
from verbena.nvmeof import ReservationFile, ReservationFileError, ReservationType
from verbena.nvmeof.commands import EVERY_NAMESPACE, AdminOpcode, Command
from verbena.nvmeof.identify import IdentifyNamespace
from verbena.nvmeof.replies import Failure
from verbena.nvmeof.reservations import PersistenceChange, Reservations
from verbena.nvmeof.status import Status

A, B, C = (bytes([each]) * 16 for each in (0xA1, 0xB2, 0xC3))
KEEP, FORGET = PersistenceChange.PERSIST << 30, PersistenceChange.CLEAR << 30
ONE, TWO = UUID(int=1), UUID(int=2)


def keys(current: int, new: int = 0) -> bytes:
    return struct.pack("<QQ", current, new)


def state(made: Reservations) -> tuple[Any, ...]:
    return made.keys, made.holder, made.kind, made.generation, made.persists


# ---- the file ------------------------------------------------------------------------------------

ACTIONS = st.tuples(
    st.sampled_from(["register", "acquire", "release"]),
    st.sampled_from([A, B, C]),
    st.sampled_from([0, 1, 2, 8, 10]),
    st.integers(1, 6),
    st.sampled_from([0, 10, 1 << 63]),
    st.sampled_from([0, 10, 1 << 63]),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ACTIONS, max_size=12), st.sampled_from([KEEP, FORGET]))
def test_what_is_loaded_is_what_was_saved(
    tmp_path: Path, actions: list[tuple[str, bytes, int, int, int, int]], last: int
) -> None:
    """Whatever hosts did; reservations that do not persist leave no file."""
    file = ReservationFile(tmp_path / "saved")
    made = file.load()
    made.register(A, KEEP | 8, keys(0, made.keys.get(A, 10)))
    for name, host, word, kind, current, new in actions:
        with suppress(Failure):
            getattr(made, name)(
                host, word | (0 if name == "register" else kind << 8), keys(current, new)
            )
    made.register(C, last, keys(0, made.keys.get(C, 30)))
    file.save(made)
    assert file.path.exists() == (last == KEEP)
    expected = made if last == KEEP else Reservations()
    assert state(file.load()) == state(expected)
    assert file.load().can_persist
    file.path.unlink(missing_ok=True)


def test_targets_that_only_read_leave_the_file_alone(tmp_path: Path) -> None:
    """Several may serve one disk: each begins with what was saved, and none overwrites it."""
    disk, file = image(tmp_path, MIB), ReservationFile(tmp_path / "saved")
    made = file.load()
    made.register(A, KEEP, keys(0, 10))
    made.acquire(A, ReservationType.WRITE_EXCLUSIVE << 8, keys(10))
    file.save(made)
    saved = file.path.read_bytes()
    namespaces = []
    for _ in range(2):
        store = nvmeof.FileStore(disk, is_read_only=True)
        namespaces.append(nvmeof.Subsystem(NQN).add(store, reservation_file=file))
    for namespace, host in zip(namespaces, (B, C), strict=True):
        found = namespace.reservations
        assert (found.keys, found.holder) == ({A: 10}, A)
        assert not found.persists
        assert not found.can_persist
        register = methodcaller("register", host, KEEP, keys(0, 5))
        assert namespace.change_reservations(register) is None
        assert not namespace.reservations.persists
        namespace.store.close()
    assert file.path.read_bytes() == saved
    assert namespaces[0].reservations.keys == {A: 10, B: 5}


BROKEN = {
    "nothing": "",
    "half": '{"format": 1, "gener',
    "no object": "[]",
    "another format": '{"format":2,"generation":0,"kind":0,"holder":null,"keys":{}}',
    "a type": '{"format":1,"generation":0,"kind":7,"holder":null,"keys":{}}',
    "a key": '{"format":1,"generation":0,"kind":0,"holder":null,"keys":{"HOST":"5"}}',
    "unregistered": '{"format":1,"generation":0,"kind":1,"holder":"HOST","keys":{}}',
    "no holder": '{"format":1,"generation":0,"kind":1,"holder":null,"keys":{}}',
    "nobody": '{"format":1,"generation":0,"kind":5,"holder":null,"keys":{}}',
    "unknown": '{"format":1,"generation":0,"kind":0,"holder":null,"keys":{},"more":1}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_broken(tmp_path: Path, name: str) -> None:
    """The target does not start as if nothing were reserved."""
    path = tmp_path / "saved"
    path.write_text(BROKEN[name].replace("HOST", A.hex()))
    subsystem = nvmeof.Subsystem(NQN)
    with pytest.raises(ReservationFileError, match="restore it, or remove it") as caught:
        subsystem.add(nvmeof.MemoryStore(MIB), reservation_file=ReservationFile(path))
    assert caught.value.errno == errno.EINVAL
    assert str(path) in str(caught.value)
    assert not subsystem.namespaces


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ReservationFileError, match="cannot be read") as caught:
        ReservationFile(tmp_path).load()
    assert caught.value.errno == errno.EISDIR


def test_where_reservations_of_a_disk_are(tmp_path: Path) -> None:
    disk = image(tmp_path)
    beside = reservation_file(str(disk), None)
    assert beside is not None
    assert beside.path == tmp_path / "disk.img.reservations"
    assert reservation_file("/dev/null", None) is None
    folder = tmp_path / "state"
    folder.mkdir()
    (tmp_path / "other").mkdir()
    made = [
        reservation_file(str(each), str(folder))
        for each in (disk, tmp_path / "state" / ".." / "disk.img", image(tmp_path / "other"))
    ]
    paths = [each.path for each in made if each is not None]
    assert paths[0] == paths[1] != paths[2]
    assert {each.parent for each in paths} == {folder}
    assert paths[0].name.startswith("disk.img-")


# ---- commands ------------------------------------------------------------------------------------


def model_with_file(path: Path | None) -> nvmeof.TargetModel:
    model = nvmeof.TargetModel()
    subsystem = nvmeof.Subsystem(NQN)
    file = None if path is None else ReservationFile(path)
    subsystem.add(nvmeof.MemoryStore(MIB), reservation_file=file)
    subsystem.add(nvmeof.MemoryStore(MIB))
    model.add(subsystem)
    return model


def only_namespace(model: nvmeof.TargetModel) -> nvmeof.Namespace:
    return model.subsystems[NQN].namespaces[1]


def test_a_namespace_says_whether_reservations_can_persist(tmp_path: Path) -> None:
    for path, bit in ((tmp_path / "saved", 1), (None, 0)):
        session = enabled(model_with_file(path))
        identify = Command(AdminOpcode.IDENTIFY, 0x40, 3, 1, NOTHING._replace(length=4096))
        reply = session.execute(identify, b"")
        assert reply is not None
        assert IdentifyNamespace.parse(reply.data).reservations == 0b1111110 | bit


def test_registering_without_a_place_for_a_file() -> None:
    """Linux asks for persistence always, so it is registered; the report says what is true."""
    made = Reservations()
    made.register(A, KEEP, keys(0, 10))
    assert made.keys == {A: 10}
    assert made.report({}, True)[9] == 0
    with pytest.raises(Failure, match="INVALID_FIELD"):
        made.set_persistence(True)


def test_the_reserved_value_of_cptpl() -> None:
    made = Reservations(can_persist=True)
    with pytest.raises(Failure, match="INVALID_FIELD"):
        made.register(A, 1 << 30, keys(0, 10))
    assert state(made) == state(Reservations())


def test_a_refused_command_changes_no_persistence() -> None:
    made = Reservations(can_persist=True)
    made.register(A, 0, keys(0, 10))
    with pytest.raises(Failure, match="CONFLICT"):
        made.register(A, KEEP | 2, keys(11, 12))
    assert made.report({}, True)[9] == 0
    made.register(A, KEEP | 2, keys(10, 12))
    assert made.report({}, True)[9] == 1
    made.register(B, 0, keys(0, 20))
    assert made.persists
    made.release(B, 1 | 1 << 8, keys(20))  # Clear
    assert made.persists


async def _feature(session: Any, opcode: AdminOpcode, nsid: int, value: int = 0) -> int:
    reply = session.execute(Command(opcode, 0x40, 3, nsid, NOTHING, 0x83, value), b"")
    if reply.waiting is not None:
        await reply.waiting
    return int(reply.result)


def test_the_feature_reservation_persistence(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    model = model_with_file(path)
    session = enabled(model)
    get, put = AdminOpcode.GET_FEATURES, AdminOpcode.SET_FEATURES

    async def main() -> None:
        assert await _feature(session, get, 1) == 0
        await _feature(session, put, 1, 1)
        assert await _feature(session, get, 1) == 1
        assert path.exists()
        await _feature(session, put, EVERY_NAMESPACE, 0)
        assert await _feature(session, get, 1) == 0
        assert not path.exists()
        await _feature(session, put, EVERY_NAMESPACE, 1)  # those that can
        assert [await _feature(session, get, each) for each in (1, 2)] == [1, 0]
        for opcode, nsid, value, status in (
            (put, 2, 1, Status.INVALID_FIELD),
            (put, 7, 1, Status.INVALID_NAMESPACE),
            (get, EVERY_NAMESPACE, 0, Status.INVALID_NAMESPACE),
            (get, 7, 0, Status.INVALID_NAMESPACE),
        ):
            with pytest.raises(Failure) as caught:
                await _feature(session, opcode, nsid, value)
            assert caught.value.status == status

    run(main())


def test_changes_that_come_together_are_all_saved(tmp_path: Path) -> None:
    file = ReservationFile(tmp_path / "saved")
    namespace = nvmeof.Namespace(1, nvmeof.MemoryStore(MIB), 512, "name", file)
    hosts = [bytes([each]) * 16 for each in range(20)]

    async def main() -> None:
        made = [
            namespace.change_reservations(
                lambda each, host=host: each.register(host, KEEP, keys(0, 7))
            )
            for host in hosts
        ]
        for each in made[5:]:
            each.cancel()
        await asyncio.gather(*made, return_exceptions=True)
        while len(namespace.reservations.keys) < len(hosts):
            await asyncio.sleep(1e-3)

    run(main())
    assert state(file.load()) == state(namespace.reservations)


def test_a_command_that_changes_nothing_waits_for_no_disk(tmp_path: Path) -> None:
    file = ReservationFile(tmp_path / "saved")
    model = model_with_file(file.path)

    async def main() -> None:
        async with (
            nvmeof.Target(model, host=HOST, port=0) as target,
            await connected(target, host_id=ONE) as controller,
        ):
            disk = controller.disks[1]
            await disk.register(5, persist=True)
            await disk.acquire(5, ReservationType.WRITE_EXCLUSIVE)
            before = file.path.stat().st_ino  # each save makes a new file
            await disk.acquire(5, ReservationType.WRITE_EXCLUSIVE)
            assert file.path.stat().st_ino == before
            await disk.register(6, 5, action=2)
            assert file.path.stat().st_ino != before

    run(main())


def test_a_change_that_cannot_be_saved_fails_and_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The target says which file it is; to the host it is not a disk that is read only."""
    folder = tmp_path / "state"
    folder.mkdir()
    model = model_with_file(folder / "saved")

    async def main() -> None:
        async with (
            nvmeof.Target(model, host=HOST, port=0) as target,
            await connected(target, host_id=ONE) as controller,
        ):
            disk = controller.disks[1]
            await disk.register(5, persist=True)
            shutil.rmtree(folder)
            before = state(only_namespace(model).reservations)
            for work in (
                disk.register(6, 5, action=2),
                disk.acquire(5, ReservationType.WRITE_EXCLUSIVE),
                disk.register(0, 5, action=1, persist=False),
            ):
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await work
                assert caught.value.status == Status.INTERNAL_ERROR
                assert (
                    f"of namespace 1 cannot be saved in {folder / 'saved'}: No such" in caplog.text
                )
                caplog.clear()
            assert state(only_namespace(model).reservations) == before
            folder.mkdir()
            await disk.register(6, 5, action=2)

    run(main())
    assert ReservationFile(folder / "saved").load().keys == {ONE.bytes: 6}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_change_for_which_there_is_no_room(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(file: ReservationFile, reservations: Reservations) -> None:
        raise OSError(number, "no room")

    async def main() -> None:
        async with (
            nvmeof.Target(model_with_file(tmp_path / "saved"), host=HOST, port=0) as target,
            await connected(target, host_id=ONE) as controller,
        ):
            disk = controller.disks[1]
            await disk.register(5, persist=True)
            with monkeypatch.context() as patch:
                patch.setattr(ReservationFile, "save", no_room)
                for work in (
                    disk.register(6, 5, action=2),
                    disk.acquire(5, ReservationType.WRITE_EXCLUSIVE),
                    disk.register(0, 5, action=1, persist=False),
                ):
                    with pytest.raises(nvmeof.CommandFailed, match="make room in") as caught:
                        await work
                    assert caught.value.status == Status.CAPACITY
                    assert caught.value.errno == errno.ENOSPC
            await disk.acquire(5, ReservationType.WRITE_EXCLUSIVE)

    run(main())


def test_a_file_that_cannot_be_replaced_leaves_no_other(tmp_path: Path) -> None:
    file = ReservationFile(tmp_path / "saved")
    file.path.mkdir()
    made = Reservations(can_persist=True)
    made.register(A, KEEP, keys(0, 10))
    with pytest.raises(IsADirectoryError):
        file.save(made)
    assert [each.name for each in tmp_path.iterdir()] == ["saved"]


# ---- a target that is killed ---------------------------------------------------------------------


@pytest.mark.over_roce
@pytest.mark.parametrize("persist", [True, None])
def test_a_target_that_is_killed(tmp_path: Path, persist: bool | None) -> None:
    """The reservation keeps other hosts out of the restarted target if a host has asked for it."""
    path = image(tmp_path)

    async def reserve(port: int) -> None:
        async with (
            await connected(port, host_id=ONE) as one,
            await connected(port, host_id=TWO) as two,
        ):
            await one.disks[1].register(5)
            await two.disks[1].register(6, persist=persist)
            await one.disks[1].acquire(5, ReservationType.WRITE_EXCLUSIVE)

    async def look(port: int) -> bytes:
        async with (
            await connected(port, host_id=ONE) as one,
            await connected(port, host_id=TWO) as two,
        ):
            block = bytes(4096)
            if persist:
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await two.disks[1].write(0, block)
                assert caught.value.status == Status.RESERVATION_CONFLICT
            else:
                await two.disks[1].write(0, block)
            await one.disks[1].write(0, block)
            return await one.disks[1].reservations()

    with ChildTarget(path) as target:
        run(reserve(target.port))
        target.kill()
        target.restart()
        report = run(look(target.port))
    kind, count, persists = struct.unpack_from("<4xBH2xB", report)
    assert (kind, count, persists) == ((1, 2, 1) if persist else (0, 0, 0))
    held = {report[64 + 64 * at + 16 :][:16]: report[64 + 64 * at + 2] for at in range(count)}
    assert held == ({ONE.bytes: 1, TWO.bytes: 0} if persist else {})
    assert (tmp_path / "disk.img.reservations").exists() == bool(persist)


@pytest.mark.over_roce
def test_a_target_that_is_killed_while_it_saves(tmp_path: Path) -> None:
    """Whenever that is, the key is the last that was answered, or the one that was asked for."""
    seeded = random.Random(7)

    async def replace(port: int, key: int, seconds: float, kill: Any) -> tuple[int, int]:
        answered = asked = key
        async with await connected(port, host_id=ONE, loss_timeout=0) as controller:
            disk = controller.disks[1]
            asyncio.get_running_loop().call_later(seconds, kill)
            with suppress(OSError):
                while True:
                    asked = answered + 1
                    await disk.register(asked, answered, action=2)
                    answered = asked
        return answered, asked

    async def key_of(port: int) -> int:
        async with await connected(port, host_id=ONE) as controller:
            report = await controller.disks[1].reservations()
        return int(struct.unpack_from("<Q", report, 64 + 8)[0])

    async def register(port: int) -> None:
        async with await connected(port, host_id=ONE) as controller:
            await controller.disks[1].register(1, persist=True)

    with ChildTarget(image(tmp_path)) as target:
        run(register(target.port))
        key = 1
        for _ in range(4):
            found = run(replace(target.port, key, seeded.uniform(0.01, 0.1), target.process.kill))
            target.kill()
            target.restart()
            key = run(key_of(target.port))
            assert key in found
    assert key > 1
