# SPDX-License-Identifier: Apache-2.0
"""The longest prefix of an address by trying all lengths, to compare ``PrefixMap`` with.

Tests and a row of `make validate` call it.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from random import Random

from verbena.internet.prefixes import PrefixMap


def longest_prefixes(prefixes: int, addresses: int, random: Random) -> list[IPv4Address]:
    """Random prefixes, of which three of ten are removed again; the addresses that differ.

    Half of the addresses are near a prefix. AssertionError if the map does not hold what it should.
    """
    table: PrefixMap[int] = PrefixMap()
    kept: dict[tuple[int, int], int] = {}
    for number in range(prefixes):
        length = random.randrange(33)
        key = random.getrandbits(32) >> (32 - length) << (32 - length)
        table[IPv4Network((key, length))] = kept[key, length] = number
    for key, length in random.sample(list(kept), len(kept) * 3 // 10):
        del table[IPv4Network((key, length))], kept[key, length]
    assert len(table) == len(kept)
    assert {(int(one.network_address), one.prefixlen) for one in table} == set(kept)
    bases = [key for key, _ in kept]
    wrong = []
    for number in range(addresses):
        address = random.getrandbits(32)
        if number % 2:
            address = random.choice(bases) ^ random.getrandbits(6)
        masked = (
            (address >> (32 - length) << (32 - length), length) for length in range(32, -1, -1)
        )
        best = next((one for one in masked if one in kept), None)
        found = table.longest(IPv4Address(address))
        if found != (None if best is None else (IPv4Network(best), kept[best])):
            wrong.append(IPv4Address(address))
    return wrong
