# SPDX-License-Identifier: Apache-2.0
"""A light sweep: has anything changed since the last heavy one?

A master's ``SubnetManager`` makes one every ``sweep_interval``. It asks

* SwitchInfo of every switch: PortStateChange says that a port's link came or went;
* NodeInfo behind each port whose neighbour did not answer in the heavy sweep;
* SMInfo of the other subnet managers;
* PortInfo of the own port: another LID, or another SM's, says that another master is at work, and
  the link may have come or gone;
* with ``links``, PortInfo of switches' ports without a neighbour, since a link that came up while
  the heavy sweep cleared PortStateChange would not be noticed otherwise.
"""

from __future__ import annotations

from ..attribute_ids import SmpAttribute
from ..codes import PortState
from ..errors import MadError
from ..smp_attributes import SmInfo
from .discovered import DiscoveredSubnet, SubnetPort
from .smp_window import SmpRequest, SmpWindow

__all__ = ["LightSweep"]

_DATA = 64
_CHANGED = 0x04


class LightSweep:
    """A light sweep that is going on. ``changes`` says why a heavy one is needed, if it is.

    Once it says so, nothing else has to be waited for: the heavy sweep asks for everything.
    """

    def __init__(
        self, window: SmpWindow, subnet: DiscoveredSubnet, managers: list[SubnetPort], links: bool
    ) -> None:
        self.changes: list[str] = []
        self.managers: list[tuple[SubnetPort, SmInfo]] = []
        self._window = window
        own = subnet.own_port
        if own is not None:
            window.get(own.route, SmpAttribute.PORT_INFO, own.number, self._own_port, own.node, own)
        for node in subnet.switches:
            window.get(node.route, SmpAttribute.SWITCH_INFO, 0, self._switch_info, node)
            if links:
                for port in node.ports.values():
                    if port.number and port.peer is None and port not in subnet.silent:
                        window.get(
                            node.route,
                            SmpAttribute.PORT_INFO,
                            port.number,
                            self._port_info,
                            node,
                            port,
                        )
        for port in subnet.silent:
            try:
                route = port.route.beyond(port.number)
            except MadError:
                continue
            window.get(route, SmpAttribute.NODE_INFO, 0, self._answers, None, port)
        for port in managers:
            window.get(port.route, SmpAttribute.SM_INFO, 0, self._manager, None, port)

    @property
    def is_done(self) -> bool:
        """Nothing waits for a response any more."""
        return self._window.is_idle

    def _switch_info(self, request: SmpRequest, mad: bytes) -> None:
        if mad[_DATA + 11] & _CHANGED:
            self.changes.append(f"{request.subject!r} says that a port has changed")

    def _port_info(self, request: SmpRequest, mad: bytes) -> None:
        port: SubnetPort = request.detail
        if mad[_DATA + 32] & 15 > PortState.DOWN and port.state <= PortState.DOWN:
            self.changes.append(f"{port!r} has a link now")

    def _own_port(self, request: SmpRequest, mad: bytes) -> None:
        if mad[_DATA + 16 : _DATA + 20] != request.detail.info[16:20]:
            self.changes.append("another subnet manager has configured the own port")
        is_up = mad[_DATA + 32] & 15 > PortState.DOWN
        if request.detail.number and is_up != (request.detail.peer is not None):
            self.changes.append("the own port's link has come or gone")

    def _answers(self, request: SmpRequest, mad: bytes) -> None:
        self.changes.append(f"something answers behind {request.detail!r}")

    def _manager(self, request: SmpRequest, mad: bytes) -> None:
        self.managers.append((request.detail, SmInfo.unpack(mad, _DATA)))

    def failed(self, request: SmpRequest, reason: str) -> None:
        """Note a request that had no good response."""
        if request.subject is not None:
            self.changes.append(f"{request.subject!r}: {request}: {reason}")
            self._window.drop(request.subject)
        elif request.attribute == SmpAttribute.SM_INFO:
            self.changes.append(f"the subnet manager of {request.detail!r}: {reason}")
