# SPDX-License-Identifier: Apache-2.0
"""Discovery of a subnet by directed-route SMPs, breadth first, with many requests at once.

``Sweep`` begins one with ``start`` and takes ``subnet`` when the window is idle. All that goes on
is in the table below: what comes in, and what is asked then.

    comes in                        asked, or noted
    ------------------------------  --------------------------------------------------------------
    start                           NodeInfo of the own node
    NodeInfo, new switch            NodeDescription, SwitchInfo, PortInfo of each port from 0 on
    NodeInfo, new CA or router      NodeDescription, PortInfo of the port by which it came
    NodeInfo, known CA, new port    PortInfo of the port
    NodeInfo, known port            nothing: the link is noted, or a loop, or a duplicate GUID
    PortInfo of a switch's port     NodeInfo one hop further if the link is up
    PortInfo of the own CA's port   the same
    PortInfo of any end port        block 0 of its P_Key table
    a block of P_Keys               the next block, if there is one and this one has more than the
                                    default P_Key
    no NodeInfo after all retries   a silent port is noted
    none of another attribute       the node has failed: nothing more is asked of it

Behind each port of a switch something is asked, even where the other end is known: two nodes of
one GUID are noticed by that. The port by which a switch was found is the exception, as with OpenSM.
"""

from __future__ import annotations

from ..attribute_ids import SmpAttribute
from ..codes import PortState
from ..errors import MadError
from .discovered import DiscoveredSubnet, DuplicateGuid, SubnetNode, SubnetPort
from .smp_window import SmpRequest, SmpRoute, SmpWindow

__all__ = ["Discovery"]

_DATA = 64  # where an SMP has its attribute
_NODE_INFO, _NODE_DESCRIPTION = int(SmpAttribute.NODE_INFO), int(SmpAttribute.NODE_DESCRIPTION)
_SWITCH_INFO, _PORT_INFO = int(SmpAttribute.SWITCH_INFO), int(SmpAttribute.PORT_INFO)
_P_KEY_TABLE = int(SmpAttribute.P_KEY_TABLE)
_DOWN = int(PortState.DOWN)
_P_KEYS_OF_BLOCK = 32
_DEFAULT_KEYS = {key.ljust(64, b"\0") for key in (b"", b"\xff\xff", b"\x7f\xff")}


