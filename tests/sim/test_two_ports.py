# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated hosts with several ports: one adapter with two, of each link layer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sim.programs import End, called, calling
from verbena import aio, fabrics, sim, verbs
from verbena.verbs import GidType, LinkLayer, QPType

ETHERNET, INFINIBAND = "ethernet", "infiniband"
LAYERS = [(one, other) for one in (ETHERNET, INFINIBAND) for other in (ETHERNET, INFINIBAND)]
KNOWN = {ETHERNET: LinkLayer.ETHERNET, INFINIBAND: LinkLayer.INFINIBAND}
TCP_PORT = 18515
MIB = 1 << 20
QKEY = 0x11111111


def rails(hosts: int = 2, count: int = 2) -> fabrics.Fabric:
    """Hosts with as many ports as there are switches, which no cable joins."""
    made = fabrics.Fabric("rails")
    for rail in range(count):
        made.add_switch(f"s{rail}", ports=hosts)
    for host in range(hosts):
        made.add_host(f"h{host}", ports=count)
        for rail in range(count):
            made.connect(f"h{host}", f"s{rail}", a_port=rail + 1)
    return made


def sent_by(result: sim.Result, host: int, port: int, ports: int = 2) -> int:
    """Bytes that have left by a port of a host, which count from 1."""
    links = result.world.links()
    return int(links["bytes"][links["node"] == host * ports + port - 1].sum())


async def talk_by(end: End, text: bytes) -> bytes:
    """Sends a text and returns the peer's."""
    memoryview(end.mr)[: len(text)] = text
    received = end.qp.recv(end.mr, 1024, 1024)
    await end.wait_for_peer()
    end.qp.send(end.mr, length=len(text))
    wc = await received
    return bytes(memoryview(end.mr)[1024 : 1024 + wc.byte_len])


def run_both(programs: list[Any], layers: tuple[str, ...], **options: Any) -> sim.Result:
    by_name = {f"h{number}": program for number, program in enumerate(programs)}
    return sim.run(by_name, rails(len(programs), len(layers)), framing=list(layers), **options)


def test_a_device_that_is_not_there_is_looked_for_on_the_simulated_host() -> None:
    async def program() -> str:
        with pytest.raises(verbs.VerbsError) as raised:
            verbs.open_device("mlx5_0")
        return str(raised.value)

    said = sim.run({"h0": program}, rails()).returned["h0"]
    assert "no RDMA device is called 'mlx5_0'; this simulated host has: h0" in said
    assert "VERBENA_LIBRARY" not in said


@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_an_adapter_shows_both_ports(layers: tuple[str, str]) -> None:
    async def program() -> list[tuple[Any, ...]]:
        with verbs.open_device() as ctx:
            assert ctx.query_device().phys_port_cnt == 2
            with pytest.raises(verbs.VerbsError, match="ports count from 1 and the device has 2"):
                ctx.query_port(3)
            return [
                (
                    (attr := ctx.query_port(port)).link_layer,
                    attr.lid,
                    attr.state,
                    [
                        (entry.gid.raw.hex(), entry.gid_type)
                        for entry in ctx.query_gid_table()
                        if entry.port_num == port
                    ],
                    [ctx.query_pkey(port, index) for index in range(3)],
                )
                for port in (1, 2)
            ]

    result = run_both([program] * 2, layers, pkeys={"h1": [[0xFFFF], [0x8001, 0x7FFF]]})
    for host in (0, 1):
        for port, layer in enumerate(layers):
            shown = result.returned[f"h{host}"][port]
            number = 2 * host + port + 1  # among all ports
            guid = f"fe80{0:012x}5642{number:012x}"
            if layer == INFINIBAND:
                gids = [(guid, GidType.IB)]
            else:
                own = (f"{0:020x}ffff0a{number:06x}", GidType.ROCE_V2)
                gids = [own, (guid, GidType.ROCE_V2), own]
            assert shown[:2] == (KNOWN[layer], number if layer == INFINIBAND else 0)
            assert shown[2] == verbs.PortState.ACTIVE
            assert shown[3] == gids
            assert shown[4] == ([0x8001, 0x7FFF, 0] if (host, port) == (1, 1) else [0xFFFF, 0, 0])


@pytest.mark.parametrize("port", [1, 2])
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_a_connection_goes_by_the_port_that_it_names(layers: tuple[str, str], port: int) -> None:
    async def server() -> bytes:
        async with called(TCP_PORT, port=port) as end:
            return await talk_by(end, b"from the server")

    async def client() -> bytes:
        async with calling("h0", TCP_PORT, port=port) as end:
            return await talk_by(end, b"from the client")

    result = run_both([server, client], layers)
    assert result.returned == {"h0": b"from the client", "h1": b"from the server"}
    for host in (0, 1):
        assert sent_by(result, host, port) > 50
        assert sent_by(result, host, 3 - port) == 0


