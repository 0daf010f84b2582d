# SPDX-License-Identifier: Apache-2.0
"""What goes directly is captured as the packets that it would have been: the same requests are made
by packets, and both captures are compared header by header."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.test_tshark import frames
from tests.support import clean_environment
from verbena import capture, wire

# Each request waits for the one before, so that each has an acknowledgement of its own. The numbers
# of queue pairs and keys are chance, and are told for the comparison.
PROGRAM = """
import json, sys
from verbena import verbs
from verbena.verbs import MTU, QPType, SendFlags

kind = sys.argv[1]
with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(64)
    index = next(e.gid_index for e in context.query_gid_table()
                 if e.gid_index > 1 and e.gid.raw.hex().endswith("ffff7f000001"))
    near, far = (pd.create_qp(send_cq=cq, qp_type=QPType[kind], max_send_sge=2, max_inline_data=64)
                 for _ in range(2))
    memory = pd.alloc(16384, 0x15f)
    memoryview(memory)[:8192] = bytes(i * 7 % 251 for i in range(8192))
    there = memory.addr + 8192
    verbs.connect_pair(near, far, gid_index=index, path_mtu=MTU.MTU_1024, traffic_class=32,
                       **({"access": 0x10f} if kind == "RC" else {}))

    def done(count=1):
        for wc in cq.wait(count):
            assert wc.status.name == "SUCCESS", wc

    if kind == "UD":
        ah = pd.create_ah(dgid=context.query_gid(1, index), sgid_index=index, hop_limit=9,
                          traffic_class=64, flow_label=0x12345)
        for i, imm in ((0, None), (1, 0x01020304)):
            far.recv(memory, 8192, 4136)
            near.send(memory, 3 + i, 50 + 1000 * i, imm_data=imm, ah=ah, remote_qpn=far.qp_num,
                      remote_qkey=0x11111111,
                      flags=SendFlags.SIGNALED | (SendFlags.SOLICITED if i else 0))
            done(2)
    else:
        for length in (0, 1, 1024, 1025, 4096):
            far.recv(memory, 8192, 4096)
            near.send(memory, 5, length)
            done(2)
            near.write(memory, there + 3, memory.rkey, 1, length)
            done()
        far.recv(memory, 8192, 4096)
        near.send([memory.sge(3, 10), memory.sge(100, 7)], imm_data=0x05060708,
                  flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
        done(2)
        near.write(b"inline, from no region", there, memory.rkey,
                   flags=SendFlags.SIGNALED | SendFlags.INLINE)
        done()
        far.recv(memory, 8192, 4096)
        near.write(memory, there, memory.rkey, 0, 2000, imm_data=0x090a0b0c)
        done(2)
    if kind == "RC":
        window = pd.alloc_mw()
        far.bind_mw(window, memory)
        done()
        far.recv(memory, 8192, 4096)
        near.send_with_invalidate(memory, window.rkey, 0, 30)
        done(2)
        near.read(memory, there, memory.rkey, 16, 3000)
        done()
        near.compare_swap(memory, there, memory.rkey, 11, 12, 8)
        done()
        near.fetch_add(memory, there + 8, memory.rkey, 13, 24)
        done()
        near.atomic_write(memory, there + 16, memory.rkey, 40)
        done()
        near.flush(there, memory.rkey, 100)
        done()
        near.flush(0, memory.rkey)
        done()
        near.write(memory, there, memory.rkey ^ 0x5500, 0, 2000)
        assert cq.wait()[0].status.name == "REM_ACCESS_ERR"
    print(json.dumps({"near": near.qp_num, "far": far.qp_num, "rkey": memory.rkey,
                      "addr": memory.addr, "window": window.rkey if kind == "RC" else 0}))
"""


def run(file: Path, kind: str, **settings: str) -> list[dict[str, Any]]:
    """The packets of the program's capture, in order; one that left and came is there once."""
    capture.begin(file)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind],
        env=clean_environment() | {"VERBENA_CAPTURE": str(file)} | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = [wire.parse(frame) for frame in frames(file)]
    # Also an acknowledgement that comes once more, to announce credits, is there once; and what a
    # busy machine sent again stays where it was first.
    packets: dict[tuple[int, int, int], wire.Packet] = {}
    for one in found:
        packets.setdefault((one.dest_qp, one.opcode, one.psn), one)
    return [comparable(packet, found[0].psn, told) for packet in packets.values()]


