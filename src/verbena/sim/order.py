# SPDX-License-Identifier: Apache-2.0
"""The order in which flows start that wait for others.

``World.add_flows`` calls ``never_start`` once for all flows that it adds. The module uses nothing
of ``verbena.fabrics``, because a World works without networkx.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["never_start"]


def never_start(after: NDArray[Any], count: int) -> int | None:
    """Return the first of ``count`` flows that waits for itself or for such a flow, or None.

    ``after`` [m, 2]: flow after[i, 1] waits for flow after[i, 0]. Mostly each flow waits for flows
    with lower numbers, so that one comparison answers. Otherwise the flows are sorted topologically
    (Kahn, 1962), and what is left over never starts.
    """
    before, then = after[:, 0], after[:, 1]
    if (before < then).all():
        return None
    order = np.argsort(before, kind="stable")
    first = np.searchsorted(before[order], np.arange(count + 1)).tolist()
    successors = then[order].tolist()
    waits = np.bincount(then.astype(np.int64), minlength=count)
    free = np.flatnonzero(waits == 0).tolist()
    left = waits.tolist()
    for flow in free:
        for successor in successors[first[flow] : first[flow + 1]]:
            left[successor] -= 1
            if not left[successor]:
                free.append(successor)
    return None if len(free) == count else next(flow for flow in range(count) if left[flow])
