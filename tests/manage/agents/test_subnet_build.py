# SPDX-License-Identifier: Apache-2.0
"""Subnets of topologies: LIDs that are kept, rates, and nodes of other kinds."""

from __future__ import annotations

import pytest

from tests.manage.agents.managing import explore, get
from verbena import fabrics
from verbena.manage.agents import ROUTER, Subnet, link_rate, subnet_of_fabric, subnet_of_text
from verbena.manage.agents.subnet_build import infiniband_rate
from verbena.manage.codes import NodeType
from verbena.manage.smp_attributes import NodeInfo


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("4xHDR", "4xHDR"),
        ("12xQDR", "12xQDR"),
        ("4xFDR10", "4xFDR10"),
        ("100GbE", "4xEDR"),
        ("400GbE", "4xNDR"),
        ("25GbE", "4xDDR"),
        ("1GbE", "1xSDR"),
        ("37 Gb/s", "4xDDR"),
    ],
)
def test_rates(text: str, rate: str) -> None:
    assert infiniband_rate(fabrics.rate(text)) == link_rate(rate)


def test_lids_are_kept_if_that_is_wanted() -> None:
    fabric = fabrics.one_switch(3, rate="4xEDR")
    text = fabrics.ibnetdiscover.write(fabric)
    for keep in (False, True):
        subnet = subnet_of_text(text, keep_lids=keep)
        lids = sorted(port.lid for node in subnet.nodes.values() for port in node.end_ports())
        assert lids == ([1, 2, 3, 4] if keep else [0, 0, 0, 0])


def test_a_subnet_is_what_ibnetdiscover_would_print() -> None:
    fabric = fabrics.xgft([2, 3], [1, 2], rate="4xNDR")
    again = subnet_of_text(fabrics.ibnetdiscover.write(fabric))
    first = subnet_of_fabric(fabric)
    host = fabric.hosts[0]
    found = [explore(subnet, host) for subnet in (first, again)]
    assert found[0] == found[1]


def test_a_router() -> None:
    subnet = Subnet()
    subnet.add_adapter("h")
    subnet.add_adapter("r", ports=2, profile=ROUTER)
    subnet.connect("h", 1, "r", 2)
    info = get(subnet, "h", NodeInfo, (1,))
    assert (info.node_type, info.local_port_num) == (NodeType.ROUTER, 2)
    assert info.port_guid == info.node_guid + 2
