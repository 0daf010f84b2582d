# SPDX-License-Identifier: Apache-2.0
"""Data between programs at hosts of a live fabric: only as the tables allow, and counted on its
way."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.subnet_process.live import Live, Program, connect
from verbena import fabrics
from verbena.manage.smp_attributes import PortInfo

Start = Callable[..., Program]


@pytest.fixture
def live() -> Iterator[Live]:
    """h0 and h1 at s0, h2 and h3 at s1."""
    made = Live(fabrics.dumbbell(2, 2))
    yield made
    made.end()


@pytest.fixture
def start(live: Live) -> Iterator[Start]:
    """start(host, kind="RC"): a program at a host, with a QP."""
    started: list[Program] = []

    def begin(host: str, kind: str = "RC", **settings: str) -> Program:
        program = Program(live.name, host, **settings)
        started.append(program)
        program.run(f"open_qp({kind!r})")
        return program

    yield begin
    for program in started:
        program.kill()


def give_p_keys(live: Live, host: str, *keys: int) -> None:
    """Write a port's P_Key table, as a subnet manager does."""

    def write() -> None:
        from verbena.manage.agents import PortEvent

        port = live.port(host)
        port.p_keys[:] = struct.pack(f">{len(keys)}H", *keys).ljust(len(port.p_keys), b"\0")
        live.subnet.routing_changed()
        live.subnet.port_event(port, PortEvent.P_KEYS)

    live.do(write)


def test_port_is_the_fabrics(live: Live, start: Start) -> None:
    program = start("h2")
    port = live.port("h2")
    shown = program.run(
        "port = context.query_port(1)\n"
        "result = [port.state.name, port.lid, port.lmc, port.sm_lid, port.link_layer.name,"
        " port.active_mtu.name, port.phys_state, port.gid_tbl_len, context.device.guid,"
        " bytes(context.query_gid(1, 0)).hex(), context.query_pkey(1, 0), context.query_pkey(1, 1)]"
    )
    gid = struct.pack(">QQ", 0xFE80 << 48, port.guid).hex()
    assert shown == [
        *("ACTIVE", port.lid, 0, live.lid("h0"), "INFINIBAND", "MTU_4096", 5, 8),
        *(live.subnet.nodes["h2"].guid, gid, 0xFFFF, 0),
    ]


