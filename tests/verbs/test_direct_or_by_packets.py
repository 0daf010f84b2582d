# SPDX-License-Identifier: Apache-2.0
"""Mistakes that pass directly and fail by packets, as docs/running.md has them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import clean_environment, own_network

BEGIN = """
from verbena import verbs
from verbena.verbs import MTU

ctx = verbs.open_device("verbena0")
pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
mr = pd.alloc(1 << 20, 15)
"""
ITSELF = (
    BEGIN
    + """
qp = pd.create_qp(send_cq=cq)
info, index = verbs.local_qp_info(qp)
qp.to_init(access=15)
qp.to_rtr(ah_attr=verbs.address_of(info, index), dest_qp_num=qp.qp_num, rq_psn=9,
          path_mtu=MTU.MTU_1024)
qp.to_rts(sq_psn=5, timeout=10, retry_cnt=1)
qp.write(mr, mr.addr + 64, mr.rkey, length=64)
cq.wait(1, 30)[0].raise_for_status()
"""
)
# Written to with a key that is none.
ITSELF_REFUSED = ITSELF.replace("mr.rkey", "0x5EED")
# Each packet has a PSN that the responder takes for one that it had: rq_psn is ahead of sq_psn by
# as many packets as are sent.
ITSELF_AHEAD = (
    ITSELF.replace("rq_psn=9", "rq_psn=6").replace(
        "qp.write(mr, mr.addr + 64, mr.rkey, length=64)",
        "memoryview(mr)[:68] = b'sent' + bytes(60) + b'....'\n"
        "qp.recv(mr, 64, 64)\nqp.send(mr, length=64)",
    )
    + "print(bytes(memoryview(mr)[64:68]))\n"
)
READS = (
    BEGIN
    + """
near, far = (pd.create_qp(send_cq=cq) for _ in range(2))
for qp, peer in ((near, far), (far, near)):
    info, index = verbs.local_qp_info(peer)
    qp.to_init(access=15)
    qp.to_rtr(ah_attr=verbs.address_of(info, index), dest_qp_num=peer.qp_num,
              path_mtu=MTU.MTU_1024, max_dest_rd_atomic=1)
    qp.to_rts(max_rd_atomic=8, timeout=14)
for at in range(8):
    near.read(mr, mr.addr + (at << 16), mr.rkey, length=65536)
for wc in cq.wait(8, 30):
    wc.raise_for_status()
"""
)


def ended(program: str, carrier: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*own_network(), sys.executable, "-c", program],
        env=clean_environment() | {"VERBENA_CARRIER": carrier},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("program", [ITSELF, READS], ids=["itself", "reads"])
def test_directly_it_passes(program: str) -> None:
    done = ended(program, "auto")
    assert done.returncode == 0, done.stderr


def test_a_queue_pair_that_is_connected_to_itself_is_told_so() -> None:
    said = ended(ITSELF, "roce").stderr
    assert "transport retry count exceeded" in said
    assert "so it is connected to itself" in said


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_the_numbers_of_a_failure_say_that_it_is_its_own_peer(carrier: str) -> None:
    program = ITSELF_REFUSED.replace("rq_psn=9", "rq_psn=5")
    said = ended(program, carrier).stderr
    assert "rkey 0x5eed names no memory region" in said
    assert ", connected to itself" in said.rpartition(" [QP 0x")[2]


def test_by_packets_to_itself_a_repeated_psn_is_acknowledged_and_goes_nowhere() -> None:
    done = ended(ITSELF_AHEAD, "roce")
    assert (done.returncode, done.stdout) == (0, "b'....'\n"), done.stderr


def test_more_reads_than_the_peer_has_resources_for_are_refused() -> None:
    said = ended(READS, "roce").stderr
    assert "remote invalid request" in said
    assert "max_dest_rd_atomic" in said
