# SPDX-License-Identifier: Apache-2.0
"""Arrays of the peer, named by ``RemoteArray``, and windows that lend one for a time.

A RemoteArray is pickled at the side that has the memory and used at the other. It finds its
connection by the number of the session, which both sides know.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import operator
from collections.abc import Callable, Coroutine
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from verbena.aio import AsyncQP, Operation
from verbena.verbs import MR, MW, SGE, AccessFlags, CompletionError, VerbsError, WCStatus

from .errors import Ended, PeerError, PeerMemoryRevoked
from .memory import dense_array, region_of
from .session import Session
from .transport import Transport

__all__ = ["Lending", "RemoteArray", "SessionTable", "named_memory"]

Shape = tuple[int, ...]
_OWN = {  # refusals of this side's device
    *(WCStatus.LOC_LEN_ERR, WCStatus.LOC_QP_OP_ERR, WCStatus.LOC_PROT_ERR),
    *(WCStatus.LOC_ACCESS_ERR, WCStatus.MW_BIND_ERR),
}
_BYTES = {"|u1", "|i1"}  # dtypes that stand for the bytes of any other
_lent = itertools.count(1)


class HasSession(Protocol):
    """A PeerConnection: who has a reference to it keeps it open."""

    @property
    def session(self) -> Session:
        """What it is made of."""
        ...


class SessionTable:
    """Connections of this process, by the number and side of their session, for arrays that are
    unpickled."""

    def __init__(self) -> None:
        self._conns: WeakValueDictionary[tuple[int, bool], HasSession] = WeakValueDictionary()

    def add(self, conn: HasSession, number: int, is_active: bool) -> None:
        """Add the connection at one side of a session."""
        self._conns[number, is_active] = conn

    def find(self, number: int, is_active: bool) -> HasSession:
        """Return the connection. Raises PeerError."""
        found = self._conns.get((number, is_active))
        if found is None:
            raise PeerError(
                errno.ENOTCONN,
                "this array is of a peer to which this process has no connection any more: an array"
                " can be used by the process at the other end of the connection over which it came",
            )
        return found


SESSIONS = SessionTable()


class RemoteArray:
    """An array in the memory of a peer, or a part of it. It can be pickled, and sent to the peer.

    ``array[10:20]`` is a part that is one range of memory: integers, and a slice with step 1.
    ``lent`` is the number of the window it is lent by, or 0.
    """

    def __init__(
        self,
        session: tuple[int, bool],
        addr: int,
        rkey: int,
        dtype: np.dtype[Any],
        shape: Shape,
        lent: int = 0,
        writable: bool = True,
        kept: object = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.lent = lent
        self.writable = writable
        self._session = session
        self._addr = addr
        self._rkey = rkey
        self._kept = kept

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            RemoteArray,
            (
                *(self._session, self._addr, self._rkey, self.dtype, self.shape),
                *(self.lent, self.writable),
            ),
        )

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """How many items it has."""
        return int(np.prod(self.shape, dtype=object))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        lent = f", lent by window {self.lent}" if self.lent else ""
        return f"<RemoteArray of {self.shape} {self.dtype}{lent}>"

    def __getitem__(self, index: Any) -> RemoteArray:
        start, shape = _part(self.shape, self.dtype, index)
        return RemoteArray(
            self._session,
            self._addr + start,
            self._rkey,
            self.dtype,
            shape,
            self.lent,
            self.writable,
            self._kept,
        )

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError(
            "this array is in the memory of the peer: await its get(), or conn.get(it) of"
            " verbena.peers.sync, to have it here"
        )

    # ---- access ----

    async def get(self, into: Any = None) -> NDArray[Any]:
        """Read it into ``into``, an array of its dtype or bytes, and return that.

        ``into`` is a new array by default. If this is cancelled, the READ goes on and may write
        ``into`` until a later request of the connection has ended. Raises PeerError, TypeError
        when dtypes differ, and ValueError when sizes do.
        """
        conn = self._used()
        if into is None:
            into = conn.session.pd.alloc(max(1, self.nbytes)).array(self.dtype, self.shape)
        local = dense_array(into, must_write=True)
        await self._transfer(conn, local, AsyncQP.read)
        return local

    async def put(self, local: Any) -> None:
        """Write ``local`` into it: an array of its dtype, or bytes.

        When this returns, the peer's device has the bytes. If it is cancelled, the WRITE goes on
        and may read ``local`` until a later request of the connection has ended. Raises
        PeerError, TypeError when dtypes differ, and ValueError when sizes do.
        """
        conn = self._used()
        if not self.writable:
            raise PeerError(
                errno.EACCES, "the peer lends this array for reading: it has to lend(…, write=True)"
            )
        await self._transfer(conn, dense_array(local), AsyncQP.write)

    async def fetch_add(self, value: int) -> int:
        """Add to the one item atomically, and return what it was.

        Raises PeerError, TypeError, and ValueError for a number that has more than 64 bits.
        """
        word = _word("value", value)
        return await self._atomic(
            lambda aqp, result: aqp.fetch_add(result, self._addr, self._rkey, word)
        )

    async def compare_swap(self, expected: int, new: int) -> int:
        """Set the one item to ``new`` if it is ``expected``, and return what it was.

        Raises as ``fetch_add``.
        """
        words = _word("expected", expected), _word("new", new)
        return await self._atomic(
            lambda aqp, result: aqp.compare_swap(result, self._addr, self._rkey, *words)
        )

    def _used(self) -> HasSession:
        """Return the connection, which the caller keeps open by this reference."""
        number, is_active = self._session
        if self._kept is not None:
            raise PeerError(
                errno.EINVAL,
                "this array is of this process: use the NumPy array here, and send this to the peer"
                " by pickle",
            )
        conn = SESSIONS.find(number, not is_active)
        if self.lent in conn.session.revoked:
            raise PeerMemoryRevoked
        return conn

    async def _transfer(self, conn: HasSession, local: NDArray[Any], how: Any) -> None:
        if local.dtype != self.dtype and not {local.dtype.str, self.dtype.str} & _BYTES:
            raise TypeError(
                f"the peer's part is of {self.dtype}, and the local array of {local.dtype}: convert"
                " it by local.astype(…), or give local.view('u1') if its bytes are meant"
            )
        if local.nbytes != self.nbytes:
            raise ValueError(
                f"the peer's part has {self.nbytes} bytes ({self.shape} {self.dtype}) and the local"
                f" array {local.nbytes} ({local.shape} {local.dtype}): take parts of one size"
            )
        if not local.nbytes:
            return
        session = conn.session
        access = AccessFlags.LOCAL_WRITE if how is AsyncQP.read else AccessFlags(0)
        transport = await session.ready_for_request()
        region, end = session.regions.register(local, access)
        offset = local.ctypes.data - region.addr
        operation = how(
            transport.aqp, region_sge(region, offset, local.nbytes), self._addr, self._rkey
        )
        await completed(session, transport, operation, local, end)

    async def _atomic(self, start: Callable[[AsyncQP, MR], Operation]) -> int:
        if self.dtype.kind not in "iu" or self.dtype.itemsize != 8 or not self.dtype.isnative:
            raise TypeError(
                f"atomics are for integers of 64 bits (int64, uint64), and not for {self.dtype}"
            )
        if self.size != 1:
            raise TypeError(f"an atomic is for one item, and not for {self.shape}: array[i]")
        if self._addr % 8:
            raise ValueError("an atomic needs an item at an address that is a multiple of 8")
        conn = self._used()
        if not self.writable:
            raise PeerError(
                errno.EACCES, "the peer lends this array for reading: it has to lend(…, write=True)"
            )
        session = conn.session
        transport = await session.ready_for_request()
        result = session.pd.alloc(8, AccessFlags.LOCAL_WRITE)
        await completed(session, transport, start(transport.aqp, result), result, _nothing)
        return int(result.array(self.dtype)[0])


def _nothing() -> None:
    """Nothing has to be done at the end of an atomic."""


def _word(name: str, value: Any) -> int:
    """Return a number of 64 bits, signed or not, as one without a sign.

    It may be of any integer type, as those of NumPy. Raises TypeError and ValueError.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, and not {value!r}") from None
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"{name} is {number}, and an atomic is of 64 bits: -2**63 to 2**64 - 1")
    return number % (1 << 64)


