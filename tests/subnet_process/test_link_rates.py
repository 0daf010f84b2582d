# SPDX-License-Identifier: Apache-2.0
"""Links of a live fabric that are slower than others: what data take, and what is counted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.subnet_process.live import Live, Program, connect
from verbena import fabrics
from verbena.manage.errors import MadError
from verbena.subnet_process.link_limits import link_limits

Start = Callable[..., Program]
PIECE = 1 << 19  # bytes
REGION = (
    f"big = pd.reg_mr(bytearray({PIECE}), verbs.AccessFlags(15))\nresult = [big.addr, big.rkey]"
)
# Requests one behind the other; the result has the moments of the first and of the last one's end.
MOMENTS = """
import time
begun = time.monotonic()
for i in range({count}): qp.{verb}(big, {address}, {rkey}, 0, {size})
found = done({count})
result = [found, begun, time.monotonic()]
"""
# The result has the time until the last one is done.
TIMED = MOMENTS + "result = [found, result[2] - begun]"


@pytest.fixture
def live() -> Iterator[Live]:
    """h0 and h1 at s0, h2 and h3 at s1."""
    made = Live(fabrics.dumbbell(2, 2))
    yield made
    made.end()


@pytest.fixture
def start(live: Live) -> Iterator[Start]:
    started: list[Program] = []

    def begin(host: str, kind: str = "RC", **settings: str) -> Program:
        program = Program(live.name, host, **settings)
        started.append(program)
        program.run(f"open_qp({kind!r})")
        program.run(REGION)
        return program

    yield begin
    for program in started:
        program.kill()


def slow(live: Live, rate: str, link: str = "s0-s1") -> str:
    control = live.made.control
    assert control is not None
    return live.do(lambda: control.slow(link, rate))


def timed(
    count: int, to: list[int], size: int = PIECE, verb: str = "write", program: str = TIMED
) -> str:
    return program.format(count=count, verb=verb, address=to[0], rkey=to[1], size=size)


def quickest(one: Program, code: str) -> float:
    """The shortest of three runs that succeed: any may have waited for a processor besides."""
    found = [one.run(code) for _ in range(3)]
    assert all(set(statuses) == {"SUCCESS"} for statuses, _ in found)
    return min(float(seconds) for _, seconds in found)


def waits(live: Live, name: str, number: int) -> int:
    return live.counts(name, number).get("xmit_wait", 0)


@pytest.mark.parametrize("verb", ["write", "read"])
def test_data_take_the_time_of_a_slow_link(live: Live, start: Start, verb: str) -> None:
    """4 requests of 512 KiB at 100 Mb/s take 0.168 s, and hardly any time without the limit."""
    one, other = start("h0"), start("h2")
    connect(one, other, timeout=18)
    to = other.run("result = [big.addr, big.rkey]")
    assert slow(live, "100Mb/s").startswith("the link between s0:")
    expected = 4 * PIECE * 8 / 1e8
    assert expected < quickest(one, timed(4, to, verb=verb)) < expected + 0.15
    out, back = live.between("s0", "s1")
    at_once = {"write": waits(live, "s0", out), "read": waits(live, "s1", back)}
    sender = {"write": "h0", "read": "h2"}[verb]
    assert waits(live, sender, 1) > 0.1 * 100e9 / 32  # ticks are words of 4xEDR
    assert at_once[verb] > 0.1 * 100e9 / 32
    assert waits(live, "s1", live.beside("h2").number) == 0  # behind the slow link
    slow(live, "full")
    assert quickest(one, timed(4, to, verb=verb)) < 0.1


def test_two_senders_share_a_link(live: Live, start: Start) -> None:
    ends = [(start("h0"), start("h2")), (start("h1"), start("h3"))]
    for one, other in ends:
        connect(one, other, timeout=18)
    slow(live, "200Mb/s")
    programs = [
        timed(6, other.run("result = [big.addr, big.rkey]"), program=MOMENTS) for _, other in ends
    ]
    for (one, _), program in zip(ends, programs, strict=True):
        one.begin(program)
    results = [one.result() for one, _ in ends]
    assert [found for found, _, _ in results] == [["SUCCESS"] * 6] * 2
    begun, ended = min(each[1] for each in results), max(each[2] for each in results)
    expected = 12 * PIECE * 8 / 2e8  # 0.25 s from the first one's beginning to the last one's end
    assert expected * 0.95 < ended - begun < 2 * expected  # of which they may wait for a processor


def test_a_program_that_sleeps_has_the_rate(live: Live, start: Start) -> None:
    """Each request waits for 0.5 ms, and another thread carries it out."""
    one, other = start("h0"), start("h2")
    connect(one, other, timeout=18)
    to = other.run("result = [big.addr, big.rkey]")
    slow(live, "1Gb/s")
    code = f"""
