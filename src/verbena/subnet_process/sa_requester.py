# SPDX-License-Identifier: Apache-2.0
"""Asks subnet administration for a host's connection manager, as Linux' ib_sa does.

``HostManager`` has one for each port. A request goes as a MAD to the LID that the port has for its
subnet manager, whosever that is, and is repeated until there is an answer or its time is over.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verbena.manage.agents import MadPacket
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import PortState
from verbena.manage.mad import GENERAL_QKEY, SaMad
from verbena.manage.smp_attributes import PortInfo

from .mad_port import MadAgent, Pending

if TYPE_CHECKING:
    from verbena.manage.sa_query import SaQuery

    from .mad_port import MadPort

__all__ = ["SaRequester"]

TRIES = 10  # as Linux has it
Answered = Callable[[SaMad | int], None]
"""Takes the answer or, in its place, the SA's status or a negative errno."""


class SaRequester:
    """The requests of a port."""

    def __init__(self, port: MadPort) -> None:
        self._port = port
        self._agent = MadAgent(port, 1, self._take)
        port.register(self._agent)
        self._asked: dict[int, Answered] = {}
        self._count = 0

    def ask(self, method: Method, query: SaQuery[Any], timeout_ms: int, answered: Answered) -> None:
        """Send a request. EAGAIN: no subnet manager has brought the port up."""
        end = self._port.port
        if not end.master_sm_lid or end.state != PortState.ACTIVE:
            answered(-errno.EAGAIN)
            return
        self._count = self._count % 0xFFFFFFFF + 1
        number = int.from_bytes(self._agent.number, "big") << 32 | self._count
        mad = query.put_into(SaMad(method=method, transaction_id=number)).pack()
        self._asked[number] = answered
        packet = MadPacket(
            mad, end.number, end.master_sm_lid, end.lid, 1, 1,
            sl=int(PortInfo.get(end.info, "master_sm_sl")),
            p_key=int.from_bytes(end.p_keys[:2], "big"), q_key=GENERAL_QKEY,
        )  # fmt: skip
        live, seconds = self._port.live, timeout_ms / 1000 / TRIES
        pending = Pending(
            self._agent, packet, None, seconds, TRIES - 1, lambda: self._give_up(number)
        )
        self._agent.pending[pending.key] = None
        live.send(self._port, packet)
        if pending.key in self._agent.pending:
            live.await_response(pending)

    def _take(self, message: bytes, packet: MadPacket) -> None:
        mad = SaMad.unpack(message[: SaMad.SIZE])
        answered = self._asked.pop(mad.transaction_id, None)
        if answered is not None:
            answered(mad.status or mad)

    def _give_up(self, number: int) -> None:
        self._asked.pop(number)(-errno.ETIMEDOUT)