def region_sge(region: MR, offset: int, length: int) -> Any:
    """Return the range of a region that a request uses."""
    return SGE(region.addr + offset, length, region.lkey)


async def completed(
    session: Session,
    transport: Transport,
    operation: Operation,
    kept: object,
    end: Callable[[], None],
) -> None:
    """Wait for a one-sided request. If the wait is cancelled, the memory outlasts the request."""
    try:
        await operation
    except asyncio.CancelledError:
        session.spawn(_outlast(operation, kept, end))
        raise
    except CompletionError as error:
        end()
        if error.wc.status == WCStatus.REM_ACCESS_ERR:
            session._lost(transport, Ended.REFUSED)
            raise PeerMemoryRevoked(str(error)) from error
        session._lost(transport, Ended.REFUSED if error.wc.status in _OWN else Ended.DIED)
        session.check()
        raise PeerError(error.errno or errno.EIO, f"{session.about}: {error}") from error
    except VerbsError as error:  # its queue pair was closed, since the peer was found to be gone
        end()
        session._lost(transport, Ended.DIED)
        session.check()
        raise PeerError(error.errno or errno.EIO, f"{session.about}: {error}") from error
    else:
        end()


async def _outlast(operation: Operation, kept: object, end: Callable[[], None]) -> None:
    try:
        await operation
    except OSError:
        pass
    finally:
        end()


