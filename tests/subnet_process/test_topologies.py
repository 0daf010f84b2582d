# SPDX-License-Identifier: Apache-2.0
"""The topologies of command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from verbena import fabrics
from verbena.fabrics import FabricError, ibnetdiscover
from verbena.subnet_process import topologies
from verbena.subnet_process.topologies import BUILDERS, fabric_of


@pytest.mark.parametrize(
    ("text", "hosts", "switches"),
    [
        ("pair", 2, 0),
        ("one_switch:8", 8, 1),
        ("clos2:8", 32, 12),
        ("clos2:36,leaves=18", 324, 36),
        ("fattree:4", 16, 20),
        ("fat-tree:k=4", 16, 20),
        ("torus:4x4,hosts=2", 32, 16),
        ("torus:4x4,2,wrap=no", 32, 16),
        ("xgft:4x4,1x2", 16, 6),
        ("dragonfly:2,4,2", 72, 36),
        ("chain:3,2", 6, 3),
    ],
)
def test_names_with_sizes(text: str, hosts: int, switches: int) -> None:
    made = fabric_of(text)
    assert (len(made.hosts), len(made.switches)) == (hosts, switches)


def test_a_rate_is_a_cable_s() -> None:
    assert {cable.rate.name for cable in fabric_of("pair:rate=4xHDR").cables()} == {"4xHDR"}


@pytest.mark.parametrize("write", [ibnetdiscover.write, fabrics.dot.write])
def test_files(write: object, tmp_path: Path) -> None:
    path = tmp_path / ("a.net" if write is ibnetdiscover.write else "a.dot")
    path.write_text(write(fabrics.clos2(4)))  # type: ignore[operator]
    assert len(fabric_of(str(path)).hosts) == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clos:8", "is clos3:… meant"),
        ("nowhere.net", "is no file"),
        ("clos2:x", "clos2: radix=x is not a number"),
        ("clos2:8,depth=3", "clos2 has no depth, but radix"),
        ("clos2", "clos2 needs its sizes"),
        ("pair:4", "pair has 0 sizes"),
        ("torus:4xa", "is not a number, nor some as 4x4"),
    ],
)
def test_mistakes_say_what_to_do(text: str, words: str) -> None:
    with pytest.raises(FabricError, match=words):
        fabric_of(text)


def test_a_topology_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topologies, "MOST_NODES", 10)
    with pytest.raises(FabricError, match="clos2:4 has 14 nodes: the most is 10"):
        fabric_of("clos2:4")


def test_every_builder_is_there() -> None:
    assert all(callable(build) for build in BUILDERS.values())
