# SPDX-License-Identifier: Apache-2.0
"""What links are called: each name that is printed is understood, and means the same link."""

from __future__ import annotations

import pytest

from verbena import fabrics
from verbena.fabrics import Fabric
from verbena.fabrics.links import LinkNames


def doubled() -> Fabric:
    """Two cables between two switches, and hosts whose names have hyphens."""
    made = Fabric("doubled")
    for name in ("a", "a-b"):
        made.add_host(name)
    for name in ("s", "b-s"):
        made.add_switch(name, ports=4)
    made.connect("a", "b-s")
    made.connect("a-b", "s")
    made.connect("s", "b-s")
    made.connect("s", "b-s")
    return made


@pytest.mark.parametrize("fabric", [fabrics.ring(4), fabrics.clos2(4, parallel=2), doubled()])
def test_a_printed_name_is_found_again(fabric: Fabric) -> None:
    names = LinkNames.of(fabric)
    for link in range(2 * fabric.graph.number_of_edges()):
        assert names.find(names.name(link)) == link
        assert fabric.tables().link_name(link) == names.name(link)


def test_ports_are_named_only_where_they_are_needed() -> None:
    names = LinkNames.of(doubled())
    printed = [names.name(link) for link in range(8)]
    assert printed[4:] == ["s[2]-b-s[2]", "b-s[2]-s[2]", "s[3]-b-s[3]", "b-s[3]-s[3]"]
    assert printed[:2] == ["a[1]-b-s[1]", "b-s-a"]  # "a-b-s" may be "a-b" to "s"
    assert LinkNames.of(fabrics.pair()).name(0) == "h0-h1"


def test_a_name_of_several_links_or_none_is_refused() -> None:
    names = LinkNames.of(doubled())
    with pytest.raises(ValueError, match=r"there are 2 of them: s\[2\]-b-s\[2\], s\[3\]-b-s\[3\]"):
        names.find("s-b-s")
    with pytest.raises(ValueError, match=r"there are 2 of them: a\[1\]-b-s\[1\], a-b\[1\]-s\[1\]"):
        names.find("a-b-s")
    with pytest.raises(ValueError, match=r"\(is 'h1-s0' meant\?\): there are h0-s0, h1-s0"):
        LinkNames.of(fabrics.one_switch(2)).find("h1-so")
    with pytest.raises(ValueError, match="no such link: there are"):
        names.find(3)
