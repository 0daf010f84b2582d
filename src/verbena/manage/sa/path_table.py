# SPDX-License-Identifier: Apache-2.0
"""All paths between many ports as the bytes of a table, for queries that do not choose among them.

``PathBook.table`` calls it: `saquery -p` waits for a second, and a subnet of 324 hosts has more
than a hundred thousand paths. The bytes are those of the records that ``PathBook.answer`` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..sm.discovered import SubnetPort
from ..sm.partitions import common_p_key
from .path_metrics import RATE_ORDER, PathMetrics

__all__ = ["path_table"]

EXACTLY, REVERSIBLE = 2 << 6, 0x80
_RATES = np.array([int(code) for code in RATE_ORDER], np.uint8)
_RECORD = np.dtype(
    {
        "names": ["dgid", "sgid", "dlid", "slid", "back", "key", "sl", "mtu", "rate", "life"],
        "formats": ["V16", "V16", ">u2", ">u2", "u1", ">u2", ">u2", "u1", "u1", "u1"],
        "offsets": [8, 24, 40, 42, 49, 50, 52, 54, 55, 56],
        "itemsize": 64,
    }
)


class _Targets:
    """What is the same of the targets for every source."""

    def __init__(
        self,
        metrics: PathMetrics,
        ports: Sequence[SubnetPort],
        gid_of: Callable[[SubnetPort], bytes],
        keys_of: Callable[[SubnetPort], list[int]],
    ) -> None:
        self.place = {port: at for at, port in enumerate(ports)}
        self.lids = np.array([port.lid for port in ports])
        rows = [metrics.row_of(port) for port in ports]
        self.rows = np.array([-1 if row is None else row for row in rows])
        kinds: dict[tuple[int, ...], int] = {}
        numbers = [kinds.setdefault(tuple(keys_of(port)), len(kinds)) for port in ports]
        self.kinds, self.kind = list(kinds), np.array(numbers)
        # As bytes: a copy of records leaves the bytes between their fields undefined.
        self.raw = np.zeros((len(ports), _RECORD.itemsize), np.uint8)
        records = self.raw.view(_RECORD)[:, 0]
        records["dgid"] = np.frombuffer(b"".join(map(gid_of, ports)), "V16")
        records["dlid"] = self.lids

    def keys(self, ours: list[int]) -> NDArray[np.int64]:
        """The P_Key of a path to each of them, or 0."""
        shared = [common_p_key(ours, theirs) or 0 for theirs in self.kinds]
        return np.asarray(np.array(shared)[self.kind], np.int64)


def path_table(
    metrics: PathMetrics,
    sources: Sequence[SubnetPort],
    targets: Sequence[SubnetPort],
    gid_of: Callable[[SubnetPort], bytes],
    keys_of: Callable[[SubnetPort], list[int]],
    life: int,
) -> bytes | None:
    """Return the records, source by source; None if a port has several LIDs or none."""
    if any(len(port.lids) != 1 for port in {*sources, *targets}):
        return None
    to = _Targets(metrics, targets, gid_of, keys_of)
    return b"".join(
        _from(metrics, source, targets, to, gid_of, keys_of, life) for source in sources
    )


def _from(
    metrics: PathMetrics,
    source: SubnetPort,
    targets: Sequence[SubnetPort],
    to: _Targets,
    gid_of: Callable[[SubnetPort], bytes],
    keys_of: Callable[[SubnetPort], list[int]],
    life: int,
) -> bytes:
    mtu, rate = metrics.to_lids(source, to.lids)
    back = metrics.from_rows(to.rows, source.lid)
    keys = to.keys(keys_of(source))
    raw = to.raw.copy()
    records = raw.view(_RECORD)[:, 0]
    records["life"] = EXACTLY | life
    for near in (source, source.peer):
        at = to.place.get(near) if near is not None else None
        if at is None or near is None:
            continue
        if near is source:
            records["life"][at] = EXACTLY
            keys[at] = next(iter(keys_of(source)), 0)
        there, here = metrics.of(source, near, near.lid), metrics.of(near, source, source.lid)
        mtu[at], rate[at] = there or (-1, -1)
        back[at] = here is not None
    records["sgid"] = np.frombuffer(gid_of(source), "V16")
    records["slid"] = source.lid
    records["back"] = np.where(back, REVERSIBLE, 0)
    records["key"] = keys
    if metrics.has_sl:
        records["sl"] = [metrics.sl(source, target) for target in targets]
    records["mtu"] = EXACTLY | mtu
    records["rate"] = EXACTLY | _RATES[rate]
    return bytes(raw[(mtu > 0) & (rate >= 0) & (keys != 0)].tobytes())
