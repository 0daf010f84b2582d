# SPDX-License-Identifier: Apache-2.0
"""``verbena.cm`` on simulated hosts: REQ, REP and RTU are packets of the simulated wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from verbena import cm, fabrics, sim, verbs
from verbena.manage.cm import CmSettings
from verbena.sim import World, build
from verbena.sim.build import build_bare
from verbena.sim.hosts import Hosts
from verbena.sim.managed import ManagedWorld
from verbena.sim.managers import SimulatedManager, bring_up

Programs = dict[str, Callable[[], Coroutine[Any, Any, Any]]]
WRITE = verbs.AccessFlags.LOCAL_WRITE


def clos() -> fabrics.Fabric:
    return fabrics.clos2(4, rate="4xEDR", length_m=5)


def now() -> float:
    return asyncio.get_running_loop().time()


async def serve(count: int = 1, port: int = 7174) -> list[bytes]:
    """Accept, receive a message each, and wait until the peer has disconnected."""
    said = []
    async with cm.listen(port) as listener:
        for _ in range(count):
            request = await listener.get_request()
            said.append(request.private_data.rstrip(b"\0"))
            posted: list[Any] = []
            async with await request.accept(private_data=b"welcome") as conn:
                mr = conn.pd.alloc(4096, WRITE)
                assert conn.aqp is not None
                posted.append(conn.aqp.recv(mr))
                assert (await posted[0]).byte_len == 4096
                await conn.wait_closed()
    return said


async def call(name: bytes = b"hello", server: str = "h0") -> float:
    begin = now()
    async with cm.connect(server, 7174, private_data=name) as conn:
        took = now() - begin
        assert conn.private_data.rstrip(b"\0") == b"welcome"
        await asyncio.sleep(50e-6)
        assert conn.aqp is not None
        await conn.aqp.send(conn.pd.alloc(4096, WRITE))
    return took


@pytest.mark.parametrize("framing", ["ethernet", "infiniband"])
def test_programs_connect_by_packets_of_qp_1(framing: str) -> None:
    result = sim.run({"h0": serve, "h5": call}, clos(), framing=framing)
    assert result.returned["h0"] == [b"hello"]
    # Two messages over four links, and 5 us in each connection manager.
    assert 10e-6 < result.returned["h5"] < 14e-6


def test_runs_are_equal() -> None:
    def run() -> list[Any]:
        result = sim.run({"h0": serve, "h5": call}, clos())
        return [result.returned, result.finished, result.world.links().tolist()]

    assert run() == run()


@pytest.mark.parametrize("framing", ["ethernet", "infiniband"])
def test_refusals_have_their_reasons(framing: str) -> None:
    async def refuse() -> None:
        async with cm.listen(7174) as listener:
            (await listener.get_request()).reject(b"no")

    async def client() -> list[Any]:
        found: list[Any] = []
        for host, port in (("h0", 7174), ("h0", 9), ("h3", 9)):
            try:
                await cm.connect(host, port)
            except cm.Rejected as error:
                found.append((type(error).__name__, error.private_data[:2]))
        with pytest.raises(cm.NoSuchAddress):
            await cm.connect("h99", 1)
        with pytest.raises(cm.ConnectionManagerError):
            await cm.connect("10.0.3.1", 1)
        return found

    result = sim.run({"h0": refuse, "h5": client}, clos(), framing=framing)
    kinds = [kind for kind, _ in result.returned["h5"]]
    assert kinds == ["Rejected", "NoListener", "NoListener"]
    assert result.returned["h5"][0][1] == b"no"


@pytest.mark.parametrize("framing", ["ethernet", "infiniband"])
def test_a_capture_has_the_messages(framing: str, tmp_path: Path) -> None:
    fabric = clos()
    world = World(framing=framing)
    build(world, fabrics.route(fabric))
    world.capture(5, 0, tmp_path / "h5.pcapng")
    sim.run({"h0": serve, "h5": call}, world)
    to_qp_1 = b"\x64\x40\xff\xff" + bytes(3) + b"\1" + bytes(4)  # BTH: UD, SEND only
    kinds = [part[24:26] for part in (tmp_path / "h5.pcapng").read_bytes().split(to_qp_1)[1:]]
    assert kinds[:3] == [b"\0\x10", b"\0\x13", b"\0\x14"]  # REQ, REP, RTU


def test_lost_messages_are_sent_again() -> None:
    """The client's link is down for a while, so that its REQ is lost twice: 250 and 500 ms."""
    fabric = clos()
    world = World()
    build(world, fabrics.route(fabric))
    world.set_link(5, 0, False, 0)
    world.set_link(5, 0, True, 400 * 10**9)
    result = sim.run({"h0": serve, "h5": call}, world)
    assert result.returned["h5"] == pytest.approx(0.75, abs=0.001)