@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_two_ports_carry_twice_as_much(layers: tuple[str, str]) -> None:
    async def server(port: int) -> None:
        async with called(TCP_PORT + port, MIB, port=port) as end:
            await end.tell_region()
            await end.wait_for_peer()

    async def servers(ports: list[int]) -> None:
        await asyncio.gather(*(server(port) for port in ports))

    async def client(port: int) -> float:
        async with calling("h0", TCP_PORT + port, MIB, port=port) as end:
            addr, rkey = await end.region()
            begin = asyncio.get_running_loop().time()
            await end.qp.write(end.mr, addr, rkey, 0, MIB)
            took = asyncio.get_running_loop().time() - begin
            await end.wait_for_peer()
            return took

    async def clients(ports: list[int]) -> list[float]:
        return await asyncio.gather(*(client(port) for port in ports))

    def times(ports: list[int]) -> list[float]:
        programs = [lambda: servers(ports), lambda: clients(ports)]
        taken: list[float] = run_both(programs, layers).returned["h1"]
        return taken

    alone = [times([1])[0], times([2])[0]]
    assert times([1, 2]) == pytest.approx(alone, rel=0.01)


async def datagram(host: int, port: int, waiting: asyncio.Queue[int]) -> Any:
    """Host 0 receives a datagram by this port and says what came with it; the others send one."""
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        with aio.AsyncCQ(ctx.create_cq(16, ctx.create_comp_channel())) as acq:
            qp = pd.create_qp(send_cq=acq.cq, qp_type=QPType.UD)
            mr = pd.alloc(4096, 1)
            verbs.bring_up_ud(qp, port=port, qkey=QKEY)
            attr = ctx.query_port(port)
            if not host:
                qp.recv(mr)
                waiting.put_nowait(qp.qp_num)
                wc = await anext(acq)
                return wc.slid, bool(wc.wc_flags & verbs.WCFlags.GRH), wc.byte_len
            where = {"dlid": port, "is_global": False}
            if attr.link_layer == LinkLayer.ETHERNET:
                where = {"dgid": bytes(10) + b"\xff\xff\x0a\0\0" + bytes([port])}
            ah = pd.create_ah(port_num=port, **where)
            qp.send(mr, 0, 64, ah=ah, remote_qpn=await waiting.get(), remote_qkey=QKEY)
            await anext(acq)
            return attr.lid


@pytest.mark.parametrize("port", [1, 2])
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_a_datagram_says_which_lid_it_came_from(layers: tuple[str, str], port: int) -> None:
    waiting: asyncio.Queue[int] = asyncio.Queue()
    result = run_both([datagram(0, port, waiting), datagram(1, port, waiting)], layers)
    lid = result.returned["h1"]
    assert lid == (2 + port if layers[port - 1] == INFINIBAND else 0)
    assert result.returned["h0"] == (lid, not lid, 40 + 64)


@pytest.mark.parametrize(
    ("mine", "theirs", "is_refused"),
    [(0xFFFF, 0xFFFF, 0), (0x8001, 0x0001, 0), (0x0001, 0x0001, 1), (0x8001, 0x8002, 1)],
)
@pytest.mark.parametrize("layer", [ETHERNET, INFINIBAND])
def test_p_keys_are_checked_where_packets_come_in(
    layer: str, mine: int, theirs: int, is_refused: int
) -> None:
    async def server() -> int:
        async with called(TCP_PORT, port=2, pkey_index=1) as end:
            end.qp.recv(end.mr)
            await end.wait_for_peer()
            await end.reader.read(1)
            return end.ctx.query_port(2).bad_pkey_cntr

    async def client() -> tuple[verbs.WCStatus, str]:
        async with calling(
            "h0", TCP_PORT, port=2, pkey_index=1, timeout=8, retry_cnt=1, rnr_retry=1
        ) as end:
            await end.wait_for_peer()
            try:
                await end.qp.send(end.mr, length=64)
            except verbs.CompletionError as error:
                return error.status, str(error)
            return verbs.WCStatus.SUCCESS, ""

    pkeys = {"h0": [[0xFFFF], [0xFFFF, theirs]], "h1": [[0xFFFF], [0xFFFF, mine]]}
    result = run_both([server, client], (ETHERNET, layer), pkeys=pkeys)
    status = verbs.WCStatus.RETRY_EXC_ERR if is_refused else verbs.WCStatus.SUCCESS
    assert result.returned["h1"][0] == status
    why = f"drops this QP's packets for their P_Key, {mine:#06x}, as its own is {theirs:#06x}: two "
    assert (why in result.returned["h1"][1]) == bool(is_refused)
    assert (result.returned["h0"] > 0) == bool(is_refused)


