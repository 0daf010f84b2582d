# SPDX-License-Identifier: Apache-2.0
"""A request that waits for a second: the log, describe() and asyncio's timeouts say for what."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sim.fabrics import LINK, star
from tests.support import clean_environment
from verbena import sim, verbs

TWO = """
import asyncio, os, signal, socket, sys, time
from verbena import aio, verbs
near, far = socket.socketpair()
child = os.fork()
with verbs.open_device() as ctx, ctx.alloc_pd() as pd:
    if child == 0:
        near.close()
        qp = pd.create_qp(send_cq=ctx.create_cq(16))
        theirs = pd.reg_mr(bytearray(1 << 20), 15)
        verbs.connect_rc(qp, far, access=15)
        far.sendall(theirs.addr.to_bytes(8, "little") + theirs.rkey.to_bytes(4, "little"))
        far.recv(1)
        os._exit(0)
    far.close()
    try:
"""
END = """
    finally:
        os.kill(child, signal.SIGKILL)
"""
ALONE = """
        cq = ctx.create_cq(16)
        qp = pd.create_qp(send_cq=cq)
        verbs.connect_rc(qp, near, timeout=0, access=15)
        where = near.recv(12)
        if sys.argv[1] == "stopped":
            os.kill(child, signal.SIGSTOP)
            os.waitpid(child, os.WUNTRACED)
        mr = pd.reg_mr(bytearray(1 << 20), 15)
        begun = time.monotonic()
        if sys.argv[2] == "send":
            qp.send(mr)
        else:
            key = int.from_bytes(where[8:], "little")
            qp.write(mr, int.from_bytes(where[:8], "little"), key)
        assert cq.wait(timeout=0.3) == []
        early = ctx.describe()["waiting"]
        assert early == [] or time.monotonic() > begun + 1
        assert cq.wait(timeout=2) == []
        (waiting,) = ctx.describe()["waiting"]
        assert waiting["qp_num"] == qp.qp_num
        print(child, waiting["why"])
"""
IN_TIME = """
        cq = ctx.create_cq(16)
        qp = pd.create_qp(send_cq=cq)
        verbs.connect_rc(qp, near, timeout=0, access=15)
        where = near.recv(12)
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        mr = pd.reg_mr(bytearray(1 << 20), 15)
        qp.write(mr, int.from_bytes(where[:8], "little"), int.from_bytes(where[8:], "little"))
        for spin in (None, float("inf")):
            begun = time.monotonic()
            assert cq.wait(timeout=0.3, spin=spin) == []
            print(time.monotonic() - begun, end=" ")
"""
WITH_TASKS = """
        async def main():
            acq = aio.AsyncCQ(ctx.create_cq(16, channel=ctx.create_comp_channel()))
            qp = aio.AsyncQP(pd.create_qp(send_cq=acq.cq), acq)
            verbs.connect_rc(qp.qp, near, access=15)
            try:
                async with asyncio.timeout(2):
                    await qp.send(pd.alloc(64))
            except TimeoutError as error:
                print(child, *error.__cause__.__notes__)
        asyncio.run(main())
"""


def run(body: str, *words: str, **variables: str) -> tuple[str, str, list[str]]:
    """What the program prints, its child's number first, and Verbena's lines about it."""
    environment = clean_environment() | {"VERBENA_LOG": "errors"} | variables
    done = subprocess.run(
        [sys.executable, "-c", TWO + body + END, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    child, _, said = done.stdout.strip().partition(" ")
    return child, said, [line for line in done.stderr.splitlines() if "waits since" in line]


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_a_peer_without_receives(carrier: str) -> None:
    _, said, (line,) = run(ALONE, "alive", "send", VERBENA_CARRIER=carrier)
    for text in (said, line):
        assert "has no receive request" in text
        assert "rnr_retry 7: for ever" in text
        assert "stopped" not in text


def test_a_stopped_peer_without_receives() -> None:
    child, said, (line,) = run(ALONE, "stopped", "send")
    for text in (said, line):
        assert "has no receive request" in text
        assert f"{child}, is stopped" in text


@pytest.mark.parametrize("setting", ["VERBENA_CARRIER=roce", "VERBENA_COPY=bounce"])
def test_a_stopped_peer_that_has_to_answer(setting: str) -> None:
    name, _, value = setting.partition("=")
    _, said, (line,) = run(ALONE, "stopped", "write", **{name: value})
    for text in (said, line):
        assert "does not answer (timeout 0: for ever)" in text
        assert "stopped" in text


def test_a_wait_for_a_stopped_peer_ends_in_time() -> None:
    """Each poll tries the request again, and takes 80 ms."""
    first, second, _ = run(IN_TIME, VERBENA_COPY="bounce")
    assert 0.3 <= float(first) < 3
    assert 0.3 <= float(second) < 3


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_a_timeout_of_asyncio_has_the_reason(carrier: str) -> None:
    _, said, _ = run(WITH_TASKS, VERBENA_CARRIER=carrier)
    assert "has no receive request" in said


def test_a_simulated_peer_without_receives() -> None:
    """Its second is one of the simulated clock."""
    world = sim.World()
    star(world, 2, LINK)
    hosts = sim.Hosts(world)
    ends = []
    for name in ("h0", "h1"):
        with hosts[name].here():
            ctx = verbs.open_device()
            cq = ctx.create_cq(16)
            ends.append((ctx, cq, ctx.alloc_pd().create_qp(send_cq=cq)))
    (ctx, cq, near), (_, _, far) = ends
    verbs.connect_pair(near, far)
    memory = near.pd.alloc(64)
    near.send(memory)
    hosts.world.run(hosts.world.now + 10**11)
    assert ctx.describe()["waiting"] == []
    hosts.world.run(hosts.world.now + 2 * 10**12)
    (waiting,) = ctx.describe()["waiting"]
    assert "has no receive request" in waiting["why"]


SOON = """
        acq = aio.AsyncCQ(ctx.create_cq(16, channel=ctx.create_comp_channel()))
        qp = aio.AsyncQP(pd.create_qp(send_cq=acq.cq), acq)
        verbs.connect_rc(qp.qp, near, access=15)
        async def main():
            try:
                async with asyncio.timeout(0.2):
                    await qp.send(pd.alloc(64))
            except TimeoutError as error:
                print(child, *error.__cause__.__notes__)
        asyncio.run(main())
        try:
            acq.cq.wait_one(timeout=0.1)
        except TimeoutError as error:
            print(error)
        assert ctx.describe()["waiting"] or ctx.describe()["unready"]
"""


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_a_short_timeout_names_a_missing_receive_too(carrier: str) -> None:
    _, said, _ = run(SOON, VERBENA_CARRIER=carrier)
    noted, waited = said.splitlines()
    assert "has no receive request" in noted
    assert "nothing completed within 0.1 s" in waited
    assert "has no receive request" in waited