def test_a_connect_may_be_cancelled_and_its_peer_is_told() -> None:
    async def slow() -> str:
        async with cm.listen(7174) as listener:
            request = await listener.get_request()
            await asyncio.sleep(0.02)
            try:
                await request.accept()
            except cm.ConnectionManagerError as error:
                return type(error).__name__
            return "accepted"

    async def hasty() -> str:
        try:
            async with asyncio.timeout(0.01):
                await cm.connect("h0", 7174)
        except TimeoutError:
            return "cancelled"
        return "connected"

    result = sim.run({"h0": slow, "h5": hasty}, clos())
    assert result.returned == {"h0": "PeerGone", "h5": "cancelled"}


@pytest.mark.parametrize("moment", [1e-6, 3e-6, 1e-3])
def test_an_accept_may_be_cancelled_and_its_peer_is_told(moment: float) -> None:
    """Also where the peer has sent its RTU: it gets the REJ when it is connected."""

    async def hasty() -> str:
        async with cm.listen(7174) as listener:
            request = await listener.get_request()
            try:
                async with asyncio.timeout(moment):
                    conn = await request.accept()
            except TimeoutError:
                return "cancelled"
            conn.close()
            return "closed"

    async def patient() -> str:
        conn = await cm.connect("h0", 7174)
        async with asyncio.timeout(1), conn:
            return str(await conn.wait_closed())

    result = sim.run({"h0": hasty, "h5": patient}, clos())
    assert result.returned["h0"] == ("cancelled" if moment < 1e-3 else "closed")
    assert result.returned["h5"] == str(cm.Closed.PEER)


def test_many_connect_at_once_and_the_managers_time_adds_up() -> None:
    callers = 7
    programs: Programs = {f"h{n}": call for n in range(1, callers + 1)}

    async def server() -> int:
        open_: list[Any] = []
        async with cm.listen(7174) as listener:
            for _ in range(callers):
                conn = await (await listener.get_request()).accept(private_data=b"welcome")
                assert conn.aqp is not None
                open_.append(
                    (conn, asyncio.ensure_future(conn.aqp.recv(conn.pd.alloc(4096, WRITE))))
                )
            for conn, received in open_:
                await received
                await conn.wait_closed()
                conn.close()
        return len(open_)

    result = sim.run({"h0": server, **programs}, clos())
    assert result.returned["h0"] == callers
    times = sorted(result.returned[name] for name in programs)
    assert times[-1] - times[0] > 0.9 * 5e-6 * (callers - 1)  # a REQ waits for those before it


def managed() -> ManagedWorld:
    world = World(framing="infiniband")
    fabric = clos()
    build_bare(world, fabric)
    made = ManagedWorld(world, fabric)
    bring_up(SimulatedManager(made, "h7"))
    return made


def test_paths_are_asked_of_subnet_administration() -> None:
    made = managed()
    begin = made.world.now
    result = sim.run({"h0": serve, "h5": call}, made)
    assert result.returned["h0"] == [b"hello"]
    assert made.world.now > begin
    # A query and its answer, a REQ and its REP: 5 us each.
    assert result.returned["h5"] > 20e-6


def test_while_the_path_to_the_administration_is_dead_no_route_is_resolved() -> None:
    made = managed()
    made.set_link("h7", 1, False, made.world.now)

    async def client() -> float:
        begin = now()
        with pytest.raises(cm.ConnectionManagerError):
            await cm.connect("h0", 7174, timeout=1.0)
        return now() - begin

    result = sim.run({"h5": client}, made)
    assert result.returned["h5"] == pytest.approx(1.0, abs=0.01)


def test_settings_are_those_of_the_first_start() -> None:
    world = World()
    build(world, fabrics.route(clos()))
    hosts = Hosts(world)
    hosts.connection_managers(CmSettings(max_retries=1), processing=0)
    with pytest.raises(ValueError, match="have been started already"):
        hosts.connection_managers(processing=1)


def test_datagram_services_are_resolved() -> None:
    async def server() -> bytes:
        async with cm.listen(7174, datagram=True) as listener:
            request = await listener.get_request()
            peer = await request.accept_datagrams(private_data=b"here")
            await asyncio.sleep(0.001)
            peer.close()
            return request.private_data.rstrip(b"\0")

    async def client() -> int:
        async with cm.resolve_datagram("h0", 7174, private_data=b"who") as peer:
            return peer.qpn

    result = sim.run({"h0": server, "h5": client}, clos())
    assert result.returned["h0"] == b"who"
    assert result.returned["h5"] > 1


def test_wrong_use_of_the_doors_of_ethernet_is_refused() -> None:
    world = World()
    world.add_host()
    wrong = sim.World(framing="infiniband")
    wrong.add_host()
    from verbena.sim.doors import Mad

    with pytest.raises(ValueError, match="no host of Ethernet"):
        wrong.send_qp1(0, Mad(bytes(256), qp=1))
    with pytest.raises(ValueError, match="no QP 0"):
        world.send_qp1(0, Mad(bytes(256), qp=0))
    with pytest.raises(ValueError, match="dlid is 16777216"):
        world.send_qp1(0, Mad(bytes(256), dlid=1 << 24, qp=1))
    with pytest.raises(TypeError, match="is a Mad"):
        world.send_qp1(0, b"")  # type: ignore[arg-type]
