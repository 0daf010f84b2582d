# SPDX-License-Identifier: Apache-2.0
"""The smallest model of a network that one would write with SimPy: what ours is measured against.

A link is a process with a queue: a packet takes its bytes' time on it, and its delay. Senders put
all they have into their own link's queue; each data packet is answered by an acknowledgement. No
protocol, no flow control, no statistics but a count.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from verbena.fabrics import Routes, Workload

MTU, ACK = 4096, 64


@dataclass(slots=True)
class Packet:
    """``way``: numbers of the links it goes over; ``at``: where on it."""

    flow: int
    size: int
    way: Sequence[int]
    at: int = 0


class Link:
    """One direction of a cable."""

    def __init__(self, model: Model, ps_per_byte: int, delay: int) -> None:
        self.model, self.ps_per_byte, self.delay = model, ps_per_byte, delay
        self.queue = simpy.Store(model.env)
        model.env.process(self.transmit())

    def transmit(self) -> Generator[Any, Any, None]:
        env = self.model.env
        while True:
            packet = yield self.queue.get()
            yield env.timeout(packet.size * self.ps_per_byte)
            self.model.hops += 1
            arrival = env.timeout(self.delay, packet)
            arrival.callbacks.append(self.arrive)

    def arrive(self, event: Any) -> None:
        self.model.forward(event.value)


class Model:
    """Routes and flows of Verbena's own, with times in whole picoseconds."""

    def __init__(self, routes: Routes, work: Workload) -> None:
        self.env = simpy.Environment()
        self.hops = 0
        cables = routes.tables.links
        self.links = [
            Link(self, int(link["ps_num"] // link["ps_den"]), int(link["delay_ps"]))
            for link in cables
        ]
        flows = work.flows
        ways = routes.links(flows["src"], flows["dst"])
        back = routes.links(flows["dst"], flows["src"])
        self.back = [[int(link) for link in way if link >= 0] for way in back]
        self.finish = [0] * len(flows)
        for number, (way, size) in enumerate(zip(ways, flows["bytes"], strict=True)):
            there = [int(link) for link in way if link >= 0]
            for _ in range(-(-int(size) // MTU)):
                self.links[there[0]].queue.put(Packet(number, MTU, there))

    def forward(self, packet: Packet) -> None:
        """At the end of a link: over the next one, or it has arrived."""
        packet.at += 1
        if packet.at < len(packet.way):
            self.links[packet.way[packet.at]].queue.put(packet)
        elif packet.size == ACK:
            self.finish[packet.flow] = self.env.now
        else:
            way = self.back[packet.flow]
            self.links[way[0]].queue.put(Packet(packet.flow, ACK, way))

    def run(self) -> None:
        self.env.run()
