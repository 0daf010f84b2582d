# SPDX-License-Identifier: Apache-2.0
"""Distributions of flow sizes: published ones, and those of files. ``patterns.poisson`` uses
them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError

__all__ = ["PUBLISHED", "Distribution", "distribution", "read_distribution"]


LARGEST = 2.0**62  # bytes


@dataclass(frozen=True)
class Distribution:
    """``points``: pairs of bytes and the percentage of flows that are no larger.

    Between two points the distribution is linear; the last point has 100 %. ``source`` is the
    publication.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    source: str

    def __post_init__(self) -> None:
        sizes, shares = np.array(self.points, float).T if self.points else ([], [])
        rising = (np.diff(sizes) >= 0).all() and (np.diff(shares) >= 0).all()
        some = len(sizes) >= 2 and rising and sizes[0] >= 0 and 1 <= sizes[-1] < LARGEST
        if not some or shares[0] < 0 or shares[-1] != 100:
            raise FabricError(f"{self.name}: sizes and percentages do not rise to 100")

    @cached_property
    def _curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sizes, shares = np.array(self.points, float).T
        if shares[0] > 0:  # the first size is a share of its own
            sizes, shares = np.insert(sizes, 0, sizes[0]), np.insert(shares, 0, 0.0)
        return sizes, shares / 100

    @property
    def mean(self) -> float:
        """The mean size of a flow in bytes."""
        sizes, shares = self._curve
        return float((np.diff(shares) * (sizes[1:] + sizes[:-1]) / 2).sum())

    def share_up_to(self, size: float) -> float:
        """Return the fraction of flows that are no larger than ``size`` bytes."""
        sizes, shares = self._curve
        return float(np.interp(size, sizes, shares))

    def sample(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return ``count`` random sizes in bytes, at least 1."""
        sizes, shares = self._curve
        return np.maximum(np.rint(np.interp(random.random(count), shares, sizes)), 1).astype(
            np.int64
        )


_PACKET = 1460.0  # the published table of VL2 counts packets
_HPCC = "as a table beside the HPCC simulator (SIGCOMM 2019)"

PUBLISHED = {
    made.name: made
    for made in (
        Distribution(
            "websearch",
            (
                *((0, 0), (10e3, 15), (20e3, 20), (30e3, 30), (50e3, 40), (80e3, 53)),
                *((200e3, 60), (1e6, 70), (2e6, 80), (5e6, 90), (10e6, 97), (30e6, 100)),
            ),
            f"DCTCP, SIGCOMM 2010; {_HPCC}",
        ),
        Distribution(
            "fb_hadoop",
            (
                *((0, 0), (100, 1), (200, 2), (300, 5), (350, 15), (400, 20), (500, 30)),
                *((600, 40), (700, 50), (1e3, 60), (2e3, 67), (7e3, 70), (30e3, 72)),
                *((50e3, 82), (80e3, 87), (120e3, 90), (300e3, 95), (1e6, 97.5)),
                *((2e6, 99), (10e6, 100)),
            ),
            f"Roy et al., SIGCOMM 2015; {_HPCC}",
        ),
        Distribution(
            "ali_storage",
            (
                *((0, 0), (4e3, 22.93), (8e3, 69.21), (16e3, 80.61), (32e3, 90.47)),
                *((64e3, 93.53), (128e3, 96.77), (256e3, 97.53), (2e6, 100)),
            ),
            f"Alibaba's storage, 2019; {_HPCC}",
        ),
        Distribution(
            "google_rpc",
            (
                *((0, 0), (3, 6.48826), (32, 9.73239), (64, 15.5271), (128, 35.1573)),
                *((256, 49.7901), (512, 78.4921), (1024, 86.32), (2048, 90.8862)),
                *((4096, 93.4955), (8192, 96.4309), (16384, 98.4694), (32768, 99.0402)),
                *((65536, 99.3256), (131072, 99.7129), (262144, 99.8453), (524288, 99.9498)),
                *((1008790, 99.9748), (1996529, 99.9881), (4135977, 99.9952)),
                *((8231141, 99.9985), (15158197, 100)),
            ),
            f"Google's RPCs before 2008; {_HPCC}, of which these are points",
        ),
        Distribution(
            "data_mining",
            tuple(
                (packets * _PACKET, share)
                for packets, share in (
                    *((1, 50), (2, 60), (3, 70), (7, 80), (267, 90)),
                    *((2107, 95), (66667, 99), (666667, 100)),
                )
            ),
            "VL2, SIGCOMM 2009; in packets of 1460 bytes as used by pFabric (SIGCOMM 2013)",
        ),
    )
}


def distribution(name: str) -> Distribution:
    """Return a published distribution by name. Raises FabricError, which lists the names."""
    if name not in PUBLISHED:
        raise FabricError(f"no distribution {name!r}: there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def read_distribution(path: str | Path) -> Distribution:
    """Read a file with lines ``bytes percentage``. Raises FabricError, which names the line."""
    path = Path(path)
    points = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FabricError(f"{path.name}: {error}") from None
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        try:
            size, share = map(float, words)
        except ValueError:
            raise FabricError(
                f"{path.name}, line {number}: {line.strip()!r} is not bytes and a percentage"
            ) from None
        points.append((size, share))
    return Distribution(path.stem, tuple(points), str(path))
