# SPDX-License-Identifier: Apache-2.0
"""A table of every path is made by columns, and has the bytes of the records made one by one."""

from __future__ import annotations

import pytest

from tests.manage.sm.test_sa_queries import served
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import PathRecord, pack_table
from verbena.manage.sm import Membership, Partition, Partitions


def check(seed: int, **settings: object) -> int:
    managed, _ = served(seed, **settings)
    (administration,) = managed.administrations.values()
    book = administration._path_book
    compared = 0
    for query in (
        SaQuery(PathRecord.unpack(bytes(PathRecord.SIZE)), 0),
        SaQuery.of(PathRecord, numb_path=1),
        *(
            SaQuery.of(PathRecord, **{end: book._gid_of(book._ports[-1])})
            for end in ("sgid", "dgid")
        ),
    ):
        table = book.table(query)
        if table is not None:
            slow = book.answer(query, administration.groups, several=True)
            assert table == pack_table(slow)
            compared += len(slow)
    return compared


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verbena.manage.sa.path_records._FEW", 1)


@pytest.mark.parametrize("seed", range(8))
def test_every_path(seed: int) -> None:
    assert check(seed) > 0


@pytest.mark.parametrize("engine", ["lash", "dfsssp", "ftree"])
def test_with_service_levels(engine: str) -> None:
    assert sum(check(seed, engine=engine) for seed in (1, 2)) > 0


def test_with_partitions() -> None:
    managed, _ = served(3)
    guids = [managed.port_guid(host) for host in managed.subnet.nodes if host.startswith("h")]
    kinds = (Membership.FULL, Membership.LIMITED)
    default = Partition("Default", 0x7FFF, everybody=Membership.LIMITED, sm=Membership.FULL)
    one = Partition("one", 0x12, {guid: kinds[at % 2] for at, guid in enumerate(guids)})
    assert 0 < check(3, partitions=Partitions((default, one))) < check(3)


def test_ports_with_several_lids_have_no_such_table() -> None:
    assert check(1, lmc=1) == 0
