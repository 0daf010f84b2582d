# SPDX-License-Identifier: Apache-2.0
"""Collective calls give what NumPy computes of all ranks' arrays, with every algorithm."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.collectives.conftest import Ranks, on_hosts
from verbena.collectives import ALGORITHMS, OPERATORS, Group, operators

pytestmark = pytest.mark.over_roce
SIZES = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9])
NUMBERS = ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "g", "F", "D", ">i4", ">f8"]
OTHERS = ["M8[s]", "m8[ms]", "S5", "U3", "V7", "i4,f8,S3"]
SHAPES = st.one_of(
    st.just(()),
    st.tuples(st.integers(0, 40)),
    st.tuples(st.integers(0, 5), st.integers(0, 7)),
    st.sampled_from([(2047,), (2049,), (5000,), (3, 4001), (1, 20_011)]),
)
EXAMPLES = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def names(call: str) -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, *ALGORITHMS[call]])


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    """Small whole numbers, so that sums and products of floats are exact."""
    made = np.random.default_rng(seed).integers(0, 3, shape)
    return np.asarray(made).astype(dtype)


def anything(dtype: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    """Random bytes as an array of any dtype."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape)) * kind.itemsize
    most = 2 if kind.kind == "b" else 120
    data = np.random.default_rng(seed).integers(1, most, count, dtype=np.uint8)
    if kind.kind == "U":
        return np.full(shape, chr(97 + seed % 26), dtype)
    return data.view(kind).reshape(shape) if count else np.empty(shape, kind)


def is_same(got: Any, expected: NDArray[Any]) -> bool:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    if got.dtype.char == "g":  # it has bytes without a meaning
        return np.array_equal(got, expected, equal_nan=True)
    return bool(got.tobytes() == expected.tobytes())


def part_of(whole: NDArray[Any], rank: int) -> NDArray[Any]:
    """An entry of the first axis, with the dtype's byte order."""
    return whole[rank : rank + 1].reshape(whole.shape[1:]).copy()


def allowed(op: str, dtype: str) -> bool:
    try:
        operators.operator_of(op, np.dtype(dtype))
    except TypeError:
        return False
    return True


REDUCTIONS = st.sampled_from(
    [
        (op, dtype)
        for op in OPERATORS
        for dtype in [*NUMBERS, "M8[s]", "m8[ms]"]
        if allowed(op, dtype)
    ]
)


