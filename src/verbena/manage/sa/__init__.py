# SPDX-License-Identifier: Apache-2.0
"""Subnet administration: the database of a subnet, which programs ask for paths and groups.

``SubnetAdministration`` answers from a ``verbena.manage.sm.SubnetManager``.
"""

from __future__ import annotations

from .administration import SubnetAdministration
from .multicast_groups import ipoib_broadcast_mgid
from .refusal import SaRefusal

__all__ = ["SaRefusal", "SubnetAdministration", "ipoib_broadcast_mgid"]
