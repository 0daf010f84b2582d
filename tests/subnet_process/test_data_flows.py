# SPDX-License-Identifier: Apache-2.0
"""What programs count in a flow, as packets and words on the links."""

from __future__ import annotations

import pytest

from verbena.subnet_process.data_flows import DataWay, sizes

WRITE, SEND, SEND_WITH_IMM, READ, FETCH_ADD = 0, 2, 3, 4, 6
RC, UC, UD = 2, 3, 4


def way(kind: int, is_global: int = 0) -> DataWay:
    return DataWay(1, 7, 0, 0, 0, kind, is_global, bytes(16), 100, 200)


def counts(
    requests: dict[int, int], sent: tuple[int, int] = (0, 0), came: tuple[int, int] = (0, 0)
) -> tuple[int, ...]:
    """``sent`` and ``came`` are packets and words of payload."""
    by_opcode = [requests.get(opcode, 0) for opcode in range(16)]
    return sent[0], came[0], sent[1], came[1], *by_opcode, 0


@pytest.mark.parametrize(
    ("kind", "counted", "expected"),
    [
        # LRH, BTH and ICRC are 6 words, AETH 1, RETH 4, DETH 2, AtomicETH 7, GRH 10.
        (way(RC), counts({SEND: 1}, (1, 16)), (1, 22, 1, 7)),
        (way(RC, 1), counts({SEND: 1}, (1, 16)), (1, 32, 1, 17)),
        (way(RC), counts({WRITE: 2}, (6, 512)), (6, 512 + 2 * 4 + 36, 2, 14)),
        (way(RC), counts({SEND_WITH_IMM: 1}, (1, 0)), (1, 7, 1, 7)),
        (way(RC), counts({READ: 1}, came=(1, 16)), (1, 10, 1, 23)),
        (way(RC), counts({READ: 1}, came=(3, 600)), (1, 10, 3, 600 + 18 + 2)),
        (way(RC), counts({FETCH_ADD: 1}, (1, 2)), (1, 13, 1, 9)),
        (way(UC), counts({WRITE: 1}, (2, 300)), (2, 316, 0, 0)),
        (way(UD), counts({SEND: 1}, (1, 25)), (1, 33, 0, 0)),
    ],
)
def test_sizes(
    kind: DataWay, counted: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    assert sizes(kind, counted) == expected
