# SPDX-License-Identifier: Apache-2.0
"""The subnet manager: discovery, LIDs, routing, tables, and the election among several managers.

``SubnetManager`` is the whole; it takes packets and times and returns packets. Needs networkx, as
``verbena.fabrics`` does, whose routing engines decide.
"""

from __future__ import annotations

from .discovered import DiscoveredSubnet, DuplicateGuid, SubnetNode, SubnetPort
from .discovered_fabric import discovered_fabric
from .election import SmControl
from .lid_assignment import read_guid_to_lid, write_guid_to_lid
from .node_names import read_node_names, write_node_names
from .partitions import Membership, Partition, Partitions, read_partitions
from .settings import SmSettings
from .subnet_manager import SubnetManager
from .sweep_routing import SubnetRoutes

__all__ = [
    "DiscoveredSubnet",
    "DuplicateGuid",
    "Membership",
    "Partition",
    "Partitions",
    "SmControl",
    "SmSettings",
    "SubnetManager",
    "SubnetNode",
    "SubnetPort",
    "SubnetRoutes",
    "discovered_fabric",
    "read_guid_to_lid",
    "read_node_names",
    "read_partitions",
    "write_guid_to_lid",
    "write_node_names",
]
