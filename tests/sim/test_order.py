# SPDX-License-Identifier: Apache-2.0
"""Flows that wait for themselves, of pairs that are given: the rules of ``World.add_flows``."""

from __future__ import annotations

import numpy as np
import pytest

from verbena.sim.order import never_start


def first_of(pairs: list[tuple[int, int]], count: int) -> int | None:
    return never_start(np.array(pairs, np.uint64).reshape(-1, 2), count)


@pytest.mark.parametrize(
    ("pairs", "count", "flow"),
    [
        ([], 3, None),
        ([(0, 1), (0, 2), (1, 3), (2, 3)], 4, None),
        ([(3, 0), (0, 2), (2, 1)], 4, None),
        ([(2, 0), (2, 0), (0, 1)], 3, None),
        ([(1, 1)], 3, 1),
        ([(0, 1), (1, 2), (2, 1)], 3, 1),
        ([(3, 2), (2, 3), (3, 1), (1, 0)], 5, 0),  # 0 and 1 wait for the cycle
        ([(0, 4), (4, 3), (3, 4)], 5, 3),
    ],
)
def test_the_first_flow_that_never_starts(
    pairs: list[tuple[int, int]], count: int, flow: int | None
) -> None:
    assert first_of(pairs, count) == flow


def test_long_chains_in_any_order() -> None:
    count = 5000
    order = np.random.default_rng(1).permutation(count)
    chain = np.stack([order[:-1], order[1:]], axis=1)
    assert never_start(chain.astype(np.uint64), count) is None
    closed = np.concatenate([chain, [[order[-1], order[0]]]])
    assert never_start(closed.astype(np.uint64), count) == 0
