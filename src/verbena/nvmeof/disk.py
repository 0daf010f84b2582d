# SPDX-License-Identifier: Apache-2.0
"""``Disk``: a namespace as a host has it: bytes are read and written in whole blocks.

Long requests are cut into as many commands as the controller needs, which are under way at once.
Buffers of ``disk.buffer`` are used where they are; other memory is registered for the request.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from verbena.peers.memory import RegionCache, byte_view, dense_array
from verbena.verbs import MR, AccessFlags

from .commands import IoOpcode
from .errors import CommandFailed, ConnectionLost, NvmeError
from .host_queue import Done, HostQueue
from .identify import IdentifyNamespace
from .link import command_of
from .numbers import byte_count, whole
from .reservations import (
    AcquireAction,
    PersistenceChange,
    RegisterAction,
    ReservationType,
    is_holder,
    keys_of,
    report_length,
    why_conflict,
)
from .status import Status

if TYPE_CHECKING:
    from .host import HostController

__all__ = ["Disk", "Transfer"]

_MOST_BLOCKS = 1 << 16
_FORCE_UNIT_ACCESS = 1 << 14
_MOST_RANGES = 256
_DEALLOCATE = 4
_NOT_SAVED = (
    "the target has no room to save reservations: make room in the file system that has their file"
)
_MOST_KEY = (1 << 64) - 1
_MOST_REPORT = 1 << 23  # bytes of Reservation Report; 65,535 hosts take less
_REPEATABLE = (IoOpcode.DATASET_MANAGEMENT, IoOpcode.RESERVATION_REPORT)  # of those with words
_CHANGING = frozenset(
    (
        IoOpcode.WRITE,
        IoOpcode.WRITE_ZEROES,
        IoOpcode.DATASET_MANAGEMENT,
        IoOpcode.RESERVATION_REGISTER,
        IoOpcode.RESERVATION_ACQUIRE,
        IoOpcode.RESERVATION_RELEASE,
    )
)
_INLINE = 8192  # writes that may go in capsules
_HOST_ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ | AccessFlags.REMOTE_WRITE


def _key(name: str, value: object) -> int:
    """Return the key of a host, a number of 64 bits. Raises TypeError and ValueError."""
    return whole(name, value, 0, _MOST_KEY)


class Transfer:
    """One command of a disk. It may be sent again after the connection was made again."""

    __slots__ = (
        *("opcode", "nsid", "address", "length", "key", "first", "count", "control"),
        *("about", "answer", "connection", "data", "has_ended", "losses", "may_repeat", "on_end"),
        "tries",
    )

    def __init__(
        self,
        opcode: int,
        nsid: int,
        first: int,
        count: int,
        control: int = 0,
        address: int = 0,
        length: int = 0,
        key: int = 0,
        data: memoryview | None = None,
    ) -> None:
        self.opcode, self.nsid = opcode, nsid
        self.first, self.count, self.control = first, count, control
        self.address, self.length, self.key = address, length, key
        self.data = data  # what a Write sends, and may send in the capsule
        self.tries = self.losses = 0
        self.may_repeat = True
        self.has_ended = False
        self.connection: int | None = None  # the controller's ``reconnects``, if no other may be
        self.on_end: Callable[[], None] = _nothing
        """Is called when the target can no longer use the memory."""
        self.about = f"{IoOpcode(opcode).name.lower().replace('_', ' ')} of namespace {nsid}"
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def meets(self, other: Transfer) -> bool:
        """Whether both are about a block, or one is about more than blocks."""
        if isinstance(self, Words) or isinstance(other, Words):
            return True
        return self.first < other.first + other.count and other.first < self.first + self.count

    def submit(self, queue: HostQueue, done: Done) -> None:
        """Send it."""
        data = self.data
        if data is not None and len(data) <= queue.capsule_data and self.opcode == IoOpcode.WRITE:
            queue.submit_write_in_capsule(
                self.nsid, data, self.first, self.count, self.control, done
            )
            return
        queue.submit_blocks(
            self.opcode,
            self.nsid,
            self.address,
            self.length,
            self.key,
            self.first,
            self.count,
            self.control,
            done,
        )

    def succeed(self, result: int) -> None:
        """It is done."""
        self.has_ended = True
        self.on_end()
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: Exception) -> None:
        """It has failed."""
        self.has_ended = True
        self.on_end()
        if not self.answer.done():
            self.answer.set_exception(error)


def _nothing() -> None:
    """Nothing has to be done at the end."""


class Words(Transfer):
    """A command that is not about blocks: its words, and data for the controller."""

    __slots__ = ("command", "payload")

    def __init__(self, opcode: int, nsid: int, **words: int) -> None:
        super().__init__(opcode, nsid, 0, 1)
        self.command = command_of(opcode, nsid, **words)

    def submit(self, queue: HostQueue, done: Done) -> None:
        sgl = self.command.sgl._replace(address=self.address, length=self.length, key=self.key)
        queue.submit(self.command._replace(sgl=sgl), done)


class Disk:
    """A namespace. Offsets and lengths are bytes, in multiples of ``block_size``."""

    def __init__(self, controller: HostController, nsid: int, found: IdentifyNamespace) -> None:
        self.controller = controller
        self.nsid = nsid
        self.is_gone = False
        self._regions: RegionCache | None = None
        self._left: dict[Transfer, asyncio.Future[None]] = {}  # under way, and nobody waits for it
        self.update(found)

    def update(self, found: IdentifyNamespace) -> None:
        """Take what Identify says."""
        self.identity = found
        self.block_size = found.block_size
        self.size = found.size * self.block_size

    def __repr__(self) -> str:
        return f"<Disk {self.nsid} of {self.controller.nqn}: {self.size} bytes>"

    @property
    def is_read_only(self) -> bool:
        """Whether the target refuses to write."""
        return bool(self.identity.attributes & 1)

    def buffer(self, length: int) -> MR:
        """Return registered memory for ``read_into`` and ``write``, whose use costs no copy."""
        return self.controller.pd.alloc(byte_count("length", length), _HOST_ACCESS)

    # ---- reading and writing ----

    async def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the disk. Raises NvmeError, TypeError and ValueError."""
        offset, length = self._checked(offset, length)
        buffers = self.controller.buffers
        buffer = buffers.take(self.controller.pd, length)
        data = b""

        def end() -> None:
            nonlocal data
            data = bytes(memoryview(buffer)[:length])
            buffers.give_back(buffer)

        await self._move(IoOpcode.READ, offset, length, buffer, end=end)
        return data

    async def read_into(self, offset: int, target: Any, length: int | None = None) -> None:
        """Read into a buffer of ``disk.buffer``, an array, or other memory.

        After a cancellation the memory may be written until the command has ended.
        """
        await self._with_memory(IoOpcode.READ, offset, target, length, 0)

    async def write(
        self,
        offset: int,
        data: Any,
        length: int | None = None,
        *,
        durable: bool = False,
        connection: int | None = None,
    ) -> None:
        """Write bytes; with ``durable`` they are on the medium when it returns (FUA).

        ``connection`` is the controller's ``reconnects`` at an earlier time: the bytes are sent on
        the connection of that time alone, and it raises ConnectionLost where that was lost, whether
        they have arrived or not. A reservation that was held then may not be held afterwards.

        After a cancellation the bytes may or may not be written. Until that is over the memory is
        read, and later commands for these blocks, and ``flush``, wait.
        """
        control = _FORCE_UNIT_ACCESS if durable else 0
        await self._with_memory(IoOpcode.WRITE, offset, data, length, control, connection)

    async def compare(self, offset: int, data: Any) -> None:
        """Raise CommandFailed with COMPARE_FAILURE unless the disk has these bytes."""
        await self._with_memory(IoOpcode.COMPARE, offset, data, None, 0)

    async def flush(self) -> None:
        """Have all that was written until now survive a crash of the target."""
        await self._run(Words(IoOpcode.FLUSH, self.nsid))

    async def write_zeroes(self, offset: int, length: int) -> None:
        """Write zeros, which are not transferred."""
        offset, length = self._checked(offset, length)
        pieces = [
            Transfer(IoOpcode.WRITE_ZEROES, self.nsid, begin // self.block_size, count)
            for begin, count, _ in self._pieces(offset, length, _MOST_BLOCKS * self.block_size)
        ]
        await self._run(*pieces)

    async def discard(self, *ranges: tuple[int, int]) -> None:
        """Give the room of (offset, length) back; what is there afterwards is not defined."""
        checked = []
        for each in ranges:
            if not isinstance(each, tuple | list) or len(each) != 2:
                raise TypeError(f"a range is (offset, length), and not {each!r}")
            checked.append(self._checked(*each))
        size = self.block_size
        for at in range(0, len(checked), _MOST_RANGES):
            part = checked[at : at + _MOST_RANGES]
            data = b"".join(
                struct.pack("<IIQ", 0, length // size, offset // size) for offset, length in part
            )
            command = Words(
                IoOpcode.DATASET_MANAGEMENT, self.nsid, cdw10=len(part) - 1, cdw11=_DEALLOCATE
            )
            await self._with_data(command, data)

    # ---- reservations ----

    async def register(
        self, key: int, current: int = 0, *, action: int = 0, persist: bool | None = None
    ) -> None:
        """Reservation Register; ``action`` is a RegisterAction: to register, unregister or replace
        the key ``current``. A ``key`` is not 0, which names no host.

        With ``persist`` all hosts' registrations of the namespace, and its reservation, survive
        the end of the target (Persist Through Power Loss), if the target can: byte 9 of
        ``reservations()`` is 1 then. False ends that, None changes nothing. Raises CommandFailed,
        TypeError and ValueError.
        """
        action = whole("action", action, 0, 2)
        key, current = _key("key", key), _key("current", current)
        if action != RegisterAction.UNREGISTER and key == 0:
            raise ValueError("key is 0, and a host registers a number that is not 0")
        change = PersistenceChange.NONE
        if persist is not None:
            change = PersistenceChange.PERSIST if persist else PersistenceChange.CLEAR
        word = action | change << 30
        command = Words(IoOpcode.RESERVATION_REGISTER, self.nsid, cdw10=word)
        await self._reserve(command, current, key)

    async def acquire(
        self, key: int, kind: int, *, preempt: int | None = None, abort: bool = False
    ) -> bool:
        """Reservation Acquire; with ``preempt`` the reservation of that key is taken.

        With ``abort`` this returns only when no command that the other hosts have begun can change
        the disk any more (Preempt and Abort). The host has registered ``key`` before; ``kind`` is a
        ReservationType. Returns whether this host has the reservation: Preempt takes it from a
        holder with the key alone; hosts with the key that hold none only lose their registration
        (NVM Express base specification, Reservation Acquire). Raises CommandFailed, TypeError and
        ValueError.
        """
        if abort and preempt is None:
            raise ValueError("abort goes with preempt, the key of the hosts whose commands end")
        key = _key("key", key)
        preempt = None if preempt is None else _key("preempt", preempt)
        action = AcquireAction.ACQUIRE
        if preempt is not None:
            action = AcquireAction.PREEMPT_AND_ABORT if abort else AcquireAction.PREEMPT
        word = action | ReservationType(kind) << 8
        command = Words(IoOpcode.RESERVATION_ACQUIRE, self.nsid, cdw10=word)
        await self._reserve(command, key, preempt or 0, preempt)
        return preempt is None or is_holder(await self._whole_report(), self._host)

    async def release(self, key: int, kind: int, *, clear: bool = False) -> None:
        """Reservation Release; with ``clear`` all registrations go, too. Raises as ``acquire``."""
        key = _key("key", key)
        word = int(clear) | ReservationType(kind) << 8
        command = Words(IoOpcode.RESERVATION_RELEASE, self.nsid, cdw10=word)
        try:
            await self._reserve(command, key, 0)
        except CommandFailed as error:
            if error.status != Status.INVALID_FIELD:
                raise
            why = f"the reservation is of another kind than {ReservationType(kind).name}"
            raise CommandFailed(command.about, error.status, error.is_final, why) from None

    async def _reserve(
        self, command: Words, first: int, second: int, preempted: int | None = None
    ) -> None:
        """Run a command with two keys; where they conflict, say with what. Raises CommandFailed."""
        try:
            await self._with_data(command, struct.pack("<QQ", first, second))
        except CommandFailed as error:
            if error.status not in (Status.RESERVATION_CONFLICT, Status.CAPACITY):
                raise
            why = _NOT_SAVED if error.status == Status.CAPACITY else None
            with suppress(NvmeError):
                if why is None:
                    keys = keys_of(await self._whole_report())
                    why = why_conflict(command.opcode, keys, self._host, first, preempted)
            raise CommandFailed(command.about, error.status, error.is_final, why) from None

    @property
    def _host(self) -> bytes:
        return self.controller.options.host_id.bytes

    async def _whole_report(self) -> bytes:
        report = await self.reservations()
        if (length := report_length(report)) > len(report):
            report = await self.reservations(length)
        return report

    async def reservations(self, length: int = 4096) -> bytes:
        """Return the data of an extended Reservation Report, so many bytes of it.

        Raises CommandFailed, TypeError and ValueError.
        """
        length = whole("length", length, 4, _MOST_REPORT)
        command = Words(IoOpcode.RESERVATION_REPORT, self.nsid, cdw10=length // 4 - 1, cdw11=1)
        return await self._with_data(command, bytes(length))

    # ---- what they are made of ----

    def _checked(self, offset: int, length: int) -> tuple[int, int]:
        """Return both as int. Raises ConnectionLost, TypeError and ValueError."""
        if self.is_gone:
            raise ConnectionLost(f"{self.controller.nqn} has no namespace {self.nsid} any more")
        if not (type(offset) is int and type(length) is int):
            offset, length = byte_count("offset", offset), byte_count("length", length)
        if offset < 0 or length <= 0 or offset % self.block_size or length % self.block_size:
            raise ValueError(
                f"{length} bytes from {offset} are not whole blocks of {self.block_size} bytes"
            )
        if offset + length > self.size:
            raise ValueError(f"{offset + length} is beyond the end of the disk, {self.size} bytes")
        return offset, length

    def _pieces(self, offset: int, length: int, most: int) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, blocks, where in the memory) of each command."""
        for at in range(0, length, most):
            yield offset + at, min(most, length - at) // self.block_size, at

    async def _with_memory(
        self,
        opcode: IoOpcode,
        offset: int,
        what: Any,
        length: int | None,
        control: int,
        connection: int | None = None,
    ) -> None:
        move = partial(self._move, opcode, control=control, connection=connection)
        if isinstance(what, MR):
            offset, size = self._checked(offset, what.length if length is None else length)
            if size > what.length:
                raise ValueError(f"the buffer has {what.length} bytes, and not {size}")
            await move(offset, size, what)
            return
        array = dense_array(what, must_write=opcode == IoOpcode.READ)
        offset, size = self._checked(offset, array.nbytes if length is None else length)
        if size > array.nbytes:
            raise ValueError(f"the memory has {array.nbytes} bytes, and not {size}")
        if not array.flags.writeable:  # bytes may be shared, and peers must not change them
            buffers = self.controller.buffers
            buffer = buffers.take(self.controller.pd, size)
            memoryview(buffer)[:size] = byte_view(array)[:size]
            await move(offset, size, buffer, end=partial(buffers.give_back, buffer))
            return
        if self._regions is None:
            self._regions = RegionCache(self.controller.pd)
        region, release = self._regions.register(array, _HOST_ACCESS)
        at = int(array.ctypes.data) - region.addr
        await move(offset, size, region, end=release, at=at)

    async def _move(
        self,
        opcode: IoOpcode,
        offset: int,
        length: int,
        region: MR,
        *,
        control: int = 0,
        connection: int | None = None,
        end: Callable[[], None] = _nothing,
        at: int = 0,
    ) -> None:
        """Move blocks from or to a region; ``end`` is called when the target is done with it.

        That may be after this was cancelled.
        """
        size = self.block_size
        most = min(self.controller.most_bytes, _MOST_BLOCKS * size)
        view = memoryview(region) if opcode == IoOpcode.WRITE and length <= _INLINE else None
        pieces = [
            Transfer(
                opcode,
                self.nsid,
                begin // size,
                count,
                control,
                region.addr + at + where,
                count * size,
                region.rkey,
                None if view is None else view[at + where : at + where + count * size],
            )
            for begin, count, where in self._pieces(offset, length, most)
        ]
        left = len(pieces)
        kept = [region]  # a region without references is closed

        def end_one() -> None:
            nonlocal left
            left -= 1
            if not left:
                end()
                kept.clear()

        for each in pieces:
            each.on_end, each.connection = end_one, connection
        await self._run(*pieces)

    async def _run(self, *pieces: Transfer) -> None:
        if self._left:
            await self._wait_for_those_left(pieces)
        for each in pieces:
            self.controller.start(each)
        try:
            if len(pieces) == 1:
                await pieces[0].answer
                return
            answers = (each.answer for each in pieces)
            results = await asyncio.gather(*answers, return_exceptions=True)
        except asyncio.CancelledError:
            self._leave(pieces)
            raise
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _leave(self, pieces: tuple[Transfer, ...]) -> None:
        """Remember what was cancelled and may still change the disk."""
        for each in pieces:
            if each.has_ended or each.opcode not in _CHANGING:
                continue
            self._left[each] = asyncio.get_running_loop().create_future()
            each.on_end = partial(self._left_has_ended, each, each.on_end)

    def _left_has_ended(self, transfer: Transfer, end: Callable[[], None]) -> None:
        end()
        self._left.pop(transfer).set_result(None)

    async def _wait_for_those_left(self, pieces: tuple[Transfer, ...]) -> None:
        """Wait until nothing that was cancelled can change the blocks of these any more.

        Else a write that was cancelled could come after a newer one, and undo it.
        """
        try:
            while ahead := [
                ended
                for left, ended in self._left.items()
                if any(left.meets(each) for each in pieces)
            ]:
                await asyncio.wait(ahead)
        except asyncio.CancelledError:
            for each in pieces:
                each.answer.cancel()
                each.on_end()
            raise

    async def _with_data(self, command: Words, data: bytes) -> bytes:
        """Run a command whose data come from, or go to, a buffer."""
        if self.is_gone:
            raise NvmeError(
                errno.ENODEV, f"{self.controller.nqn} has no namespace {self.nsid} any more"
            )
        buffers = self.controller.buffers
        buffer = buffers.take(self.controller.pd, len(data))
        memoryview(buffer)[: len(data)] = data
        command.address, command.length, command.key = buffer.addr, len(data), buffer.rkey
        command.may_repeat = command.opcode in _REPEATABLE
        answered = b""

        def end() -> None:
            nonlocal answered
            answered = bytes(memoryview(buffer)[: len(data)])
            buffers.give_back(buffer)

        command.on_end = end
        await self._run(command)
        return answered
