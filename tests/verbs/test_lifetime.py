# SPDX-License-Identifier: Apache-2.0
"""Closing: the order, twice, without, at exit, and after fork."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import pytest

from tests.verbs.conftest import Pair
from verbena import verbs

Objects = dict[str, Any]


@pytest.fixture
def objects() -> Objects:
    """One of everything, under its name."""
    ctx = verbs.open_device()
    pd = ctx.alloc_pd()
    channel = ctx.create_comp_channel()
    cq = ctx.create_cq(16, channel)
    srq = pd.create_srq()
    made: Objects = {
        "ctx": ctx,
        "pd": pd,
        "channel": channel,
        "cq": cq,
        "srq": srq,
        "qp": pd.create_qp(send_cq=cq, srq=srq),
        "mr": pd.alloc(64),
    }
    gid = ctx.query_gid(1, 1)
    made["ah"] = pd.create_ah(dgid=gid, sgid_index=1)
    return made


def test_closing_the_context_closes_everything(objects: Objects) -> None:
    objects["ctx"].close()
    assert all(thing.closed for thing in objects.values())


def test_closing_twice_does_no_harm(objects: Objects) -> None:
    for _ in range(2):
        for name in ("qp", "ah", "srq", "mr", "cq", "channel", "pd", "ctx"):
            objects[name].close()


@pytest.mark.parametrize(
    ("name", "users"),
    [("pd", "MRs, QPs"), ("cq", "QPs"), ("srq", "QPs"), ("channel", "CQs")],
)
def test_an_object_in_use_is_busy(objects: Objects, name: str, users: str) -> None:
    with pytest.raises(verbs.VerbsError, match=users) as caught:
        objects[name].close()
    assert caught.value.errno == errno.EBUSY
    assert not objects[name].closed
    objects["ctx"].close()


@pytest.mark.parametrize("name", ["pd", "cq", "srq", "channel"])
def test_leaving_a_with_block_closes_the_users_first(objects: Objects, name: str) -> None:
    with objects[name]:
        pass
    assert objects[name].closed
    assert objects["qp"].closed
    assert not objects["ctx"].closed
    objects["ctx"].close()


@pytest.mark.parametrize("kind", ["mr", "qp", "srq", "ah"])
def test_a_pd_is_busy_with_each_kind_of_user(kind: str) -> None:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        make = {
            "mr": lambda: pd.alloc(64),
            "qp": lambda: pd.create_qp(send_cq=ctx.create_cq(4)),
            "srq": pd.create_srq,
            "ah": lambda: pd.create_ah(dgid=ctx.query_gid(1, 1), sgid_index=1),
        }
        user = make[kind]()
        with pytest.raises(verbs.VerbsError) as caught:
            pd.close()
        assert caught.value.errno == errno.EBUSY
        user.close()
        pd.close()


USES: dict[str, list[Any]] = {
    "ctx": [lambda o: o.query_device(), lambda o: o.alloc_pd(), lambda o: o.create_cq(4)],
    "pd": [lambda o: o.alloc(8), lambda o: o.create_srq(), lambda o: o.reg_mr(bytearray(8))],
    "cq": [lambda o: o.poll(), lambda o: o.req_notify(), lambda o: o.wait(1, 0), lambda o: o.cqe],
    "channel": [lambda o: o.fd, lambda o: o.get_cq_event(0)],
    "srq": [lambda o: o.query(), lambda o: o.post_recv(verbs.RecvWR())],
    "qp": [
        lambda o: o.qp_num,
        lambda o: o.query(),
        lambda o: o.modify(qp_state=1),
        lambda o: o.post_send(verbs.SendWR()),
        lambda o: o.post_send([verbs.SendWR()]),
        lambda o: o.post_recv(verbs.RecvWR()),
    ],
}


@pytest.mark.parametrize(
    ("name", "use"), [(name, use) for name, uses in USES.items() for use in uses]
)
def test_a_closed_object_says_so(objects: Objects, name: str, use: Any) -> None:
    objects["ctx"].close()
    with pytest.raises(verbs.VerbsError, match="is closed") as caught:
        use(objects[name])
    assert caught.value.errno == errno.EBADF


def test_a_closed_object_cannot_be_entered(objects: Objects) -> None:
    objects["ctx"].close()
    with pytest.raises(verbs.VerbsError, match="is closed"), objects["pd"]:
        pass


def test_a_closed_ah_cannot_be_posted_with(objects: Objects) -> None:
    ctx, pd, ah = objects["ctx"], objects["pd"], objects["ah"]
    qp = pd.create_qp(send_cq=ctx.create_cq(4), qp_type=verbs.QPType.UD)
    verbs.bring_up_ud(qp)
    request = verbs.SendWR(sg_list=(), ah=ah, remote_qpn=1)
    ah.close()
    with pytest.raises(verbs.VerbsError, match="AH is closed"):
        qp.post_send(request)
    ctx.close()


def test_garbage_needs_no_closing(objects: Objects) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    objects.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < fds


def lost_qps(connected: bool, close: bool) -> list[str]:
    """What Python warns of when two QPs are let go."""
    with verbs.open_device() as ctx, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pd, cq = ctx.alloc_pd(), ctx.create_cq(4)
        near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
        if connected:
            verbs.connect_pair(near, far)
        if close:
            near.close()
            far.close()
        del near, far
    return [str(each.message) for each in caught if each.category is ResourceWarning]


def test_a_connected_qp_that_is_lost_is_warned_of() -> None:
    lost = lost_qps(connected=True, close=False)
    assert len(lost) == 2
    assert all("RETRY_EXC_ERR" in text for text in lost)


@pytest.mark.parametrize(("connected", "close"), [(True, True), (False, False)])
def test_nothing_warns_of_qps_that_were_closed_or_never_connected(
    connected: bool, close: bool
) -> None:
    assert lost_qps(connected=connected, close=close) == []


def test_garbage_in_a_cycle_needs_no_closing(objects: Objects) -> None:
    objects["cycle"] = objects
    fds = len(os.listdir("/proc/self/fd"))
    del objects["ctx"]
    holder = [objects]
    holder.append(holder)
    del holder
    objects.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < fds


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_program_that_closes_nothing_exits_clean() -> None:
    result = run(
        """
        from verbena import verbs
        ctx = verbs.open_device()
        pd = ctx.alloc_pd()
        cq = ctx.create_cq(16, ctx.create_comp_channel())
        qp = pd.create_qp(send_cq=cq)
        mr = pd.alloc(4096)
        view = mr.array()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_a_forked_child_sees_everything_closed(local_pair: Pair) -> None:
    near = local_pair.near
    pid = os.fork()
    if pid == 0:
        os._exit(child_finds_closed(near))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def child_finds_closed(near: Any) -> int:
    try:
        near.qp.post_send(verbs.SendWR())
    except verbs.VerbsError as error:
        if "forked" not in str(error):
            return 2
    else:
        return 3
    return 0 if near.ctx.closed and near.mr.closed and near.cq.closed else 4


