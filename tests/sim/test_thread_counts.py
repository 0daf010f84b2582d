# SPDX-License-Identifier: Apache-2.0
"""Worlds that 1, 2 or 3 threads run give the same to the bit: all ready scenarios in two variants,
by one thread and by two or three in turn, and a row of the validation. `make validate
VALIDATE="--threads 1 2 3"` compares all rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sim import random_world
from tests.sim.fabrics import CheckedWorld, star
from tests.validation import __main__ as validation
from tests.validation.rows import row
from tests.validation.watcher import watched
from verbena import fabrics
from verbena.sim import Scenario, ScenarioResult, build, ready, threads


def two_of(name: str) -> dict[str, None]:
    """The first variant and the last, which differ most."""
    variants = list(Scenario.load(name).variants)
    return dict.fromkeys(variants[:1] + variants[-1:])


VARIANTS = [(name, variant) for name in ready.names() for variant in two_of(name)]


def seen(scenario: Scenario, count: int, folder: Path) -> list[object]:
    """All that a run by so many threads gives, a capture of the first link included."""
    file = folder / f"{count}.pcapng"
    link = scenario.fabric.tables().link_name(0)
    result = scenario.run(captures={link: file}, capture_bytes=128)
    return [*given(result), file.read_bytes()]


def given(result: ScenarioResult) -> list[object]:
    arrays = [result.flows, result.links, result.times, result.queues]
    return [result.end, result.time, result.blocked, *(each.tobytes() for each in arrays)]


@pytest.mark.parametrize(
    ("name", "variant", "count"),
    [(*variant, 2 + number % 2) for number, variant in enumerate(VARIANTS)],
)
def test_a_scenario_is_the_same_by_any_number_of_threads(
    name: str, variant: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario.load(name).variant(variant)
    results = []
    for threads_in_use in (1, count):
        monkeypatch.setattr(threads, "usual_threads", lambda used=threads_in_use: used)
        results.append(seen(scenario, threads_in_use, tmp_path))
    assert results[0] == results[1]


@pytest.mark.parametrize("number", ["V22"])
def test_a_row_of_the_validation_is_the_same_by_any_number_of_threads(number: str) -> None:
    """Each row has several switches, so there are several threads."""
    equal, most = validation.watch(row(number), 1, (1, 2, 3))
    assert equal
    assert most > 1


def hash_of(size: int, count: int) -> str:
    with watched(count) as watcher:
        world = CheckedWorld(seed=1)
        star(world, 3)
        world.add_flows([0, 1], 2, size)
        world.run()
        return watcher.finish()


def test_a_hash_sees_what_differs() -> None:
    assert hash_of(100_000, 1) == hash_of(100_000, 2)
    assert hash_of(100_000, 1) != hash_of(100_001, 1)


def in_step(count: int) -> tuple[bytes, bytes]:
    """Packets of all hosts, whose cables are equal, meet at one instant in switches of many
    partitions, and some are dropped."""
    world = CheckedWorld(seed=1, threads=count, timeout=4)
    build(world, fabrics.route(fabrics.fat_tree(4, delay_ns=500), "ftree"), {"buffer": 32 << 10})
    hosts = np.arange(world.hosts)
    for far in (3, 6, 9):
        world.add_flows(hosts, (hosts + far) % world.hosts, 1 << 20)
    world.add_flows(hosts[1:], 0, 1 << 16)
    world.run(until=10**9)
    assert world.links()["dropped_full"].sum() > 100
    return world.flows().tobytes(), world.links().tobytes()


def test_hosts_in_step_are_the_same_by_any_number_of_threads() -> None:
    alone = in_step(1)
    assert all(in_step(count) == alone for count in (2, 3, 5, 8))


@pytest.mark.filterwarnings("ignore::verbena.fabrics.FabricWarning")
@pytest.mark.parametrize("seed", range(12))
def test_a_random_world_is_the_same_by_any_number_of_threads(seed: int) -> None:
    *one, _, end = random_world.run(seed)
    *other, _, other_end = random_world.run(seed, threads=2 + seed % 3)
    assert (one, end) == (other, other_end)
