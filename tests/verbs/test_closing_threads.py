# SPDX-License-Identifier: Apache-2.0
"""One thread closes while another is inside calls: the calls end with an error.

A crash would end the test's process, so the rounds run in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

ROUNDS = """
    import errno, threading, time
    from verbena import verbs

    ACCESS = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE

    class End:
        def __init__(self, ctx):
            self.ctx, self.pd, self.cq = ctx, ctx.alloc_pd(), ctx.create_cq(64)
            self.qp = self.pd.create_qp(send_cq=self.cq)
            self.mr = self.pd.alloc(1 << 17, ACCESS)

    def poll(end, far):
        end.cq.poll()

    def wait_no_time(end, far):
        end.cq.wait(1, timeout=0)

    def wait(end, far):
        end.cq.wait(1, timeout=0.0001)

    def alloc(end, far):
        end.pd.alloc(64)

    def make(end, far):
        end.pd.create_qp(send_cq=end.cq, recv_cq=end.ctx.create_cq(4))

    def state(end, far):
        end.qp.state

    def write(end, far):
        end.qp.write(end.mr, far[0], far[1], length=64)
        end.cq.wait_one(10)

    def write_much(end, far):
        end.qp.write(end.mr, *far)
        end.cq.wait_one(10)

    def describe(end, far):
        end.ctx.describe()

    def work(what, end, far, ended):
        try:
            while True:
                what(end, far)
        except verbs.VerbsError as error:
            if error.errno in (errno.EBADF, errno.ECANCELED):
                ended.append(what)
            else:
                raise

    def one_round(what, close, other):
        near = End(verbs.open_device())
        verbs.connect_pair(near.qp, other.qp)
        ended = []
        thread = threading.Thread(
            target=work, args=(what, near, (other.mr.addr, other.mr.rkey), ended), daemon=True
        )
        thread.start()
        time.sleep(0.005)
        close(near)
        thread.join(20)
        assert not thread.is_alive(), f"{what.__name__} hangs"
        assert ended == [what]
        if close is close_context:
            assert near.cq.closed and near.pd.closed and near.qp.closed and near.mr.closed
        near.ctx.close()

    def close_context(near):
        near.ctx.close()

    def leave_cq(near):
        with near.cq:
            pass

    def leave_pd(near):
        with near.pd:
            pass

    def rounds(number, what, close):
        with verbs.open_device() as ctx:
            for _ in range(number):
                other = End(ctx)
                one_round(what, close, other)
                with other.pd, other.cq:
                    pass
"""


def run(call: str, carrier: str) -> None:
    assert run_code(textwrap.dedent(ROUNDS) + call, carrier) == (0, "")


def run_code(code: str, carrier: str) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"VERBENA_CARRIER": carrier},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return result.returncode, result.stderr


# What QPCap does is Python code, in which another thread may get its turn.
CLOSED_AT_THE_END = """
    import threading
    from verbena import verbs
    from verbena.verbs import attributes

    real = attributes.QPCap

    def with_a_turn_for_another(*fields):
        other = threading.Thread(target=ctx.close)
        other.start()
        other.join()
        return real(*fields)

    ctx = verbs.open_device()
    pd, cq = ctx.alloc_pd(), ctx.create_cq(4)
    attributes.QPCap = with_a_turn_for_another
    assert pd.create_qp(send_cq=cq).closed
"""


def test_closing_the_context_when_a_queue_pair_is_just_made() -> None:
    code = textwrap.dedent(CLOSED_AT_THE_END)
    assert run_code(code, "direct") == (0, "")


CALLS = [
    "poll",
    "wait_no_time",
    "wait",
    "alloc",
    "make",
    "state",
    "write",
    "write_much",
    "describe",
]


@pytest.mark.parametrize("carrier", ["direct", "roce"])
@pytest.mark.parametrize("what", CALLS)
def test_closing_the_context_ends_the_calls_of_others(what: str, carrier: str) -> None:
    run(f"rounds(25, {what}, close_context)", carrier)


@pytest.mark.parametrize(
    ("what", "close"),
    [
        ("poll", "leave_cq"),
        ("wait_no_time", "leave_cq"),
        ("make", "leave_cq"),
        ("write", "leave_cq"),
        ("alloc", "leave_pd"),
        ("state", "leave_pd"),
    ],
)
def test_leaving_a_with_block_ends_the_calls_of_others(what: str, close: str) -> None:
    run(f"rounds(25, {what}, {close})", "direct")
