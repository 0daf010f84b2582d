# SPDX-License-Identifier: Apache-2.0
"""Files of others: partitions, node names and LIDs; and what a subnet manager makes of them."""

from __future__ import annotations

import pytest

from tests.manage.sm.managed import ManagedSubnet, problems_of
from verbena import fabrics
from verbena.manage.errors import MadError
from verbena.manage.sm import (
    Membership,
    Partition,
    Partitions,
    SmSettings,
    discovered_fabric,
    read_guid_to_lid,
    read_node_names,
    read_partitions,
    write_guid_to_lid,
    write_node_names,
)
from verbena.manage.sm.partitions import common_p_key

FULL, LIMITED, BOTH = Membership.FULL, Membership.LIMITED, Membership.BOTH


def test_partitions_of_a_file() -> None:
    text = """
    # comment
    Default=0x7fff, ipoib, mtu=5 : ALL=limited, SELF=full, ALL_SWITCHES=full ;
    storage = 0x8011, defmember=full : 0x10, 0x11=limited,
        0x12=both ;  other=0x12,rate=7,sl=3:0x10;
    """
    default, storage, other = read_partitions(text).partitions
    assert default == Partition(
        "Default", 0x7FFF, everybody=LIMITED, sm=FULL, switches=FULL, ipoib=True, mtu=5
    )
    assert storage.p_key == 0x11
    assert storage.members == {0x10: FULL, 0x11: LIMITED, 0x12: BOTH}
    assert (other.members, other.rate, other.sl) == ({0x10: LIMITED}, 7, 3)
    made = read_partitions(text)
    assert made.p_keys_of(0x12) == [0x7FFF, 0x8011, 0x11]
    assert made.p_keys_of(0x10) == [0x7FFF, 0x8011, 0x12]
    assert made.p_keys_of(0x99, is_switch=True) == [0xFFFF]
    assert made.p_keys_of(0x99, is_sm=True) == [0xFFFF]
    assert made.named(0x8012) == other


def test_a_file_without_the_default_partition_gets_it() -> None:
    (default, _) = read_partitions("a=0x1:0x10=full;").partitions
    assert (default.p_key, default.everybody, default.sm) == (0x7FFF, LIMITED, FULL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=0x1 0x10;", "is not 'Name = key, flags : members'"),
        ("a:0x10;", "partition a has no P_Key"),
        ("a=0x1:host;", "'host' is not a number"),
        ("a=0x1:0x10=half;", "'half' is not full, limited or both"),
        ("a=0x1,fast:0x10;", "the flag 'fast' is not known"),
        ("a=0x1:0x10; b=0x8001:0x11;", "two partitions have the P_Key 0x1"),
        ("a=0x0:0x10;", "0x0 is no P_Key"),
        ("a=0x99999:0x10;", "0x99999 is no P_Key of 16 bits"),
        ("# two\na=0x1:ALL;\n\nb=0x2\n:host;", "line 4: partition b: 'host' is not a number"),
        ("a=0x1:ALL\nnonsense 1 2", "line 1: partition a: 'ALL.nnonsense 1 2' is not a number"),
    ],
)
def test_wrong_partitions(text: str, message: str) -> None:
    with pytest.raises(MadError, match=message.replace("(", r"\(")):
        read_partitions(text)


def test_common_p_keys() -> None:
    assert common_p_key([0xFFFF], [0x7FFF]) == 0xFFFF
    assert common_p_key([0x7FFF], [0xFFFF]) == 0x7FFF
    assert common_p_key([0x7FFF], [0x7FFF]) is None
    assert common_p_key([0x7FFF, 0x8001], [0x7FFF, 0x0001]) == 0x8001
    assert common_p_key([], [0xFFFF]) is None


def test_node_names() -> None:
    text = '# map\n0x0000000000100000 "first host"\n\n  0x20000000\t"switch \'a\'" # old\n'
    names = read_node_names(text)
    assert names == {0x100000: "first host", 0x20000000: "switch 'a'"}
    assert read_node_names(write_node_names(names)) == names
    assert write_node_names({16: "x"}) == '0x0000000000000010 "x"\n'
    with pytest.raises(MadError, match="line 1: '0x10 name' is not 0xGUID \"name\""):
        read_node_names("0x10 name")
    with pytest.raises(MadError, match="has a quote"):
        write_node_names({1: 'a"b'})


