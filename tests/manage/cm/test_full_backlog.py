# SPDX-License-Identifier: Apache-2.0
"""A listener whose backlog is full drops requests, as Linux's does, and their senders come again.

A hundred programs that connect in one instant are one such case: without a spread they also come
again in one instant, and each time the backlog has room for as many as at first.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.manage.cm.dialogue import PORT, resolved
from tests.manage.cm.world import World
from verbena.manage.cm import CmRefusal, CmSettings, RdmaConnectionParameters, RdmaEventKind
from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.retransmission import Retransmission
from verbena.manage.cm.settings import LIVE_SETTINGS
from verbena.manage.ip_cm import PortSpace

CLIENTS, BACKLOG, SERVICE = 75, 2, 0.01  # seconds that the program takes for a request
ALIKE = replace(LIVE_SETTINGS, spread=0.0)


class Slow(World):
    """The second node's program reads one event in SERVICE seconds."""

    def __init__(self, settings: CmSettings) -> None:
        super().__init__(settings=settings)
        self.server = self.nodes[1]
        self.listener = self.server.rdma.create_id(self.server.channel, PortSpace.TCP)
        self.server.rdma.bind(self.listener, CmAddress.ip("0.0.0.0", PORT))
        self.server.rdma.listen(self.listener, BACKLOG)
        self.slow = self.server.channel
        self.server.channel = self.server.rdma.open_channel()  # which the world reads

    def serve(self) -> None:
        event = self.server.rdma.read_event(self.slow)
        if event is not None and event.kind is RdmaEventKind.CONNECT_REQUEST:
            self.server.rdma.accept(event.id, RdmaConnectionParameters(qpn=0x1000 + event.id))

    def connect_all(self, seconds: float) -> int:
        """Connect all clients at once; return how many were answered within so many seconds."""
        client = self.nodes[0]
        numbers = [resolved(self, client, self.server) for _ in range(CLIENTS)]
        self.take(client)
        for number in numbers:
            client.rdma.connect(number, RdmaConnectionParameters(qpn=0x100 + number))
        for _ in range(round(seconds / SERVICE)):
            self.run(SERVICE)
            self.serve()
        self.run(SERVICE)
        kinds = [event.kind for event in self.take(client)]
        return kinds.count(RdmaEventKind.CONNECT_RESPONSE)


def test_requests_that_were_dropped_come_again_one_after_the_other() -> None:
    world = Slow(LIVE_SETTINGS)
    assert world.connect_all(3.0) == CLIENTS
    dropped = world.server.rdma.counters.refused[CmRefusal.BACKLOG_FULL]
    assert world.server.rdma.id(world.listener).turned_away == dropped > 0


def test_without_a_spread_they_come_all_at_once() -> None:
    """Which the test above has to tell from it."""
    world = Slow(ALIKE)
    assert world.connect_all(3.0) < CLIENTS / 4


@pytest.mark.parametrize("draws", [0.0, 0.5, 0.999])
def test_a_wait_is_at_most_as_long_as_before_and_at_least_half_as_long(draws: float) -> None:
    schedule = Retransmission(10.0, 4.096, 3, LIVE_SETTINGS, lambda: draws)
    at, wait = 10.0, 0.25
    while schedule.next_at < schedule.give_up_at:
        assert wait / 2 <= schedule.next_at - at <= wait
        at, wait = schedule.next_at, min(wait * 2, 4.096)
        schedule.repeated(at)
    assert schedule.give_up_at == 10.0 + 4 * 4.096


def test_linux_waits_equally_long() -> None:
    settings = replace(LIVE_SETTINGS, first_resend=0)
    schedule = Retransmission(0.0, 4.096, 3, settings, lambda: 0.9)
    assert schedule.next_at == 4.096
