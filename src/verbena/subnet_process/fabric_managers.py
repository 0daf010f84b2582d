# SPDX-License-Identifier: Apache-2.0
"""/dev/infiniband/rdma_cm of the hosts of a live fabric: a connection manager for each of them.

``FabricManagers`` is a duty of the fabric's server. Programs speak to it as to the agent of a RoCE
host (``verbena.agent``), at a name of the fabric's own, and say at which host they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from verbena.agent.server import AgentServer, DeviceRefused
from verbena.manage.errors import MadError

from .host_manager import HostManager
from .ip_plan import IpPlan
from .mad_port import RegistrationRefused

if TYPE_CHECKING:
    from verbena.agent.messages import Request
    from verbena.agent.server import DeviceConnection
    from verbena.manage.agents import NodePort, PortEvent
    from verbena.manage.cm.settings import CmSettings

    from .live_subnet import LiveSubnet
    from .server import FabricServer

__all__ = ["FabricManagers"]


class FabricManagers:
    """The connection managers, by host; ``CommandHandler`` of the server that programs reach.

    Raises OSError (EADDRINUSE) if another process has the name.
    """

    def __init__(
        self, live: LiveSubnet, server: FabricServer, settings: CmSettings | None = None
    ) -> None:
        self.settings = settings
        self._live, self._server, self._clock = live, server, server.clock
        self.plan = IpPlan(live.subnet)
        self._hosts: dict[str, HostManager] = {}
        self._todo: deque[Callable[[], None]] = deque()
        self._programs = AgentServer(None, server.clock, server.report, server.name)
        self._programs.begin(self)
        self._others = live.subnet.on_port_event
        live.subnet.on_port_event = self._port_event
        server.watch(self._programs, self._serve)
        server.add_duty(self._programs.acceptor)

    def _serve(self) -> None:
        self._live.catch_up()
        self._programs.serve()
        self._server.failures += self._programs.failures
        self._server.refused += self._programs.refused
        self._programs.failures = self._programs.refused = 0

    def host(self, name: str) -> HostManager:
        """Return the manager of a host. Raises MadError if there is no such host."""
        found = self._hosts.get(name)
        if found is None:
            node = self._live.host(name)
            found = self._hosts[name] = HostManager(
                self._live, node, self.plan, self._clock, self._todo.append, self._meet,
                self.settings,
            )  # fmt: skip
        return found

    def _meet(self, lid: int) -> None:
        """A host answers requests, though none of its programs may have opened the device."""
        end = self._live.subnet.port_of_lid(lid)
        if end is not None and not end.node.is_switch:
            with contextlib.suppress(RegistrationRefused):  # a program has taken the class
                self.host(end.node.name)

    def _port_event(self, port: NodePort, event: PortEvent) -> None:
        if self._others is not None:
            self._others(port, event)
        found = self._hosts.get(port.node.name)
        if found is not None:
            self._todo.append(partial(found.refresh, port, event))

    def programs(self) -> dict[str, list[int]]:
        """Return the processes that have the device open, by host."""
        return {name: host.devices.describe()["programs"] for name, host in self._hosts.items()}

    # ---- CommandHandler ------------------------------------------------------------------------

    def opened(self, device: DeviceConnection) -> None:
        """A program has opened the device. Raises DeviceRefused."""
        try:
            host = self.host(device.hello.host)
        except MadError:
            raise DeviceRefused(errno.ENODEV) from None
        except RegistrationRefused:  # a program of the host takes the class's messages
            raise DeviceRefused(errno.EBUSY) from None
        host.devices.opened(device)

    def closed(self, device: DeviceConnection) -> None:
        """The last descriptor was closed."""
        self.host(device.hello.host).devices.closed(device)

    def has_room(self, device: DeviceConnection) -> None:
        """There is room for events again."""
        self.host(device.hello.host).devices.has_room(device)

    def command(self, device: DeviceConnection, request: Request) -> bytes:
        """Carry a command out."""
        return self.host(device.hello.host).devices.command(device, request)

    def answered(self, device: DeviceConnection) -> None:
        """Do what follows of a command."""
        self.host(device.hello.host).devices.answered(device)

    def describe(self) -> dict[str, Any]:
        """Return what each host's manager does."""
        made = {name: host.devices.describe() for name, host in self._hosts.items()}
        listening = sorted(
            f"{name} {each}" for name, of in made.items() for each in of["listening"]
        )
        return {"pid": os.getpid(), "hosts": made, "listening": listening}

    def is_idle(self) -> bool:
        """It ends with the fabric."""
        return False

    # ---- Duty ----------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due."""
        if self._todo:
            return self._clock()
        if not self._hosts:
            return None
        due = (host.devices.next_deadline() for host in self._hosts.values())
        return min((each for each in due if each is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due, and what has come from the subnet."""
        for host in list(self._hosts.values()):
            due = host.devices.next_deadline()
            if due is not None and due <= now:
                host.devices.tick(now)
        while self._todo:
            self._todo.popleft()()