def test_names_of_a_map_are_those_of_the_fabric() -> None:
    fabric = fabrics.one_switch(3)
    managed = ManagedSubnet(fabric)
    managed.add("h0", node_names={fabric.guid("h1"): "h2"})
    managed.run()
    found = discovered_fabric(managed.masters[0].subnet, {})
    assert sorted(found.hosts) == ["h0", "h2", f"h2 {fabric.guid('h2'):016x}"]
    assert found.switches == ["s0"]
    assert found.guid("h2") == fabric.guid("h1")
    assert [str(cable.rate) for cable in found.cables()] == ["4xEDR"] * 3


def test_lids_of_a_file_are_kept() -> None:
    known = {0x10: 5, 0x20: 0x100}
    text = write_guid_to_lid(known)
    assert text.startswith("0x0000000000000010 0x0005 0x0005\n")
    assert read_guid_to_lid(text) == known
    for wrong, message in (("0x1 0x2", "is not a GUID and two LIDs"), ("1 c000 c000", "unicast")):
        with pytest.raises(MadError, match=message):
            read_guid_to_lid(wrong)
    fabric = fabrics.one_switch(3)
    managed = ManagedSubnet(fabric)
    away, h1 = 0xABC, managed.port_guid("h1")
    manager = managed.add("h0", guid_to_lid={h1: 77, away: 1})
    managed.run()
    assert managed.subnet.node("h1").ports[1].lid == 77
    assert manager.lid == 2  # LID 1 is reserved for the port that is away
    assert manager.known_lids[away] == 1
    assert problems_of(managed) == []


def test_a_range_of_lids_begins_with_its_multiple() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    managed.add("h0", lmc=2, guid_to_lid={managed.port_guid("h1"): 6})
    managed.run()
    assert problems_of(managed) == []
    lids = [managed.subnet.node(name).ports[1].lid for name in ("h0", "h1", "h2")]
    assert lids == [4, 8, 12]


def test_too_few_lids_are_a_problem() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    manager = managed.add("h0", first_lid=10, last_lid=12)
    managed.run()
    assert any("all LIDs from 10 to 12 are in use" in each for each in manager.problems)


def test_the_lids_of_ports_that_are_away_are_the_last_reserve() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    manager = managed.add("h0", first_lid=1, last_lid=4, guid_to_lid={0xABC: 1, 0xABD: 2})
    managed.run()
    assert problems_of(managed) == []
    assert set(manager.known_lids.values()) == {1, 2, 3, 4}
    assert 0xABC not in manager.known_lids


@pytest.mark.parametrize(
    "values",
    [
        {"priority": 16},
        {"lmc": 8},
        {"first_lid": 0},
        {"last_lid": 0xC000},
        {"first_lid": 9, "last_lid": 8},
        {"most_smps": 0},
        {"timeout": 0},
    ],
)
def test_wrong_settings(values: dict[str, int]) -> None:
    with pytest.raises(MadError):
        SmSettings(**values)  # type: ignore[arg-type]


def test_an_engine_that_cannot_route_the_subnet_is_replaced() -> None:
    for engine, note in (
        ("ftree", "stays on one level; the routes are those of minhop"),
        ("ugal", "is in no group; the routes are those of minhop"),
        ("ecmp", "needs more than a linear forwarding table"),
        ("magic", "no routing engine 'magic'"),
    ):
        managed = ManagedSubnet(fabrics.ring(4))
        manager = managed.add("h0", engine=engine)
        managed.run()
        assert problems_of(managed) == []
        assert any(note in each for each in manager.problems), manager.problems


def test_partitions_of_a_subnet_change() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    manager = managed.add("h0")
    managed.run()
    table = managed.subnet.node("h2").ports[1].p_keys
    assert table[:4].hex() == "ffff0000"
    members = {managed.port_guid("h2"): FULL}
    many = tuple(Partition(f"p{n}", n, members) for n in range(1, 40))
    managed.stop("h0")
    whole = Partition("Default", 0x7FFF, everybody=FULL)
    managed.add("h0", partitions=Partitions((whole, *many)))
    managed.run()
    keys = [int.from_bytes(table[at : at + 2], "big") for at in range(0, 80, 2)]
    assert sorted(keys) == sorted([0xFFFF, *(0x8000 | n for n in range(1, 40))])
    managed.stop("h0")
    managed.add("h0")
    managed.run()
    assert bytes(table) == b"\xff\xff" + bytes(len(table) - 2)
    del manager
