# SPDX-License-Identifier: Apache-2.0
"""Clients of subnet administration on hosts of a ``ManagedSubnet``, for tests."""

from __future__ import annotations

from typing import TypeVar

from tests.manage.sm.managed import ManagedSubnet
from verbena.manage.agents import MadPacket
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import gid_from
from verbena.manage.mad import GENERAL_QKEY, SaMad
from verbena.manage.record import Record
from verbena.manage.rmpp import is_rmpp
from verbena.manage.rmpp_transfers import RmppTransfers
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import PathRecord, unpack_table

__all__ = ["SaClient"]

PREFIX = 0xFE80_0000_0000_0000
_R = TypeVar("_R", bound=Record)


class SaClient:
    """A program on a host. ``status`` is that of the last answer; ``reports`` has what came."""

    def __init__(self, managed: ManagedSubnet, host: str, *, answers_reports: bool = True) -> None:
        self.managed, self.host = managed, host
        self.node = managed.subnet.node(host)
        self.port = self.node.end_ports()[0]
        self.status = 0
        self.reports: list[SaMad] = []
        self.answers_reports = answers_reports
        self._messages: list[bytes] = []
        self._transfers = RmppTransfers()
        self._number = 0x1000
        if host in managed.managers:
            managed.others[host] = self._arrived
        else:
            managed.subnet.attach(host, self._arrived)

    @property
    def gid(self) -> bytes:
        return gid_from(PREFIX, self.port.guid)

    def _arrived(self, packet: MadPacket) -> None:
        if packet.mad[1] != 3:
            return
        if is_rmpp(packet.mad):
            outcome = self._transfers.receive("sa", packet.mad, self.managed.now)
            for _, mad in outcome.packets:
                self._send(mad, packet.slid)
            self._messages += [message for _, message in outcome.received]
        elif packet.mad[3] == Method.REPORT:
            mad = SaMad.unpack(packet.mad)
            self.reports.append(mad)
            if self.answers_reports:
                self._send(mad.response().pack(), packet.slid)
        else:
            self._messages.append(packet.mad)

    def _send(self, mad: bytes, dlid: int) -> None:
        packet = MadPacket(
            mad, self.port.number, dlid, self.port.lid, 1, 1, 0, 0xFFFF, GENERAL_QKEY
        )
        self.managed.subnet.inject(self.host, packet)

    def ask(
        self, method: int, query: SaQuery[_R], *, sm_key: int = 0, attribute: int | None = None
    ) -> bytes:
        """Send a request and return the whole answer; b"" if there is none."""
        self._number += 1
        mad = query.put_into(SaMad(method=Method(method), transaction_id=self._number))
        mad = mad.replace(sm_key=sm_key)
        if attribute is not None:
            mad = mad.replace(attribute_id=attribute)
        self._messages.clear()
        self._send(mad.pack(), self.port.master_sm_lid)
        for _ in range(50):
            if self._messages:
                break
            self.managed.run(0.2)
        if not self._messages:
            return b""
        self.status = int.from_bytes(self._messages[0][4:6], "big")
        return self._messages[0]

    def table(
        self, kind: type[_R], method: int = Method.GET_TABLE, *, sm_key: int = 0, **values: object
    ) -> list[_R]:
        """Return the records that match these components."""
        answer = self.ask(method, SaQuery.of(kind, **values), sm_key=sm_key)
        if self.status:
            return []
        return unpack_table(kind, answer[56:], int.from_bytes(answer[44:46], "big"))

    def one(
        self, kind: type[_R], method: int = Method.GET, *, sm_key: int = 0, **values: object
    ) -> _R | None:
        """Return the only record that matches, or None; ``status`` says why."""
        answer = self.ask(method, SaQuery.of(kind, **values), sm_key=sm_key)
        return None if self.status or not answer else kind.unpack(answer, 56)

    def paths(self, **values: object) -> list[PathRecord]:
        return self.table(PathRecord, **values)
