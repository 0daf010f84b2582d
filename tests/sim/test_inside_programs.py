# SPDX-License-Identifier: Apache-2.0
"""Programs on hosts with an inside pay for requests, payload, completions and being woken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.fabrics import star
from tests.sim.inside_pair import FREE
from tests.sim.programs import echo, ping, take_writes, write
from tests.sim.test_processes import far, left
from verbena import aio, sim, verbs
from verbena.sim.inside import Inside

PORT = 7471
COUNT = 40


def world(options: dict[str, Any] | None, **settings: Any) -> tuple[sim.World, list[Inside]]:
    """Three hosts, of which the first two have an inside, unless ``options`` is None."""
    made = sim.World(3, timeout=8, **settings)
    star(made, 3)
    hosts = [] if options is None else [made.inside(host, **options) for host in ("h0", "h1")]
    return made, hosts


def talk(size: int, options: dict[str, Any] | None) -> tuple[float, list[Inside]]:
    """The seconds of COUNT messages that are answered, and the insides of both hosts."""
    made, hosts = world(options)
    programs = {"h0": echo(PORT, COUNT, size), "h1": ping("h0", PORT, COUNT, size)}
    result = sim.run(programs, made)
    assert made.check(at_rest=True) is None
    return float(result.returned["h1"]), hosts


def test_each_message_costs_what_its_parts_cost() -> None:
    _, hosts = talk(64, {"cpu": {"syscall": 700}, "hca": {"inline": 64}})
    for host in hosts:
        seen = host.counters()
        assert seen.requests == seen.blueflames == seen.inlined == COUNT
        assert seen.completions == seen.interrupts == 2 * COUNT
        assert seen.cycles == {
            "post": 80 * 2 * COUNT,  # the request, and a receive request for each message
            "doorbell": 100 * COUNT,
            "poll": 60 * 2 * COUNT,
            "interrupt": 1500 * 2 * COUNT,
            "wakeup": 4500 * 2 * COUNT,
            "syscall": 700 * 2 * 2 * COUNT,
            "spin": 0,
            "registration": 3000,
            "registration_page": 2000,
        }
        # A request of 16 + 4 + 64 bytes takes two lines. A receive request is 16 bytes.
        assert seen.down.tlps == {
            "write": (2 * COUNT, 2 * 88 * COUNT),
            "read": (0, 0),
            "data": (COUNT, 36 * COUNT),
            "msi": (0, 0),
        }
        # The payload that arrives, and two completions; the receive request is asked for.
        assert seen.up.tlps == {
            "write": (3 * COUNT, 3 * 88 * COUNT),
            "read": (COUNT, 24 * COUNT),
            "data": (0, 0),
            "msi": (2 * COUNT, 28 * 2 * COUNT),
        }
        assert seen.busy + seen.spinning + seen.idle == seen.elapsed
        assert 0 < seen.busy < seen.elapsed


def test_a_message_takes_the_time_of_its_way() -> None:
    """Without processor time a message takes the link and half a round trip at each end: the
    request goes down with its data, and the interrupt comes up behind the completion."""
    plain, _ = talk(64, None)
    free, _ = talk(64, {"cpu": FREE, "hca": {"inline": 64}})
    one_way = (free - plain) / COUNT / 2
    assert one_way == pytest.approx(900e-9, rel=0.1)
    paid, hosts = talk(64, {"hca": {"inline": 64}})
    # The sender posts; the receiver is woken, and must first have ended what it did before.
    assert (paid - free) / COUNT / 2 > (180 + 1500 + 4500 + 2 * 1000) / 3e9
    slow, _ = talk(64, {"cpu": {"ghz": 1.0}, "hca": {"inline": 64}})
    assert (slow - free) / (paid - free) == pytest.approx(3.0, rel=0.05)
    assert hosts[0].counters().elapsed > paid * 1e12


def test_moderated_interrupts_delay_a_single_message() -> None:
    at_once, _ = talk(64, {"interrupts": {}})
    later, _ = talk(64, {"interrupts": {"time": "50 us"}})
    assert (later - at_once) / COUNT > 80e-6
    packets, _ = talk(64, {"interrupts": {"time": "50 us", "packets": 1}})
    assert packets == pytest.approx(at_once, rel=0.01)


async def idle() -> None:
    """Do nothing."""


async def send_datagrams(signalled: int, unsignalled: int) -> None:
    """Send them to a QP that is not there, and wait for the completions."""
    with verbs.open_device() as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(64, ctx.create_comp_channel())
        qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD, sq_sig_all=False)
        mr = pd.alloc(1000, verbs.AccessFlags.LOCAL_WRITE)
        verbs.bring_up_ud(qp)
        gid = b"\0" * 10 + b"\xff\xff\x0a\0\0\1"
        ah = pd.create_ah(dgid=gid, sgid_index=2, is_global=True)
        flags = [verbs.SendFlags(0)] * unsignalled + [verbs.SendFlags.SIGNALED] * signalled
        for flag in flags:
            qp.send(mr, ah=ah, remote_qpn=99, remote_qkey=0x11111111, flags=flag)
        with aio.AsyncCQ(cq) as acq:
            for _ in range(signalled):
                await anext(acq)


def test_completions_of_datagrams_are_counted() -> None:
    made, hosts = world({})
    sim.run({"h0": idle, "h1": send_datagrams(5, 3)}, made)
    assert [host.counters().completions for host in hosts] == [0, 5]


def test_completions_of_one_event_share_an_interrupt() -> None:
    made, hosts = world({"interrupts": {}, "hca": {"mtt": 2, "blueflame": False}})
    data = bytes(range(256)) * 256
    programs = {"h0": take_writes(PORT, len(data)), "h1": write("h0", PORT, data, 16)}
    result = sim.run(programs, made)
    assert result.returned["h0"] == data
    seen = hosts[1].counters()
    assert seen.requests == seen.completions == 16
    assert seen.doorbells == 16
    assert seen.fetched == hosts[0].counters().placed == len(data)
    assert 1 <= seen.interrupts < 16
    assert seen.cycles["poll"] == 16 * 60
    assert seen.mtt[1] >= 16  # each page is new to a cache of two


@pytest.mark.parametrize("framing", ["ethernet", "infiniband"])
def test_processes_of_their_own_are_charged_the_same(framing: str, tmp_path: Path) -> None:
    options = {"interrupts": {"time": "3 us", "packets": 4}, "hca": {"inline": 64}}
    near, across = tmp_path / "near.pcapng", tmp_path / "across.pcapng"
    one, here = world(options, framing=framing)
    one.capture(0, 0, near)
    together = sim.run({"h0": echo(PORT, 30, 3000), "h1": ping("h0", PORT, 30, 3000)}, one)
    other, there = world(options, framing=framing)
    other.capture(0, 0, across)
    apart = sim.run_processes(
        {"h0": far("echo", PORT, 30, 3000), "h1": far("ping", "h0", PORT, 30, 3000)}, other
    )
    assert left(apart) == left(together)
    assert across.read_bytes() == near.read_bytes()
    assert [host.counters() for host in there] == [host.counters() for host in here]


def test_a_host_that_has_a_program_gets_no_inside() -> None:
    made, _ = world(None)
    with (
        sim.Hosts(made)["h0"].here(),
        verbs.open_device(),
        pytest.raises(ValueError, match="a program already"),
    ):
        made.inside("h0")
