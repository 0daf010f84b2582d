# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated hosts: what they do, how long it takes, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import LINK, ring_of_four, star
from tests.sim.programs import ALL, called, calling, echo, ping, take_writes, write
from verbena import aio, fabrics, sim, verbs

PORT = 7471
FABRIC = fabrics.one_switch(4, rate="100GbE", length_m=5)
POLLED = np.empty(4, verbs.wc_dtype)
PS = 1e-12
WIRE = 70 + 12  # bytes of a RoCE v2 packet beside its payload, with preamble and gap: up to the BTH
BYTE = 80  # ps on a link
CABLE = 25_000


def pattern(count: int) -> bytes:
    return bytes(at * 7 % 251 for at in range(count))


# ---- the same program --------------------------------------------------------------------------


async def both(host: str, port: int) -> tuple[bytes, float]:
    server = asyncio.create_task(echo(port, 20))
    await asyncio.sleep(0.1)
    took = await ping(host, port, 20)
    return await server, took


def test_a_program_runs_here_and_on_simulated_hosts() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answered, _ = asyncio.run(both("127.0.0.1", port))
    result = sim.run({"h0": echo(port, 20), "h3": ping("h0", port, 20)}, FABRIC)
    assert result.returned["h0"] == answered == bytes([19]) * 64


def test_messages_take_the_time_that_wires_and_cables_take() -> None:
    result = sim.run({"h0": echo(PORT, 50), "h1": ping("h0", PORT, 50)}, FABRIC)
    one_way = 2 * ((WIRE + 64) * BYTE + CABLE)
    acknowledgement = (WIRE + 4) * BYTE  # leaves before the answer to what it acknowledges
    expected = 50 * 2 * (one_way + acknowledgement) - acknowledgement
    assert result.returned["h1"] == pytest.approx(expected * PS, abs=PS)
    assert result.world.check(at_rest=True) is None


def test_two_runs_with_one_seed_are_equal_to_the_byte() -> None:
    def once(seed: int) -> sim.Result:
        world = sim.World(seed, timeout=8)
        star(world, 2, {**LINK, "bit_error_rate": 1e-7})
        data = pattern(1 << 20)
        return sim.run(
            {"h0": take_writes(PORT, len(data)), "h1": write("h0", PORT, data, 8)}, world
        )

    one, other, another = once(3), once(3), once(4)
    assert one.world.links().tobytes() == other.world.links().tobytes()
    assert one.finished == other.finished
    assert one.world.links().tobytes() != another.world.links().tobytes()


def test_keys_and_packet_numbers_come_from_the_seed() -> None:
    async def program() -> tuple[int, int]:
        with verbs.open_device() as ctx:
            pd = ctx.alloc_pd()
            info, _ = verbs.local_qp_info(pd.create_qp(send_cq=ctx.create_cq(4)))
            return pd.alloc(64).lkey, info.psn

    def once(seed: int) -> dict[str, Any]:
        return sim.run({"h0": program, "h1": program}, FABRIC, seed=seed).returned

    assert once(3) == once(3)
    seen = [*once(3).values(), *once(4).values()]
    assert len({key for key, _ in seen}) == len({psn for _, psn in seen}) == 4


def test_the_clock_of_the_loop_is_the_world_s() -> None:
    async def program() -> list[float]:
        loop, seen = asyncio.get_running_loop(), []
        queue: asyncio.Queue[int] = asyncio.Queue()
        loop.call_later(2e-6, queue.put_nowait, 1)
        await queue.get()
        seen.append(loop.time())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        seen.append(loop.time())
        await asyncio.gather(asyncio.sleep(1e-9), asyncio.sleep(2e-9))
        seen.append(loop.time())
        return seen

    returned = sim.run({"h2": program}, FABRIC).returned["h2"]
    assert returned == pytest.approx([2e-6, 3600 + 2e-6, 3600 + 2.002e-6], abs=2 * PS)