def test_a_port_reaches_no_port_of_the_other_link_layer() -> None:
    async def program() -> str:
        with verbs.open_device() as ctx:
            cq = ctx.create_cq(4)
            qp = ctx.alloc_pd().create_qp(send_cq=cq)
            qp.to_init(1)
            with pytest.raises(verbs.VerbsError) as caught:
                qp.to_rtr(
                    dest_qp_num=1,
                    ah_attr=verbs.AHAttr(dgid=bytes(10) + b"\xff\xff\x0a\0\0\4", port_num=1),
                )
            return str(caught.value)

    why = run_both([program, program], (ETHERNET, INFINIBAND)).returned["h0"]
    assert "port 1 is Ethernet, and the peer's port is not" in why


def test_a_lid_that_no_host_has_is_named() -> None:
    async def program() -> str:
        with verbs.open_device() as ctx:
            qp = ctx.alloc_pd().create_qp(send_cq=ctx.create_cq(4))
            qp.to_init(2)
            where = verbs.AHAttr(dlid=0xC001, is_global=False, port_num=2)
            with pytest.raises(verbs.VerbsError) as caught:
                qp.to_rtr(dest_qp_num=1, ah_attr=where)
            return str(caught.value)

    why = run_both([program] * 2, (ETHERNET, INFINIBAND)).returned["h0"]
    assert "LID 49153 is no simulated host's" in why


@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_a_group_s_message_comes_to_the_members_on_its_link(layers: tuple[str, str]) -> None:
    group = bytes.fromhex("ff0e000000000000000000000000cafe")

    async def program(sends: bool) -> list[int]:
        """A member on each port; how many messages each has had."""
        with verbs.open_device() as ctx:
            pd, count = ctx.alloc_pd(), []
            members = []
            for port in (1, 2):
                cq = ctx.create_cq(8)
                qp = pd.create_qp(send_cq=cq, qp_type=QPType.UD)
                verbs.bring_up_ud(qp, port=port, qkey=QKEY)
                qp.attach_mcast(group, 0xC001)
                mr = pd.alloc(4096, 1)
                for _ in range(4):
                    qp.recv(mr)
                members.append((qp, cq, mr))
            await asyncio.sleep(10e-6)
            if sends:
                qp, cq, mr = members[1]
                ah = pd.create_ah(dgid=group, dlid=0xC001, is_global=True, port_num=2)
                qp.send(mr, 0, 64, ah=ah, remote_qpn=0xFFFFFF, remote_qkey=QKEY)
            await asyncio.sleep(1e-3)
            for _, cq, _ in members:
                count.append(sum(wc.opcode == verbs.WCOpcode.RECV for wc in cq.poll(8)))
            return count

    result = run_both([lambda: program(True), lambda: program(False)], layers)
    assert result.returned == {"h0": [0, 1], "h1": [0, 1]}


def test_a_host_with_eight_ports_has_an_adapter_for_each() -> None:
    async def program() -> list[tuple[str, int, int]]:
        names = [device.name for device in verbs.get_device_list()]
        found = []
        for name in names:
            with verbs.open_device(name) as ctx:
                count = ctx.query_device().phys_port_cnt
                found.append((name, count, ctx.query_gid(1, 0).raw[-1]))
        return found

    result = run_both([program] * 2, (ETHERNET,) * 8)
    assert result.returned["h1"] == [(f"h1-{rail}", 1, 8 + rail) for rail in range(1, 9)]


def test_framing_of_fewer_ports_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="framing has 1 entry, and h0 has 2 ports"):
        sim.run({}, rails(), framing=[ETHERNET])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"h0": [[0xFFFF]]}, "pkeys of h0: 1 table, and the host has 2 ports"),
        ({"h7": [0xFFFF]}, "there is no host 'h7'"),
        ({"h0": [0x8000]}, "pkeys of h0: 0x8000 is of partition 0"),
        ({"h0": [0x1FFFF]}, "a P_Key of h0 is 131071"),
        ({"h0": [0xFFFF] * 500}, "a port has 1 to 32 P_Keys, and not 500"),
    ],
)
def test_p_keys_that_cannot_be_are_refused(given: Any, message: str) -> None:
    async def program() -> None:
        verbs.open_device().close()

    with pytest.raises(ValueError, match=message):
        sim.run({"h0": program}, rails(), pkeys=given)


def test_keys_of_a_run_do_not_stay_with_the_world() -> None:
    async def keys() -> list[int]:
        with verbs.open_device() as ctx:
            return [ctx.query_pkey(1, index) for index in range(3)]

    routes = fabrics.route(fabrics.one_switch(2))
    world = sim.World()
    sim.build(world, routes)
    for given, found in (({"h0": [0x8001, 0x7FFF]}, [0x8001, 0x7FFF, 0]), (None, [0xFFFF, 0, 0])):
        assert sim.run({"h0": keys}, world, pkeys=given).returned["h0"] == found
