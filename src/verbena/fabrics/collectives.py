# SPDX-License-Identifier: Apache-2.0
"""Collective operations as workloads: all-reduce, reduce-scatter, all-gather and broadcast.

Programs call these functions, and scenarios use them by name. A flow may start only when its sender
has all the data that the flow carries: ``Workload.parts`` says which bytes these are, and the tests
track them. p is the number of hosts, S the size, alpha the time of an empty message and beta that
of a byte (Hockney); the costs are those of the literature for hosts that send and receive at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .flows import PART, Workload, few, flows, need

__all__ = [
    "binomial_broadcast",
    "chain_broadcast",
    "collective_cost",
    "double_tree_all_reduce",
    "double_tree_broadcast",
    "halving_doubling_all_reduce",
    "recursive_doubling_all_gather",
    "recursive_halving_reduce_scatter",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
]

# Scenarios use these names, too.
COLLECTIVES = tuple(name for name in __all__ if name != "collective_cost")
PIPELINES = (  # with `chunk`
    "chain_broadcast",
    "double_tree_all_reduce",
    "double_tree_broadcast",
    "tree_all_reduce",
)
BROADCASTS = ("binomial_broadcast", "chain_broadcast", "double_tree_broadcast")  # with `root`

Numbers = NDArray[np.int64]

CHUNKS = 64  # of a pipeline, by default: filling and draining it then take a small part of the time
LEAST_CHUNK = 4096  # bytes: smaller ones are mostly headers


# ---- rings ---------------------------------------------------------------------------------------


def ring_all_reduce(hosts: int, size: int) -> Workload:
    """Reduce-scatter and all-gather around a ring (Patarasuk and Yuan 2009).

    ``size`` bytes in ``hosts`` chunks, as equal as can be. In each of 2 * (hosts - 1) steps t host
    i sends chunk (i - t) modulo ``hosts`` to host i + 1, once it has that chunk from host i - 1.
    Flow t * hosts + i is step t of host i. Cost: 2 (p - 1) (alpha + S / p beta).
    """
    return _ring("ring all-reduce", hosts, size, 2 * (hosts - 1), hosts - 1)


def ring_reduce_scatter(hosts: int, size: int) -> Workload:
    """The first half of ``ring_all_reduce``: host i ends with the sum of chunk i.

    Cost: (p - 1) (alpha + S / p beta).
    """
    return _ring("ring reduce-scatter", hosts, size, hosts - 1, hosts - 1, shift=1)


def ring_all_gather(hosts: int, size: int) -> Workload:
    """Host i has chunk i of ``size`` bytes; in the end all have all of them.

    Cost: (p - 1) (alpha + S / p beta).
    """
    return _ring("ring all-gather", hosts, size, hosts - 1, 0)


def _ring(name: str, hosts: int, size: int, steps: int, adding: int, shift: int = 0) -> Workload:
    """In step t host i sends chunk (i - t - shift) to host i + 1; the first steps are added."""
    need(name, hosts=hosts - 1, size=size // hosts if hosts > 0 else 0)
    few(name, steps * hosts)
    step, src = (a.ravel() for a in np.indices((steps, hosts)))
    chunk = (src - step - shift) % hosts
    edge = _edges(size, hosts)
    made = flows(src, (src + 1) % hosts, np.diff(edge)[chunk])
    later = step > 0
    before = (step[later] - 1) * hosts + (src[later] - 1) % hosts
    after = np.stack([before, np.nonzero(later)[0]], axis=1)
    return Workload(f"{name} of {hosts}", made, after, _parts(edge[chunk], step < adding))


def _edges(size: int, count: int) -> Numbers:
    """[count + 1]: where chunks that are as equal as can be begin and end."""
    whole, more = divmod(size, count)
    number = np.arange(count + 1)
    return number * whole + number * more // count


def _parts(offset: NDArray[np.int64], adds: NDArray[np.bool_] | bool) -> NDArray[np.void]:
    made = np.zeros(len(offset), PART)
    made["offset"], made["adds"] = offset, adds
    return made


# ---- rounds of pairs -----------------------------------------------------------------------------

# Sources, targets, offsets, sizes, and whether the receiver adds.
Round = tuple[Numbers, Numbers, Numbers, Numbers, bool]


def recursive_halving_reduce_scatter(hosts: int, size: int) -> Workload:
    """Pairs that are half of the hosts apart exchange halves, then quarters (Thakur et al. 2005).

    Host i ends with the sum of chunk i. Cost for a power of two: log2 p alpha + (p - 1) / p S beta.
    Otherwise the hosts beyond the largest power of two first send their data to a neighbour, which
    adds them, and get their chunk from it at the end. That costs 2 alpha + (S + S / p) beta more,
    and p in the formula is the power of two. Some of the chunks are then for two hosts, which costs
    another tenth.
    """
    name = "recursive halving reduce-scatter"
    need(name, hosts=hosts - 1, size=size // hosts if hosts > 0 else 0)
    few(name, hosts * (hosts.bit_length() + 2))
    team, edge = _Team(hosts), _edges(size, hosts)
    back = team.doubled, team.extra, edge[team.extra], np.diff(edge)[team.extra], False
    rounds = [team.fold(size), *_halving(team, np.append(edge[team.members], size)), back]
    return _rounds(f"{name} of {hosts}", hosts, rounds)


def recursive_doubling_all_gather(hosts: int, size: int) -> Workload:
    """Host i has chunk i; pairs exchange all that they have, at twice the distance each time.

    For other numbers than powers of two it is the algorithm of Bruck et al. (1997), in which host
    i sends to host i - 2^k, and the last round carries what is missing. Cost: ceil(log2 p) alpha +
    (p - 1) / p S beta (Thakur et al. 2005).
    """
    name = "recursive doubling all-gather"
    need(name, hosts=hosts - 1, size=size // hosts if hosts > 0 else 0)
    few(name, hosts * hosts.bit_length())
    team = _Team(hosts)
    if not len(team.extra):
        rounds = _doubling(team, _edges(size, hosts))
    else:
        rounds = _bruck(hosts, _edges(size, hosts))
    return _rounds(f"{name} of {hosts}", hosts, rounds)


def halving_doubling_all_reduce(hosts: int, size: int) -> Workload:
    """Recursive halving, then recursive doubling (Rabenseifner 2004; Thakur et al. 2005).

    Cost for a power of two: 2 log2 p alpha + 2 (p - 1) / p S beta. Otherwise the hosts beyond the
    largest power of two first send their data to a neighbour, which adds them, and get the result
    from it at the end. That costs 2 (alpha + S beta) more, and p in the formula is the power of
    two.
    """
    name = "halving and doubling all-reduce"
    need(name, hosts=hosts - 1, size=size // hosts if hosts > 0 else 0)
    few(name, 2 * hosts * (hosts.bit_length() + 1))
    team = _Team(hosts)
    edge = _edges(size, len(team.members))
    zero, whole = np.zeros(len(team.extra), np.int64), np.full(len(team.extra), size, np.int64)
    back = team.doubled, team.extra, zero, whole, False
    rounds = [team.fold(size), *_halving(team, edge), *_doubling(team, edge), back]
    return _rounds(f"{name} of {hosts}", hosts, rounds)


class _Team:
    """As many hosts as the largest power of two, the members; each ``extra`` host has a partner.

    Among the first 2 * len(extra) hosts the even ones, ``doubled``, are members, and each is the
    partner of the odd one after it.
    """

    def __init__(self, hosts: int) -> None:
        self.size = 1 << (hosts.bit_length() - 1)
        doubled = hosts - self.size
        self.extra: Numbers = 2 * np.arange(doubled) + 1
        self.doubled: Numbers = self.extra - 1
        self.members: Numbers = np.append(self.doubled, np.arange(2 * doubled, hosts))

    def fold(self, size: int) -> Round:
        """Return the round in which the extra hosts send their data to their partners."""
        zero = np.zeros(len(self.extra), np.int64)
        return self.extra, self.doubled, zero, zero + size, True


def _halving(team: _Team, edge: Numbers) -> list[Round]:
    """``edge`` [members + 1]: where the chunk of each begins."""
    rank, rounds = np.arange(team.size), list[Round]()
    distance = team.size // 2
    while distance:
        peer = rank ^ distance
        first = peer & -distance
        begin, end = edge[first], edge[first + distance]
        rounds.append((team.members, team.members[peer], begin, end - begin, True))
        distance //= 2
    return rounds


def _doubling(team: _Team, edge: Numbers) -> list[Round]:
    rank, rounds = np.arange(team.size), list[Round]()
    distance = 1
    while distance < team.size:
        peer, first = rank ^ distance, rank & -distance
        begin, end = edge[first], edge[first + distance]
        rounds.append((team.members, team.members[peer], begin, end - begin, False))
        distance *= 2
    return rounds


def _bruck(hosts: int, edge: Numbers) -> list[Round]:
    """In round k host i has 2^k chunks, from its own on, modulo hosts; it sends them to i - 2^k."""
    rank, rounds = np.arange(hosts), list[Round]()
    around = np.concatenate([edge, edge[1:] + edge[-1]])
    distance = 1
    while distance < hosts:
        many = min(distance, hosts - distance)
        length = around[rank + many] - around[rank]
        rounds.append((rank, (rank - distance) % hosts, edge[:-1], length, False))
        distance *= 2
    return rounds


def binomial_broadcast(hosts: int, size: int, *, root: int = 0) -> Workload:
    """In each round every host that has the data sends them to one that has not.

    Cost: ceil(log2 p) (alpha + S beta).
    """
    _need_root("binomial broadcast", hosts, size, root)
    rounds = list[Round]()
    distance = 1
    while distance < hosts:
        source = np.arange(min(distance, hosts - distance))
        zero = np.zeros(len(source), np.int64)
        target = (source + distance + root) % hosts
        rounds.append(((source + root) % hosts, target, zero, zero + size, False))
        distance *= 2
    return _rounds(f"binomial broadcast to {hosts}", hosts, rounds)


def _need_root(name: str, hosts: int, size: int, root: int) -> None:
    need(name, hosts=hosts - 1, size=size)
    need(name, **{"root + 1": root + 1})
    few(name, 2 * hosts)
    if root >= hosts:
        raise FabricError(f"{name}: root {root} is none of {hosts} hosts")


def _rounds(name: str, hosts: int, rounds: Iterable[Round]) -> Workload:
    """Make a workload in which a flow begins when both of its hosts have ended their earlier
    rounds.

    That is MPI_Sendrecv with a rendezvous: a sender then has the data of all earlier rounds, and a
    late host gets no data that would slow down those that it waits for.
    """
    sent, received = (np.full(hosts, -1, np.int64) for _ in range(2))
    made, after, parts = list[NDArray[np.void]](), list[Numbers](), list[NDArray[np.void]]()
    count = 0
    for source, target, offset, size, adds in rounds:
        number = count + np.arange(len(source))
        for last, host in itertools.product((sent, received), (source, target)):
            waits = last[host] >= 0
            after.append(np.stack([last[host][waits], number[waits]], axis=1))
        sent[source], received[target] = number, number
        made.append(flows(source, target, size))
        parts.append(_parts(offset, adds))
        count += len(source)
    pairs = np.unique(np.concatenate(after), axis=0)
    return Workload(name, np.concatenate(made), pairs, np.concatenate(parts))


# ---- pipelines -----------------------------------------------------------------------------------


def chain_broadcast(hosts: int, size: int, *, chunk: int | None = None, root: int = 0) -> Workload:
    """From each host to the next one, chunk by chunk.

    ``chunk`` bytes, or a 64th of the whole and at least 4 KiB. Cost with k chunks:
    (p - 2 + k) (alpha + S / k beta).
    """
    _need_root("chain broadcast", hosts, size, root)
    rank = np.arange(hosts - 1)
    waits = np.stack([rank[:-1], rank[1:]], axis=1)
    made = _pipeline("chain broadcast", size, chunk, (rank + root) % hosts,
                     (rank + 1 + root) % hosts, np.zeros(len(rank), bool), waits)  # fmt: skip
    return _named(made, f"chain broadcast to {hosts}")


def tree_all_reduce(hosts: int, size: int, *, chunk: int | None = None) -> Workload:
    """Up a binary tree to its root, then down again, chunk by chunk.

    ``chunk`` bytes, or a 64th of the whole and at least 4 KiB. Host i's parent is (i - 1) // 2. Of
    each chunk flow i - 1 goes from host i to its parent, once host i has those of its children;
    flow hosts - 1 + i - 1 goes from the parent to host i, once the parent has the result. An inner
    host receives 3 S, so the operation takes 3 S beta or more: use ``double_tree_all_reduce`` for
    large sizes.
    """
    need("tree all-reduce", hosts=hosts - 1, size=size)
    few("tree all-reduce", 2 * hosts)
    parent = (np.arange(hosts) - 1) // 2
    parent[0] = -1
    made = _up_and_down("tree all-reduce", size, chunk, parent)
    return _named(made, f"tree all-reduce of {hosts}")


def double_tree_all_reduce(hosts: int, size: int, *, chunk: int | None = None) -> Workload:
    """Two binary trees, each for half of the data (Sanders, Speck and Traeff 2009).

    An inner host of one tree is a leaf of the other, so each host sends and receives 2 S. The trees
    are NCCL's: the second is the first mirrored, or with an odd number of hosts shifted by one.
    Chunks are of ``chunk`` bytes, or of a 64th of a half and at least 4 KiB. Cost: about 2 S beta +
    4 log2 p (alpha + chunk beta).
    """
    need("double tree all-reduce", hosts=hosts - 1, size=size // 2)
    few("double tree all-reduce", 4 * hosts)
    halves = _edges(size, 2)
    one, other = _two_trees(hosts)
    made = [
        _up_and_down("double tree all-reduce", int(end - begin), chunk, parent, int(begin))
        for parent, begin, end in zip((one, other), halves[:-1], halves[1:], strict=True)
    ]
    return _named(made[0] + made[1], f"double tree all-reduce of {hosts}")


def double_tree_broadcast(
    hosts: int, size: int, *, chunk: int | None = None, root: int = 0
) -> Workload:
    """The root sends half of the data down each of two trees of the others (Sanders et al. 2009).

    Chunks as in ``double_tree_all_reduce``. Cost: about S beta + 2 log2 p (alpha + chunk beta).
    """
    name = "double tree broadcast"
    _need_root(name, hosts, size // 2, root)
    halves = _edges(size, 2)
    made = Workload(name, flows([], [], []))
    for parent, begin, end in zip(_two_trees(hosts - 1), halves[:-1], halves[1:], strict=True):
        above = np.append(-1, parent + 1)  # the others are hosts 1 on, the tree's root below 0
        child, waits = np.arange(1, hosts), _down_waits(above, 0)
        part = _pipeline(name, int(end - begin), chunk, (above[1:] + root) % hosts,
                         (child + root) % hosts, np.zeros(hosts - 1, bool), waits,
                         int(begin))  # fmt: skip
        made = part if not len(made) else made + part
    return _named(made, f"{name} to {hosts}")


def _named(work: Workload, name: str) -> Workload:
    return Workload(name, work.flows, work.after, work.parts)


def _up_and_down(
    name: str, size: int, chunk: int | None, parent: Numbers, begin: int = 0
) -> Workload:
    """Reduce to a tree's root and broadcast from there. ``parent`` [hosts] is -1 for the root."""
    child = np.nonzero(parent >= 0)[0]
    number = np.full(len(parent), -1, np.int64)
    number[child] = np.arange(len(child))
    many, above = len(child), parent[child]
    inner = number[above] >= 0
    up = np.stack([np.nonzero(inner)[0], number[above[inner]]], axis=1)
    top = np.nonzero(~inner)[0]
    turn = np.stack([np.repeat(top, len(top)), np.tile(top, len(top)) + many], axis=1)
    waits = np.concatenate([up, turn, _down_waits(parent, many)])
    return _pipeline(name, size, chunk, np.concatenate([child, above]),
                     np.concatenate([above, child]), np.arange(2 * many) < many, waits,
                     begin)  # fmt: skip