def test_tasks_of_one_host_sleep_side_by_side() -> None:
    async def sleeper(order: list[str], name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(name)

    async def program() -> list[str]:
        order: list[str] = []
        await asyncio.gather(sleeper(order, "b", 2e-6), sleeper(order, "a", 1e-6))
        return order

    assert sim.run({"h0": program}, FABRIC).returned["h0"] == ["a", "b"]


def test_programs_find_their_own_adapter_alone() -> None:
    async def program() -> tuple[list[str], str]:
        with verbs.open_device() as ctx:
            names = [device.name for device in verbs.get_device_list()]
            return names, str(ctx.query_gid(1, 2).raw[12:].hex("."))

    returned = sim.run({"h0": program, "h3": program}, FABRIC).returned
    assert returned == {"h0": (["h0"], "0a.00.00.01"), "h3": (["h3"], "0a.00.00.04")}
    assert "h0" not in [device.name for device in verbs.get_device_list()]


# ---- fabrics -----------------------------------------------------------------------------------

CREDITS = {"lanes": [{"flow": "credits", "room": 64 << 10}] * 2}
PAUSES = {"lanes": [{"flow": "pauses", "stop": 32 << 10, "go": 16 << 10, "spare": 32 << 10}]}


@pytest.mark.parametrize("switch", [{}, CREDITS, PAUSES], ids=["lossy", "credits", "pauses"])
def test_what_is_written_arrives_whatever_the_flow_control(switch: dict[str, Any]) -> None:
    data = pattern(2 << 20)
    programs: dict[str, Any] = {"h0": take_writes(PORT, len(data))}
    world = sim.World(timeout=8)
    star(world, 3, **switch)
    world.add_flows(2, 0, 4 << 20)
    result = sim.run(programs | {"h1": write("h0", PORT, data, 16)}, world)
    assert result.returned["h0"] == data
    line = len(data) * BYTE * PS
    assert 1.5 * line < result.returned["h1"] < 4 * line  # it shares the target's link
    assert result.world.run() == "done"
    assert result.world.check(at_rest=True) is None
    if switch:
        assert result.world.packets["dropped"] == 0


def test_what_is_lost_is_sent_again() -> None:
    data = pattern(1 << 20)
    world = sim.World(seed=2, timeout=8)
    star(world, 2, {**LINK, "bit_error_rate": 3e-7})
    result = sim.run({"h0": take_writes(PORT, len(data)), "h1": write("h0", PORT, data, 4)}, world)
    assert result.returned["h0"] == data
    assert world.links()["dropped_damaged"].sum() > 0


def test_datagrams_wait_for_the_port_and_keep_their_order() -> None:
    count, size = 100, 4000

    async def receiver() -> list[int]:
        with verbs.open_device() as ctx:
            pd = ctx.alloc_pd()
            cq = ctx.create_cq(256, ctx.create_comp_channel())
            qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD, max_recv_wr=count)
            mr = pd.alloc(4096, 1)
            verbs.bring_up_ud(qp)
            for _ in range(count):
                qp.recv(mr)
            numbers.set_result(qp.qp_num)
            with aio.AsyncCQ(cq) as acq:
                return [(await anext(acq)).imm_data for _ in range(count)]

    async def sender() -> float:
        with verbs.open_device() as ctx:
            pd = ctx.alloc_pd()
            cq = ctx.create_cq(256, ctx.create_comp_channel())
            qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD, max_send_wr=count)
            mr = pd.alloc(size, 1)
            verbs.bring_up_ud(qp)
            ah = pd.create_ah(dgid=b"\0" * 10 + b"\xff\xff\x0a\0\0\1", sgid_index=2, is_global=True)
            remote = {"ah": ah, "remote_qpn": await numbers, "remote_qkey": 0x11111111}
            for number in range(count):
                qp.send(mr, imm_data=number, **remote)
            with aio.AsyncCQ(cq) as acq:
                for _ in range(count):
                    await anext(acq)
            return asyncio.get_running_loop().time()

    async def prepare(program: Callable[[], Any]) -> Any:
        nonlocal numbers
        numbers = asyncio.get_running_loop().create_future()
        return await program()

    numbers: asyncio.Future[int]
    result = sim.run({"h0": prepare(receiver), "h1": sender}, FABRIC)
    assert result.returned["h0"] == list(range(count))
    assert result.returned["h1"] >= (count - 1) * size * BYTE * PS


def test_adapters_tell_of_events() -> None:
    async def server() -> str:
        async with called(PORT) as end:
            with aio.events(end.ctx) as events:
                await end.tell_region()
                name = (await anext(events)).event_type.name
                await end.wait_for_peer()  # what it saw goes with its adapter
                return name

    async def client() -> str:
        async with calling("h0", PORT) as end:
            addr, rkey = await end.region()
            with pytest.raises(verbs.CompletionError) as caught:
                await end.qp.write(end.mr, addr, rkey + 1)
            await end.wait_for_peer()
            return str(caught.value)

    returned = sim.run({"h0": server, "h1": client}, FABRIC).returned
    assert returned["h0"] == "QP_ACCESS_ERR"
    assert "What that side saw: " in returned["h1"]


