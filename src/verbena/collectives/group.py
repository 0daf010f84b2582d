# SPDX-License-Identifier: Apache-2.0
"""``Group``: the collective calls of a rank, for asyncio.

Programs get it from ``verbena.collectives.join``. A call checks its arrays, chooses an algorithm,
and runs it; every rank has to make the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import verbena.collectives.algorithms as algorithms
from verbena.peers.memory import dense_array

from .algorithms import bounds_of
from .choosing import choose
from .links import Links
from .operators import Operator, operator_of

__all__ = ["Group"]

T = TypeVar("T")
Array = NDArray[Any]


class Group:
    """The ranks that have joined, seen from one of them; an asynchronous context manager.

    Leaving its block waits until the others have what was sent; after an exception it disconnects
    at once, and the others' calls raise RankDied. ``algorithm`` of each call overrides the choice
    by size; ``verbena.collectives.ALGORITHMS`` has the names. A call that is cancelled, or fails,
    ends the group: calls of all ranks then raise GroupError, which names the rank at fault.
    """

    def __init__(self, links: Links) -> None:
        self._links = links

    @property
    def rank(self) -> int:
        """The rank of this program, from 0."""
        return self._links.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._links.size

    def __repr__(self) -> str:
        return f"<Group: rank {self.rank} of {self.size}>"

    # ---- calls ----

    async def barrier(self) -> None:
        """Wait until all ranks have called it."""
        await self._run("barrier", (), lambda: algorithms.barrier(self._links))

    async def broadcast(
        self, array: Array, root: int = 0, *, algorithm: str | None = None
    ) -> Array:
        """Copy the root's array into those of all ranks, and return it."""
        root = self._root(root)
        target = dense_array(array, must_write=self.rank != root)
        name = self._choose("broadcast", target.nbytes, algorithm)
        how = {
            "tree": algorithms.broadcast_tree,
            "scatter_ring": algorithms.broadcast_scatter_ring,
        }[name]
        await self._run(
            "broadcast",
            (name, root, *kind_of(target)),
            lambda: how(self._links, target, root),
        )
        return array

    async def reduce(
        self,
        array: ArrayLike,
        op: Operator = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
    ) -> Array | None:
        """Combine the arrays of all ranks; the root gets the result, and others None."""
        root = self._root(root)
        result = copy_of(array)
        function = operator_of(op, result.dtype)
        name = self._choose("reduce", result.nbytes, algorithm)
        vector = result.reshape(-1)

        async def run() -> None:
            if name == "tree":
                await algorithms.reduce_tree(self._links, vector, function, root)
            else:
                await self._reduce_ring(vector, function, root)

        about = (name, root, function.__name__, *kind_of(result))
        await self._run("reduce", about, run)
        return result if self.rank == root else None

    async def all_reduce(
        self,
        array: ArrayLike,
        op: Operator = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Array:
        """Combine the arrays of all ranks; every rank gets the result, the same to the bit.

        ``op`` is "sum", "prod", "min", "max", "and", "or", "xor", or a ufunc that is associative
        and commutative; the dtype stays. ``out`` may be the array itself.
        """
        result = copy_of(array, out)
        function = operator_of(op, result.dtype)
        name = self._choose("all_reduce", result.nbytes, algorithm)
        vector = result.reshape(-1)

        async def run() -> None:
            if name == "recursive_doubling":
                await algorithms.all_reduce_doubling(self._links, vector, function)
            elif name == "ring":
                starts = bounds_of(len(vector), self.size)
                await algorithms.reduce_scatter_ring(self._links, vector, starts, function)
                await algorithms.all_gather_ring(self._links, vector, starts)
            else:
                await algorithms.reduce_tree(self._links, vector, function, 0)
                await algorithms.broadcast_tree(self._links, vector, 0)

        await self._run("all_reduce", (name, function.__name__, *kind_of(result)), run)
        return result

    async def reduce_scatter(
        self, array: ArrayLike, op: Operator = "sum", *, algorithm: str | None = None
    ) -> Array:
        """Combine arrays whose first axis has an entry for each rank; rank r gets entry r."""
        whole = copy_of(array)
        self._check_parts("reduce_scatter", whole)
        function = operator_of(op, whole.dtype)
        name = self._choose("reduce_scatter", whole.nbytes, algorithm)
        vector = whole.reshape(-1)

        async def run() -> None:
            if name == "ring":
                starts = bounds_of(len(vector), self.size)
                await algorithms.reduce_scatter_ring(self._links, vector, starts, function)
            else:
                await algorithms.all_reduce_doubling(self._links, vector, function)

        await self._run("reduce_scatter", (name, function.__name__, *kind_of(whole)), run)
        # Not whole[rank], which is a scalar in the machine's byte order for one axis.
        return whole[self.rank : self.rank + 1].reshape(whole.shape[1:]).copy()

    async def all_gather(
        self, array: ArrayLike, *, out: Array | None = None, algorithm: str | None = None
    ) -> Array:
        """Return the arrays of all ranks, as entries of a new first axis."""
        own = np.ascontiguousarray(array)
        result = self._result(out, (self.size, *np.shape(array)), own.dtype)
        name = self._choose("all_gather", own.nbytes, algorithm)
        rows = rows_of(result, self.size)
        rows[self.rank] = bytes_of(own)

        async def run() -> None:
            if name == "ring":
                flat = rows.reshape(-1)
                starts = bounds_of(len(flat), self.size)
                await algorithms.all_gather_ring(self._links, flat, starts)
            else:
                await algorithms.all_gather_doubling(self._links, rows)

        await self._run("all_gather", (name, *kind_of(own)), run)
        return result

    async def gather(
        self, array: ArrayLike, root: int = 0, *, algorithm: str | None = None
    ) -> Array | None:
        """Return the arrays of all ranks at the root, as ``all_gather``; and None elsewhere."""
        root = self._root(root)
        own = np.ascontiguousarray(array)
        name = self._choose("gather", own.nbytes, algorithm)
        about = (name, root, *kind_of(own))
        result = rows = None
        if self.rank == root:
            result = self._result(None, (self.size, *np.shape(array)), own.dtype)
            rows = rows_of(result, self.size)
        how = algorithms.gather_tree if name == "tree" else algorithms.gather_linear
        await self._run("gather", about, lambda: how(self._links, bytes_of(own), rows, root))
        return result

    async def scatter(
        self,
        parts: ArrayLike | None,
        out: Array,
        root: int = 0,
        *,
        algorithm: str | None = None,
    ) -> Array:
        """Copy entry r of the root's ``parts`` into ``out`` at rank r, and return that.

        Ranks other than the root give None.
        """
        root, target = self._root(root), dense_array(out, must_write=True)
        name = self._choose("scatter", target.nbytes, algorithm)
        about = (name, root, *kind_of(target))
        rows = None
        if self.rank == root and parts is None:
            raise ValueError(f"rank {root} is the root, and gives the parts that it scatters")
        if self.rank == root:
            whole = np.ascontiguousarray(parts)
            if whole.dtype != target.dtype or whole.shape != (self.size, *target.shape):
                raise ValueError(
                    f"scatter needs parts of shape {(self.size, *target.shape)} and {target.dtype},"
                    f" an entry like out for each rank, and not {whole.shape} {whole.dtype}"
                )
            rows = rows_of(whole, self.size)
        how = algorithms.scatter_tree if name == "tree" else algorithms.scatter_linear
        await self._run("scatter", about, lambda: how(self._links, rows, bytes_of(target), root))
        return out

    async def all_to_all(self, array: ArrayLike, *, algorithm: str | None = None) -> Array:
        """Send entry r of the first axis to rank r; return what each rank has sent to this one."""
        whole = np.ascontiguousarray(array)
        self._check_parts("all_to_all", whole)
        result = np.empty_like(whole)
        name = self._choose("all_to_all", whole.nbytes, algorithm)
        rows, target = rows_of(whole, self.size), rows_of(result, self.size)
        how = {
            "pairwise": algorithms.all_to_all_pairwise,
            "recursive_doubling": algorithms.all_to_all_doubling,
        }[name]
        about = (name, *kind_of(whole))
        await self._run("all_to_all", about, lambda: how(self._links, rows, target))
        return result

    # ---- leaving ----

    async def settle(self) -> None:
        """Before the loop stops: wait until no rank waits for what this one has received."""
        await self._links.settle()

    async def leave(self) -> None:
        """Wait until the others have what was sent, and disconnect.

        Raises MismatchedCall if that was found since the last call.
        """
        await self._links.leave()
        self._links.raise_mismatch()

    def abort(self) -> None:
        """Disconnect at once; the calls of the others raise RankDied."""
        self._links.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        if kind is None:
            await self.leave()
        elif self._links.failure is not None:
            await self._links.leave()
        else:
            self.abort()

    # ---- parts of calls ----

    def _run(
        self, call: str, about: tuple[Any, ...], work: Callable[[], Awaitable[None]]
    ) -> Awaitable[None]:
        return self._links.run(call, about, work)

    async def _reduce_ring(self, vector: Array, op: np.ufunc, root: int) -> None:
        starts = bounds_of(len(vector), self.size)
        await algorithms.reduce_scatter_ring(self._links, vector, starts, op)
        parts = [vector[a:b] for a, b in pairwise(starts)]
        if self.rank != root:
            await self._links.send(root, parts[self.rank])
            return
        for rank, part in enumerate(parts):
            if rank != root:
                use = partial(algorithms.fill, part)
                await self._links.receive(rank, part.nbytes, use)

    def _choose(self, call: str, nbytes: int, algorithm: str | None) -> str:
        return choose(call, nbytes, self.size, algorithm)

    def _root(self, root: int) -> int:
        """Return it as int: what is computed with a number of NumPy may wrap around."""
        if isinstance(root, bool) or not isinstance(root, int | np.integer):
            raise TypeError(f"root is a rank, a whole number, and not {root!r}")
        if not 0 <= root < self.size:
            raise ValueError(f"root is a rank from 0 to {self.size - 1}, and not {root}")
        return int(root)

    def _check_parts(self, call: str, array: Array) -> None:
        if not array.ndim or len(array) != self.size:
            raise ValueError(
                f"{call} needs an array whose first axis has an entry for each of {self.size} ranks"
                f", and not {array.shape}"
            )
        check_dtype(array)

    def _result(self, out: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
        result = np.empty(shape, dtype) if out is None else dense_array(out, must_write=True)
        if result.shape != shape or result.dtype != dtype:
            raise ValueError(
                f"out has to be {shape} {dtype}, and not {result.shape} {result.dtype}"
            )
        return check_dtype(result)


def check_dtype(array: Array) -> Array:
    """Return the array. Raises TypeError for references to Python objects."""
    return dense_array(array)


def copy_of(array: ArrayLike, out: Array | None = None) -> Array:
    """Return a dense copy to work in, which is ``out`` if that is given. Raises ValueError."""
    given = np.asarray(array)
    if out is None:
        return check_dtype(np.array(given, order="C", subok=False))
    target = dense_array(out, must_write=True)
    if target.shape != given.shape or target.dtype != given.dtype:
        raise ValueError(
            f"out has to be {given.shape} {given.dtype}, and not {target.shape} {target.dtype}"
        )
    if target is not given:
        target[...] = given
    return target


def kind_of(array: Array) -> tuple[str, tuple[int, ...]]:
    """Return what arrays of all ranks must have in common."""
    return array.dtype.str, array.shape


def bytes_of(array: Array) -> NDArray[np.uint8]:
    """Return a dense array's bytes, without a copy."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def rows_of(array: Array, count: int) -> NDArray[np.uint8]:
    """Return a dense array as rows of bytes, one for each rank, without a copy."""
    return bytes_of(array).reshape(count, -1) if array.nbytes else np.empty((count, 0), np.uint8)
