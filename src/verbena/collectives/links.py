# SPDX-License-Identifier: Apache-2.0
"""The connections of a rank to all others, and how ranks tell each other that one has failed.

The algorithms call ``send``, ``receive`` and ``exchange``. Each part begins with a header, by which
the receiver sees that both ranks make the same call; a part that does not fit into a message's slot
follows its header as a message of its own, which the peer fetches without a copy.

The first failure of a link ends all: it is told to the other ranks, so that every rank names the
rank that has failed and not the one that noticed it.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from verbena.peers import Ended, PeerConnection, PeerConnectionEnded, PeerOptions
from verbena.peers.memory import byte_view
from verbena.verbs.forked import follow

from .errors import Fault, GroupError, MismatchedCall, error_of
from .watching import Watch, describe_call, describe_calls, what_of

__all__ = ["LINK_OPTIONS", "Links"]

LINK_OPTIONS: PeerOptions = {"slots": 16, "slot_size": 16 << 10}
_HEADER = struct.Struct("<BBHIQQ")  # kind, fault, rank at fault, call, number of the call, bytes
# Of a mismatch: the call of the rank at fault; then the other rank << 32 | its call.
_SLOT_HEADER = 40
_EAGER = LINK_OPTIONS["slot_size"] - _SLOT_HEADER - _HEADER.size
_PART, _FAULT = 1, 2
_PATIENCE = 2.0  # seconds until a rank that does not listen is not told of a failure any more

Use = Callable[[NDArray[np.uint8]], object]


class Links:
    """One rank's links, by the other side's rank."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.failure: GroupError | None = None
        self.is_leaving = False
        self._links: dict[int, PeerConnection] = {}
        self._call = (0, 0)  # which (see ``what_of``), and its number
        self._about: tuple[Any, ...] = ("no call",)  # its name, and what ranks have in common in it
        self._task: asyncio.Task[Any] | None = None  # that makes a call
        self._is_interrupted = False
        self._telling: asyncio.Task[None] | None = None
        self._was_raised = False  # the failure, to the program
        self._watch = Watch(
            self._note, lambda: self._task is not None, self._look_at_rest, self._mismatched
        )
        follow(self)

    def stay_with_parent(self) -> None:
        """In a forked child the rank is the parent's."""
        self.failure = GroupError(
            "the group belongs to the process that forked, which is its rank: make collective calls"
            " there alone",
            self.rank,
            errno.ECHILD,
        )

    def add(self, rank: int, conn: PeerConnection) -> None:
        """Add the link to a rank."""
        self._links[rank] = conn
        conn.call_when_closed(partial(self._on_closed, rank))
        conn.call_when_noted(partial(self._on_noted, rank))

    @property
    def connected(self) -> set[int]:
        """The ranks to which there are links."""
        return set(self._links)

    # ---- calls ----

    async def run(
        self, name: str, about: tuple[Any, ...], work: Callable[[], Awaitable[None]]
    ) -> None:
        """Make a call, whose work a failure of any rank interrupts.

        ``about`` is what all ranks have in common that make the same call. Raises GroupError.
        """
        self._begin(name, about)
        task = self._task = asyncio.current_task()
        assert task is not None
        try:
            await work()
            if self._is_interrupted:  # too late: the cancellation is taken back
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
                if task.uncancel():
                    raise asyncio.CancelledError
        except BaseException as error:
            if self._is_interrupted and isinstance(error, asyncio.CancelledError):
                if not task.uncancel():
                    self._was_raised = True
                    assert self.failure is not None
                    raise self.failure from None
            elif self.failure is None:
                self._fail(Fault.GAVE_UP, self.rank)
            self._was_raised |= error is self.failure
            raise
        finally:
            self._task = None
            self._is_interrupted = False

    def _begin(self, name: str, about: tuple[Any, ...]) -> None:
        self._raise_failure()
        if self.is_leaving:
            raise GroupError("this rank has left the group: join again", self.rank)
        if self._task is not None:
            raise RuntimeError("a rank makes one call at a time: await it before the next one")
        before, number = self._call
        self._call = what, number = what_of(name, about, before), number + 1
        self._about = name, *about
        self._watch.begin(number, what)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            self._was_raised = True
            raise self.failure

    def raise_mismatch(self) -> None:
        """Raise the failure that no call has raised, if it is a mismatch of earlier calls."""
        if isinstance(self.failure, MismatchedCall) and not self._was_raised:
            self._raise_failure()

    # ---- parts ----

    async def send(self, rank: int, part: NDArray[Any]) -> None:
        """Send a dense part to a rank; it must not change until this returns."""
        conn = self._links[rank]
        data = byte_view(part)
        header = _HEADER.pack(_PART, 0, 0, *self._call, len(data))
        try:
            if len(data) <= _EAGER:
                await conn.send(header + data)
            else:
                await conn.send(header)
                await conn.send(part)
        except PeerConnectionEnded as error:
            self._raise_ended(rank, error)

    async def receive(self, rank: int, nbytes: int, use: Use) -> None:
        """Wait for a part of a rank, and call ``use`` with its bytes, which last for the call."""
        conn = self._links[rank]
        try:
            async with conn.recv() as view:
                has_part = self._look_at(rank, view, nbytes)
                if has_part:
                    use(np.asarray(view)[_HEADER.size :])
            if not has_part:
                async with conn.recv() as view:
                    if len(view) != nbytes:  # a failure, and the part was never sent
                        self._look_at(rank, view, nbytes)
                    use(np.asarray(view))
        except PeerConnectionEnded as error:
            self._raise_ended(rank, error)

    async def exchange(
        self, to: int, part: NDArray[Any], source: int, nbytes: int, use: Use
    ) -> None:
        """Send a part to a rank while receiving one of a rank."""
        if part.nbytes <= _EAGER:
            await self.send(to, part)
            await self.receive(source, nbytes, use)
            return
        sending = asyncio.ensure_future(self.send(to, part))
        try:
            await self.receive(source, nbytes, use)
        except BaseException:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending
            raise
        await sending

    def _look_at(self, rank: int, view: memoryview, nbytes: int) -> bool:
        """Check the header; return whether the part is behind it. Raises GroupError."""
        kind, fault, at_fault, what, number, length = _HEADER.unpack_from(view)
        if kind == _FAULT:
            self._fail(Fault(fault), at_fault, what, number)
            assert self.failure is not None
            raise self.failure
        if (what, number) != self._call or length != nbytes:
            self._mismatched(rank, what, self._call[0])
            assert self.failure is not None
            raise self.failure
        return bool(length <= _EAGER)

    # ---- failures ----

    def _on_closed(self, rank: int, reason: Ended) -> None:
        if self.is_leaving or self.failure is not None or reason is Ended.HERE:
            return
        told = self._told(rank)
        if told is not None:
            self._fail(*told)
        elif reason is not Ended.PEER:  # after a goodbye, what was sent before is still received
            self._fail(Fault.LEFT if reason is Ended.CUT else Fault.DIED, rank)

    def _raise_ended(self, rank: int, error: PeerConnectionEnded) -> NoReturn:
        if self.failure is None:
            left = error.reason in (Ended.PEER, Ended.HERE, Ended.CUT)
            self._fail(Fault.LEFT if left else Fault.DIED, rank)
        assert self.failure is not None
        raise self.failure from error

    def _told(self, rank: int) -> tuple[Fault, int, int, int] | None:
        """Return what the last message of a rank says, if it says that a rank has failed."""
        message = self._links[rank].peek_last()
        if message is None or len(message) != _HEADER.size:
            return None
        kind, fault, at_fault, what, other, _ = _HEADER.unpack(message)
        return (Fault(fault), at_fault, what, other) if kind == _FAULT else None

    def _note(self, value: int) -> None:
        """Tell all other ranks 64 bits."""
        for conn in self._links.values():
            conn.note(value)

    def _on_noted(self, rank: int, value: int) -> None:
        if self.failure is None and not self.is_leaving:
            self._watch.hear(rank, value)

    def _look_at_rest(self) -> None:
        """Look at parts that nothing has received: one of a call in which this rank has been, or is
        and which differs there, is received by none."""
        own, current = self._call
        for rank, conn in self._links.items():
            message = conn.peek()
            if message is None or len(message) < _HEADER.size:
                continue
            kind, _, _, what, number, _ = _HEADER.unpack_from(message)
            is_rest = number < current or (number == current and what != own)
            if kind == _PART and is_rest:
                self._mismatched(rank, what, own)
                return

    def _mismatched(self, rank: int, what: int, own: int) -> None:
        self._fail(Fault.MISMATCHED, rank, what, self.rank << 32 | own)

    def _fail(self, fault: Fault, rank: int, what: int = 0, other: int = 0) -> None:
        """Record the first failure, interrupt the call under way, and tell the other ranks.

        ``what`` and ``other`` are those of a mismatch in the header.
        """
        if self.failure is not None:
            return
        self._watch.stop()
        own = f"{self.rank}: {describe_call(*self._about)}"
        calls = describe_calls(rank, what, other >> 32, other & 0xFFFFFFFF, own)
        self.failure = error_of(fault, rank, calls)
        if self._task is not None and self._task is not asyncio.current_task():
            self._is_interrupted = True
            self._task.cancel()
        header = _HEADER.pack(_FAULT, fault, rank, what, other, 0)
        self._telling = asyncio.get_running_loop().create_task(self._tell(header))

    async def _tell(self, header: bytes) -> None:
        """Tell all other ranks of a failure, and disconnect."""

        async def tell(conn: PeerConnection) -> None:
            with suppress(OSError):
                async with asyncio.timeout(_PATIENCE):
                    await conn.send(header)
            await conn.close(_PATIENCE)

        await asyncio.gather(*map(tell, self._links.values()), return_exceptions=True)

    async def settle(self) -> None:
        """Wait until no rank waits for this one's confirmation of a part that was received."""
        for conn in self._links.values():
            await conn.settle()

    async def leave(self) -> None:
        """Wait until the others have what was sent, and disconnect."""
        try:
            if self.failure is None and not self.is_leaving:
                await self._compare_at_last()
            self._watch.stop()
            self.is_leaving = True
            if self._telling is not None:
                await self._telling
            closing = (conn.close() for conn in self._links.values())
            await asyncio.gather(*closing, return_exceptions=True)
        except BaseException:  # a cancellation
            self.abort()
            raise

    async def _compare_at_last(self) -> None:
        for _ in range(2):  # what has come while the program did other things
            await asyncio.sleep(0)
        self._look_at_rest()
        self._watch.tell()  # for a rank that waits for a part which this one does not send

    def abort(self) -> None:
        """Disconnect at once."""
        self._watch.stop()
        self.is_leaving = True
        for conn in self._links.values():
            conn.abort()
