# SPDX-License-Identifier: Apache-2.0
"""Links that lose packets: which packets of a way are damaged, and where that is counted.

``NodePort.loss`` is the chance that a packet is damaged on the port's cable, in both directions.
``Subnet`` asks ``damage`` for each MAD that passes such a link, and who carries data charges
thousands of packets at once by ``charge_lossy``. A damaged packet was sent by one port and is an
error of the other (SymbolErrors, PortRcvErrors, PortLocalPhysicalErrors).
"""

from __future__ import annotations

from math import log, log1p
from random import Random
from typing import TYPE_CHECKING

from .tallies import MAD_WORDS

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = [
    "chance_of_loss",
    "charge_lossy",
    "charge_lossy_group",
    "damage",
    "damaged_of",
    "is_lossy",
    "mean_loss_of_group",
    "shared_out",
]

Links = list[tuple["NodePort", "NodePort"]]
ERRORS = ("symbol_errors", "rcv_errors", "local_physical_errors")
FEW = 64  # packets of which each is drawn


def is_lossy(links: Links) -> bool:
    """Whether packets may be lost on one of these links."""
    return any(out.loss for out, _ in links)


def chance_of_loss(links: Links) -> float:
    """Return the chance that a packet is damaged on one of these links."""
    passes = 1.0
    for out, _ in links:
        passes *= 1 - out.loss
    return 1 - passes


def damage(links: Links, random: Random) -> bool:
    """Send a MAD over links. True: it is damaged on one of them, and counted so far."""
    for number, (out, _) in enumerate(links):
        if out.loss and random.random() < out.loss:
            charge_lossy(links, 1, MAD_WORDS, [0] * number + [1])
            return True
    return False


def damaged_of(links: Links, packets: int, random: Random) -> list[int]:
    """Return how many of so many packets are damaged on each of these links."""
    found = []
    for out, _ in links:
        lost = _binomial(packets, out.loss, random) if out.loss else 0
        packets -= lost
        found.append(lost)
    return found


def shared_out(times: int, chances: list[float], random: Random) -> list[int]:
    """Return how many of so many losses were at each link, whose chances are in proportion.

    It takes as long for many as for few: a program says how many there were.
    """
    found, left = [0] * len(chances), times
    lossy = [number for number, chance in enumerate(chances) if chance > 0]
    for number in lossy[:-1]:
        share = chances[number] / sum(chances[number:])
        found[number] = _binomial(left, share, random)
        left -= found[number]
    if lossy:
        found[lossy[-1]] = left
    return found


def charge_lossy(links: Links, packets: int, words: int, damaged: list[int]) -> None:
    """Count packets with so many words in all, of which some are damaged on each link of a way.

    ``damaged`` may be shorter than ``links``. Where no packet is left nothing is counted.
    """
    each = words / packets if packets else 0
    for number, link in enumerate(links):
        if packets <= 0:
            return
        lost = min(damaged[number], packets) if number < len(damaged) else 0
        _charge_link(link, packets, each, lost)
        packets -= lost


def charge_lossy_group(links: Links, packets: int, words: int, random: Random) -> None:
    """Count datagrams to a group, whose copies pass these links, each behind the one before it."""
    each = words / packets if packets else 0
    left: dict[NodeAgent, int] = {}
    for out, into in links:
        here = left.get(out.node, packets)
        lost = _binomial(here, out.loss, random) if out.loss else 0
        if here:
            _charge_link((out, into), here, each, lost, multicast=True)
        left[into.node] = here - lost


def mean_loss_of_group(links: Links, ends: list[NodePort]) -> float:
    """Return the chance that a copy of a datagram to a group is damaged, on average of its ends."""
    passes: dict[NodeAgent, float] = {}
    for out, into in links:
        passes[into.node] = passes.get(out.node, 1.0) * (1 - out.loss)
    reached = [passes[end.node] for end in ends if end.node in passes]
    return 1 - sum(reached) / len(reached) if reached else 0.0


def _charge_link(
    link: tuple[NodePort, NodePort],
    packets: int,
    each: float,
    lost: int,
    *,
    multicast: bool = False,
) -> None:
    out, into = link
    out.tally.sent(packets, round(packets * each), multicast)
    if packets > lost:
        into.tally.received(packets - lost, round((packets - lost) * each), multicast)
    if lost:
        for name in ERRORS:
            into.tally.count(name, lost)


def _binomial(count: int, chance: float, random: Random) -> int:
    """Return how often something of this chance happens in so many trials."""
    if count <= FEW:
        return sum(random.random() < chance for _ in range(count))
    mean = count * chance
    if min(mean, count - mean) > 30:  # close to a normal distribution
        found = random.gauss(mean, (mean * (1 - chance)) ** 0.5)
        return min(max(round(found), 0), count)
    if mean <= 30:
        return _rarely(count, chance, random)
    return count - _rarely(count, 1 - chance, random)


def _rarely(count: int, chance: float, random: Random) -> int:
    """The same for a few times in many trials: it draws the trials between two of them."""
    if chance <= 0:
        return 0
    found, at, missed = 0, 0, log1p(-chance)
    while (at := at + int(log(1 - random.random()) / missed) + 1) <= count:
        found += 1
    return found
