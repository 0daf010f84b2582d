# SPDX-License-Identifier: Apache-2.0
"""Laws of networks that can be worked out by hand, with the packet engine at both ends."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.fabrics import (
    GIGABIT,
    MIB,
    MICROSECOND,
    CheckedWorld,
    chain,
    credits,
    finish,
    star,
    until,
)
from verbena.sim import World

PACKET = 4096
SER = PACKET * 80  # ps at 100 Gb/s
ACK = 64 * 80


def sent(world: World, host: int) -> int:
    """Bytes that a host has put on its link."""
    links = world.links()
    return int(links["bytes"][(links["node"] == node_of(world, host))][0])


def node_of(world: World, host: int) -> int:
    """Hosts and switches share the numbers of nodes: the switches come first in these fabrics."""
    links = world.links()
    ends = [int(n) for n in np.unique(links["node"])]
    degree = {n: int((links["node"] == n).sum()) for n in ends}
    return [n for n in ends if degree[n] == 1][host]


# ---- time on a link ---------------------------------------------------------------------------


def test_incast_drains_at_the_rate_of_the_last_link() -> None:
    """V1: N S / C, one more packet to store and forward, two delays; then the acknowledgement."""
    world = World(framing="bare")
    star(world, 65)
    world.add_flows(np.arange(1, 65), 0, MIB)
    finish(world)
    assert world.flows()["finish"].max() == 64 * MIB * 80 + SER + 2 * MICROSECOND + 2 * (
        MICROSECOND + ACK
    )
    assert world.links()["queued_max"].max() > 63 * MIB * 0.98


def test_frames_on_ethernet_take_their_headers_time_too() -> None:
    """First packet: BTH and RETH; preamble, Ethernet, IPv4, UDP, ICRC, FCS and gap on each."""
    world = World(framing="ethernet")
    star(world, 2)
    world.add_flows(0, 1, 2 * PACKET)
    finish(world)
    overhead = 8 + 14 + 20 + 8 + 4 + 4 + 12
    first, last, ack = PACKET + 28 + overhead, PACKET + 12 + overhead, 16 + overhead
    links = world.links()
    assert sorted(set(links["bytes"])) == [2 * ack, first + last]
    assert world.flows()["finish"][0] == (2 * first + last + 2 * ack) * 80 + 4 * MICROSECOND


@pytest.mark.parametrize(("header", "data"), [(0, 7_966_080), (64, 6_353_280)])
def test_store_and_forward_and_cut_through(header: int, data: int) -> None:
    """V2: six links; a whole packet at each switch, or a header of 64 bytes."""
    world = World(framing="bare")
    chain(world, [1, 0, 0, 0, 1], cut_through=header)
    world.add_flows(0, 1, PACKET)
    finish(world)
    assert world.flows()["finish"][0] == data + 6 * (MICROSECOND + ACK)


def test_a_rate_that_is_no_whole_number_of_picoseconds_does_not_drift() -> None:
    world = World(framing="bare")
    rate = 54_300_000_007
    star(world, 2, {"rate": rate, "delay": 0})
    world.add_flows(0, 1, 64 * MIB)
    finish(world)
    busy = world.links()["busy"].max()
    assert busy == 64 * MIB * 8 * 10**12 // rate


# ---- windows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [MICROSECOND, 5 * MICROSECOND, 50 * MICROSECOND])
def test_one_message_at_a_time(delay: int) -> None:
    """V13: S / (S / C + RTT), two hosts on one cable."""
    size, count = 1 << 16, 64
    world = World(framing="bare")
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=100 * GIGABIT, delay=delay)
    world.add_flows(0, 1, size * count, message=size, depth=1)
    finish(world)
    assert world.flows()["finish"][0] == count * (size * 80 + 2 * delay + ACK)


@pytest.mark.parametrize("window", [1, 4, 16])
def test_a_window_of_packets_for_each_round_trip(window: int) -> None:
    """V13: W MTU / RTT, where that is less than the line."""
    delay, packets = 10 * MICROSECOND, 256
    world = World(framing="bare", window=window * PACKET)
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=100 * GIGABIT, delay=delay)
    world.add_flows(0, 1, packets * PACKET)
    finish(world)
    round_trip = SER + 2 * delay + ACK
    assert world.flows()["finish"][0] == pytest.approx(packets / window * round_trip, rel=0.02)


def test_reads_wait_for_their_turn() -> None:
    """V13: max_rd_atomic S / RTT: four READs of one packet outstanding."""
    delay, count = 50 * MICROSECOND, 64
    world = World(framing="bare", rd_atomic=4)
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=100 * GIGABIT, delay=delay)
    world.add_flows(0, 1, PACKET * count, message=PACKET, depth=16, read=True)
    finish(world)
    round_trip = SER + 2 * delay + ACK
    assert world.flows()["finish"][0] == pytest.approx(count / 4 * round_trip, rel=0.02)


@pytest.mark.parametrize(("loss", "window"), [(1e-3, 64), (1e-2, 8)])
def test_go_back_n_sends_a_window_again_for_each_loss(loss: float, window: int) -> None:
    """V12: goodput (1 - p) / (1 + (w - 1) p), with w packets to a round trip."""
    per_bit = 1 - (1 - loss) ** (1 / (8 * PACKET))
    delay = (window - 1) * SER // 2
    # There is one NAK for each gap: a packet that is lost again costs a timeout, a short one here.
    world = World(seed=7, framing="bare", window=16 * MIB, timeout=3)
    link = {"rate": 100 * GIGABIT, "delay": delay, "bit_error_rate": per_bit}
    world.connect(world.add_host(), 0, world.add_host(), 0, **link)
    world.add_flows(0, 1, 1 << 30)
    finish(world)
    flow = world.flows()[0]
    goodput = (1 << 30) * 80 / int(flow["finish"])
    assert flow["resent"] > 100
    assert goodput == pytest.approx((1 - loss) / (1 + (window - 1) * loss), rel=0.06)


# ---- credits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("packets", [1, 2, 3, 4, 6, 8, 9, 12])
def test_credits_bound_the_rate(packets: int) -> None:
    """V6: min(C, B / (2 ser + 2 D)) from a host over a switch to a host."""
    world = World(framing="bare")
    star(world, 2, **credits(packets * PACKET))
    world.add_flows(0, 1, 16 * MIB)
    finish(world)
    rate = 16 * MIB * 8 / int(world.flows()["finish"][0]) * 1000
    law = min(100.0, packets * PACKET * 8 / (2 * SER + 2 * MICROSECOND) * 1000)
    assert rate == pytest.approx(law, rel=0.004)


def test_no_more_than_2048_blocks_are_granted_however_large_the_buffer() -> None:
    """V7: 128 KiB for each round trip of the link."""
    delay = 20 * MICROSECOND
    world = World(framing="bare", window=16 * MIB)
    star(world, 2, {"rate": 100 * GIGABIT, "delay": delay}, **credits(MIB))
    world.add_flows(0, 1, 64 * MIB)
    finish(world)
    rate = 64 * MIB * 8 / int(world.flows()["finish"][0]) * 1000
    assert rate == pytest.approx((128 << 10) * 8 / (SER + 2 * delay) * 1000, rel=0.02)


@pytest.mark.parametrize(
    ("hosts", "shares"),
    [([2, 1, 1], [1 / 4, 1 / 4, 1 / 2]), ([2, 1, 1, 1], [1 / 8, 1 / 8, 1 / 4, 1 / 2])],
)
def test_parking_lot(hosts: list[int], shares: list[float]) -> None:
    """V15: each switch serves its inputs in turn, so each one on the way halves a share."""
    world = World(framing="bare", window=MIB)
    chain(world, hosts, **credits(64 << 10))
    target = sum(hosts) - 1
    world.add_flows(np.arange(target), target, 64 * MIB)
    until(world, 200 * MICROSECOND)
    before = np.array([sent(world, host) for host in range(target)])
    until(world, 2200 * MICROSECOND)
    got = np.array([sent(world, host) for host in range(target)]) - before
    assert got / got.sum() == pytest.approx(shares, abs=0.01)


# ---- arbitration ------------------------------------------------------------------------------


def rates(world: World, flows: int) -> np.ndarray:
    """Shares of what hosts 0, 1, … sent in a while, with all of them backlogged."""
    until(world, 500 * MICROSECOND)
    before = np.array([sent(world, host) for host in range(flows)])
    until(world, 3500 * MICROSECOND)
    got = np.array([sent(world, host) for host in range(flows)]) - before
    assert world.check() is None
    return got / got.sum()


@pytest.mark.parametrize(
    ("tables", "shares"),
    [
        ({"low": [(0, 64), (1, 192)]}, [0.25, 0.75]),
        ({"low": [(0, 128), (1, 64), (0, 64)]}, [0.75, 0.25]),
        ({"high": [(1, 64)], "low": [(0, 64)], "high_limit": 255}, [0.0, 1.0]),
        ({"high": [(1, 64)], "low": [(0, 64)], "high_limit": 3}, [0.25, 0.75]),
    ],
)
def test_lanes_share_by_weight(tables: dict[str, object], shares: list[float]) -> None:
    """V16: InfiniBand's VL arbitration."""
    world = World(framing="bare")
    star(world, 3, **credits(64 << 10, lanes=2), **tables)
    world.add_flows([0, 1], 2, 256 * MIB, level=[0, 1])
    assert rates(world, 2) == pytest.approx(shares, abs=0.01)


