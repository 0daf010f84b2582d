# SPDX-License-Identifier: Apache-2.0
"""A process holds no descriptor for peers that are dead, however they were reached."""

from __future__ import annotations

import time

import pytest

from tests.robust.conftest import StartChild, connect

KILLS = 8
SOON = 5.0


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_sockets_to_dead_processes_are_closed(
    start_child: StartChild, monkeypatch: pytest.MonkeyPatch, carrier: str
) -> None:
    """Each is met, written to and killed; also those of which only a packet told."""
    monkeypatch.setenv("VERBENA_CARRIER", carrier)
    survivor = start_child()
    first = survivor.make()
    before = first.sockets()
    for _ in range(KILLS):
        victim = start_child()
        near, far = survivor.make(), victim.make()
        connect(near, far)
        near.write(*far.region(), 64)
        far.write(*near.region(), 64)
        assert [one.wait()[0].status for one in (near, far)] == ["SUCCESS", "SUCCESS"]
        victim.process.kill()
        victim.process.wait()
        near.close()
    deadline = time.monotonic() + SOON
    while first.sockets() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert first.sockets() <= before
