# SPDX-License-Identifier: Apache-2.0
"""QP 1 of the host's first device, the general services interface (IBA 3.9.1.3).

The agent's process holds slot 0 of the host's queue pair numbers (VERBENA_MANAGES), so that its
second UD queue pair is number 1 and gets what other hosts send there over RoCE v2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from verbena import verbs
from verbena.manage.cm.routes import CmDatagram, CmDevice, CmPort, MadAddress, MadArrival
from verbena.manage.mad import GENERAL_QKEY, MAD_BYTES

__all__ = ["GeneralQp", "cm_device"]

_DEPTH = 256
_GRH = 40
_SLOT = 320  # bytes of a receive buffer, whole cache lines
_HANDLES = 1024  # address handles that are kept
_ETHERNET = 2


def cm_device(context: verbs.Context) -> CmDevice:
    """Return what the connection manager knows of the device, with the addresses of now."""
    ports = []
    table = context.query_gid_table()
    for number in range(1, context.query_device().phys_port_cnt + 1):
        attributes = context.query_port(number)
        gids = tuple(bytes(entry.gid) for entry in table if entry.port_num == number)
        ports.append(
            CmPort(
                gids=gids,
                number=number,
                is_ethernet=attributes.link_layer == _ETHERNET,
                lid=attributes.lid,
            )
        )
    return CmDevice(ca_guid=int(context.device.guid), ports=tuple(ports))


class GeneralQp:
    """Sends and receives MADs. ``fileno`` is readable when there are some.

    Raises VerbsError where the device cannot be opened or another process has QP 1.
    """

    def __init__(self, context: verbs.Context) -> None:
        self._context = context
        self._pd = context.alloc_pd()
        self._channel = context.create_comp_channel()
        self._receives = context.create_cq(_DEPTH, self._channel)
        self._sends = context.create_cq(_DEPTH)
        self._memory = self._pd.alloc(_DEPTH * _SLOT, verbs.AccessFlags.LOCAL_WRITE)
        self._special, self._qp = (self._make_qp() for _ in range(2))
        if self._qp.qp_num != 1:
            raise OSError(f"the general services QP got number {self._qp.qp_num}")
        verbs.bring_up_ud(self._qp, qkey=GENERAL_QKEY)
        for slot in range(_DEPTH):
            self._post(slot)
        self._receives.req_notify()
        self._handles: dict[MadAddress, verbs.AH] = {}
        self.dropped = 0
        """MADs that could not be sent: a queue was full, or an address was none of ours."""

    def _make_qp(self) -> verbs.QP:
        return self._pd.create_qp(
            send_cq=self._sends,
            recv_cq=self._receives,
            qp_type=verbs.QPType.UD,
            max_send_wr=_DEPTH,
            max_recv_wr=_DEPTH,
            max_inline_data=MAD_BYTES,
        )

    def fileno(self) -> int:
        """Return the descriptor of its completion channel."""
        return int(self._channel.fd)

    @property
    def ports(self) -> int:
        """How many ports the device has."""
        return self._context.query_device().phys_port_cnt

    def close(self) -> None:
        """Give QP 1 back."""
        self._context.close()

    def _post(self, slot: int) -> None:
        self._qp.recv(self._memory, slot * _SLOT, _GRH + MAD_BYTES, wr_id=slot)

    # ---- receiving ----

    def receive(self) -> Iterator[tuple[bytes, MadArrival]]:
        """Take what has arrived: MADs, and where each came from."""
        self._channel.drain()
        self._receives.req_notify()
        while found := self._receives.poll(_DEPTH):
            for completion in found:
                yield from self._taken(completion)

    def _taken(self, completion: verbs.WC) -> Iterator[tuple[bytes, MadArrival]]:
        slot = completion.wr_id
        if not completion.is_success:
            return
        data = bytes(memoryview(self._memory)[slot * _SLOT : slot * _SLOT + completion.byte_len])
        self._post(slot)
        arrival = _arrival(data[:_GRH])
        if arrival is not None:
            yield data[_GRH:], arrival

    # ---- sending ----

    def send(self, datagram: CmDatagram) -> None:
        """Send a message of the connection manager."""
        self.send_mad(datagram.mad, datagram.to)

    def send_mad(self, mad: bytes, to: MadAddress) -> None:
        """Send a MAD to QP 1 of its address. What cannot be sent is counted and lost."""
        self._sends.poll(_DEPTH)
        try:
            self._qp.send(
                mad,
                ah=self._handle(to),
                remote_qpn=1,
                remote_qkey=GENERAL_QKEY,
                flags=verbs.SendFlags.SIGNALED | verbs.SendFlags.INLINE,
            )
        except (verbs.VerbsError, ValueError):
            self.dropped += 1

    def _handle(self, to: MadAddress) -> verbs.AH:
        handle = self._handles.get(to)
        if handle is None:
            if len(self._handles) >= _HANDLES:
                self._handles.pop(next(iter(self._handles))).close()
            handle = self._handles[to] = self._pd.create_ah(
                dgid=to.dgid,
                sgid_index=self._gid_index(to.port, to.sgid),
                port_num=to.port,
                dlid=to.dlid,
                is_global=to.has_grh,
                hop_limit=to.hop_limit or 64,
                traffic_class=to.traffic_class,
                sl=to.sl,
                flow_label=to.flow_label,
            )
        return handle

    def _gid_index(self, port: int, gid: bytes) -> int:
        for entry in self._context.query_gid_table():
            if entry.port_num == port and bytes(entry.gid) == gid:
                return entry.gid_index
        raise ValueError("the sender's GID is none of this port's")


def _arrival(grh: bytes) -> MadArrival | None:
    """Read the GRH, or the IPv4 header in its last 20 bytes (IBA annex A17.4.5)."""
    version = grh[20] >> 4
    if version == 4 and grh[0] >> 4 != 6:
        source, target = (_mapped(grh[at : at + 4]) for at in (32, 36))
        return MadArrival(1, True, source, target, hop_limit=grh[28], traffic_class=grh[21])
    first = int.from_bytes(grh[:4], "big")
    return MadArrival(
        1,
        True,
        grh[8:24],
        grh[24:40],
        hop_limit=grh[7],
        traffic_class=first >> 20 & 0xFF,
        flow_label=first & 0xFFFFF,
    )


def _mapped(ipv4: bytes) -> bytes:
    return ipaddress.IPv6Address("::ffff:0:0").packed[:12] + ipv4