def test_classes_share_by_weight() -> None:
    """V16: ETS, whose weights are less than a packet."""
    lane = {"flow": "pauses", "stop": 128 << 10, "go": 64 << 10, "spare": 64 << 10}
    world = World(framing="bare")
    star(world, 4, lanes=[lane] * 3, low=[(0, 10), (1, 30), (2, 60)], remembers=True)
    world.add_flows([0, 1, 2], 3, 256 * MIB, level=[0, 1, 2])
    assert rates(world, 3) == pytest.approx([0.1, 0.3, 0.6], abs=0.01)


# ---- pauses -----------------------------------------------------------------------------------


def paused(spare: int, delay: int) -> World:
    """
    Two hosts into one, whose link a class before theirs takes all of for a while, again and again;
    and for frames back to those two, of changing length, the pauses have to wait.
    """
    lane = {"flow": "pauses", "stop": 16 * PACKET - 1, "go": 8 * PACKET, "spare": spare}
    tables = {"high": [(1, 1)], "low": [(0, 1)], "high_limit": 255}
    world = CheckedWorld(framing="bare", window=16 * MIB)
    world.may_overrun = True
    star(world, 6, {"rate": 100 * GIGABIT, "delay": delay}, lanes=[lane, {}], **tables)
    world.add_flows([0, 1], 2, 16 * MIB)
    world.add_flows([3, 4], [0, 1], 16 * MIB, message=PACKET + 900, depth=32)
    bursts = np.arange(50)
    world.add_flows(5, 2, MIB // 4, bursts * 40_037_000, level=1)
    world.run()
    return world


@pytest.mark.parametrize("meters", [100, 300])
def test_headroom_of_a_round_trip_and_two_frames_is_enough(meters: int) -> None:
    """
    V9: nothing is lost with 2 d C + 2 MTU + the pause, the threshold being crossed by one byte.
    (Without the second frame something is when the pause has to wait for all of it:
    tests/native/test_lanes.c makes that happen.)
    """
    delay = meters * 5000
    need = 2 * delay // 80 + 2 * PACKET + 84
    world = paused(need, delay)
    assert world.check(at_rest=True) is None
    assert world.links()["pauses"].sum() > 10
    assert world.flows()["resent"].sum() == 0
    less = paused(need - 2 * PACKET - 84, delay)
    assert less.links()["dropped_headroom"].sum() > 0
    assert "headroom" in (less.check() or "")
    assert (less.flows()["state"] == 2).all()


def test_lossy_and_lossless_share_a_wire() -> None:
    """The lossless class loses nothing while the lossy one overflows beside it."""
    pauses = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
    world = World(framing="bare", timeout=8)
    star(world, 5, lanes=[{"flow": "lossy", "alpha": 0.5}, pauses], buffer=2 * MIB)
    world.add_flows([0, 1, 2, 3], 4, 8 * MIB, level=[0, 0, 1, 1])
    finish(world)
    flows, links = world.flows(), world.links()
    assert links["dropped_full"].sum() > 0
    assert links["dropped_headroom"].sum() == 0
    assert (flows["resent"][:2] > 0).all()
    assert (flows["resent"][2:] == 0).all()


# ---- congestion -------------------------------------------------------------------------------


def test_marking_follows_the_queue() -> None:
    world = World(framing="bare")
    star(world, 3, mark=(0, 1, 1.0))
    world.add_flows(0, 2, MIB)
    finish(world)
    assert world.flows()["marked"].sum() == 0  # no queue, no mark
    world.add_flows([0, 1], 2, MIB, start=world.now)
    finish(world)
    flows = world.flows()
    assert flows["marked"].sum() == world.links()["marked"].sum() > 400


def queue_of(congestion: dict[str, object] | None) -> tuple[float, np.ndarray]:
    """The greatest queue at the end of a long incast of eight, and what each flow got."""
    world = World(seed=1, framing="bare", congestion=congestion, window=64 * MIB)
    star(world, 9, mark=(5 << 10, 200 << 10, 0.01))
    world.add_flows(np.arange(1, 9), 0, 64 * MIB)
    until(world, 20_000 * MICROSECOND)
    before = np.array([sent(world, host) for host in range(1, 9)])
    until(world, 30_000 * MICROSECOND)
    got = np.array([sent(world, host) for host in range(1, 9)]) - before
    return float(world.links()["queued_max"].max()), got


def test_dcqcn_shares_the_line_and_keeps_the_queue_short() -> None:
    with_dcqcn, got = queue_of({"kind": "dcqcn"})
    without, _ = queue_of(None)
    assert with_dcqcn < without / 4
    fairness = got.sum() ** 2 / (len(got) * (got**2).sum())
    assert fairness > 0.9
    assert 0.8 < got.sum() * 8 / 10_000 / 1e5 <= 1.01


@pytest.mark.parametrize("gap", [1.0, 3.0])
def test_a_gap_of_the_congestion_control_table_is_the_rate(gap: float) -> None:
    """V17: rate 1 / (1 + IRD), as long as the table's last entry holds."""
    cct = {"kind": "cct", "gaps": [0.0, gap], "timer": 10**12, "notice_interval": 0}
    world = World(framing="infiniband", congestion=cct)
    star(world, 3, fecn=1, **credits(64 << 10))
    world.add_flows([0, 1], 2, 16 * MIB)
    until(world, 400 * MICROSECOND)
    before = world.links()["busy"].copy()
    until(world, 500 * MICROSECOND)
    busy = world.links()["busy"] - before
    sender = world.links()["node"] == node_of(world, 0)
    assert world.flows()["notices"].sum() > 0
    assert busy[sender][0] / (100 * MICROSECOND) == pytest.approx(1 / (1 + gap), rel=0.02)


@pytest.mark.parametrize(("fecn_at", "victim"), [("root", False), ("output", True)])
def test_fecn_is_for_the_root_of_a_congestion(fecn_at: str, victim: bool) -> None:
    """IBA A10: the port before it waits for credits, and what is in its queue is not the cause."""
    link = {"rate": 100 * GIGABIT, "delay": MICROSECOND // 10}
    world = World(framing="bare", timeout=0)
    chain(world, [1, 2], link, fecn=8 << 10, fecn_at=fecn_at, **credits(32 << 10))
    world.add_flows([0, 1], 2, MIB, message=1 << 14, depth=4)
    finish(world)
    links = world.links()
    root = (links["node"] == 1) & (links["to_node"] == node_of(world, 2))
    before = (links["node"] == 0) & (links["to_node"] == 1)
    assert links["queued_max"][before] > 16 << 10
    assert links["marked"][root] > 20
    assert (links["marked"][before] > 20) == victim


def test_fecn_by_input_marks_whatever_is_in_the_buffer() -> None:
    world = World(framing="bare", timeout=0)
    star(world, 5, fecn=8 << 10, fecn_at="input", **credits(32 << 10))
    world.add_flows([0, 1, 4, 0], [2, 2, 2, 3], MIB, message=1 << 14, depth=4)
    finish(world)
    assert (world.flows()["marked"] > 0).tolist() == [True] * 4
    with pytest.raises(ValueError, match="inputs have no buffers"):
        World().add_switch(2, fecn=1, fecn_at="input")
