# SPDX-License-Identifier: Apache-2.0
"""Makes a ``Subnet`` of a topology of ``verbena.fabrics``, or of the text of ibnetdiscover.

Programs call these. Fabrics are read by duck typing, so that the agents need no networkx; only
``subnet_of_text`` imports ``verbena.fabrics``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..smp_attributes import PortInfo
from .device_profiles import ADAPTER, SWITCH, DeviceProfile
from .link_speeds import LANE_GBPS, LinkRate, link_rate
from .subnet import Subnet

if TYPE_CHECKING:
    from verbena.fabrics import Fabric, Rate

__all__ = ["subnet_of_fabric", "subnet_of_text"]

NAMES = tuple(LANE_GBPS)


def subnet_of_fabric(
    fabric: Fabric,
    *,
    adapter: DeviceProfile = ADAPTER,
    switch: DeviceProfile = SWITCH,
    keep_lids: bool = False,
) -> Subnet:
    """Return a subnet with the nodes, GUIDs and cables of a fabric; all links are INIT.

    ``keep_lids`` gives the ports the LIDs that the fabric has, as if they were from before.
    A cable with a rate of Ethernet gets the fastest one of InfiniBand that is not faster. Raises
    MadError for a node that cannot be one of InfiniBand.
    """
    made = Subnet()
    for name, kind in fabric.graph.nodes(data="kind"):
        ports, guid = fabric.graph.nodes[name]["ports"], fabric.guid(name)
        if kind == "switch":
            made.add_switch(name, ports=ports, guid=guid, profile=switch)
        else:
            made.add_adapter(name, ports=ports, guid=guid, profile=adapter)
    for cable in fabric.cables():
        made.connect(cable.a, cable.a_port, cable.b, cable.b_port, rate=infiniband_rate(cable.rate))
    if keep_lids:
        _give_lids(made, fabric)
    return made


def subnet_of_text(
    text: str,
    *,
    adapter: DeviceProfile = ADAPTER,
    switch: DeviceProfile = SWITCH,
    keep_lids: bool = False,
) -> Subnet:
    """Return the subnet that ibnetdiscover has printed, or that a topology file of ibsim has.

    The rest is as for ``subnet_of_fabric``. Raises FabricError, which names the line.
    """
    from verbena.fabrics import ibnetdiscover

    fabric = ibnetdiscover.read(text)
    return subnet_of_fabric(fabric, adapter=adapter, switch=switch, keep_lids=keep_lids)


def infiniband_rate(rate: Rate) -> LinkRate:
    """Return a link's rate in InfiniBand's terms: that of its name, or the next slower 4x one."""
    speed = rate.name.partition("x")[2]
    if speed in LANE_GBPS:
        return link_rate(rate.name)
    fitting = [name for name in NAMES if 4 * LANE_GBPS[name] <= rate.gbps]
    return LinkRate(4, fitting[-1]) if fitting else LinkRate(1, "SDR")


def _give_lids(subnet: Subnet, fabric: Fabric) -> None:
    for name, data in fabric.graph.nodes(data=True):
        lids = {0: data.get("lid", 0)} if data["kind"] == "switch" else data.get("lids", {})
        for number, lid in lids.items():
            PortInfo.put(subnet.nodes[name].ports[number].info, 0, lid=lid)