def test_message_is_counted_at_each_port_of_its_way(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h2")
    connect(one, other)
    before = {end: live.counts(*end) for end in (("h0", 1), ("s0", 1), ("h2", 1), ("h1", 1))}
    other.run("qp.recv(mr)")
    one.run("qp.send(mr, 0, 3001)")
    assert one.run("result = done()") == ["SUCCESS"]
    assert other.run("result = done()") == ["SUCCESS"]
    after = {end: live.counts(*end) for end in before}

    def grown(end: tuple[str, int], name: str) -> int:
        return after[end].get(name, 0) - before[end].get(name, 0)

    # Three packets of 1024 bytes at most, with LRH, BTH and ICRC; one acknowledgement with AETH.
    words, back = (3001 + 3) // 4 + 3 * 6, 7
    assert grown(("h0", 1), "xmit_packets") == grown(("h2", 1), "rcv_packets") == 3
    assert grown(("h0", 1), "xmit_data") == grown(("h2", 1), "rcv_data") == words
    assert grown(("h2", 1), "xmit_packets") == grown(("h0", 1), "rcv_packets") == 1
    assert grown(("h2", 1), "xmit_data") == grown(("h0", 1), "rcv_data") == back
    assert grown(("h1", 1), "xmit_packets") == 0


def test_rnr_retries_are_counted(live: Live, start: Start) -> None:
    """The request is sent four times, and each time an RNR NAK comes back."""
    one, other = start("h0"), start("h2")
    connect(one, other, rnr_retry=3, min_rnr_timer=12)
    before = live.counts("h0"), live.counts("h2")
    one.run("qp.send(mr, 0, 100)")
    assert one.run("result = done()")[0].startswith("RNR_RETRY_EXC_ERR")
    after = live.counts("h0"), live.counts("h2")
    for old, new in zip(before, after, strict=True):
        assert new["xmit_packets"] - old["xmit_packets"] == 4
        assert new["rcv_packets"] - old["rcv_packets"] == 4
    assert after[1]["xmit_data"] - before[1]["xmit_data"] == 4 * 7


def totals(live: Live) -> dict[tuple[str, int], dict[str, int]]:
    return {
        (name, number): live.counts(name, number)
        for name, node in live.subnet.nodes.items()
        for number, port in node.ports.items()
        if port.peer is not None
    }


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_both_ends_of_each_link_count_the_same(live: Live, start: Start, kind: str) -> None:
    one, other = start("h1", kind), start("h3", kind)
    connect(one, other)
    address, rkey = other.run("result = [mr.addr, mr.rkey]")
    one.run(f"for i in range(100): qp.write(mr, {address}, {rkey}, 0, 10 * i)")
    assert one.run("result = done(100)") == ["SUCCESS"] * 100
    if kind == "RC":
        one.run(f"for i in range(10): qp.read(mr, {address}, {rkey}, 0, 5000)")
        one.run(f"for i in range(10): qp.fetch_add(mr, {address}, {rkey}, 1)")
        assert one.run("result = done(20)") == ["SUCCESS"] * 20
    live.do(lambda: None)
    found = totals(live)
    for (name, number), counts in found.items():
        peer = live.port(name, number).peer
        assert peer is not None
        there = found[peer.node.name, peer.number]
        for what in ("packets", "data"):
            assert counts.get(f"xmit_{what}", 0) == there.get(f"rcv_{what}", 0)


def test_route_that_goes_and_returns(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    connect(one, other, timeout=18)
    address, rkey = other.run("result = [mr.addr, mr.rkey]")
    over, _ = live.between("s0", "s1")
    live.set_route("s0", live.lid("h3"), 255)
    one.run(f"qp.write(mr, {address}, {rkey}, 0, 64)")
    assert one.run("result = done(1, 0.3)") == []
    assert live.counts("s0", live.beside("h0").number)["rcv_switch_relay_errors"] > 0
    live.set_route("s0", live.lid("h3"), over)
    assert one.run("result = done()") == ["SUCCESS"]


def test_route_in_the_middle_of_a_transfer(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    connect(one, other, timeout=17)
    address, rkey = other.run("result = [mr.addr, mr.rkey]")
    one.begin(
        "statuses = set()\n"
        "for i in range(20000):\n"
        f"    qp.write(mr, {address}, {rkey}, 0, 512)\n"
        "    statuses |= set(done())\n"
        "result = sorted(statuses)"
    )
    time.sleep(0.1)
    live.do(lambda: live.subnet.cut("h3", 1))
    time.sleep(0.1)
    live.do(lambda: live.subnet.restore("h3", 1))
    assert one.result() == ["SUCCESS"]


def test_what_was_sent_belongs_to_the_way_of_that_time(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    connect(one, other)
    address, rkey = other.run("result = [mr.addr, mr.rkey]")
    before = live.counts("h3")["rcv_packets"]
    one.run(f"[qp.write(mr, {address}, {rkey}, 0, 64) for _ in range(50)]")
    assert one.run("result = done(50)") == ["SUCCESS"] * 50
    over, _ = live.between("s0", "s1")
    live.set_route("s0", live.lid("h3"), 255)
    assert live.counts("h3")["rcv_packets"] == before + 50
    live.set_route("s0", live.lid("h3"), over)


def test_lost_request_says_where(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    connect(one, other, timeout=8, retry_cnt=2)
    live.set_route("s0", live.lid("h3"), 255)
    one.run("qp.send(mr, 0, 64)")
    (status,) = one.run("result = done()")
    assert status.startswith("RETRY_EXC_ERR")
    assert f"the fabric does not lead to LID {live.lid('h3')} and back" in status
    switch = live.beside("h0").node.name
    said = f"has no route from LID {live.lid('h0')} to LID {live.lid('h3')}: switch {switch} has no"
    assert said in one.end()


def test_a_program_without_a_log_hears_of_one_place(live: Live, start: Start) -> None:
    """Once, though two of its connections fail; its errors do not repeat how to hear more."""
    one, other = start("h0", VERBENA_LOG=""), start("h2", VERBENA_LOG="")
    live.set_route("s1", live.lid("h2"), 255)
    failed = []
    for _ in range(2):
        for program in (one, other):
            program.run("open_qp()")
        connect(one, other, timeout=8, retry_cnt=1)
        failed += one.run("qp.send(mr, 0, 64); result = done()")
    assert all("the fabric does not lead to LID" in each for each in failed)
    assert not any("VERBENA_LOG" in each for each in failed)
    said = one.end()
    assert said.count(f"the fabric {live.name} has no route") == 1
    assert said.count("VERBENA_LOG=errors says it of each QP") == 1


def test_acknowledgement_that_has_no_route(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    connect(one, other, timeout=8, retry_cnt=1)
    live.set_route("s1", live.lid("h0"), 255)
    one.run("qp.send(mr, 0, 64)")
    (status,) = one.run("result = done()")
    assert status.startswith("RETRY_EXC_ERR")
    assert "no acknowledgement comes back" in one.end()


def test_qp_of_another_host_is_not_reached(live: Live, start: Start) -> None:
    one, other, third = start("h0"), start("h2"), start("h3")
    number = other.run("result = qp.qp_num")
    mine = one.run("result = qp.qp_num")
    one.run(f"connect({number}, {live.lid('h3')}, timeout=8, retry_cnt=1)")
    other.run(f"connect({mine}, {live.lid('h0')})")
    other.run("qp.recv(mr)")
    one.run("qp.send(mr, 0, 64)")
    (status,) = one.run("result = done()")
    assert status.startswith("RETRY_EXC_ERR")
    assert other.run("result = done(1, 0.1)") == []
    assert third.process.poll() is None


def test_partitions(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    give_p_keys(live, "h0", 0x7FFF, 0x8001)
    give_p_keys(live, "h3", 0x7FFF, 0x8002)
    assert one.run("result = events(1)") == ["PKEY_CHANGE"]
    assert one.run("result = context.query_pkey(1, 1)") == 0x8001
    assert other.run("result = events(1)") == ["PKEY_CHANGE"]
    one.run("open_qp('RC', 1)")
    other.run("open_qp('RC', 1)")
    connect(one, other, timeout=8, retry_cnt=1)
    one.run("qp.send(mr, 0, 64)")
    (status,) = one.run("result = done()")
    assert status.startswith("RETRY_EXC_ERR")
    assert "port 1 of h3 does not have the P_Key 0x8001" in one.end()
    live.counts("h3")
    assert live.do(lambda: PortInfo.get(live.port("h3").info, "p_key_violations")) == 2


def test_partition_that_comes_in_time(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    give_p_keys(live, "h3", 0x8002)
    other.run("result = events(1)")
    connect(one, other, timeout=18)
    other.run("qp.recv(mr)")
    one.run("qp.send(mr, 0, 64)")
    assert one.run("result = done(1, 0.3)") == []
    give_p_keys(live, "h3", 0xFFFF)
    assert one.run("result = done()") == ["SUCCESS"]


def test_datagrams(live: Live, start: Start) -> None:
    one, other = start("h0", "UD"), start("h3", "UD")
    number = other.run("result = qp.qp_num")
    send = (
        "ah = pd.create_ah(AHAttr(dlid={lid}, is_global=False))\n"
        "qp.send(mr, 0, 100, ah=ah, remote_qpn={number}, remote_qkey=0x11111111)\n"
        "result = done()"
    )
    lid = live.lid("h3")
    other.run("for i in range(4): qp.recv(mr)")
    assert one.run(send.format(lid=lid, number=number)) == ["SUCCESS"]
    slid = other.run("(wc,) = cq.wait(1, 10); result = [wc.slid, wc.byte_len]")
    assert slid == [live.lid("h0"), 140]
    for wrong in (live.lid("h2"), 77):
        assert one.run(send.format(lid=wrong, number=number)) == ["SUCCESS"]
    live.do(lambda: live.subnet.cut("h3", 1))
    assert one.run(send.format(lid=lid, number=number)) == ["SUCCESS"]
    assert other.run("result = done(1, 0.2)") == []
    assert "switch s0 has no entry for it, and no port has that LID" in one.end()


def test_multicast_goes_by_the_tables(live: Live, start: Start) -> None:
    one, members = start("h0", "UD"), [start(host, "UD") for host in ("h1", "h2", "h3")]
    group = "bytes.fromhex('ff12601bffff000000000000000000aa')"
    for member in members:
        member.run(f"qp.attach_mcast({group}, 0xc001); [qp.recv(mr) for _ in range(8)]")

    def hearers() -> list[str]:
        one.run(
            f"ah = pd.create_ah(AHAttr(dgid={group}, dlid=0xc001))\n"
            "qp.send(mr, 0, 64, ah=ah, remote_qpn=verbs.MULTICAST_QPN, remote_qkey=0x11111111)\n"
            "done()"
        )
        seconds = 0.3
        return [
            host
            for host, member in zip(("h1", "h2", "h3"), members, strict=True)
            if member.run(f"result = done(1, {seconds})") == ["SUCCESS"]
        ]

    to_h0, to_h1 = live.beside("h0").number, live.beside("h1").number
    over, under = live.between("s0", "s1")
    to_h3 = live.beside("h3").number
    assert hearers() == []
    live.set_group(0xC001, {"s0": [to_h0, over], "s1": [to_h3, under]})
    before = live.counts("h3").get("multicast_rcv_packets", 0)
    assert hearers() == ["h3"]
    assert live.counts("h3")["multicast_rcv_packets"] == before + 1
    live.set_group(0xC001, {"s0": [to_h1, over], "s1": [to_h3]})
    assert hearers() == ["h1", "h3"]


def test_loops_and_cuts_are_named() -> None:
    """In tables that were set by hand, as without a subnet manager."""
    live = Live(fabrics.ring(3, hosts=1))
    one, other = Program(live.name, "h0"), Program(live.name, "h1")
    try:
        for each in (one, other):
            each.run("open_qp()")
        connect(one, other, timeout=8, retry_cnt=1)
        lid = live.lid("h1")
        switches = ["s0", "s1", "s2"]
        for here, there in zip(switches, switches[1:] + switches[:1], strict=True):
            live.set_route(here, lid, live.between(here, there)[0])
        one.run("qp.send(mr, 0, 64)")
        assert one.run("result = done()")[0].startswith("RETRY_EXC_ERR")
        assert "the tables lead back to s0, by s1 and s2" in one.end()
        last = Program(live.name, "h0")
        for each in (last, other):
            each.run("open_qp()")
        connect(last, other, timeout=8, retry_cnt=1)

        def cut() -> None:
            assert live.made.manager is not None
            live.made.manager.port.unregister(live.made.manager._agents[0])
            live.subnet.cut("h1", 1)

        live.set_route("s0", lid, live.between("s0", "s1")[0])
        live.set_route("s1", lid, live.beside("h1").number)
        live.do(cut)
        last.run("qp.send(mr, 0, 64)")
        assert last.run("result = done()")[0].startswith("RETRY_EXC_ERR")
        assert "the link between port " in (text := last.end())
        assert "of s1 and port 1 of h1 is cut" in text
    finally:
        other.kill()
        live.end()


def test_loop_back_needs_the_port(live: Live, start: Start) -> None:
    one, other = start("h1"), start("h1")
    connect(one, other, timeout=8, retry_cnt=1)
    other.run("qp.recv(mr); qp.recv(mr)")
    one.run("qp.send(mr, 0, 64)")
    assert one.run("result = done()") == ["SUCCESS"]
    live.do(lambda: live.subnet.cut("h1", 1))
    assert one.run("result = events(1)") == ["PORT_ERR"]
    assert one.run("result = context.query_port(1).state.name") == "DOWN"
    one.run("qp.send(mr, 0, 64)")
    assert one.run("result = done()")[0].startswith("RETRY_EXC_ERR")


def test_events(live: Live, start: Start) -> None:
    program = start("h2")
    live.do(lambda: live.subnet.cut("h2", 1))
    live.do(lambda: live.subnet.restore("h2", 1))
    assert program.run("result = events(2)") == ["PORT_ERR", "PORT_ACTIVE"]

    def move() -> None:
        from verbena.manage.agents import PortEvent

        port = live.port("h2")
        PortInfo.put(port.info, 0, lid=40, master_sm_sl=3)
        live.subnet.routing_changed()
        for event in (PortEvent.LID, PortEvent.SM, PortEvent.CLIENT_REREGISTER):
            live.subnet.port_event(port, event)

    live.do(move)
    assert program.run("result = events(3)") == ["LID_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER"]
    assert program.run("port = context.query_port(1); result = [port.lid, port.sm_sl]") == [40, 3]


def test_fabric_that_ends(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h3")
    connect(one, other, timeout=8, retry_cnt=1)
    other.run("qp.recv(mr)")
    one.run("qp.send(mr, 0, 64)")
    assert one.run("result = done()") == ["SUCCESS"]
    live.end()
    assert one.run("result = events(1)") == ["PORT_ERR"]
    assert one.run("result = context.query_port(1).state.name") == "DOWN"
    one.run("qp.send(mr, 0, 64)")
    (status,) = one.run("result = done()")
    assert status.startswith("RETRY_EXC_ERR")
    said = one.end()
    assert "the process of the fabric has ended" in said
    assert "packets of QP" in said


def test_no_such_fabric_and_host(live: Live) -> None:
    for settings, sentence in (
        ({"VERBENA_FABRIC": "none"}, "there is no device: the fabric none does not answer"),
        ({"VERBENA_HOST": "h9"}, "the fabric has no host 'h9'"),
    ):
        program = Program(live.name, "h0", **settings)
        program.begin("open_qp()")
        with pytest.raises(AssertionError):
            program.result()
        assert sentence in program.end()


def test_many_programs(live: Live, start: Start) -> None:
    senders = [start(("h0", "h1")[i % 2]) for i in range(20)]
    receiver: Any = start("h3")
    for sender in senders:
        receiver.run("open_qp()")
        connect(sender, receiver)
        address, rkey = receiver.run(
            "qps = globals().setdefault('qps', []) + [qp]; result = [mr.addr, mr.rkey]"
        )
        sender.run(f"[qp.write(mr, {address}, {rkey}, 0, 64) for _ in range(50)]")
    assert [sender.run("result = done(50)") for sender in senders] == [["SUCCESS"] * 50] * 20
    assert live.counts("h3")["rcv_packets"] >= 1000
