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
    with simulated(made, engine, folder):
        found = ibnetdiscover.read((folder / "discovered.txt").read_text())
        log = (folder / "opensm.log").read_text()
        assert "cannot build fwd tables" not in log, log
        dump = (folder / "opensm-lfts.dump").read_text()
    lft = ibnetdiscover.read_lfts(found, dump)
    return Routes.from_lft(found, lft), fabrics.route(found, engine)


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