def _down_waits(parent: Numbers, first: int) -> Numbers:
    """Return pairs for ``after``: the flow down to a host waits for the flow down to its parent.

    Flows are numbered from ``first`` on.
    """
    child = np.nonzero(parent >= 0)[0]
    number = np.full(len(parent), -1, np.int64)
    number[child] = first + np.arange(len(child))
    before = number[parent[child]]
    return np.stack([before, number[child]], axis=1)[before >= 0]


def _two_trees(hosts: int) -> tuple[Numbers, Numbers]:
    """Return each host's parent in both trees, -1 for their roots."""
    one, rank = _in_order_tree(hosts), np.arange(hosts)
    place = rank[::-1] if hosts % 2 == 0 else (rank - 1) % hosts  # in the first tree
    host = np.argsort(place)  # at a place
    parent = one[place]
    return one, np.where(parent < 0, -1, host[parent])


def _in_order_tree(hosts: int) -> Numbers:
    """Odd hosts are leaves; a host's level is the lowest bit of its number; 0 is above the top."""
    parent = np.full(hosts, -1, np.int64)
    for host in range(1, hosts):
        bit = host & -host
        above = (host ^ bit) | (bit << 1)
        parent[host] = above if above < hosts else host ^ bit
    return parent


def _pipeline(
    name: str,
    size: int,
    chunk: int | None,
    source: Numbers,
    target: Numbers,
    adds: NDArray[np.bool_],
    waits: Numbers,
    begin: int = 0,
) -> Workload:
    """Repeat the flows and ``waits`` for each chunk; on an edge each chunk waits for the one
    before."""
    count, many = _chunk_count(name, size, chunk), len(source)
    few(name, count * many)
    edge = begin + _edges(size, count)
    made = flows(np.tile(source, count), np.tile(target, count), np.repeat(np.diff(edge), many))
    first = many * np.arange(count)
    within = (first[:, None, None] + waits[None]).reshape(-1, 2)
    number = np.arange(len(made))
    along = np.stack([number[:-many], number[many:]], axis=1)
    parts = _parts(np.repeat(edge[:-1], many), np.tile(adds, count))
    return Workload(name, made, np.concatenate([within, along]), parts)


