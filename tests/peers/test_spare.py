# SPDX-License-Identifier: Apache-2.0
"""Memory of large messages that comes back when its last array is gone, and not before."""

from __future__ import annotations

import gc
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.peers.conftest import Together
from verbena.peers import PeerConnection
from verbena.peers.spare import SPARE, SpareMemory

MIB = 1 << 20


def place(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def test_memory_comes_back_with_the_last_array_over_it() -> None:
    spare = SpareMemory(64 * MIB)
    array = spare.array(5 * MIB)
    at = place(array)
    part = memoryview(array[100:200])
    del array
    gc.collect()
    assert spare.kept == 0
    other = spare.array(5 * MIB)
    assert place(other) != at
    del part
    gc.collect()
    assert spare.kept == 6 * MIB  # whole huge pages
    assert place(spare.array(5 * MIB)) == at


@pytest.mark.parametrize("nbytes", [7 * MIB, 3 * MIB])
def test_an_array_gets_memory_of_about_its_size(nbytes: int) -> None:
    spare = SpareMemory(64 * MIB)
    at = place(spare.array(5 * MIB))
    taken = spare.array(nbytes)
    assert place(taken) != at
    assert taken.nbytes == nbytes
    taken[:] = 7  # all of it is there
    assert place(spare.array(5 * MIB)) == at


def test_an_array_begins_where_the_other_does_in_a_line() -> None:
    spare = SpareMemory(64 * MIB)
    for other in (0, 16, 4096 + 48, 63):
        for nbytes in (4 * MIB, 4 * MIB - 16):
            array = spare.array(nbytes, other)
            assert place(array) % 64 == other % 64
            array[:] = 1


def test_the_last_that_came_back_is_kept_and_not_too_much() -> None:
    spare = SpareMemory(10 * MIB)
    arrays = [spare.array(5 * MIB) for _ in range(3)]
    last = place(arrays[-1])
    while arrays:
        del arrays[0]
    assert spare.kept == 6 * MIB
    assert place(spare.array(5 * MIB)) == last
    spare.array(11 * MIB)  # more than is kept
    assert spare.kept == 6 * MIB


def test_threads_never_have_the_same_memory() -> None:
    spare = SpareMemory(16 * MIB)

    def work(number: int) -> None:
        chance = random.Random(number)
        held: list[NDArray[np.uint8]] = []
        for _ in range(300):
            array = spare.array(chance.choice((2, 3, 4)) * MIB)
            array[::4096] = number
            held.append(array)
            if len(held) > 3:
                assert (held.pop(chance.randrange(4))[::4096] == number).all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    assert spare.kept <= 16 * MIB


SIZE = 5 * MIB


async def give(conn: PeerConnection) -> None:
    for number in range(1, 13):
        await conn.send(np.full(SIZE, number, np.uint8))


def test_an_array_that_a_program_keeps_stays_as_it_is(together: Together) -> None:
    """Parts of messages, through many later ones and the ends of connections."""

    async def keep(conn: PeerConnection) -> list[tuple[int, NDArray[np.uint8]]]:
        kept = []
        for number in range(1, 13):
            async with conn.recv() as view:
                whole = np.asarray(view)
                assert (whole == number).all()
                if number % 3 == 0:
                    kept.append((number, whole[MIB : 2 * MIB]))
                del whole
        return kept

    kept = together(keep, give)[0] + together(keep, give)[0]
    gc.collect()
    assert len(kept) == 8
    for number, part in kept:
        assert (part == number).all()


def test_messages_use_the_memory_of_earlier_ones(together: Together) -> None:
    async def look(conn: PeerConnection) -> set[int]:
        places = set()
        for _ in range(12):
            async with conn.recv() as view:
                array = np.asarray(view)
            places.add(place(array))
            del array
        return places

    assert len(together(look, give)[0]) <= 5  # the program has one, and 16 MiB are fetched ahead
    assert SPARE.kept >= 6 * MIB
