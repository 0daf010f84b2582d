# SPDX-License-Identifier: Apache-2.0
"""The MAD layer of a host's port: agents register for classes and methods, send and receive.

``LiveSubnet`` makes a ``MadPort`` for each end port that programs use. The rules are those of
ib_mad in Linux: a response goes to the agent that has asked, whose number is the upper half of the
transaction ID, and anything else to the agent that has registered for its class and method.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.manage.agents import MadPacket

if TYPE_CHECKING:
    from verbena.manage.agents import NodeAgent, NodePort

    from .live_subnet import LiveSubnet

__all__ = ["MadAgent", "MadPort", "RegistrationRefused"]

LID_ROUTED, DIRECTED, SUBN_ADM = 0x01, 0x81, 0x03
SMPS = (LID_ROUTED, DIRECTED)
VENDOR = range(0x30, 0x50)  # classes with an OUI
RMPP_CLASSES = {SUBN_ADM, 0x06, 0x07, *VENDOR}  # SA, device management and administration
CLASSES, VERSIONS = 80, 0x83
RESPONSE, TRAP_REPRESS = 0x80, 0x07
RMPP_FLAGS, ACTIVE = 26, 1  # a byte of the RMPP header, and its bit
ANY_OUI = b"\0\0\0"
Key = tuple[int, int, bytes]  # class, version, OUI
# (message, packet): the whole message, and the packet that it or its first segment came in.
Deliver = Callable[[bytes, MadPacket], None]


class RegistrationRefused(Exception):
    """An agent cannot be registered; ``errno`` is what Linux gives."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.errno = error


class Pending:
    """A request whose response is awaited; ``give_back`` is called when its time is over."""

    __slots__ = ("agent", "deadline", "give_back", "key", "message", "packet", "retries", "timeout")

    def __init__(
        self,
        agent: MadAgent,
        packet: MadPacket,
        message: bytes | None,
        timeout: float,
        retries: int,
        give_back: Callable[[], None],
    ) -> None:
        self.agent, self.packet, self.message = agent, packet, message
        self.timeout, self.retries, self.give_back = timeout, retries, give_back
        self.key = packet.mad[1], packet.mad[8:16]
        self.deadline = 0.0


class MadAgent:
    """Something that sends and receives MADs at a port: a program's, or the built-in manager's.

    ``methods`` is a mask of those requests that it takes, of ``mgmt_class``; 0 for one that only
    sends. ``whole`` says that messages of several segments come and go as one. ``number`` is the
    upper half of the transaction IDs of its requests.
    """

    def __init__(
        self,
        port: MadPort,
        qp: int,
        deliver: Deliver,
        *,
        mgmt_class: int = 0,
        version: int = 1,
        methods: int = 0,
        oui: bytes = ANY_OUI,
        whole: bool = False,
    ) -> None:
        self.port, self.qp, self.deliver = port, qp, deliver
        self.key: Key = mgmt_class, version, oui if mgmt_class in VENDOR else ANY_OUI
        self.methods = methods
        self.whole = whole
        self.number = b""
        self.pending: dict[tuple[int, bytes], Pending | None] = {}
        """Requests without a response by class and transaction ID; None while one is sent."""

    def close(self) -> None:
        """Unregister; what it has asked is forgotten."""
        self.port.unregister(self)

    def transaction(self, mad: bytes) -> bytes:
        """Return a MAD to send with the transaction ID that it gets: of a request, this agent's."""
        if mad[3] & RESPONSE or mad[3] == TRAP_REPRESS:
            return mad
        return mad[:8] + self.number + mad[12:]


