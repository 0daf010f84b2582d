# SPDX-License-Identifier: Apache-2.0
"""Patterns of traffic. Hosts are numbers from 0 on; the same arguments make the same flows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .flows import MAX_FLOWS, Workload, flows
from .rates import Rate, rate
from .sizes import Distribution, distribution

__all__ = [
    "all_to_all",
    "incast",
    "permutation",
    "poisson",
    "ring_all_reduce",
    "shift",
    "tree_all_reduce",
]

PS_PER_S = 10**12


def incast(
    senders: int, size: int, *, receiver: int | None = None, within_ps: int = 0, seed: int = 1
) -> Workload:
    """Hosts 0 to ``senders``, without ``receiver`` (the last of them), send it ``size`` bytes each.

    All begin at 0, or at random times before ``within_ps``.
    """
    _need("incast", senders=senders, size=size)
    _few("incast", senders)
    if within_ps < 0:
        raise FabricError(f"incast: within {within_ps} ps is before the beginning")
    receiver = senders if receiver is None else receiver
    src = np.array([host for host in range(senders + 1) if host != receiver][:senders])
    start = np.random.default_rng(seed).integers(0, within_ps, senders) if within_ps else 0
    return Workload(f"incast of {senders}", flows(src, receiver, size, start))


def permutation(hosts: int, size: int, *, seed: int = 1) -> Workload:
    """Every host sends to one other and receives from one other; all pairings are as likely."""
    _need("permutation", hosts=hosts - 1, size=size)
    _few("permutation", hosts)
    random = np.random.default_rng(seed)
    src = np.arange(hosts)
    while True:  # one in e shuffles leaves no host to itself
        dst = random.permutation(hosts)
        if (dst != src).all():
            return Workload(f"permutation of {hosts}", flows(src, dst, size))


def shift(hosts: int, by: int, size: int) -> Workload:
    """Host i sends to host (i + by) modulo ``hosts``."""
    _need("shift", hosts=hosts - 1, size=size)
    _few("shift", hosts)
    if not isinstance(by, int | np.integer):
        raise FabricError(f"shift: by is {by!r}, and not a whole number")
    if by % hosts == 0:
        raise FabricError(f"shift: by {by} of {hosts} hosts sends each to itself")
    src = np.arange(hosts)
    return Workload(f"shift by {by}", flows(src, (src + by) % hosts, size))


def all_to_all(hosts: int, size: int, *, in_turn: bool = True) -> Workload:
    """Every host sends ``size`` bytes to every other: shift by 1, then by 2, ...

    With ``in_turn`` a host's next flow begins when its last one was received (as a blocking
    exchange does), otherwise all begin at 0. Flow (s - 1) * hosts + i is that of host i in shift s.
    """
    _need("all to all", hosts=hosts - 1, size=size)
    _few("all to all", hosts * (hosts - 1))
    step, src = (a.ravel() for a in np.indices((hosts - 1, hosts)))
    made = flows(src, (src + step + 1) % hosts, size)
    number = np.arange(len(made))
    after = np.stack([number[:-hosts], number[hosts:]], axis=1) if in_turn else number[:0, None]
    return Workload(f"all to all of {hosts}", made, after.reshape(-1, 2))


def ring_all_reduce(hosts: int, size: int) -> Workload:
    """Reduce-scatter and all-gather around a ring (Patarasuk and Yuan 2009).

    ``size`` bytes in ``hosts`` chunks, as equal as can be. In each of 2 * (hosts - 1) steps t host
    i sends chunk (i - t) modulo ``hosts`` to host i + 1, once it has that chunk from host i - 1.
    Flow t * hosts + i is step t of host i.
    """
    _need("ring all-reduce", hosts=hosts - 1, size=size // hosts if hosts > 0 else 0)
    _few("ring all-reduce", 2 * hosts * (hosts - 1))
    step, src = (a.ravel() for a in np.indices((2 * (hosts - 1), hosts)))
    chunk = (src - step) % hosts
    made = flows(src, (src + 1) % hosts, _chunks(size, hosts)[chunk])
    later = step > 0
    before = (step[later] - 1) * hosts + (src[later] - 1) % hosts
    after = np.stack([before, np.nonzero(later)[0]], axis=1)
    return Workload(f"ring all-reduce of {hosts}", made, after)


def _chunks(size: int, count: int) -> NDArray[np.int64]:
    whole, more = divmod(size, count)
    return np.diff(np.arange(count + 1) * more // count) + whole


def tree_all_reduce(hosts: int, size: int) -> Workload:
    """Up a binary tree to host 0, then down again: host i's parent is (i - 1) // 2.

    Flow i - 1 goes from host i to its parent, once host i has those of its children; flow
    hosts - 1 + i - 1 goes from the parent to host i, once the parent has the result.
    """
    _need("tree all-reduce", hosts=hosts - 1, size=size)
    _few("tree all-reduce", 2 * (hosts - 1))
    child = np.arange(1, hosts)
    parent = (child - 1) // 2
    made = flows(np.concatenate([child, parent]), np.concatenate([parent, child]), size)
    up, down = child - 1, hosts - 1 + child - 1
    inner = parent > 0
    first = [
        np.stack([up[inner], parent[inner] - 1], axis=1),  # a parent sends when it has all
        np.stack([(hosts - 1) + parent[inner] - 1, down[inner]], axis=1),
    ]
    root = np.array([(i - 1, hosts - 2 + j) for i in (1, 2) for j in (1, 2) if max(i, j) < hosts])
    after = np.concatenate([*first, root.reshape(-1, 2)])
    return Workload(f"tree all-reduce of {hosts}", made, after)


def poisson(
    hosts: int,
    load: float,
    sizes: str | Distribution,
    *,
    link: str | float | Rate,
    duration_ps: int,
    seed: int = 1,
) -> Workload:
    """Flows between random pairs, at random times, that use ``load`` of each host's ``link``.

    Arrivals are a Poisson process of ``load * link rate / mean size`` flows a second and host,
    from 0 to ``duration_ps``; sizes are drawn from a distribution, or the name of a published one.
    Sorted by start.
    """
    made = distribution(sizes) if isinstance(sizes, str) else sizes
    _need("poisson", hosts=hosts - 1, duration=duration_ps)
    if not 0 < load <= 1:
        raise FabricError(f"poisson: a load of {load:g} is not above 0 and at most 1")
    per_second = load * float(rate(link).bits_per_second) / (8 * made.mean) * hosts
    expected = per_second * duration_ps / PS_PER_S
    if not expected < MAX_FLOWS or math.isnan(expected):
        raise FabricError(f"poisson: about {expected:.3g} flows are more than {MAX_FLOWS}")
    random = np.random.default_rng(seed)
    count = int(random.poisson(expected))
    start = np.sort(random.integers(0, duration_ps, count))
    src = random.integers(0, hosts, count)
    dst = (src + random.integers(1, hosts, count)) % hosts
    return Workload(
        f"{made.name} at {load:.0%}", flows(src, dst, made.sample(random, count), start)
    )


def _need(name: str, **numbers: int) -> None:
    for what, value in numbers.items():
        if not isinstance(value, int | np.integer):
            raise FabricError(f"{name}: {what} is {value!r}, and not a whole number")
        if value < 1:
            raise FabricError(f"{name}: too few or too small: {what}")


def _few(name: str, count: int) -> None:
    if count > MAX_FLOWS:
        raise FabricError(f"{name}: {count} flows are more than {MAX_FLOWS}")
