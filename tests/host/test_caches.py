# SPDX-License-Identifier: Apache-2.0
"""Caches as costs: what a core is charged for copies and loads, by where DMA has put the lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verbena.host import (
    CacheCosts,
    Caches,
    Computer,
    Core,
    Device,
    HostError,
    Iommu,
    Pcie,
    Program,
    Ram,
)

SOURCE, TARGET, WINDOW, SIZE = 0x10000, 0x20000, 1 << 30, 4096
LINES = SIZE // 64
COSTS = CacheCosts(copy_cycles_per_byte=(0.125, 0.25, 0.5, 1.0))


def after_dma(ddio: bool, *, translated: bool = False) -> Core:
    """The core of a computer whose device has written SIZE bytes to SOURCE; TARGET is in L1."""
    computer = Computer(caches=Caches(COSTS, ddio=ddio))
    computer.map(Ram(1 << 18), 0)
    device = Device(4096)
    iommu = Iommu() if translated else None
    if iommu is not None:
        iommu.map(0x700000, SOURCE, SIZE)
    computer.map(device, WINDOW, pcie=Pcie(), iommu=iommu)
    core = computer.cores[0]
    core.charge("use of both buffers", 0, loads=SIZE, source=SOURCE)
    core.charge("use of both buffers", 0, loads=SIZE, source=TARGET)
    address = 0x700000 if translated else SOURCE
    computer.at(computer.now, lambda: device.dma_write(address, bytes(SIZE)))
    computer.run()
    return core


@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize(("ddio", "level", "each"), [(True, "l3", 0.5), (False, "memory", 1.0)])
def test_a_copy_of_what_dma_has_written(
    ddio: bool, level: str, each: float, translated: bool
) -> None:
    """With DDIO the bytes are in the last level, by their physical address, without in memory."""
    core = after_dma(ddio, translated=translated)
    before = core.state.cycles
    assert core.charge("read", 0, copies=SIZE, source=SOURCE, target=TARGET) == SIZE * each
    assert core.state.cycles - before == SIZE * each
    assert core.ledger.cycles[f"copy_{level}"] == SIZE * each
    assert core.ledger.copied_bytes == SIZE
    again = core.charge("read", 0, copies=SIZE, source=SOURCE, target=TARGET)
    assert again == SIZE * 0.125  # it is in the nearest level since the first


@pytest.mark.parametrize(("ddio", "each"), [(True, 50), (False, 250)])
def test_loads_of_what_dma_has_written(ddio: bool, each: int) -> None:
    core = after_dma(ddio)
    assert core.charge("checksum", 100, loads=SIZE, source=SOURCE) == 100 + LINES * each
    assert core.charge("checksum", 100, loads=SIZE, source=SOURCE) == 100 + LINES * 4
    name = "load_l3" if ddio else "load_memory"
    assert core.ledger.times[name] == LINES + (0 if ddio else 2 * LINES)  # both buffers were cold
    assert core.charge("header", 0, loads=1, source=SOURCE + 63) == 4
    assert core.charge("header", 0, loads=2, source=SOURCE + 63) == 8  # of two lines


@pytest.mark.parametrize(("source", "target"), [(63, 0), (0, 63), (20, 50)])
def test_a_copy_uses_all_lines_of_both_ends(source: int, target: int) -> None:
    """Where they begin in a line decides how many they touch, and all were in memory."""
    caches = Caches(COSTS)
    assert caches.copy(SOURCE + source, TARGET + target, 128) == 128
    for first in (SOURCE + source, TARGET + target):
        assert caches.level(first).name == caches.level(first + 127).name == "L1"


def test_loads_come_before_the_copy_that_they_warm() -> None:
    core = after_dma(ddio=True)
    seen: list[tuple[str, int]] = []
    core.observers.append(lambda name, start, end: seen.append((name, end - start)))
    both = {"loads": SIZE, "copies": SIZE, "source": SOURCE, "target": TARGET}
    whole = core.charge("read", 10, **both)  # type: ignore[arg-type]
    assert seen == [("read", 10), ("load", LINES * 50), ("copy", SIZE // 8)]
    assert whole == sum(cycles for _, cycles in seen)


def test_without_caches_a_copy_has_a_level_and_no_addresses() -> None:
    core = Computer().cores[0]
    assert core.charge("read", 0, copies=1000, source=SOURCE, target=TARGET) == 200
    assert core.charge("read", 0, copies=1000, level="memory") == 500
    cached = Computer(caches=Caches()).cores[0]
    assert cached.charge("read", 0, copies=1000, level="memory") == 500  # no address was given


def test_a_cost_of_the_caches_is_no_default_of_the_list() -> None:
    core = after_dma(ddio=True)
    core.charge("read", 0, copies=SIZE, source=SOURCE, target=TARGET)
    lines = {line.split()[0]: line for line in str(core.ledger).splitlines()}
    assert "set by the caller" in lines["copy_l3"]
    assert "order of magnitude" in lines["load_memory"]


def test_instructions_take_the_same_time_with_caches() -> None:
    """A thousand loads, and a string move: the interpreter charges neither."""
    text = f"""
        mov rsi, {SOURCE}
        mov rcx, 1000
    next: mov rax, [rsi]
        add rsi, 64
        dec rcx
        jnz next
        mov rsi, {SOURCE}
        mov rdi, {TARGET}
        mov rcx, 512
        rep movsq
        hlt
    """
    cycles = []
    for caches in (None, Caches()):
        computer = Computer(caches=caches)
        computer.map(Ram(1 << 18), 0)
        computer.load(Program.assemble(text))
        computer.run()
        cycles.append(computer.cores[0].state.cycles)
        assert caches is None or caches.level(SOURCE).name == "MEMORY"
    assert cycles[0] == cycles[1]


@pytest.mark.parametrize(
    ("charge", "words"),
    [
        (lambda core: core.charge("x", 1, copies=8, source=0), "give both addresses"),
        (lambda core: core.charge("x", 1, copies=8, target=0), "give both addresses"),
        (lambda core: core.charge("x", 1, loads=8), "give source"),
        (lambda core: core.charge("x", 1, loads=-8, source=0), "0 bytes to 1 GiB, and not of -8"),
        (lambda core: core.charge("x", 1, loads=1 << 31, source=0), "to 1 GiB"),
        (lambda core: core.charge("x", 1, loads=8, source=-1), "0 to 2\\^64 - 1, and not -0x1"),
        (
            lambda core: core.charge("x", 1, copies=1 << 31, source=0, target=0),
            "to 1 GiB, and not of 2147483648",
        ),
    ],
)
def test_wrong_charges_are_named(charge: Callable[[Core], int], words: str) -> None:
    """They charge nothing."""
    core = Computer(caches=Caches()).cores[0]
    with pytest.raises(HostError, match=words):
        charge(core)
    assert core.ledger.total == core.state.cycles == 0


def test_loads_need_caches() -> None:
    with pytest.raises(HostError, match=r"Computer\(caches=Caches\(\)\)"):
        Computer().cores[0].charge("x", 1, loads=8, source=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda caches: caches.load(0, -1),
        lambda caches: caches.load(-1, 1),
        lambda caches: caches.copy(0, -1, 1),
        lambda caches: caches.copy(0, 0, (1 << 30) + 1),
    ],
)
def test_caches_follow_what_there_can_be(call: Callable[[Caches], int]) -> None:
    with pytest.raises(HostError, match=r"0 to 2|0 bytes to 1 GiB"):
        call(Caches())