class Discovery:
    """A discovery that is going on; ``subnet`` is complete when the window is idle."""

    def __init__(self, window: SmpWindow) -> None:
        self.subnet = DiscoveredSubnet()
        self._window = window

    def start(self) -> None:
        """Ask the own node."""
        self._window.get(SmpRoute(), _NODE_INFO, 0, self._node_info)

    def _node_info(self, request: SmpRequest, mad: bytes) -> None:
        origin: SubnetPort | None = request.detail
        info = mad[_DATA : _DATA + 40]
        kind, guid, number = info[2], int.from_bytes(info[12:20], "big"), info[36]
        if not 1 <= kind <= 3 or (number > info[3] and number):
            self._note_silent(origin, f"NodeInfo of type {kind} with port {number} of {info[3]}")
            return
        node = self.subnet.nodes.get(guid)
        if node is None:
            node = self._new_node(guid, info, request.route)
        if not node.is_switch and number not in node.ports:
            port_guid = int.from_bytes(info[20:28], "big")
            node.ports[number] = port = SubnetPort(node, number, port_guid, request.route)
            self._ask_port(port)
        if origin is None:
            self.subnet.own_port = node.ports[0 if node.is_switch else number]
        else:
            found = node.ports.get(number)
            if found is None:
                second = DuplicateGuid(guid, number, node.route.ports, request.route.ports)
                self.subnet.duplicates.append(second)
            else:
                self._link(origin, found, request.route)

    def _new_node(self, guid: int, info: bytes, route: SmpRoute) -> SubnetNode:
        node = SubnetNode(guid, info, route)
        if node.is_switch and route.ports:
            node.came_by = info[36]
        self.subnet.nodes[guid] = node
        self._window.get(route, _NODE_DESCRIPTION, 0, self._description, node)
        if node.is_switch:
            self._window.get(route, _SWITCH_INFO, 0, self._switch_info, node)
            port_guid = int.from_bytes(info[20:28], "big")
            for number in range(info[3] + 1):
                port = SubnetPort(node, number, 0 if number else port_guid, route)
                node.ports[number] = port
                self._ask_port(port)
        return node

    def _ask_port(self, port: SubnetPort) -> None:
        self._window.get(port.route, _PORT_INFO, port.number, self._port_info, port.node, port)

    def _link(self, origin: SubnetPort, found: SubnetPort, route: SmpRoute) -> None:
        if origin.node is found.node:
            if origin.node.is_switch:
                loop = (origin, found)
                if loop not in self.subnet.loops and loop[::-1] not in self.subnet.loops:
                    self.subnet.loops.append(loop)
            return
        if origin.peer is found:
            return
        if origin.peer is None and found.peer is None:
            origin.peer, found.peer = found, origin
            return
        other = found.peer or origin
        first = (*other.route.ports, other.number) if other is not origin else found.route.ports
        self.subnet.duplicates.append(
            DuplicateGuid(found.node.guid, found.number, first, route.ports)
        )

    def _description(self, request: SmpRequest, mad: bytes) -> None:
        text = mad[_DATA : _DATA + 64].partition(b"\0")[0]
        request.subject.description = text.decode("utf-8", "surrogateescape")

    def _switch_info(self, request: SmpRequest, mad: bytes) -> None:
        request.subject.switch_info = mad[_DATA : _DATA + 20]

    def _port_info(self, request: SmpRequest, mad: bytes) -> None:
        port: SubnetPort = request.detail
        port.info = info = mad[_DATA : _DATA + 64]
        node = port.node
        if port.is_end_port and (node.info[28] or node.info[29]):
            self._window.get(port.route, _P_KEY_TABLE, 0, self._p_keys, node, (port, 0))
        own = self.subnet.own_port
        is_onward = port.number and port.number != node.came_by
        if is_onward and info[32] & 15 > _DOWN and (node.is_switch or port is own):
            try:
                beyond = port.route.beyond(port.number)
            except MadError as error:
                self._note_silent(port, str(error))
            else:
                self._window.get(beyond, _NODE_INFO, 0, self._node_info, node, port)

    def _p_keys(self, request: SmpRequest, mad: bytes) -> None:
        port, block = request.detail
        port.p_keys[block] = data = mad[_DATA : _DATA + 64]
        entries = port.node.info[28] << 8 | port.node.info[29]
        following = block + 1
        if data not in _DEFAULT_KEYS and following * _P_KEYS_OF_BLOCK < entries:
            self._window.get(
                port.route, _P_KEY_TABLE, following, self._p_keys, port.node, (port, following)
            )

    def failed(self, request: SmpRequest, reason: str) -> None:
        """Note a request that had no good response."""
        node: SubnetNode | None = request.subject
        if request.attribute == _NODE_INFO:
            self._note_silent(request.detail, reason)
        elif node is not None and request.attribute != _P_KEY_TABLE and not node.failed:
            node.failed = True
            self.subnet.failed.append(node)
            self.subnet.notes.append(f"{node!r}: {request}: {reason}")
            self._window.drop(node)

    def _note_silent(self, port: SubnetPort | None, reason: str) -> None:
        if port is not None:
            self.subnet.silent.append(port)
            self.subnet.notes.append(f"behind {port!r}: {reason}")
        else:
            self.subnet.notes.append(f"the own node: {reason}")

    def finish(self) -> DiscoveredSubnet:
        """Remove what is not usable, and return the subnet. The window has to be idle."""
        for node in self.subnet.failed:
            if node.guid in self.subnet.nodes:
                self.subnet.remove(node)
        if self.subnet.own_port is not None and self.subnet.own_port.node.failed:
            self.subnet.own_port = None
        for node in self.subnet.remove_unreachable():
            self.subnet.notes.append(f"{node!r} is behind nodes that have failed")
        return self.subnet
