# SPDX-License-Identifier: Apache-2.0
"""Reservations: the table of who may do what, and how hosts come to hold them and lose them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.nvmeof.replies import Failure
from verbena.nvmeof.reservations import (
    Reservations,
    ReservationType,
    keys_of,
    report_length,
)

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
KEYS = {A: 10, B: 20, C: 30}


def keys(current: int, new: int = 0) -> bytes:
    return struct.pack("<QQ", current, new)


def registered(*hosts: bytes) -> Reservations:
    made = Reservations()
    for host in hosts:
        made.register(host, 0, keys(0, KEYS[host]))
    return made


def held(kind: int, holder: bytes = A, *others: bytes) -> Reservations:
    made = registered(holder, *others)
    made.acquire(holder, kind << 8, keys(KEYS[holder]))
    return made


def may(reservations: Reservations, host: bytes, is_write: bool) -> bool:
    try:
        reservations.check(host, is_write)
    except Failure:
        return False
    return True


# Of each type: (registrant reads, registrant writes, other reads, other writes)
RULES = {
    1: (True, False, True, False),
    2: (False, False, False, False),
    3: (True, True, True, False),
    4: (True, True, False, False),
    5: (True, True, True, False),
    6: (True, True, False, False),
}


@pytest.mark.parametrize("kind", RULES)
def test_who_may_do_what(kind: int) -> None:
    made = held(kind, A, B)
    assert may(made, A, False)
    assert may(made, A, True)
    found = (may(made, B, False), may(made, B, True), may(made, C, False), may(made, C, True))
    assert found == RULES[kind]


def test_free_namespaces() -> None:
    made = registered(A)
    assert may(made, C, True)
    assert made.generation == 1


def test_registering() -> None:
    made = registered(A)
    made.register(A, 0, keys(0, 10))  # the same key again
    with pytest.raises(Failure, match="CONFLICT"):
        made.register(A, 0, keys(0, 11))
    made.register(A, 2, keys(10, 11))
    assert made.keys == {A: 11}
    with pytest.raises(Failure, match="CONFLICT"):
        made.register(A, 2, keys(10, 12))
    made.register(A, 2 | 8, keys(0, 12))  # the current key is ignored
    with pytest.raises(Failure, match="CONFLICT"):
        made.register(B, 1, keys(0))
    made.register(A, 1, keys(12))
    assert made.keys == {}
    with pytest.raises(Failure, match="INVALID_FIELD"):
        made.register(A, 3, keys(0))


def test_acquiring() -> None:
    made = registered(A, B)
    with pytest.raises(Failure, match="CONFLICT"):
        made.acquire(C, 1 << 8, keys(30))
    with pytest.raises(Failure, match="CONFLICT"):
        made.acquire(A, 1 << 8, keys(99))
    with pytest.raises(Failure, match="INVALID_FIELD"):
        made.acquire(A, 7 << 8, keys(10))
    made.acquire(A, 1 << 8, keys(10))
    made.acquire(A, 1 << 8, keys(10))  # it holds it
    with pytest.raises(Failure, match="CONFLICT"):
        made.acquire(A, 2 << 8, keys(10))
    with pytest.raises(Failure, match="CONFLICT"):
        made.acquire(B, 1 << 8, keys(20))


def test_releasing() -> None:
    made = held(1, A, B)
    made.release(B, 1 << 8, keys(20))  # it does not hold it: nothing happens
    assert made.holds(A)
    with pytest.raises(Failure, match="INVALID_FIELD"):
        made.release(A, 2 << 8, keys(10))
    made.release(A, 1 << 8, keys(10))
    assert made.is_free
    made.acquire(B, 2 << 8, keys(20))
    made.release(A, 1 | 2 << 8, keys(10))  # any registrant may clear
    assert made.is_free
    assert not made.keys


def test_a_holder_that_unregisters() -> None:
    made = held(3, A, B)
    made.register(A, 1, keys(10))
    assert made.is_free
    assert B in made.keys


def test_all_registrants_hold() -> None:
    made = held(5, A, B)
    assert made.holds(A)
    assert made.holds(B)
    made.register(A, 1, keys(10))
    assert not made.is_free
    made.register(B, 1, keys(20))
    assert made.is_free


def test_preempting_the_holder() -> None:
    made = held(1, A, B, C)
    made.acquire(B, 1 | 2 << 8, keys(20, 10))
    assert made.holds(B)
    assert made.kind is ReservationType.EXCLUSIVE_ACCESS
    assert set(made.keys) == {B, C}


def test_preempting_a_registrant() -> None:
    made = held(1, A, B, C)
    made.acquire(B, 1 | 1 << 8, keys(20, 30))
    assert made.holds(A)
    assert set(made.keys) == {A, B}
    with pytest.raises(Failure, match="CONFLICT"):
        made.acquire(B, 1 | 1 << 8, keys(20, 30))
    with pytest.raises(Failure, match="INVALID_FIELD"):
        made.acquire(B, 1 | 1 << 8, keys(20, 0))


def test_preempting_all_registrants() -> None:
    made = held(6, A, B, C)
    made.acquire(C, 2 | 1 << 8, keys(30, 0))
    assert set(made.keys) == {C}
    assert made.holds(C)
    assert made.kind is ReservationType.WRITE_EXCLUSIVE


def test_keys_in_long_reports() -> None:
    hosts = {bytes([n]) * 16: n for n in range(1, 100)}
    made = Reservations()
    for host, key in hosts.items():
        made.register(host, 0, keys(0, key))
    report = made.report({}, is_extended=True)
    assert report_length(report) == len(report)
    assert keys_of(report) == hosts
    assert keys_of(report[:4096]) == {host: key for host, key in hosts.items() if key < 64}


def test_reports() -> None:
    made = held(1, A, B)
    report = made.report({A: 7}, True)
    assert struct.unpack_from("<IBH", report) == (2, 1, 2)
    assert struct.unpack_from("<HB5xQ16s", report, 64) == (7, 1, 10, A)
    assert struct.unpack_from("<HB5xQ16s", report, 128) == (0xFFFF, 0, 20, B)
    short = made.report({}, False)
    assert struct.unpack_from("<HB5x8sQ", short, 24) == (0xFFFF, 1, A[:8], 10)


ACTIONS = st.tuples(
    st.sampled_from(["register", "acquire", "release"]),
    st.sampled_from([A, B, C]),
    st.integers(0, 15),
    st.integers(0, 7),
    st.sampled_from([0, 10, 20, 30]),
    st.sampled_from([0, 10, 20, 30]),
)


@given(st.lists(ACTIONS, max_size=30))
def test_whatever_hosts_do(actions: list[tuple[str, bytes, int, int, int, int]]) -> None:
    """A reservation has a holder that is registered, and a refused command changes nothing."""
    made = Reservations()
    for name, host, word, kind, current, new in actions:
        before = (dict(made.keys), made.holder, made.kind, made.generation)
        try:
            getattr(made, name)(host, word | kind << 8, keys(current, new))
        except Failure:
            assert before == (made.keys, made.holder, made.kind, made.generation)
        assert made.holder is None or made.holder in made.keys
        if not made.is_free:
            assert any(made.holds(each) for each in made.keys)