def test_worlds_do_not_meet() -> None:
    def world(speed: int) -> sim.World:
        made = sim.World()
        star(made, 2, {"rate": speed * 10**9, "delay": 0})
        return made

    def program() -> dict[str, Any]:
        return {"h0": echo(PORT, 10), "h1": ping("h0", PORT, 10)}

    slow, fast = (sim.run(program(), world(speed)).returned["h1"] for speed in (10, 100))
    assert slow == pytest.approx(10 * fast, rel=1e-6)
    left, right = sim.Hosts(world(10)), sim.Hosts(world(10))
    with left["h0"].here(), verbs.open_device() as ctx:
        assert ctx.create_cq(4).wait(1, timeout=1) == []
    assert (left.world.now, right.world.now) == (10**12, 0)


# ---- waiting without await -----------------------------------------------------------------------


class Loopback:
    """A QP that writes to its own host's memory, by way of the switch."""

    def __init__(self, ctx: verbs.Context) -> None:
        pd = ctx.alloc_pd()
        self.channel = ctx.create_comp_channel()
        self.cq = ctx.create_cq(16, self.channel)
        self.qp, self.far = (pd.create_qp(send_cq=self.cq) for _ in range(2))
        self.mr = pd.alloc(64, ALL)
        verbs.connect_pair(self.qp, self.far)
        self.qp.write(self.mr, self.mr.addr, self.mr.rkey)


def test_polling_lets_time_pass() -> None:
    async def politely() -> float:
        with verbs.open_device() as ctx:
            own = Loopback(ctx)
            while not (wcs := own.cq.poll()):
                await asyncio.sleep(0)
            wcs[0].raise_for_status()
            return asyncio.get_running_loop().time()

    async def stubbornly() -> float:
        with verbs.open_device() as ctx:
            own = Loopback(ctx)
            while not (wcs := own.cq.poll()):
                pass
            wcs[0].raise_for_status()
            return asyncio.get_running_loop().time()

    times = [sim.run({"h0": way}, FABRIC).returned["h0"] for way in (politely, stubbornly)]
    assert times[0] == times[1] > 4 * CABLE * PS


# ---- descriptors ---------------------------------------------------------------------------------


def is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def test_a_reader_is_called_until_its_event_is_taken() -> None:
    """Whoever watches, the kernel sees events that are left when nobody does any more."""

    async def program() -> tuple[list[int], list[bool], object]:
        loop = asyncio.get_running_loop()
        with verbs.open_device() as ctx:
            own = Loopback(ctx)
            fd, calls = own.channel.fd, []
            loop.add_reader(fd, lambda: calls.append(own.channel.drain() if len(calls) == 3 else 0))
            own.cq.req_notify()
            await asyncio.sleep(1)
            own.cq.poll()
            own.qp.write(own.mr, own.mr.addr, own.mr.rkey)
            loop.remove_reader(fd)
            own.cq.req_notify()
            seen = [is_readable(fd)]
            await asyncio.sleep(1)
            seen.append(is_readable(fd))
            loop.add_reader(fd, lambda: calls.append(-1) or loop.remove_reader(fd))
            await asyncio.sleep(1)
            return calls, [*seen, is_readable(fd)], own.channel.get_cq_event(0) is own.cq

    calls, seen, taken = sim.run({"h0": program}, FABRIC).returned["h0"]
    assert calls == [0, 0, 0, 1, -1]
    assert seen == [False, True, True]
    assert taken


def test_a_channel_that_could_not_be_closed_is_waited_for() -> None:
    async def program() -> str:
        with verbs.open_device() as ctx:
            own = Loopback(ctx)
            with pytest.raises(verbs.VerbsError) as caught:
                own.channel.close()
            assert caught.value.errno == errno.EBUSY
            async for wc in aio.AsyncCQ(own.cq):
                return wc.status.name
        return "no completion"

    assert sim.run({"h0": program}, FABRIC).returned["h0"] == "SUCCESS"


