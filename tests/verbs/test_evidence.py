# SPDX-License-Identifier: Apache-2.0
"""What a completion with error says besides its status: at both sides, directly and by packets."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.verbs.conftest import Pair
from tests.verbs.side import ALL, DEVICE
from verbena import verbs
from verbena.verbs import AccessFlags, QPState

BOTH_PORTS = pytest.mark.parametrize("packets", [False, True], ids=["direct", "packets"])

# Two connected QPs of one process; each test adds what goes wrong.
BEGIN = """\
from verbena import verbs
from verbena.verbs import AccessFlags, QPState, SGE

ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
near, far = (pd.create_qp(send_cq=cq, max_send_wr=16, max_recv_wr=16) for _ in range(2))
verbs.connect_pair(
    near, far, access=15, timeout=16, retry_cnt=2, rnr_retry=1, min_rnr_timer=1
)
mine, theirs = pd.alloc(4096, 15), pd.alloc(4096, 15)


def say(qp):
    while (wc := cq.wait(1, 30)[0]).qp_num != qp.qp_num:
        pass
    try:
        wc.raise_for_status()
    except verbs.CompletionError as error:
        print(error.status.name, str(error))
"""


def said(packets: bool, code: str) -> str:
    """What a process of its own prints, because the carrier is chosen once in a process."""
    environment = os.environ | {"VERBENA_CARRIER": "roce" if packets else "auto"}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def expect(text: str, *words: str) -> None:
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


@BOTH_PORTS
def test_the_state_that_follows_and_the_timers(packets: bool) -> None:
    text = said(packets, "near.write(mine, theirs.addr, 0x5EED, length=64); say(near)")
    expect(text, "REM_ACCESS_ERR", "to ERR", "send queue", "of 16", "timeout 16 (268435 us)")
    expect(text, "retry_cnt 2, rnr_retry 1")
    assert ("PSN" in text) == packets


@BOTH_PORTS
@pytest.mark.parametrize(
    ("request_line", "status", "words"),
    [
        ("near.write(mine, theirs.addr, 0x5EED, length=64)", "REM_ACCESS_ERR", "names no memory"),
        (
            "near.write([SGE(mine.addr, 4097, mine.lkey)], theirs.addr, theirs.rkey)",
            "LOC_PROT_ERR",
            "not inside",
        ),
        (
            "near.write(mine, theirs.addr + 9, theirs.rkey, length=4096)",
            "REM_ACCESS_ERR",
            "not ins",
        ),
        (
            "near.fetch_add(mine, theirs.addr + 4, theirs.rkey, 1)",
            "REM_INV_REQ_ERR",
            "multiple of 8",
        ),
        ("far.recv(theirs, length=4); near.send(mine, length=64)", "REM_INV_REQ_ERR", "room for 4"),
        ("far.recv([SGE(1, 64, 0x5EED)]); near.send(mine, length=64)", "REM_OP_ERR", "lkey 0x5eed"),
        ("near.send(mine, length=64)", "RNR_RETRY_EXC_ERR", "rnr_retry 1"),
    ],
)
def test_what_the_peer_saw(packets: bool, request_line: str, status: str, words: str) -> None:
    """By packets it is told with the requester's own account."""
    text = said(packets, f"{request_line}; say(near)")
    expect(text, status, words)
    refused = packets and status.startswith("REM_")
    assert ("What that side saw" in text) == refused


@BOTH_PORTS
def test_the_peers_flushed_receives_say_why(packets: bool) -> None:
    text = said(
        packets, "far.recv(theirs); near.write(mine, theirs.addr, 0x5EED, length=64); say(far)"
    )
    expect(text, "WR_FLUSH_ERR", "in ERR before", "what failed first: rkey 0x5eed names no memory")


@BOTH_PORTS
def test_own_flushed_requests_say_why(packets: bool) -> None:
    text = said(
        packets,
        """
        near.recv(mine)
        near.write(mine, theirs.addr, 0x5EED, length=64)
        near.write(mine, theirs.addr, theirs.rkey, length=64)
        for _ in range(3):
            say(near)
        """,
    )
    assert text.count("WR_FLUSH_ERR") == 2
    assert text.count("what failed first") == 2


@BOTH_PORTS
def test_a_program_that_ends_its_qp_is_told_that(packets: bool) -> None:
    text = said(packets, "near.recv(mine); near.modify(qp_state=QPState.ERR); say(near)")
    expect(text, "WR_FLUSH_ERR", "the program moved it there")