def combined(op: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(reduce(OPERATORS[op], arrays)).astype(arrays[0].dtype)


@EXAMPLES
@given(SIZES, REDUCTIONS, SHAPES, names("all_reduce"), st.booleans(), st.integers(0, 99))
def test_all_reduce(
    ranks: Ranks, size: int, kind: Any, shape: Any, algorithm: Any, in_place: bool, seed: int
) -> None:
    op, dtype = kind
    arrays = [numbers(dtype, shape, seed + rank) for rank in range(size)]
    expected = combined(op, arrays)

    async def call(group: Group) -> Any:
        mine = arrays[group.rank].copy()
        out = mine if in_place else None
        got = await group.all_reduce(mine, op, out=out, algorithm=algorithm)
        assert in_place == (got is mine)
        assert in_place or is_same(mine, arrays[group.rank])
        return got

    assert all(is_same(got, expected) for got in ranks.run(size, call))


@EXAMPLES
@given(SIZES, REDUCTIONS, SHAPES, names("reduce"), st.integers(0, 99))
def test_reduce(ranks: Ranks, size: int, kind: Any, shape: Any, algorithm: Any, seed: int) -> None:
    op, dtype = kind
    root = seed % size
    arrays = [numbers(dtype, shape, seed + rank) for rank in range(size)]

    async def call(group: Group) -> Any:
        return await group.reduce(arrays[group.rank], op, root, algorithm=algorithm)

    got = ranks.run(size, call)
    assert is_same(got.pop(root), combined(op, arrays))
    assert got == [None] * (size - 1)


@EXAMPLES
@given(SIZES, REDUCTIONS, SHAPES, names("reduce_scatter"), st.integers(0, 99))
def test_reduce_scatter(
    ranks: Ranks, size: int, kind: Any, shape: Any, algorithm: Any, seed: int
) -> None:
    op, dtype = kind
    arrays = [numbers(dtype, (size, *shape), seed + rank) for rank in range(size)]
    expected = combined(op, arrays)

    async def call(group: Group) -> Any:
        return await group.reduce_scatter(arrays[group.rank], op, algorithm=algorithm)

    for rank, got in enumerate(ranks.run(size, call)):
        assert is_same(got, part_of(expected, rank))


@EXAMPLES
@given(SIZES, st.sampled_from(NUMBERS + OTHERS), SHAPES, names("broadcast"), st.integers(0, 99))
def test_broadcast(
    ranks: Ranks, size: int, dtype: str, shape: Any, algorithm: Any, seed: int
) -> None:
    root = seed % size
    sent = anything(dtype, shape, seed)

    async def call(group: Group) -> Any:
        mine = sent.copy() if group.rank == root else np.zeros(shape, dtype)
        got = await group.broadcast(mine, root, algorithm=algorithm)
        assert got is mine
        return got

    assert all(is_same(got, sent) for got in ranks.run(size, call))


@EXAMPLES
@given(SIZES, st.sampled_from(NUMBERS + OTHERS), SHAPES, st.data(), st.integers(0, 99))
def test_gathering_and_scattering(
    ranks: Ranks, size: int, dtype: str, shape: Any, data: Any, seed: int
) -> None:
    root = seed % size
    how = {name: data.draw(names(name)) for name in ("all_gather", "gather", "scatter")}
    whole = anything(dtype, (size, *shape), seed)

    async def call(group: Group) -> None:
        mine = part_of(whole, group.rank)
        assert is_same(await group.all_gather(mine, algorithm=how["all_gather"]), whole)
        got = await group.gather(mine, root, algorithm=how["gather"])
        assert got is None if group.rank != root else is_same(got, whole)
        out = np.zeros_like(mine)
        parts = whole if group.rank == root else None
        assert await group.scatter(parts, out, root, algorithm=how["scatter"]) is out
        assert is_same(out, mine)

    ranks.run(size, call)


@EXAMPLES
@given(SIZES, st.sampled_from(NUMBERS + OTHERS), SHAPES, names("all_to_all"), st.integers(0, 99))
def test_all_to_all(
    ranks: Ranks, size: int, dtype: str, shape: Any, algorithm: Any, seed: int
) -> None:
    whole = anything(dtype, (size, size, *shape), seed)

    async def call(group: Group) -> None:
        got = await group.all_to_all(whole[group.rank], algorithm=algorithm)
        assert is_same(got, np.ascontiguousarray(whole[:, group.rank]))

    ranks.run(size, call)


async def every_call(group: Group) -> None:
    """All calls with all algorithms, small and large."""
    rank, size = group.rank, group.size
    await group.barrier()
    for length in (3, 30_000):
        mine = np.full(length, rank + 1)
        total = size * (size + 1) // 2
        for name in ALGORITHMS["all_reduce"]:
            assert (await group.all_reduce(mine, algorithm=name) == total).all()
        for name in ALGORITHMS["reduce"]:
            got = await group.reduce(mine, root=size - 1, algorithm=name)
            assert got is None if rank < size - 1 else (got == total).all()
        parts = np.tile(mine, (size, 1))
        for name in ALGORITHMS["reduce_scatter"]:
            assert (await group.reduce_scatter(parts, algorithm=name) == total).all()
        for name in ALGORITHMS["broadcast"]:
            assert (await group.broadcast(mine.copy(), size - 1, algorithm=name) == size).all()
        for name in ALGORITHMS["all_gather"]:
            gathered = await group.all_gather(mine, algorithm=name)
            assert gathered[:, 0].tolist() == list(range(1, size + 1))
        for name in ALGORITHMS["all_to_all"]:
            got = await group.all_to_all(parts, algorithm=name)
            assert got[:, -1].tolist() == list(range(1, size + 1))
        for name in ALGORITHMS["gather"]:
            got = await group.gather(mine, algorithm=name)
            assert rank or got[:, 0].tolist() == list(range(1, size + 1))
            scattered = await group.scatter(got, np.zeros_like(mine), algorithm=name)
            assert (scattered == mine).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_on_simulated_hosts(size: int) -> None:
    on_hosts(size, every_call)


def test_ranks_get_the_same_bits(ranks: Ranks) -> None:
    """Sums of floats depend on the order, which is the same at all ranks."""

    async def call(group: Group) -> list[bytes]:
        mine = np.random.default_rng(group.rank).normal(size=20_000)
        mine[::7] *= -0.0
        got = []
        for name in ALGORITHMS["all_reduce"]:
            got.append((await group.all_reduce(mine, algorithm=name)).tobytes())
            got.append((await group.all_reduce(mine, "min", algorithm=name)).tobytes())
        return got

    first, *others = ranks.run(7, call)
    assert all(other == first for other in others)


def test_large_arrays_go_round_without_waiting_for_each_other(ranks: Ranks) -> None:
    """Messages beyond what peers fetch ahead, 16 MiB: also a third of the array is one."""

    async def call(group: Group) -> None:
        mine = np.full(6_500_000, group.rank + 1.0)
        for name in ALGORITHMS["all_reduce"]:
            assert (await group.all_reduce(mine, algorithm=name) == 6).all()
        assert len(await group.all_gather(mine)) == 3

    ranks.run(3, call)


def test_a_ufunc_and_a_wrong_operator(ranks: Ranks) -> None:
    async def call(group: Group) -> None:
        mine = np.array([group.rank + 1.0, 5])
        assert (await group.all_reduce(mine, np.hypot)).tolist() == pytest.approx([5**0.5, 50**0.5])
        for op, error in (("avg", ValueError), (np.sin, TypeError), ("xor", TypeError)):
            with pytest.raises(error):
                await group.all_reduce(mine, op)
        with pytest.raises(ValueError, match="has the algorithms"):
            await group.all_reduce(mine, algorithm="magic")
        with pytest.raises(ValueError, match="root is a rank"):
            await group.broadcast(mine, 2)
        with pytest.raises(TypeError, match="root is a rank, a whole number, and not '0'"):
            await group.broadcast(mine, "0")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="gives the parts"):
            await group.scatter(None, np.zeros(2), root=group.rank)
        with pytest.raises(TypeError, match="of numbers, and not of texts"):
            await group.all_reduce(np.array(["a", "b"]))
        with pytest.raises(ValueError, match="first axis"):
            await group.all_to_all(np.zeros(3))
        with pytest.raises(TypeError, match="Python objects"):
            await group.all_gather(np.array([None]))
        assert (await group.all_reduce(mine))[1] == 10  # the group goes on

    ranks.run(2, call)


