# SPDX-License-Identifier: Apache-2.0
"""What a soak does, drawn from its seed: which workers talk, how, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KINDS = {
    "RC": ("stream", "slow", "full", "write", "read", "atomic"),
    "UC": ("stream", "full", "write"),
    "UD": ("stream", "slow"),
}
UPSETS = ("unmap target", "unmap source", "close region", "close qp", "reset qp")
HEADER = 16  # bytes of a message that say which one it is
LARGEST_DATAGRAM = 256  # fits the smallest MTU


@dataclass(frozen=True)
class Talk:
    """Two queue pairs that are made, used and destroyed. Side a is active, side b its target."""

    number: int
    a: int
    b: int
    qp_type: str
    kind: str
    memory: str
    rounds: int
    depth: int
    length: int
    srq: bool
    channel: bool
    own_device: bool
    upset: str
    packets: bool

    def lengths(self) -> list[int]:
        """Of the messages of a round, in bytes."""
        random = Random(f"{self.number} {self.length}")
        return [random.randint(HEADER, self.length) for _ in range(self.depth)]


@dataclass(frozen=True)
class Shape:
    """Workers 0 … direct-1 reach each other directly, the others by packets."""

    processes: int = 8
    direct: int = 5

    def is_direct(self, worker: int) -> bool:
        return worker < self.direct

    def partners(self, random: Random) -> tuple[int, int]:
        everybody = range(self.processes)
        a = random.choice(everybody)
        alike = [w for w in everybody if w != a and self.is_direct(w) == self.is_direct(a)]
        return a, random.choice(alike)


def draw_talk(seed: str, number: int, shape: Shape) -> Talk:
    random = Random(f"{seed} talk {number}")
    a, b = shape.partners(random)
    qp_type = random.choice(("RC", "RC", "RC", "UC", "UD"))
    packets = not shape.is_direct(a)
    upset = random.choice(UPSETS) if qp_type != "UD" and random.random() < 0.3 else ""
    datagrams = qp_type == "UD" or (qp_type == "UC" and packets)
    return Talk(
        number=number,
        a=a,
        b=b,
        qp_type=qp_type,
        kind=random.choice(KINDS[qp_type]),
        memory="own" if upset.startswith("unmap") else random.choice(("alloc", "own")),
        rounds=random.randint(1, 4),
        depth=random.choice((1, 4, 16, 64)),
        length=LARGEST_DATAGRAM if datagrams else random.choice((32, 300, 5000, 70000)),
        srq=random.random() < 0.25,
        channel=random.random() < 0.5,
        own_device=random.random() < 0.1,
        upset=upset,
        packets=packets,
    )


def draw_victim(seed: str, number: int, shape: Shape) -> int | None:
    """The worker that is killed when talk ``number`` begins, if any."""
    random = Random(f"{seed} kill {number}")
    return random.randrange(shape.processes) if random.random() < 1 / 40 else None
