# SPDX-License-Identifier: Apache-2.0
"""Datagrams that are lost by a program's mistake: a line on stderr, and a counter."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.support import clean_environment, own_network, own_network_or_skip

# One datagram twice, of QP `here` to QP `there`, after what `mistake` changed.
PROGRAM = """
import sys
from verbena import verbs
from verbena.verbs import QPState, QPType

with verbs.open_device("verbena0") as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
    here, there, spare, other = (
        pd.create_qp(send_cq=cq, qp_type=kind)
        for kind in (QPType.UD, QPType.UD, QPType.UD, QPType.RC)
    )
    verbs.connect_pair(here, there)
    other.to_init()
    mr = pd.alloc(8192, 7)
    dest, qkey, index, dgid, length = there.qp_num, 0x11111111, 0, ctx.query_gid(1, 0), 64
    room = 4200
    exec(sys.argv[1])
    ah = pd.create_ah(dgid=dgid, sgid_index=index)
    there.recv(mr, 0, room)
    statuses = []
    for _ in range(2):
        here.send(mr, 4096, length, ah=ah, remote_qpn=dest, remote_qkey=qkey)
        statuses += [wc.status.name for wc in cq.wait(1, 10)]
    cq.wait(1, 0.2)
    counted = {name: n for name, n in ctx.counters()["engine"].items() if name[:5] == "drop_" and n}
    print((statuses, counted))
"""
INIT = "spare.to_init(); dest = spare.qp_num"
ELSEWHERE = "dgid = bytes.fromhex('fe80000000000000deadbeef00000001'); index = 1"
DIRECTLY = {
    "wrong Q_Key": (
        "qkey += 1",
        "drop_qkey",
        "it has the Q_Key 0x11111112, and the QP's is 0x11111111",
    ),
    "no such process": (
        "dest ^= 0xfff000",
        "drop_no_qp",
        "no process of this host has that number",
    ),
    "no such QP": ("dest ^= 0xff0", "drop_no_qp", "its process has no such QP"),
    "in INIT": (INIT, "drop_state", "that is in INIT"),
    "an RC QP": ("dest = other.qp_num", "drop_transport", "that is of type RC"),
    "GID 1 to elsewhere": (ELSEWHERE, None, "no packet can come from GID index 1"),
}
TO_A_GROUP = "dgid, index, dest = bytes.fromhex('ff0e' + 28 * '7'), 1, 0xffffff"
BY_PACKETS = {
    **{name: DIRECTLY[name] for name in ("wrong Q_Key", "in INIT", "GID 1 to elsewhere")},
    # Without VERBENA_CARRIER=roce this host's members would get it directly.
    "GID 1 to a group": (TO_A_GROUP, None, "no packet can come from GID index 1"),
}


def ran(mistake: str, carrier: str) -> tuple[list[str], dict[str, int], list[str]]:
    """The sender's statuses, what was counted as dropped, and the lines of Verbena."""
    done = subprocess.run(
        [*own_network(), sys.executable, "-c", PROGRAM, mistake],
        env=clean_environment() | {"VERBENA_CARRIER": carrier, "VERBENA_LOG": "errors"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    statuses, counted = ast.literal_eval(done.stdout)
    return statuses, counted, [line for line in done.stderr.splitlines() if "verbena:" in line]


@pytest.mark.parametrize("name", DIRECTLY)
def test_a_lost_datagram_has_one_line_and_is_counted(name: str) -> None:
    mistake, counter, words = DIRECTLY[name]
    statuses, counted, lines = ran(mistake, "auto")
    assert statuses == ["SUCCESS"] * 2
    assert counted == ({counter: 2} if counter else {})
    (line,) = lines
    assert words in line
    assert "is lost" in line


@pytest.mark.parametrize("name", BY_PACKETS)
def test_a_datagram_that_is_lost_by_packets_has_one_line(name: str) -> None:
    mistake, counter, words = BY_PACKETS[name]
    statuses, counted, lines = ran(mistake, "roce")
    assert statuses == ["SUCCESS"] * 2
    assert counted == ({counter: 2} if counter else {})
    (line,) = lines
    assert words in line


def test_without_packets_an_address_elsewhere_leads_nowhere() -> None:
    statuses, _, (line,) = ran(ELSEWHERE, "direct")
    assert statuses == ["SUCCESS"] * 2
    assert "its address is none of this host's, and no packets are sent" in line


def test_a_datagram_that_arrives_has_no_line() -> None:
    _, counted, lines = ran("there.recv(mr, 0, 4200)", "auto")
    assert (counted, lines) == ({}, [])


def test_one_that_finds_no_receive_request_is_counted_directly_too() -> None:
    _, counted, (line,) = ran("", "auto")
    assert counted == {"drop_no_receive": 1}
    assert "had no receive request" in line


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_a_receive_request_too_short_counts_the_grh_apart(carrier: str) -> None:
    _, _, lines = ran("room = 70", carrier)
    text = next(line for line in lines if "local length error" in line)
    assert "the message has 64 bytes, behind 40 of the GRH, and the receive request that" in text
    assert "has room for 70. Post receives that are 40 bytes longer" in text


@pytest.mark.parametrize("carrier", ["auto", "roce"])
def test_a_datagram_longer_than_the_path_mtu_of_its_port_is_refused(carrier: str) -> None:
    """Directly as by packets: an interface of 1500 bytes carries 1024."""
    shrunk = """
import subprocess
subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
"""
    network, program = own_network_or_skip(), shrunk + PROGRAM
    for length, ends in ((1024, "SUCCESS"), (1025, "LOC_LEN_ERR")):
        done = subprocess.run(
            [*network, sys.executable, "-c", program, f"length = {length}"],
            env=clean_environment() | {"VERBENA_CARRIER": carrier},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert ast.literal_eval(done.stdout)[0][0] == ends


def test_an_address_handle_needs_an_address() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "dgid = bytes(16)"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "create_ah: Invalid argument; the address's GID (grh.dgid) is ::" in done.stderr
