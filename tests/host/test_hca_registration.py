# SPDX-License-Identifier: Apache-2.0
"""Ranges that the RDMA adapter's driver does not register, and what it says of them."""

from __future__ import annotations

import pytest

from verbena.host import HostError, Ram
from verbena.host.hca import Node, connected
from verbena.host.hca.pages import DemandPages, ResidentPages

AWAY, SIZE = 0x7000_0000, 65536


def node() -> Node:
    """With memory of SIZE bytes at AWAY, too."""
    left, _ = connected()
    left.computer.map(Ram(SIZE), AWAY)
    return left


def test_a_region_without_memory_is_refused_unless_it_is_on_demand() -> None:
    left = node()
    says = "no memory for 4096 bytes at 0x60000000 of the region at 0x60000000, .*0x60000000 of"
    with pytest.raises(HostError, match=says):
        left.register(0x6000_0000, 8192)
    with pytest.raises(HostError, match="no memory for 4096 bytes at 0x70010000 of the region"):
        left.register(AWAY, SIZE + 1 + 4095)
    with pytest.raises(HostError, match=r"at 0x5000 of the region .*0x60005000 of the computer"):
        left.register(0x5000, 64, pages=ResidentPages(0x6000_0000))
    left.register(AWAY + SIZE - 100, 100)
    left.register(0x6000_0000, 8192, pages=DemandPages(left.computer, AWAY, 4), on_demand=True)


def test_what_is_wrong_with_an_address_or_a_length_is_said() -> None:
    left = node()
    with pytest.raises(HostError, match="the address of a region is 0 or more, not -4096"):
        left.register(-4096, 4096)
    with pytest.raises(HostError, match="at least one byte, not 0 at 0x1000"):
        left.register(4096, 0)
