# SPDX-License-Identifier: Apache-2.0
"""Answers what the connection manager asks of a RoCE host: addresses by the kernel's routes, and
groups by IGMP. running.py makes one for ``RdmaCmDevices``. Paths need no question on Ethernet.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from verbena.agent.host_addresses import AddressResolver
from verbena.manage.cm.host import JoinGroup, QueryPath, ResolveAddress

if TYPE_CHECKING:
    from verbena.agent.groups import GroupMemberships
    from verbena.agent.host_addresses import HostAddresses
    from verbena.manage.cm.host import CmRequest
    from verbena.manage.cm.rdma_cm import RdmaCm

__all__ = ["RoceSystem"]


class RoceSystem:
    """See ``CmSystem``."""

    def __init__(self, host: HostAddresses, memberships: GroupMemberships, cm: RdmaCm) -> None:
        self._memberships = memberships
        self._resolver = AddressResolver(
            host,
            lambda number, found, error: cm.address_resolved(
                number, error if found is None else found
            ),
        )
        self.next_deadline = self._resolver.next_deadline
        self.tick = self._resolver.tick

    def ask(self, request: CmRequest, cm: RdmaCm, now: float) -> None:
        """Answer a request."""
        if isinstance(request, ResolveAddress):
            self._resolver.resolve(request, now)
        elif isinstance(request, QueryPath):
            cm.path_resolved(request.id, errno.ENODEV)
        elif isinstance(request, JoinGroup):
            self._join(request, cm)
        else:
            self._memberships.leave(request.group)

    def _join(self, request: JoinGroup, cm: RdmaCm) -> None:
        if request.query is not None:
            cm.group_joined(request.group, errno.ENODEV)
            return
        if request.sends_igmp:
            self._memberships.join(request.group, request.port, request.mgid)
        cm.group_joined(request.group)