def test_a_root_of_few_bits(ranks: Ranks) -> None:
    """In 8 bits 0 - 1 is 255, and 255 % 3 is another rank than the left neighbour of rank 0."""

    async def call(group: Group) -> None:
        rank, size = group.rank, group.size
        for root in range(size):
            own = np.uint8(root)
            for name in ALGORITHMS["broadcast"]:
                mine = np.full(5000, rank)
                await group.broadcast(mine, own, algorithm=name)  # type: ignore[arg-type]
                assert (mine == root).all()
            for name in ALGORITHMS["gather"]:
                got = await group.gather([rank], own, algorithm=name)  # type: ignore[arg-type]
                assert got is None if rank != root else got.ravel().tolist() == [0, 1, 2]
            for name in ALGORITHMS["reduce"]:
                total = await group.reduce([rank], root=own, algorithm=name)  # type: ignore[arg-type]
                assert total is None if rank != root else total.tolist() == [3]
            for name in ALGORITHMS["scatter"]:
                out = np.zeros(2, int)
                parts = np.arange(6).reshape(3, 2) if rank == root else None
                await group.scatter(parts, out, own, algorithm=name)  # type: ignore[arg-type]
                assert out.tolist() == [2 * rank, 2 * rank + 1]

    ranks.run(3, call)
