# SPDX-License-Identifier: Apache-2.0
"""A minimal model of a network in SimPy, the peer of Verbena's simulator in the benchmarks.

A link is a process with a queue: a packet takes its bytes' time on it, and its delay. Senders put
all packets into their own link's queue at once; each data packet is answered by an acknowledgement.
There is no protocol, no flow control, and only one counter.
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
    """``way``: the numbers of the links of its path; ``at``: its position on the path."""

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
        """Send a packet that reached the end of a link over the next link, or count its arrival."""
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
