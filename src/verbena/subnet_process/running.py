# SPDX-License-Identifier: Apache-2.0
"""Puts a live fabric together: the subnet, the server, and a module for each role."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena.manage.agents import subnet_of_fabric

from .built_in import BuiltInManager, settings_of
from .control import FabricControl
from .fabric_managers import FabricManagers
from .host_files import HostFilesRole
from .live_subnet import LiveSubnet
from .messages import Role
from .port_page import PortPage
from .server import FabricServer
from .umad_device import IssmDevices, UmadDevices

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.manage.agents import Subnet
    from verbena.manage.sm import SmSettings

    from .control import FabricTraffic

__all__ = ["LiveFabric", "make_fabric"]


@dataclass
class LiveFabric:
    """A fabric that can run: ``server.run()``."""

    server: FabricServer
    live: LiveSubnet
    manager: BuiltInManager | None
    page: PortPage | None = None
    connections: FabricManagers | None = None
    traffic: FabricTraffic | None = None
    control: FabricControl | None = None

    def describe_manager(self) -> str | None:
        """Return what the subnet manager of the fabric is doing, or None if it has none."""
        if self.manager is not None:
            return self.manager.describe()
        return None if self.traffic is None else self.traffic.manager()


def make_fabric(
    fabric: Fabric,
    name: str,
    *,
    sm_host: str | None = None,
    settings: SmSettings | None = None,
    keep_lids: bool = False,
    simulated: tuple[Subnet, FabricTraffic] | None = None,
    clock: Callable[[], float] = time.monotonic,
    report: Callable[[str], None] = lambda _: None,
) -> LiveFabric:
    """Return a fabric whose programs find it by its name.

    With ``sm_host`` it has a manager there, which works by ``settings``, and with ``keep_lids`` its
    ports begin with the LIDs that ``fabric`` has. ``simulated``: the subnet, whose packets take
    time and which has its manager already, and its traffic.

    Raises OSError (EADDRINUSE) if the name is in use, and MadError for a topology or a host that is
    not possible.
    """
    if simulated is None:
        subnet, traffic = subnet_of_fabric(fabric, keep_lids=keep_lids), None
    else:
        subnet, traffic = simulated
    server = FabricServer(name, clock, report)
    live = LiveSubnet(subnet, clock, fabric, is_instant=traffic is None)
    umads, issms, files = UmadDevices(live), IssmDevices(live), HostFilesRole(live)
    server.add_role(Role.UMAD, umads.open)
    server.add_role(Role.CALL, umads.call)
    server.add_role(Role.ISSM, issms.open)
    server.add_role(Role.TREE, files.tree)
    server.add_role(Role.FILE, files.file)
    page = PortPage(live, name)
    server.add_role(Role.PAGE, page.open)
    server.add_duty(live)
    manager = None
    if sm_host is not None and traffic is None:
        try:
            manager = BuiltInManager(live, sm_host, settings or settings_of())
        except Exception:
            server.close()
            raise
        server.add_duty(manager)

    try:
        connections = FabricManagers(live, server)
    except OSError:
        server.close()
        raise
    server.add_duty(connections)
    if traffic is not None:
        traffic.attach(live)

    def programs() -> dict[str, list[int]]:
        both = umads.programs(), page.programs(), connections.programs()
        hosts = {host: None for each in both for host, pids in each.items() if pids}
        return {
            host: sorted({pid for each in both for pid in each.get(host, ())}) for host in hosts
        }

    made = LiveFabric(server, live, manager, page, connections, traffic)

    def describe() -> str:
        return made.describe_manager() or "none built in"

    made.control = control = FabricControl(
        server, live, connections.plan, describe, programs, traffic
    )
    server.add_role(Role.CONTROL, control)
    server.add_duty(page)  # the last: it shows what the others have changed
    return made
