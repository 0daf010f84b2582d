# SPDX-License-Identifier: Apache-2.0
"""What other programs write is read, and what cannot be read is named."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from verbena import fabrics
from verbena.fabrics import FabricError, dot, ibnetdiscover

# Printed by ibnetdiscover -f 44.0 over ibsim: the fat-tree of k=4.
PRINTED = (Path(__file__).parent / "data" / "ibnetdiscover.txt").read_text()


def test_what_ibnetdiscover_prints_is_read() -> None:
    made = ibnetdiscover.read(PRINTED, length_m=3)
    assert (len(made.hosts), len(made.switches)) == (16, 20)
    assert made.guid("e7") == 0x200007
    cable = made.cable("h14", 1)
    assert cable is made.cable("e7", 1)
    assert cable is not None
    assert (cable.rate.name, cable.delay_ps) == ("4xSDR", 15_000)
    tables = made.tables()
    assert tables.lid[tables.end_of("h14")] == 35
    assert tables.switch_lid[tables.number["e7"] - tables.host_count] == 12
    fabrics.route(made, "ftree").check()


def test_nodes_of_one_description_keep_their_identifiers() -> None:
    made = ibnetdiscover.read(PRINTED.replace('"h14"', '"h15"'))
    assert "H-000000000010001c" in made.hosts
    assert "h15" not in made.hosts


def test_the_names_of_ibsim_s_examples_are_read() -> None:
    text = """
Switch\t8 "left"
[1]\t"a"[1]
[3]\t"right"[5]

Switch 8 "right"
[1]\t"b"[2]
[5]\t"left"[3]

Hca\t2 "a"
[1]\t"left"[1]

