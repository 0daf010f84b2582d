# SPDX-License-Identifier: Apache-2.0
"""P_Keys: which QPs talk to each other (IBA 10.9.3), directly, by LID and by packets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import clean_environment, own_network

# Two QPs of one process, with the pkey_index that is asked for, and one message between them.
PROGRAM = """
import json, sys, time
from tests.one_message import ANSWER_SECONDS, connect, open_pair, send_one
from verbena import verbs
from verbena.verbs import AccessFlags, LinkLayer, QPType

kind, first, second = QPType[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
with verbs.open_device("verbena0") as ctx:
    here, there = open_pair(ctx.alloc_pd(), kind)
    port = ctx.query_port(1)
    lid = port.lid if port.link_layer == LinkLayer.INFINIBAND else 0
    gid = ctx.query_gid(1, 0)
    address = verbs.AHAttr(dlid=lid, is_global=False) if lid else verbs.AHAttr(dgid=gid)
    for qp, peer, index in ((here, there, first), (there, here, second)):
        qp.to_init(pkey_index=index, access=AccessFlags.REMOTE_WRITE)
        connect(qp, peer, address, retry_cnt=2)
    drops = "drops" in sys.argv
    done = send_one(here, there, address, not drops)
    end = time.monotonic() + ANSWER_SECONDS
    while drops and not ctx.query_port(1).bad_pkey_cntr and time.monotonic() < end:
        time.sleep(0.01)
    print(json.dumps([done.status, len(done.came), done.text, ctx.query_port(1).bad_pkey_cntr]))
"""
PKEYS = "0xffff,0x8001,0x0001,0x8002"
WAYS = {
    "directly": {"VERBENA_CARRIER": "auto"},
    "by packets": {"VERBENA_CARRIER": "roce"},
    "by LID": {"VERBENA_LINK_LAYER": "infiniband"},
}
FULL, LIMITED, OTHER = 1, 2, 3


def child(program: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*own_network(), sys.executable, "-c", program, *arguments],
        env=clean_environment() | {"VERBENA_PKEYS": PKEYS} | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )


def talk(way: str, kind: str, first: int, second: int, *more: str) -> tuple[str, int, str, int]:
    """The sender's status, how many messages arrived, the error's text, and the port's count."""
    done = child(PROGRAM, kind, str(first), str(second), *more, **WAYS[way])
    assert done.returncode == 0, done.stderr
    status, came, text, count = json.loads(done.stdout)
    return status, came, text, count


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
@pytest.mark.parametrize("pair", [(FULL, FULL), (FULL, LIMITED), (LIMITED, FULL)])
def test_members_of_a_partition_talk(way: str, kind: str, pair: tuple[int, int]) -> None:
    assert talk(way, kind, *pair) == ("SUCCESS", 1, "", 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", [(LIMITED, LIMITED), (FULL, OTHER), (0, FULL)])
@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_what_does_not_match_is_dropped_and_counted(
    way: str, kind: str, pair: tuple[int, int]
) -> None:
    assert talk(way, kind, *pair, "drops") == ("SUCCESS", 0, "", 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", [(LIMITED, LIMITED), (FULL, OTHER), (OTHER, FULL), (0, LIMITED)])
def test_a_reliable_request_across_partitions_is_not_answered(
    way: str, pair: tuple[int, int]
) -> None:
    status, came, text, count = talk(way, "RC", *pair)
    assert (status, came) == ("RETRY_EXC_ERR", 0)
    assert count >= 3  # retry_cnt is 2
    if way != "by packets":
        assert count == 3
    first, second = (PKEYS.split(",")[index] for index in pair)
    why = "two limited members of one partition" if first == second else "two partitions"
    assert (
        f"drops this QP's packets for their P_Key, {first}, as its own is {second}: {why}" in text
    )
    assert "Give both QPs a pkey_index of one partition" in text


# A process starts another with the second pkey_index, and sends to it: the text of the error.
TWO_PROCESSES = """
import pickle, subprocess, sys
from verbena import verbs

first, *second = sys.argv[1:]
with verbs.open_device("verbena0") as ctx:
    pd = ctx.alloc_pd()
    qp, mr = pd.create_qp(send_cq=ctx.create_cq(8)), pd.alloc(64, 1)
    qp.to_init(pkey_index=int(first))
    mine, gid = verbs.local_qp_info(qp)
    if not second:
        pickle.dump(mine, sys.stdout.buffer)
        sys.stdout.flush()
        verbs.bring_up(qp, mine, pickle.load(sys.stdin.buffer), gid)
        print(flush=True)
        sys.exit(len(sys.stdin.buffer.read()))
    command = [sys.executable, "-c", open(f"/proc/self/cmdline").read().split(chr(0))[2], *second]
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    theirs = pickle.load(peer.stdout)
    pickle.dump(mine, peer.stdin)
    peer.stdin.flush()
    verbs.bring_up(qp, mine, theirs, gid, timeout=8, retry_cnt=2)
    peer.stdout.readline()
    qp.send(mr, 0, 8)
    try:
        qp.send_cq.wait(1, 5)[0].raise_for_status()
    except verbs.CompletionError as error:
        print(error)
    peer.stdin.close()
    peer.wait(10)
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", [(LIMITED, LIMITED), (FULL, OTHER), (OTHER, FULL)])
def test_the_p_key_of_another_process_is_named(way: str, pair: tuple[int, int]) -> None:
    done = child(TWO_PROCESSES, *map(str, pair), **WAYS[way])
    first, second = (PKEYS.split(",")[index] for index in pair)
    said = f"drops this QP's packets for their P_Key, {first}, as its own is {second}: two "
    assert said in done.stdout, done.stderr


# More datagrams than the counters' 16 bits count, of a partition or with a Q_Key that is another.
MANY_VIOLATIONS = """
import sys
from tests.one_message import connect, open_pair
from verbena import verbs

index, qkey, many = int(sys.argv[1]), int(sys.argv[2], 16), int(sys.argv[3])
with verbs.open_device("verbena0") as ctx:
    here, there = open_pair(ctx.alloc_pd(), verbs.QPType.UD)
    here.to_init(pkey_index=1)
    there.to_init(pkey_index=index)
    for qp in (here, there):
        connect(qp, qp, None, 0)
    ah = here.pd.create_ah(verbs.AHAttr(dgid=ctx.query_gid(1, 0)))
    mr = here.pd.alloc(64, 1)
    for _ in range(many):
        here.send(mr, 0, 8, ah=ah, remote_qpn=there.qp_num, remote_qkey=qkey)
        here.send_cq.wait(1, 5)
    port = ctx.query_port(1)
    print(port.bad_pkey_cntr, port.qkey_viol_cntr)
"""


@pytest.mark.parametrize(
    ("index", "qkey", "counts"), [(OTHER, "11111111", (1, 0)), (FULL, "11111112", (0, 1))]
)
def test_the_counters_of_violations_stop_at_16_bits(
    index: int, qkey: str, counts: tuple[int, int]
) -> None:
    arguments = (str(index), qkey)
    few = child(MANY_VIOLATIONS, *arguments, "3", VERBENA_CARRIER="direct")
    assert few.stdout.split() == [str(3 * count) for count in counts], few.stderr
    many = child(MANY_VIOLATIONS, *arguments, "65540", VERBENA_CARRIER="direct")
    assert many.stdout.split() == [str(0xFFFF * count) for count in counts], many.stderr


def test_a_qp_names_an_entry_that_is_there() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
qp = ctx.alloc_pd().create_qp(send_cq=ctx.create_cq(8))
"""
    done = child(program + "qp.to_init(pkey_index=4)")
    assert "pkey_index is 4, and that entry of port 1's P_Key table is empty" in done.stderr
    assert (
        "`verbena run --pkeys`, pkeys= in its --port, or on a simulated host pkeys" in done.stderr
    )
    done = child(program + "qp.to_init(pkey_index=32)")
    assert "pkey_index is 32 and may be 0 to 31" in done.stderr


def test_bring_up_ud_takes_the_entry_that_is_named() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
qp = ctx.alloc_pd().create_qp(send_cq=ctx.create_cq(8), qp_type=verbs.QPType.UD)
verbs.bring_up_ud(qp, pkey_index=2)
print(qp.state.name, qp.query().pkey_index)
"""
    assert child(program).stdout == "RTS 2\n"


BRING_UP = {
    "bring_up_ud": "for qp in qps: verbs.bring_up_ud(qp)",
    "connect_pair": "verbs.connect_pair(*qps)",
}


@pytest.mark.parametrize("how", BRING_UP)
@pytest.mark.parametrize("link_layer", ["ethernet", "infiniband"])
def test_a_ud_qp_keeps_what_to_init_has_set(how: str, link_layer: str) -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(8)
qps = [pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD) for _ in range(2)]
for qp in qps:
    qp.to_init(port=2, pkey_index=1, qkey=5)
"""
    program += BRING_UP[how] + "\nfor qp in qps:\n    a = qp.query()\n"
    program += "    print(a.port_num, a.pkey_index, a.qkey, qp.state.name)\n"
    ports = f"ethernet;{link_layer},pkeys=0xffff+0x2"
    assert child(program, VERBENA_PORTS=ports, VERBENA_PKEYS="").stdout == "2 1 5 RTS\n" * 2


def test_connect_pair_takes_the_entry_that_is_named_for_datagrams() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
pd, cq = ctx.alloc_pd(), ctx.create_cq(8)
qps = [pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD) for _ in range(2)]
qps[0].to_init(pkey_index=1)
verbs.connect_pair(*qps, pkey_index=2)
print(*(qp.query().pkey_index for qp in qps))
"""
    assert child(program).stdout == "2 2\n"


def test_the_table_is_shown() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
assert ctx.query_port(1).pkey_tbl_len == ctx.query_device().max_pkeys == 32
print([hex(ctx.query_pkey(1, i)) for i in (0, 1, 2, 3, 4, 31)])
"""
    assert child(program).stdout == "['0xffff', '0x8001', '0x1', '0x8002', '0x0', '0x0']\n"


@pytest.mark.parametrize("table", ["0x8000", "0", "0xffff,", "0x10000", "a", ",".join("1" * 33)])
def test_a_table_that_is_none_is_ignored_with_a_line(table: str) -> None:
    program = "from verbena import verbs; print(hex(verbs.open_device().query_pkey(1, 0)))"
    done = child(program, VERBENA_PKEYS=table)
    assert f"VERBENA_PKEYS={table} is ignored: " in done.stderr
    assert done.stdout == "0xffff\n"
