# SPDX-License-Identifier: Apache-2.0
"""PortState of a link: what a subnet manager may set, and what the link itself does (IBA 7.2.7).

``STATE_SETS`` is the table of Set(PortInfo). ``link_up``, ``link_down`` and ``data_arrived`` are
the transitions of the link; whoever has the links calls them. A switch marks them in
PortStateChange and sends trap 128, which a Set does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..codes import LinkDownState, PortPhysicalState, PortState
from ..notices import LinkStateTrap, TrapNumber
from ..smp_attributes import SwitchInfo
from .link_speeds import LinkSettings, negotiate
from .packets import PortEvent

if TYPE_CHECKING:
    from .node_ports import NodePort

__all__ = ["STATE_SETS", "data_arrived", "link_down", "link_up", "link_width_and_speed"]

DOWN, INIT, ARMED, ACTIVE = (
    PortState.DOWN,
    PortState.INIT,
    PortState.ARMED,
    PortState.ACTIVE,
)
# (the state that a port is in, the state that a Set wants): the state that it takes. A pair that is
# not here is refused. The link itself goes on from DOWN to INIT.
STATE_SETS = {
    **{(state, PortState.NO_CHANGE): state for state in (DOWN, INIT, ARMED, ACTIVE)},
    **{(state, DOWN): DOWN for state in (DOWN, INIT, ARMED, ACTIVE)},
    (INIT, ARMED): ARMED,
    (ARMED, ARMED): ARMED,
    (ARMED, ACTIVE): ACTIVE,
    (ACTIVE, ACTIVE): ACTIVE,
}


def link_width_and_speed(one: NodePort, other: NodePort) -> LinkSettings | None:
    """Return what two ports negotiate from what they are allowed, or None if they cannot.

    A cable may allow less than they do.
    """
    ours = one.settings("enabled")
    if one.cable_rate is not None:
        ours &= LinkSettings.up_to(one.cable_rate)
    return negotiate(ours, other.settings("enabled"))


def link_up(port: NodePort, active: LinkSettings) -> None:
    """The link of a port has trained to a width and speed: it becomes INIT."""
    port.set_active(active)
    port.put_state(INIT, PortPhysicalState.LINK_UP)
    _changed_by_link(port)


def link_down(port: NodePort, *, physical: int | None = None, by_set: bool = False) -> None:
    """The link of a port has gone down: it becomes DOWN, and its LinkDownDefaultState decides.

    ``physical`` is another PortPhysicalState to take. ``by_set``: the subnet manager has set it.
    """
    was = port.state
    if physical is None:
        default = LinkDownState(port.info[33] & 15)
        sleeps = default == LinkDownState.SLEEP
        physical = PortPhysicalState.SLEEP if sleeps else PortPhysicalState.POLLING
    port.put_state(DOWN, physical)
    if was != DOWN and not by_set:
        _changed_by_link(port)
    elif was != DOWN:
        port.node.surroundings.port_event(port, PortEvent.STATE)


def data_arrived(port: NodePort) -> None:
    """A packet that is no SMP has come by the port: an ARMED one becomes ACTIVE."""
    if port.state == ARMED:
        port.put_state(ACTIVE)
        port.node.surroundings.routing_changed()
        port.node.surroundings.port_event(port, PortEvent.STATE)


def _changed_by_link(port: NodePort) -> None:
    node = port.node
    if node.is_switch:
        SwitchInfo.put(node.switch_info, 0, port_state_change=True)
        itself = node.ports[0]
        if itself.master_sm_lid:
            node.traps.notify(itself, TrapNumber.LINK_STATE, LinkStateTrap(lid=itself.lid))
    node.surroundings.routing_changed()
    node.surroundings.port_event(port, PortEvent.STATE)
