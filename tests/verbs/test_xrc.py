# SPDX-License-Identifier: Apache-2.0
"""XRC: one target QP, and as many SRQs behind it as its domain has."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from verbena import verbs

ACCESS = (
    verbs.AccessFlags.LOCAL_WRITE
    | verbs.AccessFlags.REMOTE_WRITE
    | verbs.AccessFlags.REMOTE_READ
    | verbs.AccessFlags.REMOTE_ATOMIC
)
XRC_SEND = verbs.QPType.XRC_SEND

# Another process: its domain on the file of argv[1], a target QP and an SRQ. It says how to reach
# them on standard output, learns the peer on standard input, and answers what it received.
RESPONDER = """
import pickle, sys
from verbena import verbs
with verbs.open_device() as ctx, open(sys.argv[1]) as file:
    domain, pd, cq = ctx.open_xrcd(file), ctx.alloc_pd(), ctx.create_cq(16)
    srq, target = domain.create_srq(pd, cq), domain.create_qp()
    mr = pd.alloc(4096, 15)
    srq.recv(mr, 0, 4096)
    local, gid = verbs.local_qp_info(target)
    pickle.dump((local, srq.srq_num, mr.addr, mr.rkey), sys.stdout.buffer)
    sys.stdout.flush()
    verbs.bring_up(target, local, pickle.load(sys.stdin.buffer), gid)
    pickle.dump("ready", sys.stdout.buffer)
    sys.stdout.flush()
    (got,) = cq.wait(timeout=10)
    got.raise_for_status()
    text = bytes(mr.array()[: got.byte_len])
    pickle.dump((text, got.qp_num == target.qp_num), sys.stdout.buffer)
    sys.stdout.flush()
    sys.stdin.buffer.read()
"""


# The near side, in a process of its own so that VERBENA_CARRIER counts for both.
INITIATOR = """
import pickle, subprocess, sys
from verbena import verbs
command = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
with verbs.open_device() as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
    qp, mr = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.XRC_SEND), pd.alloc(4096, 15)
    remote, number, addr, rkey = pickle.load(child.stdout)
    local, gid = verbs.local_qp_info(qp)
    pickle.dump(local, child.stdin)
    child.stdin.flush()
    verbs.bring_up(qp, local, remote, gid)
    assert pickle.load(child.stdout) == "ready"
    mr.array("S7", 2)[:] = [b"across", b"written"]
    qp.write(mr, addr + 100, rkey, 7, 7, remote_srqn=number)
    cq.wait(timeout=10)[0].raise_for_status()
    qp.send(mr, 0, 6, remote_srqn=number)
    cq.wait(timeout=10)[0].raise_for_status()
    text, same = pickle.load(child.stdout)
    qp.read(mr, addr + 100, rkey, 200, 7, remote_srqn=number)
    cq.wait(timeout=10)[0].raise_for_status()
    pickle.dump((text, same, bytes(mr.array()[200:207])), sys.stdout.buffer)
