# SPDX-License-Identifier: Apache-2.0
"""Puts the agent together: the device, QP 1, the connection manager and the server."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.agent.general_qp import GeneralQp
    from verbena.agent.host_addresses import HostAddresses
    from verbena.agent.rdma_cm_device import RdmaCmDevices
    from verbena.agent.server import AgentServer
    from verbena.agent.umad_ports import UmadPorts
    from verbena.manage.cm.routes import MadArrival
    from verbena.subnet_process.server import FabricServer

__all__ = ["PATIENCE", "prepare_environment", "run_agent"]

PATIENCE = 10.0
"""Seconds without a program after which the agent ends."""
_KEPT = {"VERBENA_LIBRARY", "VERBENA_SANITIZE", "VERBENA_LOG"}
_CM_CLASS = b"\x07"
_COLLECT_AFTER = 100_000  # objects; connections and their messages have no cycles
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
_V6_ONLY = "/proc/sys/net/ipv6/bindv6only"


def prepare_environment(environment: MutableMapping[str, str]) -> None:
    """Forget what one program's device was to be like: the agent is every program's."""
    for name in [each for each in environment if each.startswith("VERBENA_")]:
        if name not in _KEPT:
            del environment[name]
    environment["VERBENA_MANAGES"] = "yes"


def run_agent(
    patience: float | None = PATIENCE, report: Callable[[str], None] = lambda _: None
) -> None:
    """Serve programs until nobody has used the agent for ``patience`` seconds; None: for ever.

    ``report`` gets a line for each program that comes and goes, and for what is refused. The
    process's soft limit of file descriptors becomes the hard one.

    Raises OSError (EADDRINUSE) if another agent of this user runs in the network namespace, or if
    the device cannot be opened.
    """
    from verbena._accepting import raise_descriptor_limit
    from verbena.agent.server import AgentServer

    raise_descriptor_limit()
    server = AgentServer(patience, report=report)
    try:
        _serve(server)
    finally:
        server.close()


class _Umad:
    """umadN of RoCE ports, whose part of the agent is loaded with the first such descriptor."""

    def __init__(self, server: FabricServer, qp: GeneralQp, host: HostAddresses) -> None:
        self._server, self._qp, self._host = server, qp, host
        self.acceptor = server.acceptor
        self.ports: UmadPorts | None = None

    def serve(self) -> None:
        """Do what programs ask."""
        if self.ports is None:
            from verbena.agent.umad_ports import UmadPorts

            self.ports = UmadPorts(self._server, self._qp.ports, self._host.gids, self._qp.send_mad)
        self._server.serve_once(0)
        self.ports.tick(time.monotonic())

    def receive(self, mad: bytes, arrival: MadArrival) -> None:
        """Take a MAD that is no message of the connection manager."""
        if self.ports is not None:
            self.ports.receive(mad, arrival)
            self.ports.tick(time.monotonic())


class _WithUmad:
    """The commands of the connection manager, and beside them the times of umadN."""

    def __init__(self, devices: RdmaCmDevices, umad: _Umad) -> None:
        self._devices, self._umad = devices, umad
        self.opened, self.closed = devices.opened, devices.closed
        self.command, self.answered = devices.command, devices.answered
        self.has_room, self.describe = devices.has_room, devices.describe

    def next_deadline(self) -> float | None:
        """See ``CommandHandler``."""
        ports, acceptor = self._umad.ports, self._umad.acceptor
        due = [self._devices.next_deadline(), acceptor.next_deadline()]
        if ports is not None:
            due.append(ports.next_deadline())
        return min((each for each in due if each is not None), default=None)

    def tick(self, now: float) -> None:
        """See ``CommandHandler``."""
        self._umad.acceptor.tick(now)
        self._devices.tick(now)
        if self._umad.ports is not None:
            self._umad.ports.tick(now)

    def is_idle(self) -> bool:
        """See ``CommandHandler``."""
        return self._devices.is_idle() and (self._umad.ports is None or self._umad.ports.is_idle)


def _serve(server: AgentServer) -> None:
    from verbena import verbs
    from verbena.agent.general_qp import GeneralQp, cm_device
    from verbena.agent.groups import GroupMemberships
    from verbena.agent.host_addresses import HostAddresses
    from verbena.agent.host_system import RoceSystem
    from verbena.agent.random_bits import RandomBits
    from verbena.agent.rdma_cm_device import RdmaCmDevices
    from verbena.manage.cm.rdma_cm import RdmaCm
    from verbena.manage.cm.settings import LIVE_SETTINGS
    from verbena.subnet_process.server import FabricServer

    context = verbs.open_device()
    qp = GeneralQp(context)

    def is_known(gid: bytes) -> bool:
        return cm.cm.device.port_of_gid(gid) is not None

    def read_device() -> None:
        cm.set_device(cm_device(context))

    host = HostAddresses(context, is_known, read_device)
    cm = RdmaCm(
        cm_device(context),
        host,
        RandomBits(),
        LIVE_SETTINGS,
        now=time.monotonic(),
        ports=_port_range(),
        binds_ipv6_only=_read_number(_V6_ONLY, 0) != 0,
    )
    memberships = GroupMemberships(lambda port: _ipv4_of(host, port))
    devices = RdmaCmDevices(cm, RoceSystem(host, memberships, cm), qp.send, time.monotonic)
    umad_server = FabricServer("", report=server.report)
    umad = _Umad(umad_server, qp, host)

    def take_mads() -> None:
        for mad, arrival in qp.receive():
            if mad[1:2] != _CM_CLASS:
                umad.receive(mad, arrival)
                continue
            refusal = cm.receive(mad, arrival, time.monotonic())
            if refusal is not None:
                server.report(f"a packet changed nothing: {refusal.sentence}")
        devices.settle()

    def take_device_events() -> None:
        """Addresses come and go, and ports with them."""
        while context.get_async_event(timeout=0) is not None:
            pass
        cm.set_device(cm_device(context))

    gc.freeze()  # what is there stays, and collections need not look through it
    gc.set_threshold(_COLLECT_AFTER)
    server.watch(qp.fileno(), take_mads)
    server.watch(context.async_fd, take_device_events)
    server.watch(umad_server.fileno(), umad.serve)
    try:
        server.run(_WithUmad(devices, umad))
    finally:
        umad_server.close()


def _ipv4_of(host: HostAddresses, port: int) -> str | None:
    """The first IPv4 address of a port."""
    for gid in host.gids(port):
        if gid[:12] == bytes(10) + b"\xff\xff":
            return socket.inet_ntoa(gid[12:])
    return None


def _read_number(path: str, otherwise: int) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return otherwise


def _port_range() -> tuple[int, int]:
    try:
        with open(_EPHEMERAL, encoding="ascii") as file:
            first, last = file.read().split()
            return int(first), int(last)
    except (OSError, ValueError):
        return 32768, 60999