Hca\t2 "b"
[2]\t"right"[1]
"""
    made = ibnetdiscover.read(text, rate="4xHDR")
    assert sorted(map(str, made.cables())) == ["a[1]-left[1]", "b[2]-right[1]", "left[3]-right[5]"]
    assert {cable.rate.name for cable in made.cables()} == {"4xHDR"}


def changed(old: str, new: str) -> str:
    assert old in PRINTED
    return PRINTED.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed('[3]\t"S-000000000020000e"[2]', '[3]\t"S-0000000000209999"[2]'), "not described"),
        (
            changed('[3]\t"S-000000000020000e"[2]', '[3]\t"S-000000000020000e"[3]'),
            r"line 10: S-0000000000200007\[3\] is cabled to S-000000000020000e\[3\], which is",
        ),
        (changed("[2]\t", "[1]\t"), "line 9: S-0000000000200007: port 1 is used twice"),
        ('[1] "x"[1]\n', "line 1: a port without a node"),
        (changed("devid", "nonsense"), "line 4: 'nonsense=0x0' is no line of ibnetdiscover"),
        ("", "a fabric without hosts"),
    ],
)
def test_what_ibnetdiscover_would_not_print(text: str, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        ibnetdiscover.read(text).check()


def test_ethernet_cannot_be_written_for_infiniband() -> None:
    with pytest.raises(FabricError, match=r"h0\[1\]-s0\[1\]: 100GbE is no InfiniBand rate"):
        ibnetdiscover.write(fabrics.one_switch(2, rate="100GbE"))


def test_forwarding_tables_of_opensm_are_read() -> None:
    made = ibnetdiscover.read(PRINTED)
    text = (
        "Unicast lids [0-36] of switch Lid 2 guid 0x0000000000200000 ('e0'):\n"
        "0x0001 001 # Channel Adapter portguid 0x0000000000100001: 'h0'\n"
        "0x0023 004 # Channel Adapter portguid 0x000000000010001d: 'h14'\n"
    )
    tables = made.tables()
    row = ibnetdiscover.read_lfts(made, text)[tables.number["e0"] - tables.host_count]
    assert (row[1], row[35], row[2]) == (1, 4, 255)
    with pytest.raises(FabricError, match="line 1: no switch with GUID 0x0000000000999999"):
        ibnetdiscover.read_lfts(made, text.replace("200000 (", "999999 ("))


def test_a_forwarding_table_s_port_is_one() -> None:
    made = fabrics.fat_tree(2)
    text = f"Unicast lids [0x0-0x1] of switch Lid 1 guid 0x{made.guid('e0'):016x} (e0):\n0x1 300"
    with pytest.raises(FabricError, match="line 2: LID 1 goes to port 300, which is none"):
        ibnetdiscover.read_lfts(made, text)


def test_a_plain_dot_graph_is_read() -> None:
    made = dot.read(
        'graph x { a -- s0; s0 -- s1 [rate="100GbE", delay_ns=250]; subgraph y { s1:7 -- "b c" } }'
    )
    assert made.hosts == ["a", "b c"]
    assert made.switches == ["s0", "s1"]
    inner = made.cable("s1", 1)
    assert inner is not None
    assert (inner.rate.name, inner.delay_ps) == ("100GbE", 250_000)
    assert str(made.cable("s1", 7)) == "s1[7]-b c[1]"


def test_what_is_set_for_all_in_dot_holds_for_what_follows() -> None:
    made = dot.read(
        """graph {
          node [kind=switch]; t; s [ports=9]; s [guid=7]
          node [kind=host]; edge [rate="10GbE", delay_ns=70]
          s -- a; s -- b [rate="40GbE"]
          subgraph rack { edge [rate="25GbE"]; node [kind=switch]; s -- u; c [kind=host]; c -- u }
          t -- {d s} [delay_ns=80]
        }"""
    )
    assert sorted(made.hosts) == ["a", "b", "c", "d"]
    assert sorted(made.switches) == ["s", "t", "u"]
    assert (made.graph.nodes["s"]["ports"], made.guid("s")) == (9, 7)
    wired = {str(c): (c.rate.name, c.delay_ps // 1000) for c in made.cables()}
    assert wired == {
        "s[1]-a[1]": ("10GbE", 70),
        "s[2]-b[1]": ("40GbE", 70),
        "s[3]-u[1]": ("25GbE", 70),
        "c[1]-u[2]": ("25GbE", 70),
        "t[1]-d[1]": ("10GbE", 80),
        "t[2]-s[4]": ("10GbE", 80),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph { a -- ; ]", "no DOT graph: Expected"),
        ("", "no DOT graph"),
        ("graph { a [kind=router]; a -- b }", "a: 'router' is neither host nor switch"),
        ("graph { a -- s; b -- s [rate=none]; }", "b to s: 'none' is no rate"),
        ("graph { a -- s; b -- s [delay_ns=soon]; }", "b to s: 'soon' is no number"),
        ("graph { a -- s:2; b -- s:2 }", "s: port 2 is used twice"),
        ("graph { s [guid=x]; a -- s; b -- s }", "s: 'x' is no whole number"),
        ('graph { s [guid="-5"]; a -- s; b -- s }', "s: -0x5 is no GUID"),
        ("graph { s [ports=inf]; a -- s; b -- s }", "s: 'inf' is no whole number"),
        ('graph { s [pos="1"]; a -- s; b -- s }', "s: '1' is no place"),
        ("graph a { a -- b } graph b { a -- b }", "there are 2 graphs"),
    ],
)
def test_what_is_no_fabric_in_dot(text: str, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        dot.read(text)


def test_a_picture_has_every_node_and_cable() -> None:
    made = fabrics.fat_tree(4)
    picture = fabrics.svg(made)
    assert picture.count('class="cable"') == 48
    assert picture.count('class="host"') == 16
    assert picture.count('class="switch"') == 20
    assert picture == fabrics.svg(fabrics.fat_tree(4))


def test_heat_colours_the_cables() -> None:
    made = fabrics.one_switch(2)
    picture = fabrics.svg(made, heat=[0, 1, 0, 0])
    assert picture.count("#b42318") == 1
    assert picture.count("#d0d7de; stroke-width: 2.5") == 1
    with pytest.raises(FabricError, match="heat of shape"):
        fabrics.svg(made, heat=[1])


def test_a_fabric_without_places_is_laid_out_the_same_each_time() -> None:
    text = "graph { a -- s; b -- s; s -- t; c -- t }"
    assert fabrics.positions(dot.read(text)) == fabrics.positions(dot.read(text))


def test_a_large_fabric_without_places_is_laid_out_in_rows() -> None:
    made = dot.read(
        "graph {" + "".join(f"h{n} -- s{n % 9}; s{n % 9} -- top;" for n in range(520)) + "}"
    )
    place = fabrics.positions(made)
    assert len(set(place.values())) == len(made.graph) == 530
    assert [place[name][1] for name in ("h7", "s3", "top")] == [0, 1, 2]


def test_no_node_hides_another() -> None:
    """A circle's place and radius, a square's upper left corner and width."""
    for made in (fabrics.dragonfly(1, 4, 1), fabrics.fat_tree(4), fabrics.torus((4, 6))):
        drawn = fabrics.svg(made, width=420, height=250)
        hosts = re.findall(r'<circle cx="(\S+)" cy="(\S+)" r="(\S+)"', drawn)
        switches = re.findall(r'<rect x="(\S+)" y="(\S+)" width="(\S+)".* class="switch"', drawn)
        assert len(hosts) + len(switches) == len(made.graph)
        for x, y, radius in (map(float, host) for host in hosts):
            for left, top, wide in (map(float, switch) for switch in switches):
                near = min(max(x, left), left + wide), min(max(y, top), top + wide)
                assert math.dist((x, y), near) >= radius - 0.2, made.name


def test_matplotlib_draws_too() -> None:
    matplotlib = pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed; pip install '.[sim]' brings it"
    )
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    fabrics.draw(fabrics.one_switch(3), axes, heat=[0.5] * 6)
    assert len(axes.patches) == 3  # a cable may be bent
