# SPDX-License-Identifier: Apache-2.0
"""How forwarding tables are made (sim/forwarding.py): entries, sets of ports, shared blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from verbena.sim.forwarding import BLOCK, NO_PORT, PORT_SET, Blocks, Table, port_entries, spread

PORTS = 48


def rows_of(targets: int, width: int, salt: int) -> NDArray[np.int32]:
    """Up to ``width`` ports for each target; ``salt`` makes different tables."""
    target, way = np.arange(targets)[:, None], np.arange(width)
    return np.where(way < (target + salt) % (width + 1), (target * 7 + way + salt) % PORTS, -1)


def ports_of(table: Table, entry: int) -> list[int]:
    if entry == NO_PORT:
        return []
    if entry < PORT_SET:
        return [entry]
    begin, end = table.starts[entry - PORT_SET : entry - PORT_SET + 2]
    return table.members[begin:end].tolist()


@pytest.mark.parametrize("targets", [1, BLOCK - 1, BLOCK, BLOCK + 1, 1000])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_table_has_what_was_set(targets: int, width: int) -> None:
    rows = rows_of(targets, width, targets)
    table = Table(Blocks())
    entries, table.starts, table.members = port_entries(rows)
    table.set(entries)
    assert table.targets == targets
    assert np.array_equal(table.entries(), entries)
    for row, entry in zip(rows.tolist(), table.entries().tolist(), strict=True):
        assert ports_of(table, entry) == [port for port in row if port >= 0]


def test_what_stands_behind_the_end_of_a_row_does_not_count() -> None:
    entries, starts, members = port_entries(
        np.array([[1, -1, 7], [2, 3, -1], [2, 3, -5], [-1, 4, 5]])
    )
    assert entries.tolist() == [1, PORT_SET, PORT_SET, NO_PORT]
    assert starts.tolist() == [0, 2]
    assert members.tolist() == [2, 3]


def test_equal_blocks_are_stored_once() -> None:
    blocks = Blocks()
    tables = [Table(blocks) for _ in range(4)]
    entries = port_entries(rows_of(1000, 1, 0))[0]
    for table in tables:
        table.set(entries)
    assert len(blocks) <= 1 + 1000 // BLOCK
    other = port_entries(rows_of(1000, 1, 1))[0]
    tables[0].set(other)
    assert np.array_equal(tables[0].entries(), other)
    assert all(np.array_equal(table.entries(), entries) for table in tables[1:])
    for table in tables:
        table.set(np.zeros(0, np.uint16))
    assert len(blocks) == 0


def test_tables_that_change_leave_nothing_behind() -> None:
    blocks, random = Blocks(), np.random.default_rng(1)
    tables = [Table(blocks) for _ in range(4)]
    for number in range(40):
        entries = random.integers(PORTS, size=64 * BLOCK).astype(np.uint16)
        tables[number % 4].set(entries)
        assert np.array_equal(tables[number % 4].entries(), entries)
    assert len(blocks) == 4 * 64
    assert len(blocks.entries) <= 512  # places of blocks that are gone are used again


def test_one_block_is_replaced_and_others_stay() -> None:
    blocks = Blocks()
    one, other = Table(blocks), Table(blocks)
    one.set(np.full(2 * BLOCK, 3, np.uint16))
    other.set(np.full(2 * BLOCK, 3, np.uint16))
    one.set_block(3, np.full(BLOCK, 5, np.uint16))
    assert one.targets == 4 * BLOCK
    assert one.entries().reshape(-1, BLOCK)[:, 0].tolist() == [3, 3, NO_PORT, 5]
    one.set_block(0, np.full(BLOCK, 6, np.uint16))
    assert one.entries()[0] == 6
    assert other.entries()[0] == 3


def test_rows_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verbena.sim.forwarding._odd", lambda count: np.zeros(count, np.uint64))
    rows = rows_of(200, 3, 2)
    table = Table(Blocks())
    entries, table.starts, table.members = port_entries(rows)
    table.set(entries)
    for row, entry in zip(rows.tolist(), table.entries().tolist(), strict=True):
        assert ports_of(table, entry) == [port for port in row if port >= 0]


def test_equal_rows_share_a_set_of_ports() -> None:
    number = np.arange(40000)
    rows = np.stack(
        [number % 5, np.where(number % 7, 5 + number % 2, -1), np.where(number % 3, 7, -1)], axis=1
    )
    assert len(port_entries(rows)[1]) - 1 == 5 * 2 * 2


def test_too_many_sets_are_refused() -> None:
    number = np.arange(PORT_SET)
    rows = np.stack([number % PORTS, number // PORTS % PORTS, number // PORTS // PORTS], axis=1)
    assert len(port_entries(rows[:-1])[1]) == PORT_SET
    with pytest.raises(ValueError, match="32768 different sets of ports"):
        port_entries(rows)


def test_a_host_has_its_entry_at_each_of_its_addresses() -> None:
    entries, before = np.array([4, 5], np.uint16), np.array([NO_PORT, 9, 9, 9], np.uint16)
    made = spread(entries, np.array([8, 1]), np.array([2, 0], np.uint8), before)
    assert made.tolist() == [NO_PORT, 5, 9, 9, *[NO_PORT] * 4, 4, 4, 4, 4]
