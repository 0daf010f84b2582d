# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are read in pieces: each byte of the system's is used once, or dropped."""

from __future__ import annotations

from verbena.agent.random_bits import RandomBits


def test_numbers_are_made_of_successive_bytes_and_have_so_many_bits() -> None:
    pieces = [bytes([0xFF, 1, 2, 3, 4, 5, 6, 7]), bytes([0xA5] * 8)]
    bits = RandomBits(lambda size: pieces.pop(0), 8)
    assert bits(24) == 0xFF0102
    assert bits(32) == 0x03040506
    assert bits(32) == 0xA5A5A5A5  # one byte of the first piece was too few
    assert bits(3) == 0b101
    assert not pieces


def test_the_systems_numbers_differ() -> None:
    bits = RandomBits()
    assert len({bits(32) for _ in range(3000)}) > 2990
