# SPDX-License-Identifier: Apache-2.0
"""Registered memory of connections: regions of arrays, a cache of registrations, a pool of buffers.

``RegionCache`` registers memory of the caller where it is, and forgets the registration when the
memory goes: its entries hold no reference to the memory. ``BufferPool`` gives buffers for large
messages; they cannot be accessed by peers, so using one again is safe.
"""

from __future__ import annotations

import errno
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena.verbs import MR, PD, AccessFlags, VerbsError

from .errors import PeerError
from .spare import SPARE, filling

__all__ = ["BufferPool", "RegionCache", "array_region", "byte_view", "dense_array", "region_of"]

ARRAY_ACCESS = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
    | AccessFlags.MW_BIND
)
_CACHED = 64  # registrations
_POOLED = 64 << 20  # bytes
_LEAST = 1 << 12
_HUGE = 1 << 22  # bytes from which memory is in huge pages, which are faulted in faster


def dense_array(what: Any, must_write: bool = False) -> NDArray[Any]:
    """Return a NumPy array over the memory of ``what``, without a copy.

    ``what`` has the buffer protocol or DLPack. Raises TypeError and ValueError.
    """
    if isinstance(what, np.ndarray):
        array = what
    elif hasattr(what, "__dlpack__"):
        array = np.from_dlpack(what)
    else:
        try:
            array = np.asarray(memoryview(what))
        except TypeError:
            raise TypeError(
                f"{type(what).__name__} has neither the buffer protocol nor DLPack: give bytes, an"
                " array, or another object with one of them"
            ) from None
    if array.dtype.hasobject:
        raise TypeError(
            f"an array of {array.dtype} has references to Python objects, which mean nothing to a"
            " peer: use a dtype of numbers or bytes, or pickle it"
        )
    if not array.flags.c_contiguous:
        raise ValueError(
            f"the array of shape {array.shape} with strides {array.strides} is not one range of"
            " memory in C order, which a request transfers: use np.ascontiguousarray, or a slice of"
            " the first axis with step 1"
        )
    if must_write and not array.flags.writeable:
        raise ValueError("the array is read-only: give one that can be written")
    return array


def byte_view(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array in C order."""
    return array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")


def region_of(array: NDArray[Any], pd: PD) -> MR | None:
    """Return the region of ``conn.array`` that an array is in, if it is in one of this domain."""
    base: Any = array
    while base is not None:
        if isinstance(base, MR):
            return base if not base.closed and base.pd is pd else None
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None


def array_region(pd: PD, nbytes: int) -> MR:
    """Return new memory for an array; without windows where the device has none. VerbsError."""
    try:
        return pd.alloc(max(1, nbytes), ARRAY_ACCESS)
    except VerbsError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return pd.alloc(max(1, nbytes), ARRAY_ACCESS & ~AccessFlags.MW_BIND)


def owner_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that owns the memory, or the last one in the chain."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class RegionCache:
    """Registrations of the caller's memory in a protection domain."""

    def __init__(self, pd: PD) -> None:
        self._pd = pd
        self._arrays: weakref.WeakSet[MR] = weakref.WeakSet()
        self._known: OrderedDict[tuple[int, int], tuple[int, int, MR, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def new_array_region(self, nbytes: int) -> MR:
        """Return new memory for an array, which needs no other registration. VerbsError."""
        region = array_region(self._pd, nbytes)
        self._arrays.add(region)
        return region

    def array_region_at(self, array: NDArray[Any]) -> MR | None:
        """Return the region of an array of ``new_array_region`` in whose memory this one lies.

        An array that came back by DLPack, as from a tensor that was made of the first one, says
        nothing of its owner.
        """
        begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
        for each in self._arrays:
            if not each.closed and each.addr <= begin and end <= each.addr + each.length:
                return each
        return None

    def register(self, array: NDArray[Any], access: int) -> tuple[MR, Callable[[], None]]:
        """Return a region that has the array, and what to call when the request has ended."""
        region = region_of(array, self._pd)
        # Memory in which a message was received may be read by its own device alone.
        if region is not None and (not access & AccessFlags.REMOTE_READ or region in self._arrays):
            return region, _nothing
        owner = owner_of(array)
        if not owner.flags.owndata or not owner.nbytes:
            # Memory of another object, whose end nobody tells: the region lasts for the request.
            made = self._pd.reg_mr(byte_view(array), access)
            return made, made.close
        key = id(owner), int(access)
        addr, length = owner.ctypes.data, owner.nbytes
        found = self._known.get(key)
        if found is not None and found[:2] == (addr, length):
            self._known.move_to_end(key)
            return found[2], _nothing
        self._forget(key)
        region = self._pd.reg_mr(addr, length, access)
        self._known[key] = addr, length, region, weakref.finalize(owner, self._forget, key)
        while len(self._known) > _CACHED:
            # A request in flight holds its region, which closes with the last reference.
            self._known.popitem(last=False)[1][3].detach()
        return region, _nothing

    def _forget(self, key: tuple[int, int]) -> None:
        found = self._known.pop(key, None)
        if found is not None:
            found[3].detach()
            if not found[2].closed:
                found[2].close()

    def close(self) -> None:
        """End all registrations."""
        for key in list(self._known):
            self._forget(key)


def _nothing() -> None:
    """Nothing has to be done at the end of the request."""


class BufferPool:
    """Buffers of sizes that others may need as well, of which a limited amount is kept."""

    def __init__(self, pd: PD, access: int = AccessFlags.LOCAL_WRITE) -> None:
        self._pd = pd
        self._access = access
        self._free: dict[int, list[MR]] = {}
        self._kept = 0

    def get(self, length: int, other: int = 0) -> MR:
        """Return a buffer of at least ``length`` bytes, to copy from an address or to it.

        Raises PeerError.
        """
        size = _size_of_buffer(length)
        free = self._free.get(size)
        if free:
            self._kept -= size
            return free.pop()
        try:
            if size >= _HUGE:
                return self._pd.reg_mr(SPARE.array(size, other), self._access)
            return self._pd.alloc(size, self._access)
        except (OSError, MemoryError) as error:
            raise PeerError(
                getattr(error, "errno", None) or errno.ENOMEM,
                f"there is no memory for a message of {length} bytes, which stays the next one:"
                " free some and receive it then, or close the connection; its sender may share an"
                " array instead, of which RemoteArray.get takes parts",
            ) from error

    def put(self, buffer: MR) -> None:
        """Take a buffer back, in the place of those of other sizes."""
        room = _POOLED - buffer.length
        if room >= 0:
            self._make_room(room, buffer.length)
        if self._kept > room:
            buffer.close()
            return
        self._kept += buffer.length
        self._free.setdefault(buffer.length, []).append(buffer)

    def _make_room(self, room: int, wanted: int) -> None:
        for size, free in self._free.items():
            while self._kept > room and free and size != wanted:
                free.pop().close()
                self._kept -= size

    def close(self) -> None:
        """Close those that are kept."""
        for buffers in self._free.values():
            for buffer in buffers:
                buffer.close()
        self._free.clear()
        self._kept = 0


def _size_of_buffer(length: int) -> int:
    """Return a power of two, or what fills huge pages: a registration touches its last byte."""
    size = max(_LEAST, 1 << (length - 1).bit_length())
    return size if size < _HUGE else filling(length)