# ---- parts ---------------------------------------------------------------------------------------


def _part(shape: Shape, dtype: np.dtype[Any], index: Any) -> tuple[int, Shape]:
    """Return where the part begins, in bytes, and its shape. Raises IndexError, TypeError."""
    parts = index if isinstance(index, tuple) else (index,)
    for each in parts:
        if each is not Ellipsis and not isinstance(each, slice | int | np.integer):
            raise TypeError(
                f"a RemoteArray takes integers and slices, and not {type(each).__name__}: get the"
                " part, and index the local array"
            )
    if Ellipsis not in parts:
        parts = (*parts, Ellipsis)
    # NumPy computes the part of an array of this shape, whose memory is never touched.
    whole = np.lib.stride_tricks.as_strided(
        np.empty(1, np.uint8), shape, _strides(shape, dtype.itemsize)
    )
    part = whole[parts]
    start = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    if part.size and tuple(part.strides[i] for i in _long(part.shape)) != tuple(
        _strides(part.shape, dtype.itemsize)[i] for i in _long(part.shape)
    ):
        raise IndexError(
            f"the part {index!r} of shape {shape} is not one range of memory, which a request"
            " transfers: take rows (a slice of the first axis with step 1), and index the local"
            " array"
        )
    return (start if part.size else 0), part.shape


def _long(shape: Shape) -> list[int]:
    return [axis for axis, length in enumerate(shape) if length > 1]


def _strides(shape: Shape, itemsize: int) -> Shape:
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


# ---- what the owner gives ------------------------------------------------------------------------


def named_memory(session: Session, what: Any) -> tuple[NDArray[Any], MR]:
    """Return a dense array of ``conn.array`` and its region. Raises TypeError and ValueError."""
    array = dense_array(what)
    region = region_of(array, session.pd) or session.regions.array_region_at(array)
    if region is None:
        raise ValueError(
            "this array is not in memory that peers may access: make it by conn.array(shape, dtype)"
            " of this connection, and copy the data there"
        )
    return array, region


class Lending:
    """A window for a block: ``async with conn.lend(array[a:b]) as window``.

    It keeps its connection open.
    """

    def __init__(self, conn: HasSession, is_active: bool, what: Any, write: bool) -> None:
        self._conn = conn
        session = self._session = conn.session
        self._is_active = is_active
        if not isinstance(write, bool | np.bool_):
            raise TypeError(f"write is True or False, and not {write!r}")
        self._array, self._region = named_memory(session, what)
        self._write = bool(write)
        self._mw: MW | None = None
        self._transport: Transport | None = None
        self._lent = next(_lent)

    async def __aenter__(self) -> RemoteArray:
        session = self._session
        transport = self._transport = await session.ready_for_request()
        array = self._array
        if not array.nbytes:  # a window has one byte at least, and nothing of this is accessed
            return self._named(0)
        mw = self._mw = session.pd.alloc_mw(2)
        access = AccessFlags.REMOTE_READ
        if self._write:
            access |= AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_ATOMIC
        try:
            bound = transport.aqp.post(
                transport.aqp.qp.bind_mw,
                (mw, self._region),
                mw=mw,
                mr=self._region,
                offset=array.ctypes.data - self._region.addr,
                length=array.nbytes,
                access=int(access),
            )
            await completed(session, transport, bound, (mw, self._region), _nothing)
        except BaseException:
            await self._end()
            raise
        return self._named(mw.rkey)

    def _named(self, rkey: int) -> RemoteArray:
        array = self._array
        return RemoteArray(
            (self._session.hello.session, self._is_active),
            array.ctypes.data,
            rkey,
            array.dtype,
            array.shape,
            self._lent,
            self._write,
            array,
        )

    async def __aexit__(self, *error: object) -> None:
        # Also where the task is cancelled: else a message that it sends next might be there first.
        await _to_its_end(self._end())

    def take_back(self, window: RemoteArray) -> None:
        """End it, since nobody has got the window."""
        del window
        self._session.spawn(self._end())

    async def _end(self) -> None:
        """Revoke it: after this the peer's device is refused."""
        mw, transport = self._mw, self._transport
        self._mw = self._transport = None
        try:
            if transport is not None and self._session.transport is transport:
                qp = transport.aqp.qp
                if mw is not None and not mw.closed:
                    await transport.aqp.post(qp.local_invalidate, mw, rkey=mw.rkey)
                await self._session.revoke(self._lent)
        except OSError:
            pass  # the connection has ended meanwhile, and the window with it
        finally:
            if mw is not None and not mw.closed:
                mw.close()


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work, also if the caller is cancelled meanwhile: it is told afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
