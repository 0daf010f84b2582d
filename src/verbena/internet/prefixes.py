# SPDX-License-Identifier: Apache-2.0
"""A map from prefixes of addresses to values, which finds the longest prefix of an address.

Routing tables are such maps. It is a binary trie without nodes of one child (a Patricia trie), so
that a lookup visits at most 33 nodes and a prefix costs at most two.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Generic, TypeVar

Value = TypeVar("Value")
BITS = 32


class _TrieNode(Generic[Value]):
    """``key`` has zeros behind its first ``length`` bits; without a network it only branches."""

    __slots__ = ("children", "key", "length", "network", "value")

    def __init__(self, key: int, length: int) -> None:
        self.key = key
        self.length = length
        self.network: IPv4Network | None = None
        self.value: Value | None = None
        self.children: list[_TrieNode[Value] | None] = [None, None]

    def side(self, key: int) -> int:
        """Below which child a longer key is."""
        return key >> (BITS - 1 - self.length) & 1

    def covers(self, key: int) -> bool:
        return (key ^ self.key) >> (BITS - self.length) == 0


class PrefixMap(Generic[Value]):
    """``map[network] = value``, ``del map[network]``, ``longest(address)``."""

    def __init__(self) -> None:
        self._root: _TrieNode[Value] = _TrieNode(0, 0)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __setitem__(self, network: IPv4Network, value: Value) -> None:
        key, length = int(network.network_address), network.prefixlen
        node = self._root
        while node.length != length:
            node = self._step(node, key, length)
        self._size += node.network is None
        node.network, node.value = network, value

    def __delitem__(self, network: IPv4Network) -> None:
        """Raises KeyError."""
        key, length = int(network.network_address), network.prefixlen
        path = [self._root]
        while path[-1].length < length:
            child = path[-1].children[path[-1].side(key)]
            if child is None or child.length > length or not child.covers(key):
                raise KeyError(network)
            path.append(child)
        if path[-1].network is None:
            raise KeyError(network)
        path[-1].network = path[-1].value = None
        self._size -= 1
        while len(path) > 1 and path[-1].network is None:
            self._prune(path[-2], path.pop())

    def longest(self, address: IPv4Address) -> tuple[IPv4Network, Value] | None:
        """The longest prefix that has the address, and its value."""
        key = int(address)
        node: _TrieNode[Value] | None = self._root
        best: _TrieNode[Value] | None = None
        while node is not None and node.covers(key):
            if node.network is not None:
                best = node
            node = node.children[node.side(key)] if node.length < BITS else None
        if best is None:
            return None
        return best.network, best.value  # type: ignore[return-value]

    def __iter__(self) -> Iterator[IPv4Network]:
        """In order of addresses, shorter prefixes first."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.network is not None:
                yield node.network
            stack += [child for child in reversed(node.children) if child is not None]

    def _step(self, node: _TrieNode[Value], key: int, length: int) -> _TrieNode[Value]:
        """The next node on the way to a longer key; made if there is none."""
        side = node.side(key)
        child = node.children[side]
        if child is None:
            child = node.children[side] = _TrieNode(key, length)
            return child
        common = min(length, child.length, BITS - (key ^ child.key).bit_length())
        if common == child.length:
            return child
        between: _TrieNode[Value] = _TrieNode(key >> (BITS - common) << (BITS - common), common)
        between.children[between.side(child.key)] = child
        node.children[side] = between
        return between

    @staticmethod
    def _prune(parent: _TrieNode[Value], node: _TrieNode[Value]) -> None:
        """Replace a node without value by its only child, or remove it; keep one that branches."""
        left, right = node.children
        if left is None or right is None:
            parent.children[parent.side(node.key)] = left or right