def test_the_parent_works_on_after_its_child_has_cleaned_up(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    near.fill(b"before the fork")
    pid = os.fork()
    if pid == 0:
        near.ctx.close()
        del near, local_pair
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    near.qp.write(near.mr, *far.region(), length=15)
    assert [one.ok for one in near.wait()] == [True]
    assert far.bytes_at(0, 15) == b"before the fork"


@pytest.mark.not_sanitized(
    "the allocator of AddressSanitizer keeps a lock over fork that a thread held"
)
def test_a_forked_child_opens_the_device_for_itself() -> None:
    result = run(
        """
        import os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: that there are threads
        from verbena import verbs
        ctx = verbs.open_device()
        pid = os.fork()
        if pid == 0:
            with verbs.open_device() as own:
                mr = own.alloc_pd().alloc(64)
                mr.store_u64(0, 1)
            os._exit(0)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_number_of_a_destroyed_qp_rests() -> None:
    """A peer that does not know of it yet must not meet another QP there."""
    with verbs.open_device() as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(8)
        numbers = []
        for _ in range(600):
            with pd.create_qp(send_cq=cq) as qp:
                numbers.append(qp.qp_num)
    assert len(set(numbers[:200])) == 200
    assert len(set(numbers)) < 300  # and then it serves again


def test_a_parent_domain_goes_before_what_it_is_made_of() -> None:
    """Also as garbage: a call that fails because something is in use is a line on stderr."""
    result = run(
        """
        from verbena import verbs
        ctx = verbs.open_device()
        parent = ctx.alloc_pd().alloc_parent_domain(ctx.alloc_td())
        del parent
        ctx.close()
        """,
        VERBENA_LOG="errors",
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_closing_calls_who_asked_for_it(objects: Objects) -> None:
    told = []

    class Watcher:
        def __init__(self, name: str) -> None:
            self.name = name

        def closed(self) -> None:
            told.append(self.name)

    watchers = [Watcher("cq"), Watcher("ctx"), Watcher("gone")]
    for watcher, name in zip(watchers, ("cq", "ctx", "cq"), strict=True):
        objects[name].call_when_closed(watcher.closed)
    del watchers[2], watcher
    with pytest.raises(verbs.VerbsError):
        objects["cq"].close()
    assert told == []
    objects["ctx"].close()
    objects["cq"].close()
    assert told == ["cq", "ctx"]
