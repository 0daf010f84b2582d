# SPDX-License-Identifier: Apache-2.0
"""Links of a live fabric that lose packets: of MADs, and of data by their transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.subnet_process.live import Live, Program, connect
from verbena import fabrics
from verbena.manage.agents import Drop
from verbena.manage.agents.lossy_links import charge_lossy, damaged_of
from verbena.manage.errors import MadError

Start = Callable[..., Program]
TIMEOUT = 10  # 4 ms


@pytest.fixture
def live() -> Iterator[Live]:
    """h0 and h1 at s0, h2 and h3 at s1, and the same losses in each run."""
    made = Live(fabrics.dumbbell(2, 2))
    made.do(lambda: setattr(made.subnet, "random", Random(7)))
    yield made
    made.end()


@pytest.fixture
def start(live: Live) -> Iterator[Start]:
    started: list[Program] = []

    def begin(host: str, kind: str = "RC") -> Program:
        program = Program(live.name, host)
        started.append(program)
        program.run(f"open_qp({kind!r})")
        return program

    yield begin
    for program in started:
        program.kill()


def lose(live: Live, chance: float, link: str = "s0-s1") -> str:
    control = live.made.control
    assert control is not None
    return live.do(lambda: control.lose(link, chance))


def trunk(live: Live) -> tuple[dict[str, int], dict[str, int]]:
    """The counters of both ends of the link between the switches."""
    one, other = live.between("s0", "s1")
    return live.counts("s0", one), live.counts("s1", other)


def damaged(counts: dict[str, int]) -> int:
    assert counts.get("rcv_errors", 0) == counts.get("local_physical_errors", 0)
    return counts.get("rcv_errors", 0)


def test_rc_retries_what_is_lost(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h2")
    connect(one, other, timeout=TIMEOUT)
    address, rkey = other.run("result = [mr.addr, mr.rkey]")
    begun = time.monotonic()
    write = f"for i in range(20): qp.write(mr, {address}, {rkey}, 0, 5000)\nresult = done(20)"
    for _ in range(5):
        assert one.run(write) == ["SUCCESS"] * 20
    assert time.monotonic() - begun < 5
    assert lose(live, 0.2).startswith("the link between s0:")
    begun = time.monotonic()
    for _ in range(5):
        assert one.run(write) == ["SUCCESS"] * 20
    assert time.monotonic() - begun > 0.1  # some 36 time-outs of 4 ms
    there, back = trunk(live)
    assert damaged(back) > 40  # requests, of 5 packets
    assert damaged(there) > 5  # acknowledgements
    assert there["xmit_packets"] == back["rcv_packets"] + damaged(back)
    assert back["xmit_packets"] == there["rcv_packets"] + damaged(there)
    assert other.run("result = qp.qp_num")  # it runs
    lose(live, 0)
    before = damaged(trunk(live)[1])
    assert one.run(write) == ["SUCCESS"] * 20
    assert damaged(trunk(live)[1]) == before


def test_a_link_that_loses_all_is_named(live: Live, start: Start) -> None:
    one, other = start("h0"), start("h2")
    connect(one, other, timeout=TIMEOUT, retry_cnt=2)
    address, rkey = other.run("result = [mr.addr, mr.rkey]")
    lose(live, 1)
    (found,) = one.run(f"qp.write(mr, {address}, {rkey}, 0, 10); result = done()")
    assert found.startswith("RETRY_EXC_ERR")
    _, back = trunk(live)
    assert damaged(back) == 3
    said = one.end()
    assert f"the fabric {live.name} loses packets: 100 % on s0:" in said


def test_receivers_that_are_not_ready_cost_no_losses(live: Live, start: Start) -> None:
    """A request that waits for a receive was not lost; looking at it again draws nothing."""
    one, other = start("h0"), start("h2")
    connect(one, other, timeout=TIMEOUT)
    lose(live, 0.01)
    one.run("qp.send(mr, 0, 100)")
    time.sleep(0.3)
    one.run("result = cq.poll(1)")
    other.run("qp.recv(mr)")
    assert one.run("result = done()") == ["SUCCESS"]
    there, back = trunk(live)
    assert damaged(there) + damaged(back) <= 1


@pytest.mark.parametrize("kind", ["UD", "UC"])
def test_others_lose_silently(live: Live, start: Start, kind: str) -> None:
    one, other = start("h0", kind), start("h2", kind)
    other.run("for i in range(120): qp.recv(mr, 0, 1000)")
    if kind == "UC":
        connect(one, other)
        send = "qp.send(mr, 0, 500)"
    else:
        number = other.run("result = qp.qp_num")
        send = (
            f"ah = pd.create_ah(AHAttr(dlid={live.lid('h2')}, is_global=False)) if not i else ah\n"
            f"  qp.send(mr, 0, 500, ah=ah, remote_qpn={number}, remote_qkey=0x11111111)"
        )
    lose(live, 0.25)
    one.run(f"for i in range(120):\n  {send}\n  done()")
    time.sleep(0.1)
    arrived = other.run("result = len(cq.poll(120))")
    assert 70 < arrived < 110
    _, back = trunk(live)
    assert damaged(back) == 120 - arrived


def test_mads_are_lost_and_repeated(live: Live) -> None:
    """The subnet manager sweeps a fabric of which each link loses some, and sets its LIDs."""
    lose(live, 0.05, "all")
    live.do(lambda: live.subnet.cut("h3", 1))
    live.do(lambda: live.subnet.restore("h3", 1))
    deadline = time.monotonic() + 20
    while live.port("h3").state != 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert live.subnet.drops[Drop.DAMAGED] > 3
    control = live.made.control
    assert control is not None
    assert live.do(control._losses) == {"all": 0.05}


def test_a_chance_is_from_0_to_1(live: Live) -> None:
    with pytest.raises(MadError, match=r"from 0 to 1, and not 1\.5"):
        lose(live, 1.5)


def test_packets_that_are_damaged(live: Live) -> None:
    """On two lossy links behind each other, of many packets and of few."""
    links = [(live.beside("h0"), live.port("h0")), (live.port("s0", 3), live.port("s1", 3))]
    for out, into in links:
        out.loss = into.loss = 0.1
    random = Random(1)
    many = damaged_of(links, 100_000, random)
    assert many[0] == pytest.approx(10_000, rel=0.05)
    assert many[1] == pytest.approx(9_000, rel=0.05)
    few = [sum(damaged_of(links, 10, random)) for _ in range(300)]
    assert sum(few) / 300 == pytest.approx(1.9, rel=0.2)
    before = dict(links[1][1].tally)
    charge_lossy(links, 10, 1000, [4, 6])
    after = links[1][1].tally
    assert after["rcv_errors"] - before.get("rcv_errors", 0) == 6
    assert after["rcv_packets"] == before.get("rcv_packets", 0)


def test_datagrams_of_groups(live: Live, start: Start) -> None:
    """All copies of one are lost, or none."""
    one, members = start("h0", "UD"), [start(host, "UD") for host in ("h2", "h3")]
    out, into = live.between("s0", "s1")
    to = [live.beside(host).number for host in ("h2", "h3")]
    live.set_group(0xC001, {"s0": [out], "s1": [into, *to]})
    lose(live, 0.25)
    group = "bytes.fromhex('ff12601bffff000000000000000000aa')"
    for member in members:
        member.run(f"qp.attach_mcast({group}, 0xc001)\nfor i in range(120): qp.recv(mr, 0, 1000)")
    one.run(
        f"ah = pd.create_ah(AHAttr(dgid={group}, dlid=0xc001))\n"
        "for i in range(100):\n"
        "  qp.send(mr, 0, 100, ah=ah, remote_qpn=verbs.MULTICAST_QPN, remote_qkey=0x11111111)\n"
        "  done()"
    )
    time.sleep(0.1)
    arrived = [member.run("result = len(cq.poll(120))") for member in members]
    assert 60 < arrived[0] < 90
    assert arrived[0] == arrived[1]
    there, back = trunk(live)
    assert there["multicast_xmit_packets"] == 100
    assert 10 < damaged(back) < 40