def test_blocking_waits_let_adapters_go_on_and_end_when_nothing_is_left() -> None:
    async def program() -> tuple[str, float, float]:
        loop = asyncio.get_running_loop()
        with verbs.open_device() as ctx:
            own = Loopback(ctx)
            (wc,) = own.cq.wait(1)
            begin = loop.time()
            assert own.cq.wait(1, timeout=1) == []
            assert own.channel.get_cq_event(1) is None
            assert ctx.get_async_event(1) is None
            assert not own.mr.wait_u64(0, 5, timeout=1)
            waited = loop.time() - begin
            with pytest.raises(verbs.VerbsError, match="await it") as caught:
                own.cq.wait(1)
            assert caught.value.errno == errno.EDEADLK
            return wc.status.name, begin, waited

    status, begin, waited = sim.run({"h0": program}, FABRIC).returned["h0"]
    assert status == "SUCCESS"
    assert 0 < begin < 1e-6
    assert waited == pytest.approx(4, abs=1e-9)


def test_the_system_s_library_is_for_real_devices_alone() -> None:
    """Where programs run unchanged on them and on simulated hosts."""
    text = """
from verbena import fabrics, sim, verbs
async def program():
    return verbs.open_device().query_device().max_qp > 0
print(sim.run({"h0": program}, fabrics.ring(3, rate="100GbE")).returned["h0"])
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"VERBENA_LIBRARY": "system"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True\n", done.stderr


async def polls_for_ever(poll: Callable[[verbs.CQ], Any], lets_go: bool) -> None:
    with verbs.open_device() as ctx, ctx.create_cq(4) as cq:
        while not poll(cq):
            if lets_go:
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("poll", "lets_go"),
    [
        (verbs.CQ.poll, False),
        (verbs.CQ.poll, True),
        (lambda cq: cq.poll(100), False),
        (lambda cq: cq.wait(1, timeout=0), False),
        (lambda cq: cq.poll(out=POLLED), False),
    ],
    ids=["poll", "poll and let go", "poll many", "wait", "poll into"],
)
def test_polling_ends_when_nothing_is_left(poll: Callable[[verbs.CQ], Any], lets_go: bool) -> None:
    with pytest.raises(verbs.VerbsError, match="nothing is left to happen") as caught:
        sim.run({"h0": lambda: polls_for_ever(poll, lets_go)}, FABRIC)
    assert caught.value.errno == errno.EDEADLK


def test_a_program_that_polls_sees_what_another_does_after_a_second() -> None:
    """However often it polls until then."""

    async def late() -> None:
        await asyncio.sleep(1)
        await write("h1", PORT, b"late")

    async def polls() -> float:
        taking = asyncio.create_task(take_writes(PORT, 4))
        with verbs.open_device() as ctx, ctx.create_cq(4) as cq:
            while not taking.done():
                for _ in range(100):
                    cq.poll()
                await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert sim.run({"h0": late, "h1": polls}, FABRIC).returned["h1"] > 1


# ---- the end of a run ----------------------------------------------------------------------------


async def waits_for_ever() -> None:
    with verbs.open_device() as ctx:
        async for _ in aio.AsyncCQ(ctx.create_cq(4, ctx.create_comp_channel())):
            pass


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def program() -> None:
        await asyncio.create_task(waits_for_ever())

    with pytest.raises(sim.Deadlock) as caught:
        sim.run({"h1": waits_for_ever, "h2": program}, FABRIC)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("nothing is left to happen at 0.0")
    names = [line.split(":")[0].strip() for line in lines[1:]]
    assert names == ["h1", "h2", "h2/task-2"]
    assert all(f"{__file__}:" in line for line in lines[1:])
    assert lines[1].endswith("in waits_for_ever")


def test_a_send_that_nobody_receives_is_named() -> None:
    """With rnr_retry 7 it is tried again for ever, so that the world never comes to rest."""

    async def receiver() -> None:
        async with called(PORT):
            await asyncio.get_running_loop().create_future()

    async def sender() -> None:
        async with calling("h0", PORT) as end:
            await end.qp.send(end.mr)

    with pytest.raises(sim.Deadlock) as caught:
        sim.run({"h0": receiver, "h1": sender}, FABRIC)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("no request has completed for a minute; tasks:")
    assert [line.split(":")[0].strip() for line in lines[1:3]] == ["h0", "h1"]
    assert "has no receive request for it (rnr_retry 7: for ever)" in lines[3]


def test_packets_that_wait_for_each_other_are_named() -> None:
    world = sim.World(framing="bare", window=1 << 20, timeout=0)
    lane = {"flow": "credits", "room": 8 << 10}
    ring_of_four(world, lanes=[lane])
    world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], 4 << 20)

    async def program() -> None:
        await asyncio.sleep(3600)

    with pytest.raises(sim.Deadlock, match=r"packets wait for each other .*port 1 of node"):
        sim.run({"h0": program}, world)


def test_background_programs_end_with_the_others() -> None:
    async def program() -> float:
        await asyncio.sleep(2)
        return asyncio.get_running_loop().time()

    result = sim.run({"h0": waits_for_ever, "h1": program}, FABRIC, background=["h0"])
    assert (result.returned, result.finished) == ({"h1": 2}, {"h1": 2})
    with pytest.raises(ValueError, match="there is no program on host"):
        sim.run({"h1": program}, FABRIC, background=["h0"])


def test_a_program_that_is_cancelled_ends_its_own_tasks() -> None:
    ended = []

    async def child() -> None:
        await asyncio.sleep(5)
        ended.append(asyncio.get_running_loop().time())

    async def parent() -> None:
        task = asyncio.create_task(child())
        try:
            await asyncio.Event().wait()
        finally:
            await task

    async def other() -> None:
        await asyncio.sleep(2)

    sim.run({"h0": parent, "h1": other}, FABRIC, background=["h0"])
    assert ended == [5]


def test_a_run_is_limited() -> None:
    ended = []

    async def program() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(asyncio.get_running_loop().time())

    result = sim.run({"h0": program}, FABRIC, until=1.5)
    assert (result.returned, ended, result.now) == ({}, [1.5], 1.5)


def test_what_a_program_raises_ends_the_run() -> None:
    ended = []

    async def failing() -> None:
        await asyncio.sleep(1)
        raise LookupError("not here")

    async def other() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append("other")

    with pytest.raises(LookupError, match="not here") as caught:
        sim.run({"h0": failing, "h1": other}, FABRIC)
    assert caught.value.__notes__ == ["in the program of host h0"]
    assert ended == ["other"]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_run_leaves_what_it_measured() -> None:
    world = sim.World()
    star(world, 2)
    world.add_flows(0, 1, 1 << 40)

    async def program() -> None:
        await asyncio.sleep(1e6)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(sim.Interrupted) as caught:
            sim.run({"h0": program}, world)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught.value.result.world is world
    assert re.fullmatch(
        r"the run was interrupted after [0-9.e+-]+ simulated seconds: .*", str(caught.value)
    )
    assert world.links()["bytes"].sum() > 0
    assert world.check() is None


@pytest.mark.parametrize(
    ("programs", "options", "why"),
    [
        ({"h9": waits_for_ever}, {}, "no host 'h9': there are h0, h1, h2, h3"),
        ({"h0": print}, {}, "no coroutine"),
        ({"h0": waits_for_ever}, {"control_delay": -1.0}, "control_delay"),
    ],
)
def test_what_cannot_be_run_is_refused(
    programs: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        sim.run(programs, FABRIC, **options)


# ---- what a simulated host has not ---------------------------------------------------------------


async def executor() -> None:
    await asyncio.to_thread(print)


async def open_socket() -> None:
    socket.socket()


async def start_thread() -> None:
    threading.Thread(target=print).start()


async def start_process() -> None:
    subprocess.run(["true"])


async def asyncio_process() -> None:
    await asyncio.create_subprocess_exec("true")


async def read_pipe() -> None:
    reading, writing = os.pipe()
    try:
        asyncio.get_running_loop().add_reader(reading, print)
    finally:
        os.close(reading)
        os.close(writing)


async def connect_pipe() -> None:
    with open(os.devnull, "rb") as file:
        await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, file)


async def datagrams() -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, ("127.0.0.1", 0)
    )


async def unix() -> None:
    await asyncio.open_unix_connection("/nowhere")


async def tls() -> None:
    await asyncio.open_connection("h0", 1, ssl=True)


async def handle_signal() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)


async def own_executor() -> None:
    with ThreadPoolExecutor() as pool:
        await asyncio.get_running_loop().run_in_executor(pool, print)


async def shell() -> None:
    await asyncio.create_subprocess_shell("true")


async def serve_on_a_socket() -> None:
    await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=MADE_BEFORE[0])


async def socket_accept() -> None:
    await asyncio.get_running_loop().sock_accept(MADE_BEFORE[0])


async def socket_connect() -> None:
    await asyncio.get_running_loop().sock_connect(MADE_BEFORE[0], ("127.0.0.1", 1))


async def socket_receive() -> None:
    await asyncio.get_running_loop().sock_recv(MADE_BEFORE[0], 1)


async def socket_send() -> None:
    await asyncio.get_running_loop().sock_sendall(MADE_BEFORE[0], b"!")


async def read_socket() -> None:
    asyncio.get_running_loop().add_reader(MADE_BEFORE[0], print)


async def write_socket() -> None:
    asyncio.get_running_loop().add_writer(MADE_BEFORE[0], print)


async def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


MADE_BEFORE: list[socket.socket] = []
"""A socket that is older than the programs that are given it, while their test runs."""


@pytest.mark.parametrize(
    "program",
    [
        *(executor, open_socket, start_thread, start_process, asyncio_process, read_pipe),
        *(connect_pipe, datagrams, unix, tls, handle_signal, own_executor, shell, fork),
        *(serve_on_a_socket, socket_accept, socket_connect, socket_receive, socket_send),
        *(read_socket, write_socket),
    ],
    ids=lambda program: program.__name__,
)
def test_what_needs_a_machine_is_refused(program: Callable[[], Any]) -> None:
    with socket.socket() as made:
        MADE_BEFORE[:] = [made]
        with pytest.raises(sim.NotSimulated, match="simulated"):
            sim.run({"h1": program}, FABRIC)


def test_what_is_refused_to_programs_is_not_refused_to_others() -> None:
    async def program() -> None:
        await asyncio.sleep(1)

    sim.run({"h0": program}, FABRIC)
    socket.socket().close()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


# ---- the network beside the fabric ---------------------------------------------------------------


def test_streams_arrive_in_order_after_the_delay() -> None:
    async def server() -> tuple[bytes, float]:
        done: asyncio.Future[tuple[bytes, float]] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.read()
            done.set_result((data, asyncio.get_running_loop().time()))
            writer.write(data[::-1])
            writer.close()

        async with await asyncio.start_server(serve, "0.0.0.0", PORT):
            return await done

    async def client() -> tuple[bytes, float, Any]:
        reader, writer = await asyncio.open_connection("10.0.0.1", PORT)
        for number in range(50):
            writer.write(bytes([number]))
        await writer.drain()
        writer.write_eof()
        data = await reader.read()
        writer.close()
        return data, asyncio.get_running_loop().time(), writer.get_extra_info("peername")

    result = sim.run({"h0": server, "h1": client}, FABRIC, control_delay=1e-3)
    assert result.returned["h0"] == (bytes(range(50)), pytest.approx(3e-3))
    data, time, peer = result.returned["h1"]
    assert data == bytes(range(50))[::-1]
    assert time == pytest.approx(4e-3)
    assert peer == ("10.0.0.1", PORT)


def test_nobody_listens_or_is_called_so() -> None:
    async def program() -> float:
        with pytest.raises(ConnectionRefusedError, match="port 7471 of h1"):
            await asyncio.open_connection("h1", PORT)
        with pytest.raises(socket.gaierror, match="called 'elsewhere'"):
            await asyncio.open_connection("elsewhere", PORT)
        async with await asyncio.start_server(lambda *_: None, "localhost", PORT):
            with pytest.raises(OSError, match="listens on port 7471 already"):
                await asyncio.start_server(lambda *_: None, None, PORT)
        await asyncio.start_server(lambda *_: None, None, PORT)
        with pytest.raises(OSError, match="not the address of h0"):
            await asyncio.start_server(lambda *_: None, "h1", PORT + 1)
        free = await asyncio.start_server(lambda *_: None, None, 0)
        assert free.sockets[0].getsockname()[0] == "10.0.0.1"
        return asyncio.get_running_loop().time()

    assert sim.run({"h0": program}, FABRIC).returned["h0"] == pytest.approx(20e-6)


# ---- the end -----------------------------------------------------------------------------------


def test_what_programs_leave_open_ends_with_the_interpreter() -> None:
    """The garbage collector, which takes it all at once, destroys adapters before their places."""
    child = Path(__file__).with_name("exit_child.py")
    done = subprocess.run([sys.executable, str(child)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
