# SPDX-License-Identifier: Apache-2.0
"""Traffic patterns, which programs call and scenarios use by name.

Hosts are numbers from 0 on; the same arguments give the same flows.
"""

from __future__ import annotations

import math

import numpy as np

from .errors import FabricError
from .flows import MAX_FLOWS, Workload, few, flows, need
from .rates import Rate, rate
from .sizes import Distribution, distribution
from .tables import Tables

__all__ = [
    "all_to_all",
    "by_ports",
    "incast",
    "permutation",
    "poisson",
    "shift",
]

PS_PER_S = 10**12


def incast(
    senders: int, size: int, *, receiver: int | None = None, within_ps: int = 0, seed: int = 1
) -> Workload:
    """Hosts 0 to ``senders``, without ``receiver`` (the last of them), send it ``size`` bytes each.

    All begin at 0, or at random times before ``within_ps``.
    """
    need("incast", senders=senders, size=size)
    few("incast", senders)
    if within_ps < 0:
        raise FabricError(f"incast: within {within_ps} ps is before the beginning")
    receiver = senders if receiver is None else receiver
    src = np.array([host for host in range(senders + 1) if host != receiver][:senders])
    start = np.random.default_rng(seed).integers(0, within_ps, senders) if within_ps else 0
    return Workload(f"incast of {senders}", flows(src, receiver, size, start))


def permutation(hosts: int, size: int, *, seed: int = 1) -> Workload:
    """Every host sends to one other and receives from one other; all permutations are equally
    likely."""
    need("permutation", hosts=hosts - 1, size=size)
    few("permutation", hosts)
    random = np.random.default_rng(seed)
    src = np.arange(hosts)
    while True:  # one in e shuffles leaves no host to itself
        dst = random.permutation(hosts)
        if (dst != src).all():
            return Workload(f"permutation of {hosts}", flows(src, dst, size))


def shift(hosts: int, by: int, size: int) -> Workload:
    """Host i sends to host (i + by) modulo ``hosts``."""
    need("shift", hosts=hosts - 1, size=size)
    few("shift", hosts)
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
    need("all to all", hosts=hosts - 1, size=size)
    few("all to all", hosts * (hosts - 1))
    step, src = (a.ravel() for a in np.indices((hosts - 1, hosts)))
    made = flows(src, (src + step + 1) % hosts, size)
    number = np.arange(len(made))
    after = np.stack([number[:-hosts], number[hosts:]], axis=1) if in_turn else number[:0, None]
    return Workload(f"all to all of {hosts}", made, after.reshape(-1, 2))


def by_ports(work: Workload, tables: Tables, port: int | None = None) -> Workload:
    """Return flows between hosts of several ports as flows between their end ports.

    The hosts of ``work`` are numbered as those of the fabric, from 0, and all of them have the same
    number of ports. A flow leaves and arrives by the ports of one number: by ``port`` (from 1), or
    else an equal share of it by each, of which the first get the bytes that are left. A share waits
    for the shares by the same port alone, as each port has its own part of the data.
    Flow f by the p-th of P ports has the number f * P + p - 1.

    Raises FabricError for a host or port that there is not, hosts with different numbers of ports,
    and flows of fewer bytes than ports.
    """
    order = np.lexsort((tables.end_port, tables.end_node))
    counts = np.bincount(tables.end_node, minlength=tables.host_count)
    if len(np.unique(counts)) != 1:
        few_, many = counts.min(), counts.max()
        raise FabricError(f"{work.name}: some hosts have {few_} ports in use, and some {many}")
    ends = order.reshape(tables.host_count, -1)
    work.check(tables.host_count, tables.names)
    ports = ends.shape[1]
    if port is None and len(work) and work.flows["bytes"].min() < ports:
        least = work.flows["bytes"].min()
        raise FabricError(f"{work.name}: a flow of {least} bytes has no share for {ports} ports")
    if port is not None and not 1 <= port <= ports:
        raise FabricError(f"{work.name}: port {port} is none of the ports of a host, 1 to {ports}")
    chosen = ends if port is None else ends[:, port - 1 : port]
    count = chosen.shape[1]
    few(work.name, len(work) * count)
    made = np.repeat(work.flows, count)
    each = np.arange(len(made)) % count
    made["src"] = chosen[work.flows["src"]].ravel()
    made["dst"] = chosen[work.flows["dst"]].ravel()
    size = made["bytes"]
    made["bytes"] = size // np.uint64(count) + (each < size % np.uint64(count))
    after = work.after[:, None, :] * count + np.arange(count)[None, :, None]
    return Workload(work.name, made, after.reshape(-1, 2))


def poisson(
    hosts: int,
    load: float,
    sizes: str | Distribution,
    *,
    link: str | Rate,
    duration_ps: int,
    seed: int = 1,
) -> Workload:
    """Flows between random pairs, at random times, that use ``load`` of each host's ``link``.

    Arrivals are a Poisson process of ``load * link rate / mean size`` flows a second and host,
    from 0 to ``duration_ps``; sizes are drawn from a distribution, or the name of a published one.
    Sorted by start.
    """
    made = distribution(sizes) if isinstance(sizes, str) else sizes
    need("poisson", hosts=hosts - 1, duration=duration_ps)
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
