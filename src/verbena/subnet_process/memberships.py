# SPDX-License-Identifier: Apache-2.0
"""The multicast groups that a host's programs have joined by its connection manager.

``HostManager`` tells of joins and leaves, and of what ends memberships: a new subnet manager, its
demand to register again (CLIENT_REREGISTER), another LID, a port that goes down. Programs get
MULTICAST_ERROR then, as from Linux' ib_sa, and the groups are joined again here, until the subnet
administration takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verbena.manage.attribute_ids import Method
from verbena.manage.mad import SaMad
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import McMemberRecord

if TYPE_CHECKING:
    from .sa_requester import Answered

__all__ = ["JOIN_MS", "Memberships"]

JOIN_MS = 3000
TOGETHER = 0.05  # seconds: events of one change come one after the other
AGAIN = 1.0  # seconds after a join that failed
# (port, method, query, milliseconds, answered)
Ask = Callable[[int, Method, SaQuery[Any], int, "Answered"], None]


@dataclass(frozen=True)
class _Membership:
    port: int
    join: SaQuery[McMemberRecord]
    leave: SaQuery[McMemberRecord]


class Memberships:
    """The groups by their handles. ``lost`` is told a port whose programs get MULTICAST_ERROR."""

    def __init__(self, ask: Ask, lost: Callable[[int], None], clock: Callable[[], float]) -> None:
        self._ask, self._lost, self._clock = ask, lost, clock
        self._held: dict[int, _Membership] = {}
        self._due: dict[int, float] = {}
        """When the groups of a port are to be joined again."""

    def joined(
        self, group: int, port: int, join: SaQuery[McMemberRecord], record: McMemberRecord
    ) -> None:
        """A group was joined by a query, whose answer is the record."""
        leave = SaQuery.of(
            McMemberRecord,
            mgid=record.mgid,
            port_gid=join.record.port_gid,
            join_state=join.record.join_state,
        )
        # A group that the first join has made has its MGID from there, if it had none.
        again = SaQuery(join.record.replace(mgid=record.mgid), join.mask)
        self._held[group] = _Membership(port, again, leave)

    def left(self, group: int) -> None:
        """A program has left. The port leaves with the last of its programs."""
        gone = self._held.pop(group, None)
        if gone is not None and all(each.leave != gone.leave for each in self._held.values()):
            self._ask(gone.port, Method.DELETE, gone.leave, JOIN_MS, lambda _: None)

    def ended(self, port: int) -> None:
        """The memberships of a port hold no more. Programs are told once until they do again."""
        if not any(each.port == port for each in self._held.values()):
            return
        if port not in self._due:
            self._lost(port)
        self._due[port] = self._clock() + TOGETHER

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do."""
        return min(self._due.values(), default=None)

    def tick(self, now: float) -> None:
        """Join again what is due."""
        for port in [port for port, due in self._due.items() if due <= now]:
            del self._due[port]
            for query in {each.join: None for each in self._held.values() if each.port == port}:
                self._join(port, query)

    def _join(self, port: int, query: SaQuery[McMemberRecord]) -> None:
        def answered(answer: SaMad | int) -> None:
            held = any(each.join == query for each in self._held.values())
            if held and isinstance(answer, int):
                self._due.setdefault(port, self._clock() + AGAIN)

        self._ask(port, Method.SET, query, JOIN_MS, answered)