# What follows from chance or from the numbers of queue pairs.
LEFT_OUT = {"eth": ("src", "dst"), "udp": ("sport",), "ipv4": ("csum", "id", "frag")}


def comparable(packet: wire.Packet, first: int, told: dict[str, int]) -> dict[str, Any]:
    """A packet's fields, with names in place of the numbers that a run has by chance."""
    names = {number: name for name, number in told.items()}
    fields = {name: value for name, value in dataclasses.asdict(packet).items() if value}
    fields.pop("rsv6", None)  # Verbena's own notes to its peer
    if packet.opcode_name.endswith(("FIRST", "MIDDLE")):
        fields.pop("ack_req", None)  # asked for as time passes
    del fields["icrc"]
    fields["opcode"] = packet.opcode_name
    fields["psn"] = (packet.psn - first) % (1 << 24)
    fields["dest_qp"] = names[packet.dest_qp]
    fields["ipv4"]["tos"] &= ~3  # directly there is no congestion
    for header, keys in LEFT_OUT.items():
        for key in keys:
            fields.get(header, {}).pop(key, None)
    for header in ("reth", "atomiceth", "ieth"):
        if header in fields:
            fields[header]["rkey"] = names.get(fields[header]["rkey"], "wrong")
    for header in ("reth", "atomiceth"):
        if fields.get(header, {}).get("va"):
            fields[header]["va"] -= told["addr"]
    if "deth" in fields:
        fields["deth"]["src_qp"] = names[fields["deth"]["src_qp"]]
    if packet.aeth and packet.aeth.syndrome >> 5 == 0:
        fields["aeth"]["syndrome"] = 0  # credits, which nobody counts directly
    return fields


@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_direct_requests_are_captured_as_packets_would_be(tmp_path: Path, kind: str) -> None:
    direct = run(tmp_path / "direct.pcapng", kind, VERBENA_CAPTURE_DIRECT="yes")
    packets = run(tmp_path / "packets.pcapng", kind, VERBENA_CARRIER="roce")
    for end in ("near", "far"):
        mine = [one for one in direct if one["dest_qp"] == end]
        # By packets an acknowledgement may be asked for within a message too.
        known = {(one["opcode"], one["psn"]) for one in mine}
        theirs = [one for one in packets if one["dest_qp"] == end]
        theirs = [one for one in theirs if end == "far" or (one["opcode"], one["psn"]) in known]
        for one, other in zip(mine, theirs, strict=False):
            assert one == other
        assert len(mine) == len(theirs)


UNANSWERED = """
from verbena import verbs

with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far, timeout=8, retry_cnt=1)
    memory = pd.alloc(64, 7)
    far.modify(qp_state=verbs.QPState.RESET)
    near.write(memory, memory.addr, memory.rkey, length=8)
    assert cq.wait()[0].status.name == "RETRY_EXC_ERR"
"""


def test_a_direct_request_that_is_not_answered_says_so(tmp_path: Path) -> None:
    file = tmp_path / "direct.pcapng"
    capture.begin(file)
    settings = {"VERBENA_CAPTURE": str(file), "VERBENA_CAPTURE_DIRECT": "yes"}
    command = [sys.executable, "-c", UNANSWERED]
    subprocess.run(command, env=clean_environment() | settings, check=True, timeout=60)
    (request,) = frames(file)
    assert wire.parse(request).opcode_name == "RC_WRITE_ONLY"
    assert b"not answered within the retries" in file.read_bytes()


WAITING = """
import time
from verbena import verbs

with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    memory = pd.alloc(64, 7)
    for polls in (True, False, True):
        near.send(memory, 0, 8)
        deadline = time.monotonic() + 0.1
        while time.monotonic() < deadline:
            assert not polls or not cq.poll()
        far.recv(memory, 8, 8)
        for wc in cq.wait(2):
            wc.raise_for_status()
    far.recv(memory, 8, 8)
    near.send(memory, 0, 8)
    for wc in cq.wait(2):
        wc.raise_for_status()
"""