def test_after_a_reset_the_reason_is_forgotten(local_pair: Pair) -> None:
    near = local_pair.near
    near.qp.write(near.mr, 0, 0xBAD, length=8)
    near.wait()
    near.qp.modify(qp_state=QPState.RESET)
    near.qp.to_init()
    near.post_recv()
    near.qp.modify(qp_state=QPState.ERR)
    (one,) = near.wait()
    expect(one.text, "the program moved it there")


def test_the_receiver_is_told_of_its_own_request(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    far.post_recv(0, 4)
    near.qp.send(near.mr, 0, 8)
    (one,) = far.wait()
    assert one.status == "LOC_LEN_ERR"
    expect(one.text, "8 bytes", "room for 4", "its receive queue 1 of")


@BOTH_PORTS
@pytest.mark.parametrize(
    ("buffer", "status", "words"),
    [
        ("SGE(theirs.addr, 50, theirs.lkey)", "LOC_LEN_ERR", "room for 50"),
        ("SGE(theirs.addr, 4096, 0x5EED)", "LOC_PROT_ERR", "lkey 0x5eed names no memory region"),
    ],
)
def test_a_datagram_that_has_no_place(packets: bool, buffer: str, status: str, words: str) -> None:
    """The receiver has the error; its QP works on."""
    text = said(
        packets,
        f"""
        near, far = (pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD) for _ in range(2))
        verbs.connect_pair(near, far)
        index = next(e.gid_index for e in ctx.query_gid_table() if e.gid_index > 1)
        ah = pd.create_ah(dgid=ctx.query_gid(1, index), sgid_index=index)
        far.recv([{buffer}])
        near.post_send(
            verbs.SendWR(1, mine.sge(64), ah=ah, remote_qpn=far.qp_num, remote_qkey=0x11111111)
        )
        say(far)
        assert far.state == QPState.RTS
        """,
    )
    expect(text, status, words)


@pytest.mark.parametrize(
    ("fault", "request_line", "words", "not_words"),
    [
        (
            "drop",
            "near.write(mine, theirs.addr, theirs.rkey, length=8)",
            ("nothing was ever heard from it", "does not exist"),
            ("answered before", "path_mtu"),
        ),
        (
            "drop opcode=rc-write-last",
            "near.write(mine, theirs.addr, theirs.rkey, length=4096)",
            ("an acknowledgement up to PSN", "It answered before", "a smaller path_mtu"),
            ("does not exist", "nothing was ever heard"),
        ),
        (
            # A missing packet is asked for alone, and its answer is a response of one packet.
            "drop opcode=rc-read-response-first; drop opcode=rc-read-response-only",
            "near.read(mine, theirs.addr, theirs.rkey, length=4096)",
            ("answered, but PSN", "responses behind the missing one", "lost on the way back"),
            ("does not exist", "nothing was ever heard"),
        ),
    ],
)
def test_without_an_answer_it_is_told_what_was_heard(
    fault: str, request_line: str, words: tuple[str, ...], not_words: tuple[str, ...]
) -> None:
    text = said(
        True,
        f"near.modify(qp_state=QPState.RESET); far.modify(qp_state=QPState.RESET)\n"
        f"ctx.set_fault({fault!r})\n"
        "verbs.connect_pair(near, far, access=15, timeout=12, retry_cnt=2, "
        f"path_mtu=verbs.MTU.MTU_1024)\n{request_line}\nsay(near)",
    )
    expect(text, "RETRY_EXC_ERR", "given up after 3 attempts", *words)
    for word in not_words:
        assert word not in text


# Two processes; the child ends as soon as both are connected.
DEATH = """\
import os, signal, socket
from verbena import verbs

ends = socket.socketpair()
child = os.fork()
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
qp = pd.create_qp(send_cq=cq)
verbs.connect_rc(qp, ends[bool(child)])
if not child:
    os.kill(os.getpid(), signal.SIGKILL)
qp.recv(pd.alloc(64, 1))
(wc,) = cq.wait(1, 30)
os.waitpid(child, 0)
try:
    wc.raise_for_status()
except verbs.CompletionError as error:
    print(error.status.name, str(error))
"""


def test_a_peer_that_died_is_named_in_what_is_flushed() -> None:
    done = subprocess.run([sys.executable, "-c", DEATH], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    expect(done.stdout, "WR_FLUSH_ERR", "what failed first: the process of QP 0x", "ended")


def test_each_failed_call_has_its_own_reason() -> None:
    with verbs.open_device(DEVICE) as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(8)
        with pytest.raises(verbs.VerbsError, match="REMOTE_WRITE let peers write"):
            pd.alloc(64, AccessFlags.REMOTE_WRITE)
        with pytest.raises(verbs.VerbsError, match="not in RTS"):
            pd.create_qp(send_cq=cq).post_send([verbs.SendWR()])
        assert pd.alloc(64, ALL).rkey