import time
begun = time.perf_counter()
for i in range(100):
  qp.write(big, {to[0]}, {to[1]}, 0, 65536)
  time.sleep(0.0003)
  while not cq.poll(1): time.sleep(0.0003)
result = time.perf_counter() - begun
"""
    expected = 100 * 65536 * 8 / 1e9
    assert expected < one.run(code) < 4 * expected + 0.2


def test_datagrams_and_small_messages(live: Live, start: Start) -> None:
    one, other = start("h0", "UD"), start("h2", "UD")
    number = other.run("result = qp.qp_num")
    send = (
        f"import time\nah = pd.create_ah(AHAttr(dlid={live.lid('h2')}, is_global=False))\n"
        "begun = time.perf_counter()\n"
        "for i in range(250):\n"
        f"  qp.send(mr, 0, 1000, ah=ah, remote_qpn={number}, remote_qkey=0x11111111)\n"
        "  if i % 50 == 49: done(50)\n"
        "result = [['SUCCESS'], time.perf_counter() - begun]"
    )
    slow(live, "50Mb/s")
    expected = 250 * 1030 * 8 / 50e6
    assert 0.95 * expected < quickest(one, send) < expected + 0.1


def test_a_link_trains_to_less(live: Live, start: Start) -> None:
    """PortInfo shows it, the subnet manager brings the link up again, and its data rate holds."""
    one, other = start("h0"), start("h2")
    out, _ = live.between("s0", "s1")
    slow(live, "1xSDR")
    deadline = time.monotonic() + 10
    while live.port("s0", out).state != 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert str(live.port("s0", out).settings("active").rate) == "1xSDR"
    connect(one, other, timeout=18)
    seconds = quickest(one, timed(4, other.run("result = [big.addr, big.rkey]")))
    assert 4 * PIECE * 8 / 2e9 < seconds < 0.2
    control = live.made.control
    assert control is not None
    assert list(live.do(control._slowed).values()) == ["1xSDR"]
    slow(live, "full")
    assert str(live.port("s0", out).settings("active").rate) == "4xEDR"


def test_a_topology_s_rate_holds() -> None:
    """Of links slower than 4xEDR; faster ones are as fast as copies of memory."""
    made = Live(fabrics.dumbbell(1, 1, rate="1xSDR"))
    try:
        assert {port.data_rate for port in (made.port("h0"), made.port("s0"))} == {2e9}
    finally:
        made.end()


def test_diagnose_names_slow_and_lossy_links(live: Live, start: Start) -> None:
    """PortXmitWait is full after 1.4 s of waiting, and then shows nothing. So data begin with the
    first MAD of the sweep, which has a host for itself, and wait for a third of the time.
    """
    one, other = start("h0"), start("h2")
    connect(one, other, timeout=10, retry_cnt=7)
    control = live.made.control
    assert control is not None
    slow(live, "100Mb/s")
    live.do(lambda: control.lose("s1-h2", 0.02))
    to = other.run("result = [big.addr, big.rkey]")
    write = f"qp.write(big, {to[0]}, {to[1]}, 0, 65536); done(); time.sleep(0.01)"
    command = [sys.executable, "-m", "verbena", "diagnose", "--fabric", live.name]
    command += ["--host", "h1", "--interval", "0.5"]
    before = live.counts("h1").get("xmit_packets", 0)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as diagnose:
        while live.counts("h1").get("xmit_packets", 0) == before and diagnose.poll() is None:
            time.sleep(0.005)
        one.begin(f"import time\nfor n in range(999): {write}")
        said, errors = diagnose.communicate(timeout=60)
    assert diagnose.returncode == 1, errors
    assert "receive" in said
    assert "with errors" in said
    assert "of the time for credits of s1" in said, said


def test_rates_that_are_none() -> None:
    assert link_limits("full") == (0.0, None)
    assert link_limits("2.5Gb/s") == (2.5e9, None)
    assert str(link_limits("4xHDR")[1]) == "4xHDR"
    with pytest.raises(MadError, match=r"write 4xHDR.*full ends a limit"):
        link_limits("fast")
    with pytest.raises(MadError, match="held to 1 Mb/s"):
        link_limits("10kb/s")