def _chunk_count(name: str, size: int, chunk: int | None) -> int:
    if chunk is None:
        return max(1, min(CHUNKS, size // LEAST_CHUNK))
    need(name, chunk=chunk)
    return -(-size // chunk)


def flow_count(name: str, hosts: int, size: int, chunk: int | None = None) -> int:
    """Return about how many flows the function of that name makes, without making them."""
    rounds = hosts * (hosts.bit_length() + 1)
    halves = 2 * _chunk_count(name, max(1, size // 2), chunk)
    counts = {
        "ring_all_reduce": 2 * hosts * (hosts - 1),
        "ring_reduce_scatter": hosts * (hosts - 1),
        "ring_all_gather": hosts * (hosts - 1),
        "halving_doubling_all_reduce": 2 * rounds,
        "recursive_halving_reduce_scatter": rounds,
        "recursive_doubling_all_gather": rounds,
        "binomial_broadcast": hosts,
        "chain_broadcast": hosts * _chunk_count(name, size, chunk),
        "tree_all_reduce": 2 * hosts * _chunk_count(name, size, chunk),
        "double_tree_all_reduce": 2 * hosts * halves,
        "double_tree_broadcast": hosts * halves,
    }
    return counts[name]


def collective_cost(
    name: str, hosts: int, size: int, alpha: float, beta: float, chunk: int | None = None
) -> float:
    """Return the theoretical time of the function of that name, in the unit of alpha and beta.

    ``alpha`` is the time of an empty message and ``beta`` that of a byte. For ``tree_all_reduce``
    the result is the time of its busiest host, which is a lower bound; for double trees it is an
    estimate.
    """
    team = 1 << (hosts.bit_length() - 1)
    folded = hosts > team
    whole = size * beta
    half = (team - 1) / team * whole + math.log2(team) * alpha  # of halving, or of doubling
    ring = (hosts - 1) * (alpha + whole / hosts)
    rounds = (hosts - 1).bit_length()
    chunks = _chunk_count(name, size, chunk)
    trees = alpha + whole / 2 / _chunk_count(name, max(1, size // 2), chunk)  # of one step in them
    costs = {
        "ring_all_reduce": 2 * ring,
        "ring_reduce_scatter": ring,
        "ring_all_gather": ring,
        "halving_doubling_all_reduce": 2 * half + folded * 2 * (alpha + whole),
        "recursive_halving_reduce_scatter": half + folded * (2 * alpha + whole + whole / hosts),
        "recursive_doubling_all_gather": rounds * alpha + (hosts - 1) / hosts * whole,
        "binomial_broadcast": rounds * (alpha + whole),
        "chain_broadcast": (hosts - 2 + chunks) * (alpha + whole / chunks),
        "tree_all_reduce": 3 * whole,
        "double_tree_all_reduce": (2 if hosts > 2 else 1) * whole + 4 * math.log2(hosts) * trees,
        "double_tree_broadcast": whole + 2 * math.log2(hosts) * trees,
    }
    return costs[name]
