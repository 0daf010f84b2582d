# SPDX-License-Identifier: Apache-2.0
"""A peer's process ends: the QP that was connected to it says so, whatever it was at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.robust.child import Child
from tests.robust.conftest import StartChild, connect
from tests.support import clean_environment
from tests.verbs.side import RemoteSide

NO_COPIES = "deny=process_vm_readv,process_vm_writev"
Act = Callable[[RemoteSide, Child, tuple[int, int]], None]


def kill(child: Child) -> None:
    child.process.kill()
    child.process.wait()


def statuses(near: RemoteSide) -> list[str]:
    return [one.status for one in near.wait()]


def idle(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    kill(child)


def receive_is_posted(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    near.post_recv()
    kill(child)
    assert statuses(near) != ["SUCCESS"]


def send_waits(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    """For a receive request; the program polls, and so finds the death out itself."""
    near.send(8)
    assert near.poll() == []
    kill(child)
    assert statuses(near) != ["SUCCESS"]


def send_waits_unpolled(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    near.send(8)
    kill(child)


def writes(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    """The first to find nobody comes before the death is noticed, or after it."""
    near.kill_and_write(child.process.pid, *region)


def write_after_death(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    """Where the peer's memory is mapped, one that comes before the notice may still succeed."""
    kill(child)
    near.write(*region, 8)
    statuses(near)


def read_waits(near: RemoteSide, child: Child, region: tuple[int, int]) -> None:
    """For a stopped process, where that has to help with the copy; elsewhere it succeeds."""
    os.kill(child.process.pid, signal.SIGSTOP)
    near.read(*region, 8)
    kill(child)
    statuses(near)


ACTS = [
    idle,
    receive_is_posted,
    send_waits,
    send_waits_unpolled,
    writes,
    write_after_death,
    read_waits,
]


@pytest.mark.parametrize(
    ("kind", "conditions"), [("alloc", ()), ("own", (NO_COPIES,))], ids=["mapped", "bounce ring"]
)
def test_the_event_comes_once_whatever_the_connection_is_at(
    start_child: StartChild, kind: str, conditions: tuple[str, ...]
) -> None:
    here = start_child(*conditions)
    for act in ACTS:
        there = start_child()
        near, far = here.make(kind=kind), there.make(kind=kind)
        connect(near, far, rnr_retry=7, timeout=20)
        act(near, there, far.region())
        assert near.next_event() == "QP_FATAL", act.__name__
        assert near.next_event(0.02) is None, act.__name__
        assert near.state() == "ERR", act.__name__
        near.close()


DIES = """
import os, socket
from verbena import verbs
here, there = socket.socketpair()
child = os.fork() == 0
sock = there if child else here
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
qp = pd.create_qp(send_cq=cq)
verbs.connect_rc(qp, sock)
if child:
    sock.recv(1)
    os._exit(0)
sock.sendall(b"!")
print(ctx.get_async_event(10).text)
"""


def test_the_log_says_it_too() -> None:
    env = clean_environment() | {"VERBENA_LOG": "errors"}
    done = subprocess.run(
        [sys.executable, "-c", DIES], env=env, capture_output=True, text=True, timeout=60
    )
    (text,) = done.stdout.splitlines()
    assert "ended, or closed its device, while this QP was connected to it" in text
    (line,) = done.stderr.splitlines()
    assert line.endswith(f": event: local work queue catastrophic error: {text}")


IDLE = """
import os, signal, socket
from verbena import verbs
here, there = socket.socketpair()
child = os.fork()
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
qp = pd.create_qp(send_cq=cq)
qp.to_init()
qp.recv(pd.alloc(64, 1))
verbs.connect_rc(qp, here if child else there)
if not child:
    os.kill(os.getpid(), signal.SIGKILL)
print(ctx.get_async_event(10).text)
attr = qp.query()
print(attr.timeout, attr.retry_cnt, attr.rnr_retry)
"""


def test_the_event_of_an_idle_connection_has_the_timers_of_the_queue_pair() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IDLE],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    text, terms = done.stdout.splitlines()
    timeout, retry_cnt, rnr_retry = map(int, terms.split())
    assert min(timeout, retry_cnt, rnr_retry) > 0
    assert f"; timeout {timeout} (" in text
    assert text.endswith(f"retry_cnt {retry_cnt}, rnr_retry {rnr_retry}]")


@pytest.mark.parametrize("act", ACTS, ids=lambda act: str(act.__name__))
def test_the_event_says_that_the_process_ended(start_child: StartChild, act: Act) -> None:
    """Whoever found it out first: a request that was posted, or the closed socket."""
    near, there = start_child().make(), start_child()
    far = there.make()
    connect(near, far, rnr_retry=7, timeout=20)
    act(near, there, far.region())
    text = near.next_event_text()
    assert "the process of QP 0x" in text, text
    assert "ended, or closed its device, while this QP was connected to it" in text


@pytest.mark.parametrize("waits", [False, True], ids=["idle", "a receive is posted"])
def test_the_first_request_after_the_event_says_that_nobody_answers(
    start_child: StartChild, waits: bool
) -> None:
    """As on hardware, which sends it: whoever knows of the death by then must not decide that."""
    near, there = start_child().make(), start_child()
    far = there.make()
    connect(near, far, rnr_retry=7, timeout=20)
    region = far.region()
    if waits:
        near.post_recv()
    kill(there)
    assert near.next_event() == "QP_FATAL"
    if waits:
        assert statuses(near) == ["WR_FLUSH_ERR"]
    ended = []
    for _ in range(3):
        near.write(*region, 8)
        ended += near.wait()
    assert [one.status for one in ended] == ["RETRY_EXC_ERR", "WR_FLUSH_ERR", "WR_FLUSH_ERR"]
    assert "ended, or closed its device" in ended[0].text