child.stdin.close()
sys.exit(child.wait(10))
"""


@dataclass
class Ends:
    """An initiator and a target QP of one process, connected."""

    pd: verbs.PD
    domain: verbs.XRCD
    send_cq: verbs.CQ
    initiator: verbs.QP
    target: verbs.QP
    mr: verbs.MR


@pytest.fixture
def ends(ctx: verbs.Context, pd: verbs.PD) -> Ends:
    domain, send_cq = ctx.open_xrcd(), ctx.create_cq(64)
    initiator, target = pd.create_qp(send_cq=send_cq, qp_type=XRC_SEND), domain.create_qp()
    verbs.connect_pair(initiator, target)
    return Ends(pd, domain, send_cq, initiator, target, pd.alloc(8192, ACCESS))


@pytest.fixture
def file() -> Iterator[str]:
    with tempfile.NamedTemporaryFile() as made:
        yield made.name


def done(cq: verbs.CQ) -> verbs.WC:
    (one,) = cq.wait(timeout=5)
    one.raise_for_status()
    return one


def test_a_message_goes_to_the_srq_that_it_names(ctx: verbs.Context, ends: Ends) -> None:
    cqs = [ctx.create_cq(8) for _ in range(2)]
    srqs = [ends.domain.create_srq(ends.pd, cq) for cq in cqs]
    for number, srq in enumerate(srqs):
        srq.recv(ends.mr, 4096 + 100 * number, 100, wr_id=number)
    for number in (1, 0):
        ends.mr.array()[:2] = [number, 7]
        ends.initiator.send(ends.mr, length=2, remote_srqn=srqs[number].srq_num, imm_data=9)
        done(ends.send_cq)
        got = done(cqs[number])
        assert (got.wr_id, got.byte_len, got.imm_data) == (number, 2, 9)
        assert got.qp_num == ends.target.qp_num
        assert list(ends.mr.array()[4096 + 100 * number :][:2]) == [number, 7]
    assert [cq.poll() for cq in cqs] == [[], []]


def test_one_sided_requests(ctx: verbs.Context, ends: Ends) -> None:
    srq = ends.domain.create_srq(ends.pd, ctx.create_cq(8))
    number = srq.srq_num
    words, addr = ends.mr.array("u8"), ends.mr.addr + 4096
    words[0] = 41
    ends.initiator.write(ends.mr, addr, ends.mr.rkey, 0, 8, remote_srqn=number)
    done(ends.send_cq)
    ends.initiator.fetch_add(ends.mr, addr, ends.mr.rkey, 1, 8, remote_srqn=number)
    done(ends.send_cq)
    ends.initiator.compare_swap(ends.mr, addr, ends.mr.rkey, 42, 5, 16, remote_srqn=number)
    done(ends.send_cq)
    ends.initiator.read(ends.mr, addr, ends.mr.rkey, 24, 8, remote_srqn=number)
    done(ends.send_cq)
    assert list(words[:4]) == [41, 41, 42, 5]


def test_a_prepared_request(ctx: verbs.Context, ends: Ends) -> None:
    cq = ctx.create_cq(8)
    srq = ends.domain.create_srq(ends.pd, cq)
    srq.recv(ends.mr, 4096, 64)
    wr = verbs.SendWR(sg_list=[ends.mr.sge(64)], remote_srqn=1)
    assert wr.remote_srqn == 1
    wr.remote_srqn = srq.srq_num
    ends.initiator.post_send(wr)
    assert done(cq).byte_len == 64


def test_a_wrong_srq_says_why(ctx: verbs.Context, ends: Ends) -> None:
    other = ctx.open_xrcd().create_srq(ends.pd, ctx.create_cq(8))
    ends.initiator.send(ends.mr, length=8, remote_srqn=other.srq_num)
    (failed,) = ends.send_cq.wait(timeout=5)
    assert failed.status == verbs.WCStatus.REM_INV_REQ_ERR
    with pytest.raises(verbs.CompletionError, match="is of another XRC domain than QP"):
        failed.raise_for_status()
    assert ends.target.state == verbs.QPState.ERR


def test_no_such_srq_says_why(ends: Ends) -> None:
    ends.initiator.send(ends.mr, length=8, remote_srqn=0x123456)
    (failed,) = ends.send_cq.wait(timeout=5)
    with pytest.raises(verbs.CompletionError, match="named XRC SRQ 0x123456, which the process"):
        failed.raise_for_status()


def test_handles_of_one_target_qp(ends: Ends) -> None:
    second = ends.domain.open_qp(ends.target.qp_num)
    assert second.qp_num == ends.target.qp_num
    assert second.state == verbs.QPState.RTS
    ends.target.close()
    assert second.state == verbs.QPState.RTS
    with pytest.raises(verbs.VerbsError) as raised:
        ends.domain.open_qp(second.qp_num ^ 1 << 20)
    assert raised.value.errno == errno.EOPNOTSUPP


def test_a_target_that_does_not_change_its_state_says_why(ends: Ends) -> None:
    with pytest.raises(
        verbs.VerbsError, match="INIT does not follow RTS for a QP of type XRC_RECV"
    ):
        ends.target.to_init()
    fresh = ends.domain.create_qp()
    with pytest.raises(verbs.VerbsError, match="pkey_index is 4, and that entry of port 1's"):
        fresh.to_init(pkey_index=4)


def test_what_is_in_use_is_not_closed(ctx: verbs.Context, ends: Ends) -> None:
    srq = ends.domain.create_srq(ends.pd, ctx.create_cq(8))
    with pytest.raises(verbs.VerbsError) as raised:
        ends.domain.close()
    assert raised.value.errno == errno.EBUSY
    with ends.domain:
        pass
    assert ends.domain.closed
    assert ends.target.closed
    assert srq.closed
    assert not ends.initiator.closed


def test_domains_of_one_file(ctx: verbs.Context, file: str) -> None:
    with open(file) as one, open(file) as other:
        with pytest.raises(verbs.VerbsError) as missing:
            ctx.open_xrcd(one, 0)
        first = ctx.open_xrcd(one, os.O_CREAT | os.O_EXCL)
        with pytest.raises(verbs.VerbsError) as there:
            ctx.open_xrcd(other.fileno(), os.O_CREAT | os.O_EXCL)
        second = ctx.open_xrcd(other, 0)
    assert (missing.value.errno, there.value.errno) == (errno.EAGAIN, errno.EINVAL)
    assert not first.closed
    assert not second.closed


def test_the_domain_is_the_files(ctx: verbs.Context, file: str) -> None:
    """A target QP of one opening is found in another, and serves its SRQs."""
    with open(file) as one, open(file) as other:
        first, second = ctx.open_xrcd(one), ctx.open_xrcd(other)
    target = first.create_qp()
    assert second.open_qp(target.qp_num).qp_num == target.qp_num
    with pytest.raises(verbs.VerbsError) as raised:
        ctx.open_xrcd().open_qp(target.qp_num)
    assert raised.value.errno == errno.EINVAL


def test_a_basic_srq_has_no_number(pd: verbs.PD) -> None:
    with pytest.raises(verbs.VerbsError) as raised:
        _ = pd.create_srq().srq_num
    assert raised.value.errno == errno.EINVAL


def test_what_names_no_srq_is_refused(pd: verbs.PD, cq: verbs.CQ, ends: Ends) -> None:
    with pytest.raises(TypeError, match="name no SRQ"):
        ends.initiator.post_many(np.zeros(1, verbs.send_dtype))
    with pytest.raises(TypeError, match="made by its domain"):
        pd.create_qp(send_cq=cq, qp_type=verbs.QPType.XRC_RECV)
    with pytest.raises(verbs.VerbsError) as raised:
        ends.target.recv(ends.mr)
    assert raised.value.errno == errno.EINVAL


def test_a_target_binds_no_window(ends: Ends) -> None:
    """It has no send queue."""
    for kind in verbs.MWType:
        with pytest.raises(verbs.VerbsError) as raised:
            ends.target.bind_mw(ends.pd.alloc_mw(kind), ends.mr)
        assert raised.value.errno == errno.EINVAL
    with pytest.raises(verbs.VerbsError) as raised:
        ends.target.local_invalidate(1)
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("carrier", ["direct", "roce"])
def test_two_processes(file: str, carrier: str) -> None:
    env = os.environ | {"VERBENA_CARRIER": carrier}
    start = [sys.executable, "-c", INITIATOR, file, RESPONDER]
    ended = subprocess.run(start, env=env, timeout=60, check=True, capture_output=True)
    assert pickle.loads(ended.stdout) == (b"across", True, b"written")
