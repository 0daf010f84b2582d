# SPDX-License-Identifier: Apache-2.0
"""Reassembly: any order and any path of fragments, overlaps, the timeout and its error."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.host.clock import Agenda
from verbena.internet import Datagram, Message, MessageTooLongError
from verbena.internet.fragments import REASSEMBLY_BYTES, REASSEMBLY_TIMEOUT, Reassembler, fragments

ONE, TWO = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")


def datagram(size: int, identification: int = 1) -> Datagram:
    payload = Random(identification).randbytes(size)
    return Datagram(17, ONE, TWO, payload, identification=identification)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6000), min_size=1, max_size=3),
    mtus=st.lists(st.integers(68, 1500), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    repeated=st.booleans(),
)
def test_fragments_of_several_datagrams_in_any_order(
    sizes: list[int], mtus: list[int], seed: int, repeated: bool
) -> None:
    """Each is cut for one MTU after the other, as on a path; duplicates do not matter."""
    sent = [datagram(size, number) for number, size in enumerate(sizes, 1)]
    parts = sent
    for mtu in mtus:
        parts = [piece for part in parts for piece in fragments(part, mtu)]
        assert all(piece.length <= mtu for piece in parts)
    parts = [Datagram.decode(part.encode()) for part in parts]
    random = Random(seed)
    random.shuffle(parts)
    reassembler = Reassembler(Agenda(), lambda first: None)
    whole = []
    for part in parts:
        # A copy of the fragment that completes a datagram would begin it anew.
        for _ in range(2 if repeated else 1):
            done = reassembler.add(part)
            if done is not None:
                whole.append(done)
                break
    assert sorted(whole, key=lambda one: one.identification) == sent
    assert reassembler.discarded == 0


@pytest.mark.parametrize("change", ["bytes", "overlap", "second end"])
def test_fragments_that_contradict_discard_the_datagram(change: str) -> None:
    parts = fragments(datagram(3000), 1020)
    bad = {
        "bytes": replace(parts[1], payload=bytes(1000)),
        "overlap": replace(parts[1], offset=parts[1].offset - 8),
        "second end": replace(parts[1], more_fragments=False),
    }[change]
    reassembler = Reassembler(Agenda(), lambda first: None)
    before = parts[2:] if change == "second end" else parts[:2]
    for part in (*before, bad):
        assert reassembler.add(part) is None
    assert reassembler.discarded == 1
    for part in parts[:-1]:
        assert reassembler.add(part) is None
    whole = reassembler.add(parts[-1])
    assert whole is not None
    assert whole.payload == datagram(3000).payload


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_incomplete_datagram_is_given_up_after_its_timeout(missing: int) -> None:
    """An error quotes the first fragment, so that there is none when that one is missing."""
    agenda = Agenda()
    told: list[Datagram] = []
    reassembler = Reassembler(agenda, told.append)
    parts = fragments(datagram(3000), 1020)
    for at, part in enumerate(parts):
        if at != missing:
            reassembler.add(part)
    agenda.run_due(REASSEMBLY_TIMEOUT - 1)
    assert reassembler.discarded == 0
    agenda.run_due(REASSEMBLY_TIMEOUT)
    assert reassembler.discarded == 1
    assert told == ([] if missing == 0 else parts[:1])
    assert reassembler.add(parts[missing]) is None


def test_the_oldest_incomplete_datagrams_make_room() -> None:
    reassembler = Reassembler(Agenda(), lambda first: None)
    size = 60_000
    number = REASSEMBLY_BYTES // (size // 2) + 3
    lasts = []
    for identification in range(1, number + 1):
        *parts, last = fragments(datagram(size, identification), 65_000 // 2)
        lasts.append(last)
        for part in parts:
            reassembler.add(part)
    assert 0 < reassembler.discarded < number
    assert reassembler.add(lasts[0]) is None
    assert reassembler.add(lasts[-1]) == datagram(size, number)


def test_a_datagram_that_must_not_be_cut_says_how_much_fits() -> None:
    whole = replace(datagram(3000), dont_fragment=True)
    with pytest.raises(MessageTooLongError, match=r"1472 bytes behind the 8 .* UDP") as caught:
        fragments(whole, 1500)
    assert caught.value.mtu == 1500
    assert Message(3, 4, sequence=1500).text == "fragmentation needed, MTU 1500"
