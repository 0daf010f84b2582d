# SPDX-License-Identifier: Apache-2.0
"""A fabric is checked as it is built, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError


def small() -> Fabric:
    made = Fabric("small")
    made.add_switch("s0", ports=3)
    for name in ("h0", "h1"):
        made.connect(made.add_host(name), "s0", rate="4xFDR", length_m=20)
    return made


def port_twice(made: Fabric) -> None:
    made.connect(made.add_host("h2"), "s0", b_port=2)


def no_port_left(made: Fabric) -> None:
    made.connect(made.add_host("h2"), "s0")
    made.connect(made.add_host("h3"), "s0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (port_twice, r"s0: port 2 is used twice, by h1\[1\]-s0\[2\] and h2"),
        (no_port_left, "s0: no free port for h3, all 3 are in use"),
        (lambda f: f.connect("h0", "s0"), "h0: no free port for s0"),
        (lambda f: f.connect("s0", "s0"), "s0: a cable from a node to itself"),
        (lambda f: f.connect("s0", "x"), "x: no such node, for the cable to s0"),
        (lambda f: f.connect(f.add_host("h2"), "s0", b_port=9), "s0: no port 9 for h2"),
        (lambda f: f.connect(f.add_host("h2"), "s0", rate="0 Gb/s"), "h2 to s0: a rate of 0Gb/s"),
        (lambda f: f.connect(f.add_host("h2"), "s0", delay_ns=-1), "h2 to s0: a delay of -1 ns"),
        (lambda f: f.connect(f.add_host("h2"), "s0", delay_ns=float("nan")), "h2 to s0: a delay"),
        (lambda f: f.connect(f.add_host("h2"), "s0", delay_ns=1, length_m=1), "not both"),
        (lambda f: f.add_host("h0"), "h0: there is a node of this name"),
        (lambda f: f.add_switch("s1", ports=0), "s1: 0 ports"),
        (lambda f: f.add_host("h2", guid=f.guid("s0")), "h2: GUID 0x20000000 is that of s0"),
    ],
)
def test_a_wrong_step_is_refused(change: Callable[[Fabric], object], message: str) -> None:
    made = small()
    with pytest.raises(FabricError, match=message):
        change(made)


def island(made: Fabric) -> None:
    made.add_switch("s9", ports=2)
    made.connect(made.add_host("h9"), "s9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.add_host("h7"), "h7: a host without a link"),
        (lambda f: f.add_switch("s7", ports=1), "s7: a switch without a link"),
        (island, "small is not connected: no way from h0 to h9"),
    ],
)
def test_an_unusable_fabric_is_refused(change: Callable[[Fabric], object], message: str) -> None:
    made = small()
    change(made)
    with pytest.raises(FabricError, match=message):
        made.tables()


def test_a_fabric_without_hosts_is_refused() -> None:
    with pytest.raises(FabricError, match="empty: a fabric without hosts"):
        Fabric("empty").check()


def test_tables_have_both_directions_of_a_cable() -> None:
    tables = small().tables()
    assert tables.names == ("h0", "h1", "s0")
    columns = ["src", "src_port", "dst", "dst_port", "rate", "ps_num", "ps_den", "delay_ps"]
    assert tables.links[columns].tolist() == [
        (0, 1, 2, 1, 54_545_454_545, 440, 3, 100_000),
        (2, 1, 0, 1, 54_545_454_545, 440, 3, 100_000),
        (1, 1, 2, 2, 54_545_454_545, 440, 3, 100_000),
        (2, 2, 1, 1, 54_545_454_545, 440, 3, 100_000),
    ]
    assert tables.out_link.tolist() == [[-1, 1, 3, -1]]
    assert tables.lid.tolist() == [1, 2]
    assert tables.link_name(3) == "s0-h1"


def test_tables_follow_a_change() -> None:
    made = small()
    assert made.tables().end_count == 2
    made.connect(made.add_host("h2"), "s0")
    assert made.tables().end_count == 3


def test_a_cable_is_taken_away() -> None:
    made = small()
    made.connect("s0", made.add_switch("s1", ports=2))
    made.connect("s1", made.add_host("h2"))
    first = made.disconnect("s0", 1)
    assert str(first) == "h0[1]-s0[1]"
    assert made.cable("h0", 1) is None
    with pytest.raises(FabricError, match="h0: a host without a link"):
        made.tables()
    with pytest.raises(FabricError, match="s0: no cable at port 1"):
        made.disconnect("s0", 1)
    assert str(made.connect("h0", "s0")) == str(first)
    assert made.tables().end_count == 3


def test_of_parallel_cables_the_named_one_is_taken() -> None:
    made = fabrics.clos2(8, parallel=4, leaves=2)
    gone = made.disconnect("e0", 6)
    left = [cable for cable in made.cables() if {cable.a, cable.b} == {"e0", gone.b}]
    assert [cable.a_port for cable in left] == [5, 7, 8]
    fabrics.route(made, "ftree").check()


def test_a_host_with_two_ports_has_two_lids() -> None:
    made = small()
    made.add_switch("s1", ports=2)
    made.connect("s0", "s1")
    made.add_host("dual", ports=2)
    made.add_switch("s2", ports=3)
    made.connect("s1", "s2")
    made.connect("dual", "s2")
    made.connect("dual", "s2")
    tables = made.tables()
    assert tables.end_node.tolist() == [0, 1, 2, 2]
    assert tables.first_end.tolist() == [0, 1, 2]
    routes = fabrics.route(made)
    routes.check()
    assert len(np.unique(routes.lft[2, tables.lid[2:]])) == 2


@pytest.mark.parametrize(
    ("lids", "message"),
    [({1: 4}, "LID 4 is used twice, by h2 and h3"), ({}, "h3: a host without a LID")],
)
def test_lids_that_were_brought_along_are_checked(lids: dict[int, int], message: str) -> None:
    made = Fabric()
    made.add_switch("s0", ports=4, lid=9)
    made.connect(made.add_host("h2", lids={1: 4}), "s0")
    made.connect(made.add_host("h3", lids=lids), "s0")
    with pytest.raises(FabricError, match=message):
        made.tables()
