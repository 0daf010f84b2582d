# SPDX-License-Identifier: Apache-2.0
"""/dev/infiniband/umadN of RoCE ports: programs register agents at QP 1, and send and receive MADs.

The agent's loop serves ``UmadPorts``. As Linux has it, a RoCE port has no QP 0, an address needs a
GRH, and the port itself answers nothing: a MAD reaches an agent that has registered for it, here or
at another host. The descriptors are those of a live fabric (verbena.subnet_process), whose address
is a LID; each GID has a number here that stands for it in place of a LID.
"""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from verbena.manage.agents import MadPacket, NodeAgent, Subnet
from verbena.manage.cm.routes import MadAddress, MadArrival
from verbena.subnet_process.live_subnet import LiveSubnet
from verbena.subnet_process.mad_port import MadPort
from verbena.subnet_process.messages import Role, Welcome
from verbena.subnet_process.server import FabricConnection, FabricServer
from verbena.subnet_process.umad_device import Refused, UmadDevice, UmadDevices

__all__ = ["UmadPorts"]

_CM_CLASS = 0x07  # the kernel's own connection manager takes all its methods
_LID = slice(28, 30)  # places in the header of user_mad
_GRH = struct.Struct("=BBBB16s4s")  # present, GID index, hop limit, traffic class, GID, flow label
_GRH_AT = 32
_MOST_PEERS = 0xBFFF
Gids = Callable[[int], Sequence[bytes]]
Transmit = Callable[[bytes, MadAddress], None]


class _RoceLive(LiveSubnet):
    """The MAD layer of the host's ports. ``gids`` has a port's, ``transmit`` sends to others."""

    def __init__(self, ports: int, gids: Gids, transmit: Transmit) -> None:
        subnet = Subnet()
        super().__init__(subnet, time.monotonic, None)  # type: ignore[arg-type]
        self.node = NodeAgent("here", ports=ports)
        self.gids, self._transmit = gids, transmit
        self._numbers_of: dict[bytes, int] = {}
        self._gids_of: dict[int, bytes] = {}
        self._peers = count()
        self.by_port = {n: MadPort(self, self.node, self.node.end_port(n)) for n in self.node.ports}

    def number_of(self, gid: bytes) -> int:
        """Return the number that stands for a GID."""
        found = self._numbers_of.get(gid)
        if found is None:
            found = next(self._peers) % _MOST_PEERS + 1
            self._numbers_of.pop(self._gids_of.get(found, b""), None)
            self._numbers_of[gid], self._gids_of[found] = found, gid
        return found

    def gid_of(self, number: int) -> bytes:
        """Return the GID for which a number stands."""
        return self._gids_of[number]

    def send(self, port: MadPort, packet: MadPacket, message: bytes | None = None) -> None:
        """Send a packet to QP 1 of the host that has the GID."""
        number = port.port.number
        own, gid = self.gids(number), self.gid_of(packet.dlid)
        if gid in own:
            port.receive(packet._replace(slid=packet.dlid))
            return
        if own:
            source = next((each for each in own if each[:12] == gid[:12]), own[-1])
            self._transmit(packet.mad, MadAddress(number, True, source, gid))


class _RoceUmad(UmadDevice):
    """An open descriptor of umadN of a RoCE port."""

    _live: _RoceLive

    def _add(self, qp: int, mgmt_class: int, *more: Any, **how: Any) -> int:
        if qp == 0:
            raise Refused(errno.EPROTONOSUPPORT)
        if mgmt_class == _CM_CLASS:
            raise Refused(errno.EINVAL)
        return super()._add(qp, mgmt_class, *more, **how)

    def write(self, raw: bytes) -> None:
        """Send the MAD of a write(2) to the GID of its header."""
        if len(raw) >= self._header_bytes:
            present, *_, gid, _ = _GRH.unpack_from(raw, _GRH_AT)
            if not present:
                raise Refused(errno.EINVAL)
            number = self._live.number_of(gid)
            raw = raw[: _LID.start] + number.to_bytes(2, "big") + raw[_LID.stop :]
        super().write(raw)

    def _header(self, number: int, length: int, packet: MadPacket) -> bytes:
        header = super()._header(number, length, packet)
        gid = self._live.gid_of(packet.slid)
        grh = _GRH.pack(1, 0, 64, 0, gid, bytes(4))
        return header[: _LID.start] + bytes(3) + header[31:_GRH_AT] + grh + header[56:]


class UmadPorts:
    """Serves the descriptors, in the loop of the agent: ``server`` has its sockets."""

    def __init__(self, server: FabricServer, ports: int, gids: Gids, transmit: Transmit) -> None:
        self._live = _RoceLive(ports, gids, transmit)
        self._devices = _RoceDevices(self._live)
        server.add_role(Role.UMAD, self._devices.open)
        server.add_role(Role.CALL, self._devices.call)

    @property
    def is_idle(self) -> bool:
        """Whether no descriptor is open."""
        return not self._devices.by_inode

    def receive(self, mad: bytes, arrival: MadArrival) -> None:
        """Take a MAD that has come to QP 1 of a port."""
        port = self._live.by_port.get(arrival.port)
        if port is not None and arrival.sgid:
            number = self._live.number_of(arrival.sgid)
            port.receive(MadPacket(mad, arrival.port, 0, number, qp=1, source_qp=1))

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do."""
        return self._live.next_deadline()

    def tick(self, now: float) -> None:
        """Repeat requests, and give back those that are too late."""
        self._live.tick(now)


class _RoceDevices(UmadDevices):
    live: _RoceLive

    def open(self, connection: FabricConnection) -> Welcome:
        """Serve role UMAD."""
        port = self.live.by_port.get(connection.hello.number)
        if port is None:
            return Welcome.refused(errno.ENODEV, "the adapter has no such port")
        return self.serve(connection, _RoceUmad(connection, port))
