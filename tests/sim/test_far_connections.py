# SPDX-License-Identifier: Apache-2.0
"""verbena.cm and verbena.peers of programs in processes of their own, with asyncio and without."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.sim import cm_programs
from tests.sim.test_managed import bare, clos
from verbena import fabrics, sim
from verbena.sim import remote
from verbena.sim.managers import bring_up

FABRIC = fabrics.one_switch(3, rate="100GbE", length_m=5)


def far(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.sim.cm_programs", *map(str, arguments)]


def apart(**programs: tuple[object, ...]) -> sim.Result:
    commands = {name: far(*arguments) for name, arguments in programs.items()}
    return sim.run_processes(commands, FABRIC)


@pytest.mark.parametrize("framing", ["ethernet", "infiniband"])
def test_a_connection_takes_the_time_that_it_takes_in_one_process(framing: str) -> None:
    near: Any = {"h0": cm_programs.serve(), "h1": cm_programs.call("h0")}
    together = sim.run(near, FABRIC, framing=framing)
    commands = {"h0": far("serve"), "h1": far("call", "h0")}
    result = sim.run_processes(commands, FABRIC, framing=framing)
    assert result.returned == together.returned
    assert result.returned["h0"] == (b"hello", b"data", "PEER")


def test_an_address_without_a_listener_refuses() -> None:
    result = apart(h1=("call_nobody", "h0"), h0=("call_nobody", "h1"))
    assert result.returned == {"h0": "NoListener", "h1": "NoListener"}


def test_paths_are_asked_of_a_managed_subnet() -> None:
    _, managed, manager = bare(clos(4))
    bring_up(manager)
    managed.stops = True
    commands = {"h0": far("serve"), "h5": far("call", "h0")}
    result = sim.run_processes(commands, managed)
    assert result.returned["h0"][2] == "PEER"


def test_programs_that_block_connect_in_virtual_time() -> None:
    result = apart(h0=("sync_serve",), h1=("sync_call", "h0"))
    assert result.returned["h0"] == (b"hello", b"data", "PEER")
    said, took, ended = result.returned["h1"]
    assert said == b"welcome"
    assert 10e-6 < took < 14e-6  # two messages, and 5 us in each connection manager
    assert 1e-4 < ended < 2e-4


def test_programs_with_and_without_asyncio_reach_each_other() -> None:
    result = apart(h0=("sync_serve",), h1=("call", "h0"))
    assert result.returned["h0"] == (b"hello", b"data", "PEER")
    result = apart(h0=("serve",), h1=("sync_call", "h0"))
    assert result.returned["h0"] == (b"hello", b"data", "PEER")


def test_a_timeout_is_one_of_virtual_time() -> None:
    result = apart(h0=("sync_wait", 2.5))
    assert result.returned["h0"] == ("ConnectTimeout", pytest.approx(2.5))
    assert result.now == pytest.approx(2.5)


def test_a_wait_that_nothing_can_end_is_named() -> None:
    with pytest.raises(sim.Deadlock, match=r"h0: .*in sync_wait_for_ever"):
        apart(h0=("sync_wait_for_ever",))


def test_peers_without_asyncio_talk_in_virtual_time() -> None:
    result = apart(h0=("sync_peer",), h1=("sync_peer_call", "h0", 5))
    assert [message[:1] for message in result.returned["h0"]] == [bytes([n]) for n in range(5)]
    assert result.returned["h1"][0] == 5
    assert result.returned["h1"][1] < 0.01
    result = apart(h0=("sync_peer",), h1=("peer_call", "h0", 5))
    assert len(result.returned["h0"]) == 5


def test_a_program_that_the_world_has_not_started_has_no_time() -> None:
    with pytest.raises(RuntimeError, match="run_processes"):
        remote.time()