def check_registration(qp: int, mgmt_class: int, version: int, oui: bytes, rmpp: int) -> None:
    """Raises RegistrationRefused where Linux refuses an agent."""
    is_smp = mgmt_class in SMPS
    wrong = (
        qp not in (0, 1)
        or rmpp not in (0, 1)
        or (mgmt_class >= CLASSES and mgmt_class != DIRECTED)
        or version >= VERSIONS
        or (mgmt_class in VENDOR and oui == ANY_OUI)
        or (mgmt_class != 0 and is_smp != (qp == 0))
        or (mgmt_class != 0 and rmpp and mgmt_class not in RMPP_CLASSES)
    )
    if wrong:
        raise RegistrationRefused(errno.EINVAL)


class MadPort:
    """The agents of an end port, and the way of packets between them and the subnet."""

    def __init__(self, live: LiveSubnet, node: NodeAgent, port: NodePort) -> None:
        self.live, self.node, self.port = live, node, port
        self._owners: dict[Key, dict[int, MadAgent]] = {}

    # ---- agents --------------------------------------------------------------------------------

    def register(self, agent: MadAgent) -> None:
        """Register an agent. Raises RegistrationRefused if another one has one of its methods."""
        owners = self._owners.setdefault(agent.key, {})
        methods = [n for n in range(128) if agent.methods >> n & 1] if agent.key[0] else []
        if any(method in owners for method in methods):
            raise RegistrationRefused(errno.EINVAL)
        owners.update(dict.fromkeys(methods, agent))
        self.live.add_agent(agent)

    def unregister(self, agent: MadAgent) -> None:
        """Take an agent away."""
        owners = self._owners.get(agent.key, {})
        for method in [each for each, owner in owners.items() if owner is agent]:
            del owners[method]
        agent.pending.clear()
        self.live.remove_agent(agent)

    # ---- packets -------------------------------------------------------------------------------

    def receive(self, packet: MadPacket) -> bool:
        """Take a packet from the subnet. False: nobody here wants it."""
        mad = packet.mad
        method = mad[3]
        if mad[1] in RMPP_CLASSES and mad[RMPP_FLAGS] & ACTIVE:
            return self._receive_rmpp(packet)
        carried = self.live.carried
        if method & RESPONSE or method == TRAP_REPRESS:
            agent = self.live.agents.get(mad[8:12])
            if agent is None or agent.port is not self:
                other = self.live.responses.get(self)
                return other is not None and other(packet)
            if agent.pending.pop((mad[1], mad[8:16]), self) is self:
                return True  # too late, or never asked: as with Linux, it is lost
        else:
            oui = mad[37:40] if mad[1] in VENDOR else ANY_OUI
            owner = self._owners.get((mad[1], mad[2], oui), {}).get(method)
            if owner is None:
                return False
            agent = owner
        message = carried.pop(mad, mad) if carried else mad
        agent.deliver(message, packet)
        return True

    def _receive_rmpp(self, packet: MadPacket) -> bool:
        """Take a packet of a message of RMPP: the whole that is carried with it, or a segment.

        An agent that does RMPP itself gets each segment, also those behind the one that ends its
        request.
        """
        mad = packet.mad
        is_response = bool(mad[3] & RESPONSE)
        message = self.live.carried.pop(mad, None)
        if is_response:
            agent = self.live.agents.get(mad[8:12])
            if agent is None or agent.port is not self:
                other = self.live.responses.get(self)
                return other is not None and other(packet)
        else:
            oui = mad[37:40] if mad[1] in VENDOR else ANY_OUI
            owner = self._owners.get((mad[1], mad[2], oui), {}).get(mad[3])
            if owner is None:
                return False
            agent = owner
        pending = mad[1], mad[8:16]
        if not agent.whole:
            if is_response:
                agent.pending.pop(pending, None)
            if message is None:
                agent.deliver(mad, packet)
            else:
                self.live.segments.begin(packet, message)
            return True
        if message is None:
            message = self.live.segments.take(self, packet)
        is_late = is_response and message is not None and pending not in agent.pending
        if message is None or is_late:
            return True
        agent.pending.pop(pending, None)
        agent.deliver(message, packet)
        return True
