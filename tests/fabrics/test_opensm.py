# SPDX-License-Identifier: Apache-2.0
"""Debian's OpenSM over ibsim routes the same fabrics: what it makes of them is compared."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.fabrics import opensm_tools
from verbena import fabrics
from verbena.fabrics import Fabric, Routes, ibnetdiscover

pytestmark = pytest.mark.debian

# ibsim listens on abstract sockets of one name: each run has a network namespace of its own.
SCRIPT = """
ibsim -s -n -N 4096 -S 1024 -P 32768 fabric.net > ibsim.log 2>&1 &
simulator=$!
trap 'kill $simulator' EXIT
export LD_PRELOAD=$UMAD2SIM OSM_CACHE_DIR=$PWD OSM_TMP_DIR=$PWD SIM_HOST={host}
for _ in $(seq 100); do
    ibnetdiscover > discovered.txt 2> discover.log && break
    sleep 0.1
done
opensm -o -e -R {engine} -f opensm.log -D 0x43 --dump_files_dir $PWD > opensm.out 2>&1
ibnetdiscover -f > discovered.txt 2> discover.log
"""


@contextmanager
def simulated(made: Fabric, engine: str, folder: Path) -> Iterator[None]:
    (folder / "fabric.net").write_text(ibnetdiscover.write(made))
    host = f"H-{made.guid(made.hosts[0]):016x}"
    script = SCRIPT.format(engine=engine, host=host)
    tools = opensm_tools.environment()
    if isinstance(tools, str):
        pytest.skip(tools)
    process = subprocess.Popen(
        ["unshare", "--net", "bash", "-c", script], cwd=folder, env=os.environ | tools
    )
    try:
        process.wait(timeout=90)
        yield
    finally:
        process.kill()
        process.wait()


def opensm(made: Fabric, engine: str, folder: Path) -> tuple[Routes, Routes]:
    """OpenSM's routes, and ours of the fabric as it was discovered, with OpenSM's LIDs."""
    theirs, log = opensm_alone(made, engine, folder)
    assert "cannot build fwd tables" not in log, log
    return theirs, fabrics.route(theirs.fabric, engine)


def opensm_alone(made: Fabric, engine: str, folder: Path) -> tuple[Routes, str]:
    """OpenSM's routes of the fabric as it was discovered, and its log."""
    with simulated(made, engine, folder):
        found = ibnetdiscover.read((folder / "discovered.txt").read_text())
        log = (folder / "opensm.log").read_text()
        dump = (folder / "opensm-lfts.dump").read_text()
    return Routes.from_lft(found, ibnetdiscover.read_lfts(found, dump)), log


def in_order(routes: Routes) -> np.ndarray:
    """End ports by the host's number: OpenSM's hosts are discovered in any order."""
    names = routes.tables.names[: routes.tables.host_count]
    return np.array(sorted(range(len(names)), key=lambda n: int(names[n][1:])))


@pytest.mark.parametrize("engine", ["minhop", "updn"])
def test_the_tables_of_a_fat_tree_are_opensm_s(engine: str, tmp_path: Path) -> None:
    theirs, ours = opensm(fabrics.fat_tree(8), engine, tmp_path)
    assert (theirs.out == ours.out).all()


def test_the_tables_of_a_torus_are_opensm_s(tmp_path: Path) -> None:
    theirs, ours = opensm(fabrics.torus((4, 5), 2), "minhop", tmp_path)
    assert (theirs.out == ours.out).all()


def irregular() -> Fabric:
    """Twelve switches, a tree of them and ten cables more, by chance."""
    made, draw = Fabric("irregular"), np.random.default_rng(3)
    for switch in range(12):
        made.add_switch(f"s{switch}", ports=36)
    for switch in range(1, 12):
        made.connect(f"s{switch}", f"s{draw.integers(switch)}")
    for _ in range(10):
        a, b = draw.choice(12, 2, replace=False)
        made.connect(f"s{a}", f"s{b}")
    for host in range(24):
        made.connect(made.add_host(f"h{host}"), f"s{host % 12}")
    return made


