# SPDX-License-Identifier: Apache-2.0
"""A subnet in real time: packets of programs at its hosts, time-outs, and links that fail.

The roles of the process share one ``LiveSubnet``. It is a duty of the server, which tells it the
time; nothing here waits. A message of several segments between two agents of the process is carried
as one packet, whose whole message is kept beside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from verbena.manage.agents import MadPacket, Subnet
from verbena.manage.agents.tallies import MAD_WORDS
from verbena.manage.errors import MadError
from verbena.manage.mad import MAD_BYTES

from .mad_port import MadAgent, MadPort, Pending
from .segments import SegmentedMessages

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.manage.agents import NodeAgent, NodePort

__all__ = ["LiveSubnet"]

FIRST_AGENT, AGENT_NUMBERS = 1, 1 << 32
RMPP_AT, SEGMENT = 24, 200
TABLES = (0x92, 0x94)  # GetTableResp, GetMultiResp: they may have several segments
MOST_CARRIED = 1024


class LiveSubnet:
    """The nodes and links of a fabric, and the programs' MAD ports at its hosts.

    ``clock`` gives seconds from any start. ``agents`` is by the upper halves of transaction IDs.
    ``is_instant``: packets arrive, and are answered, while they are sent.
    """

    def __init__(
        self,
        subnet: Subnet,
        clock: Callable[[], float],
        fabric: Fabric,
        *,
        is_instant: bool = True,
    ) -> None:
        self.subnet, self.is_instant = subnet, is_instant
        self.fabric = fabric
        self.agents: dict[bytes, MadAgent] = {}
        self.carried: dict[bytes, bytes] = {}
        """Whole messages by the packets in which they are on their way."""
        self._ports: dict[tuple[str, int], MadPort] = {}
        self._clock, self.begun = clock, clock()
        self.responses: dict[MadPort, Callable[[MadPacket], bool]] = {}
        """Who takes responses at a port that have no agent's number."""
        self.segments = SegmentedMessages(self)
        self._waiting: list[tuple[float, int, Pending]] = []
        self._count = count()
        self._numbers = count(FIRST_AGENT)

    # ---- hosts ---------------------------------------------------------------------------------

    def host(self, name: str) -> NodeAgent:
        """Return a node to which programs can be attached. Raises MadError, with what to do."""
        node = self.subnet.nodes.get(name)
        if node is None:
            raise MadError(f"the fabric has no host {name!r}{self._like(name)}")
        if node.is_switch:
            raise MadError(f"{name} is a switch; programs run on hosts{self._like('')}")
        return node

    def _like(self, name: str) -> str:
        import difflib

        hosts = [each for each, node in self.subnet.nodes.items() if not node.is_switch]
        near = difflib.get_close_matches(name, hosts, 3) or hosts[:3]
        return f", as {', '.join(near)} are" if near else ": it has none"

    def mad_port(self, node: NodeAgent, number: int) -> MadPort:
        """Return the MAD layer of an end port. Raises MadError if there is no such port."""
        end: NodePort = node.end_port(number)
        key = node.name, end.number
        found = self._ports.get(key)
        if found is None:
            found = self._ports[key] = MadPort(self, node, end)
            self.subnet.attach(node, found.receive, number)
        return found

    # ---- agents --------------------------------------------------------------------------------

    def add_agent(self, agent: MadAgent) -> None:
        """Give an agent its number."""
        agent.number = (next(self._numbers) % AGENT_NUMBERS).to_bytes(4, "big")
        self.agents[agent.number] = agent

    def remove_agent(self, agent: MadAgent) -> None:
        """Forget an agent's number."""
        self.agents.pop(agent.number, None)

    # ---- packets -------------------------------------------------------------------------------

    def await_response(self, pending: Pending) -> None:
        """Repeat a request that was sent after each of its time-outs, until it has a response."""
        pending.agent.pending[pending.key] = pending
        self._wait_for(pending)

    def _wait_for(self, pending: Pending) -> None:
        pending.deadline = self._clock() - self.begun + pending.timeout
        heapq.heappush(self._waiting, (pending.deadline, next(self._count), pending))

    def send(self, port: MadPort, packet: MadPacket, message: bytes | None = None) -> None:
        """Send a packet from a port. ``message`` is the whole of which it is the first segment."""
        if message is not None:
            packet = packet._replace(mad=first_segment(message))
            self.carried[packet.mad] = message
            self._count_others(packet, len(message))
        self.subnet.inject(port.node, packet)

    def send_answer(self, port: MadPort, request: MadPacket, answer: bytes) -> None:
        """Send the answer of subnet administration at a port, of any length."""
        reply = request.answer(answer[:MAD_BYTES].ljust(MAD_BYTES, b"\0"))
        reply = reply._replace(port=port.port.number)
        several = answer[3] in TABLES and not (answer[4] or answer[5])
        self.send(port, reply, with_rmpp(answer) if several else None)

    def _count_others(self, packet: MadPacket, length: int) -> None:
        """Count the packets behind the first one, which would carry the rest of a message."""
        others = max(length - RMPP_AT - 1, 0) // SEGMENT
        with suppress(MadError):  # the source has no LID yet
            self.subnet.carry(
                packet.slid,
                packet.dlid,
                packets=others,
                words=others * MAD_WORDS,
                sl=packet.sl,
                p_key=packet.p_key,
            )

    def outstanding(self, pending: Pending) -> bool:
        """Whether a request still has no response."""
        return pending.agent.pending.get(pending.key) is pending

    # ---- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._clock() - self.begun

    def catch_up(self) -> None:
        """Tell the subnet what time it is."""
        self.subnet.advance(self.now)

    def next_deadline(self) -> float | None:
        """When ``tick`` has something to do, in seconds of the clock."""
        waiting = self._waiting
        while waiting and not self.outstanding(waiting[0][2]):
            heapq.heappop(waiting)
        due = self.subnet.next_due
        if waiting and (due is None or waiting[0][0] < due):
            due = waiting[0][0]
        segments = self.segments.next_deadline()
        if segments is not None and (due is None or segments < due):
            due = segments
        return None if due is None else due + self.begun

    def tick(self, now: float) -> None:
        """Repeat requests, give up those that are too late, and send traps."""
        here = now - self.begun
        if here > self.subnet.now:
            self.subnet.advance(here)
        while self._waiting and self._waiting[0][0] <= here:
            self._due(heapq.heappop(self._waiting)[2])
        self.segments.tick(here)
        if self.is_instant:
            self.carried.clear()  # of packets that were lost
        while len(self.carried) > MOST_CARRIED:
            del self.carried[next(iter(self.carried))]

    def _due(self, pending: Pending) -> None:
        if not self.outstanding(pending):
            return
        if pending.retries <= 0:
            del pending.agent.pending[pending.key]
            pending.give_back()
            return
        pending.retries -= 1
        self.send(pending.agent.port, pending.packet, pending.message)
        if self.outstanding(pending):
            self._wait_for(pending)


def first_segment(message: bytes) -> bytes:
    """Return the packet's MAD in which a message of several segments is on its way.

    A receiver sees the message with these RMPP headers: data, active, first and last.
    """
    return message[:MAD_BYTES].ljust(MAD_BYTES, b"\0")


def with_rmpp(message: bytes) -> bytes:
    """Return a message with the RMPP header of one that has arrived as a whole."""
    length = len(message) - RMPP_AT - 12
    header = bytes((1, 1, message[RMPP_AT + 2] & 0xF8 | 7, 0)) + (1).to_bytes(4, "big")
    return message[:RMPP_AT] + header + length.to_bytes(4, "big") + message[RMPP_AT + 12 :]