def test_a_direct_request_that_waits_for_a_receive_is_captured_twice(tmp_path: Path) -> None:
    """Once with the RNR NAK that it would have got, however often it was tried, and once when it
    was carried out."""
    file = tmp_path / "direct.pcapng"
    capture.begin(file)
    settings = {"VERBENA_CAPTURE": str(file), "VERBENA_CAPTURE_DIRECT": "yes"}
    command = [sys.executable, "-c", WAITING]
    subprocess.run(command, env=clean_environment() | settings, check=True, timeout=60)
    found = [wire.parse(frame) for frame in frames(file)]
    first = found[0].psn
    answers = [None if one.aeth is None else one.aeth.syndrome >> 5 for one in found]
    psns = [(one.psn - first) % (1 << 24) for one in found]
    rnr_nak, ack = 1, 0
    waited = [None, rnr_nak, None, ack]
    assert answers == 3 * waited + [None, ack]
    assert psns == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 2


# A datagram to each address handle that the arguments say.
ADDRESSES = """
import json, sys
from verbena import verbs

with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = (pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD) for _ in range(2))
    verbs.connect_pair(near, far)
    memory = pd.alloc(16384, 7)
    table = {entry.gid_index: entry.gid for entry in context.query_gid_table()}
    ipv4 = next((i for i in table if i > 1 and table[i].raw.hex().endswith("ffff7f000001")), 0)
    for fields in json.loads(sys.argv[1]):
        if fields.pop("to_ipv4", False):
            fields["dgid"] = table[ipv4]
        elif fields.get("is_global", True):
            fields["dgid"] = table[1]
        index = {"own": ipv4, "other": 1}[fields.pop("source")] if "source" in fields else 0
        far.recv(memory, 8192, 4136)
        near.send(memory, 0, 8, ah=pd.create_ah(sgid_index=index, **fields),
                  remote_qpn=far.qp_num, remote_qkey=0x11111111)
        for wc in cq.wait(2):
            wc.raise_for_status()
"""


def addressed(
    file: Path, settings: dict[str, str], addresses: list[dict[str, Any]]
) -> list[wire.Packet]:
    """Return the packets of datagrams to these address handles."""
    capture.begin(file)
    subprocess.run(
        [sys.executable, "-c", ADDRESSES, json.dumps(addresses)],
        env=clean_environment()
        | {"VERBENA_CAPTURE": str(file), "VERBENA_CAPTURE_DIRECT": "yes"}
        | settings,
        check=True,
        timeout=60,
    )
    return [wire.parse(frame) for frame in frames(file)]


def test_a_datagram_has_the_source_that_its_header_can_hold(tmp_path: Path) -> None:
    """The GID of the handle's index is the source if it is of the target's family. Hop limits that
    a router would not pass on are the usual one."""
    ipv4 = {"to_ipv4": True, "source": "own"}
    packets = addressed(
        tmp_path / "direct.pcapng",
        {},
        [
            ipv4 | {"hop_limit": 0},
            ipv4 | {"hop_limit": 1},
            ipv4 | {"hop_limit": 2},
            {"to_ipv4": True, "source": "other", "hop_limit": 9},
            {"source": "other", "hop_limit": 9, "traffic_class": 5, "flow_label": 0xABCDE},
        ],
    )
    loopback = bytes([127, 0, 0, 1])
    assert [one.ipv4.ttl for one in packets if one.ipv4] == [64, 64, 2, 9]
    for one in packets[:4]:
        assert one.ipv4 is not None
        assert (one.ipv4.src, one.ipv4.dst) == (loopback, loopback)
    ipv6 = packets[4].ipv6
    assert ipv6 is not None
    assert ipv6.sgid == ipv6.dgid
    assert ipv6.sgid.startswith(b"\xfe\x80")
    assert (ipv6.hoplmt, ipv6.tclass, ipv6.flow) == (9, 5, 0xABCDE)


def test_a_datagram_to_a_lid_has_the_port_s_gid(tmp_path: Path) -> None:
    (packet,) = addressed(
        tmp_path / "direct.pcapng",
        {"VERBENA_LINK_LAYER": "infiniband"},
        [{"dlid": 1, "is_global": False}],
    )
    assert packet.ipv6 is not None
    assert packet.ipv6.sgid == packet.ipv6.dgid
    assert packet.ipv6.sgid.startswith(b"\xfe\x80")