def damaged() -> Fabric:
    """XGFT(3; 4,3,3; 1,2,3) without seven of its cables between switches."""
    made, switches = fabrics.xgft((4, 3, 3), (1, 2, 3)), set[str]()
    switches.update(made.switches)
    cables = [cable for cable in made.cables() if {cable.a, cable.b} <= switches]
    for place in np.random.default_rng(5).choice(len(cables), 7, replace=False):
        made.disconnect(cables[place].a, cables[place].a_port)
    return made


def many_leaves() -> Fabric:
    """Of so many leaves each is about equally far from all hosts, as the spines are."""
    made = Fabric("30 leaves")
    for spine in range(2):
        made.add_switch(f"spine{spine}", ports=30)
    for leaf in range(30):
        made.add_switch(f"leaf{leaf}", ports=4)
        for spine in range(2):
            made.connect(f"leaf{leaf}", f"spine{spine}")
        for host in (2 * leaf, 2 * leaf + 1):
            made.connect(made.add_host(f"h{host}"), f"leaf{leaf}")
    return made


def without_a_common_root() -> Fabric:
    """Both spines have 97.5 % of the hosts at one distance, and two leaves share none of them."""
    made = Fabric("without a common root")
    for name in ("left", "middle", "right", "spine0", "spine1"):
        made.add_switch(name, ports=48)
    for leaf, spine in (("left", 0), ("middle", 0), ("middle", 1), ("right", 1)):
        made.connect(leaf, f"spine{spine}")
    for host in range(40):
        leaf = {0: "left", 1: "right"}.get(host, "middle")
        made.connect(made.add_host(f"h{host}"), leaf)
    return made


@pytest.mark.filterwarnings("ignore::verbena.fabrics.FabricWarning")
@pytest.mark.parametrize(
    "made",
    [fabrics.torus((5, 3)), irregular(), fabrics.dragonfly(2, 4, 2), damaged(), fabrics.ring(6),
     fabrics.xgft((4, 3, 3), (1, 2, 3)), fabrics.clos2(12), fabrics.dumbbell(3, 3),
     many_leaves(), without_a_common_root()],
    ids=lambda made: made.name,
)  # fmt: skip
def test_up_down_finds_the_roots_that_opensm_finds(made: Fabric, tmp_path: Path) -> None:
    """Or none, and then both are those of min-hop."""
    theirs, log = opensm_alone(made, "updn", tmp_path)
    ours = fabrics.route(theirs.fabric, "updn")
    assert (theirs.out == ours.out).all()
    if "no root nodes were found" in log:
        assert ours.engine == "minhop"


@pytest.mark.parametrize(
    "made",
    [fabrics.torus((4, 5), 2), fabrics.torus((3, 3, 3)), fabrics.torus((4, 4, 2)),
     fabrics.torus((4, 5), wrap=False), fabrics.torus((2, 2, 2)), fabrics.ring(7, 2)],
    ids=lambda made: made.name,
)  # fmt: skip
def test_dimension_order_of_a_torus_that_was_discovered_is_opensm_s(
    made: Fabric, tmp_path: Path
) -> None:
    """To the byte; only our lanes, which OpenSM's dor has not, take away the credit loops."""
    theirs, ours = opensm(made, "dor", tmp_path)
    assert (theirs.out == ours.out).all()
    ours.check()


def test_both_fat_tree_engines_shift_without_sharing(tmp_path: Path) -> None:
    theirs, ours = opensm(fabrics.fat_tree(8), "ftree", tmp_path)
    for routes in (theirs, ours):
        ends = in_order(routes)
        loads = [routes.max_link_load(ends, np.roll(ends, by)) for by in range(1, len(ends))]
        assert set(loads) == {1}
    bandwidth = [routes.effective_bisection(200).mean() for routes in (theirs, ours)]
    assert bandwidth[0] == pytest.approx(bandwidth[1], abs=0.02)


@pytest.mark.parametrize(
    "made", [fabrics.fat_tree(8), fabrics.torus((4, 4), 2)], ids=lambda made: made.name
)
def test_dfsssp_is_no_worse_than_opensm_s(made: Fabric, tmp_path: Path) -> None:
    theirs, ours = opensm(made, "dfsssp", tmp_path)
    assert ours.effective_bisection(100).mean() > theirs.effective_bisection(100).mean() - 0.02
