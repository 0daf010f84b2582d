# SPDX-License-Identifier: Apache-2.0
"""Captures of Debian's programs, two processes into one file, as tshark reads them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.native.test_tshark import FLAWS, frames, icrc_by_zlib, run_tshark
from tests.programs.pairs import Pair, start_pair
from verbena import capture, verbs

pytestmark = pytest.mark.debian

FIELDS = {
    "opcode": "infiniband.bth.opcode",
    "psn": "infiniband.bth.psn",
    "dest": "infiniband.bth.destqp",
    "payload": "udp.length",
    "direction": "frame.packet_flags_direction",
    "comment": "frame.comment",
}
# BTH opcodes.
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 6, 7, 8, 10
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST = 12, 13, 14, 15
ACK, ATOMIC_ACK, FETCH_ADD = 17, 18, 20
UD_SEND = 100
INBOUND, OUTBOUND = 1, 2
ITERATIONS = 20
SIZE = 3000  # three packets at a path MTU of 1024
UDP_BTH_ICRC = 8 + 12 + 4
RETRANSMISSION = ("retransmitted: ", "probe: ")
NO_RECEIVE = "retransmitted: the responder had no receive request (RNR NAK)"
# AETH syndromes: bits 6:5, and a NAK's code.
ACKNOWLEDGED, RNR, NAK = 0, 1, 3
REMOTE_ACCESS = 2


@dataclass(frozen=True)
class Packet:
    """What tshark says of one packet."""

    opcode: int
    psn: int
    dest: int
    payload: int
    direction: int
    comment: str


def opcodes(packets: list[Packet]) -> Counter[int]:
    return Counter(packet.opcode for packet in packets)


def times(count: int, *names: int) -> Counter[int]:
    return Counter(dict.fromkeys(names, count))


class Captured:
    """Runs pairs of programs that append to one file, and reads it."""

    def __init__(self, start: Start, find: Callable[[str], str], file: Path) -> None:
        self.start, self.find, self.file = start, find, file

    def run(
        self, name: str, *words: str, env: dict[str, str] | None = None, fault: str = ""
    ) -> Pair:
        capture.begin(self.file)
        settings = {"VERBENA_CAPTURE": str(self.file)} | (env or {})
        options = ("--fault", fault) if fault else ()
        running = start_pair(self.start, self.find(name), *words, options=options, env=settings)
        pair = running.finish()
        assert [side.status for side in pair.sides] == [0, 0], str(pair)
        assert "verbena:" not in str(pair)
        return pair

    def tshark(self, *options: str) -> list[str]:
        return run_tshark(self.find("tshark"), self.file, *options)

    def packets(self) -> list[Packet]:
        """Those of the file, which must be without a flaw."""
        assert self.tshark("-Y", FLAWS) == []
        for frame in frames(self.file):
            assert frame[-4:] == icrc_by_zlib(frame)
        wanted = [word for field in FIELDS.values() for word in ("-e", field)]
        found = []
        for line in self.tshark("-T", "fields", *wanted):
            *numbers, comment = line.split("\t")
            found.append(Packet(*(int(text, 0) for text in numbers), comment))
        assert found
        return found


@pytest.fixture
def captured(
    verbena_start: Start, debian_program: Callable[[str], str], tmp_path: Path
) -> Captured:
    return Captured(verbena_start, debian_program, tmp_path / "out.pcapng")


def gid_of_loopback() -> str:
    """A GID index with an address behind it, on which packets can go."""
    with verbs.open_device() as context:
        table = context.query_gid_table()
    ipv4 = bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1])
    return str(next(entry.gid_index for entry in table if entry.gid.raw == ipv4))


# ---- without packets: what they would have been -------------------------------------------------

DIRECT = {"VERBENA_CAPTURE_DIRECT": "yes"}
PERFTEST = ("-F", "-x", "1", "-m", "1024", "-n", str(ITERATIONS))
CASES = {
    "ib_write_bw": ("-s", SIZE, (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, ACK)),
    "ib_send_bw": ("-s", SIZE, (SEND_FIRST, SEND_MIDDLE, SEND_LAST, ACK)),
    "ib_read_bw": ("-s", SIZE, (READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST)),
    "ib_atomic_bw": ("", 8, (FETCH_ADD, ATOMIC_ACK)),
}
# What stands before a payload, besides the BTH.
EXTENDED = {WRITE_FIRST: 16, READ_FIRST: 4, READ_LAST: 4}
DATA = (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, SEND_FIRST, SEND_MIDDLE, SEND_LAST,
        READ_FIRST, READ_MIDDLE, READ_LAST)  # fmt: skip


def carried(packets: list[Packet]) -> int:
    """Bytes of payload."""
    return sum(
        packet.payload - UDP_BTH_ICRC - EXTENDED.get(packet.opcode, 0)
        for packet in packets
        if packet.opcode in DATA
    )


@pytest.mark.parametrize("port", ["auto", "direct"])
@pytest.mark.parametrize("name", CASES)
def test_direct_requests(captured: Captured, name: str, port: str) -> None:
    """`direct` stands for a host whose UDP port 4791 cannot be had."""
    option, size, expected = CASES[name]
    words = (option, str(size)) if option else ()
    captured.run(name, *PERFTEST, *words, env=DIRECT | {"VERBENA_CARRIER": port})
    packets = captured.packets()
    assert opcodes(packets) == times(ITERATIONS, *expected)
    if option:
        assert carried(packets) == SIZE * ITERATIONS
    assert not any(packet.comment for packet in packets)


def test_direct_sequence_numbers_follow_each_other(captured: Captured) -> None:
    captured.run("ib_write_bw", *PERFTEST, "-s", str(SIZE), env=DIRECT)
    psns = [packet.psn for packet in captured.packets() if packet.opcode != ACK]
    assert len(psns) == 3 * ITERATIONS
    assert psns == [(psns[0] + i) % (1 << 24) for i in range(len(psns))]


def test_direct_payload_is_the_programs(captured: Captured) -> None:
    """The pingpong writes a pattern into its buffer and -c checks it at the other end."""
    captured.run("ibv_rc_pingpong", "-g", "1", "-c", "-s", "64", "-n", "4", env=DIRECT)
    sent = [frame for frame in frames(captured.file) if frame[62] == 4]  # IPv6; SEND Only
    assert len(sent) == 8
    assert all(frame[74:-4][0] == 0 for frame in sent)


def test_direct_datagrams(captured: Captured) -> None:
    captured.run("ibv_ud_pingpong", "-g", "1", "-n", "5", "-s", "100", env=DIRECT)
    packets = captured.packets()
    assert opcodes(packets) == times(10, UD_SEND)
    assert {packet.payload for packet in packets} == {UDP_BTH_ICRC + 8 + 100}


# A SEND that finds no receive request at first, and a WRITE with an rkey of nothing.
FAILURES = """
import time
from verbena import verbs

with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    memory = pd.alloc(64)
    near.send(memory, length=8)
    time.sleep(0.01)
    assert not cq.poll(1)
    far.recv(memory, 32, 8)
    assert [done.status.name for done in cq.wait(2)] == ["SUCCESS"] * 2
    near.write(memory, memory.addr, 0x77777777, length=8)
    assert cq.wait()[0].status.name == "REM_ACCESS_ERR"
"""


def packets_of(captured: Captured, program: str, env: dict[str, str]) -> list[Packet]:
    """What a Python program captures that ends by itself and well."""
    capture.begin(captured.file)
    env = env | {"VERBENA_CAPTURE": str(captured.file)}
    process = captured.start(sys.executable, "-c", program, env=env)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return captured.packets()


def test_direct_failures_are_what_the_responder_would_have_said(captured: Captured) -> None:
    packets = packets_of(captured, FAILURES, DIRECT)
    assert [packet.opcode for packet in packets] == [SEND_ONLY, ACK] * 2 + [WRITE_ONLY, ACK]
    psns = [packet.psn - packets[0].psn for packet in packets]
    assert psns == [0, 0, 0, 0, 1, 1]
    answers = [frame[-8] for frame in frames(captured.file)][1::2]
    assert [syndrome >> 5 for syndrome in answers] == [RNR, ACKNOWLEDGED, NAK]
    assert answers[2] & 31 == REMOTE_ACCESS
    comments = [packet.comment for packet in packets]
    assert re.fullmatch(
        r"RNR NAK: no receive request for PSN \d+: again after [\d.]+ ms", comments[1]
    )
    psn = packets[4].psn
    refused = f"NAK: remote access error: PSN {psn} is refused"
    again = (
        f"{NO_RECEIVE}: PSN {psns_of(packets)[0]} was refused, attempt 2, the original is frame 1"
    )
    assert [*comments[:1], *comments[2:]] == ["", again, "", "", refused]


def psns_of(packets: list[Packet]) -> list[int]:
    return [packet.psn for packet in packets]


# Before the SEND of three packets a WRITE of one, and two more attempts than RNR retries allow.
NEVER_RECEIVED = """
from verbena import verbs

with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far, path_mtu=verbs.MTU.MTU_1024, rnr_retry=1, min_rnr_timer=1)
    memory = pd.alloc(4096, 3)
    near.write(memory, memory.addr, memory.rkey, length=8)
    near.send(memory, length=3000)
    assert [done.status.name for done in cq.wait(2)] == ["SUCCESS", "RNR_RETRY_EXC_ERR"]
"""


def test_direct_requests_sent_again_name_their_originals(captured: Captured) -> None:
    """Each packet of a message its own, as in a capture of packets."""
    packets = packets_of(captured, NEVER_RECEIVED, DIRECT)
    message = [SEND_FIRST, SEND_MIDDLE, SEND_LAST]
    assert [packet.opcode for packet in packets] == [WRITE_ONLY, ACK, *message, ACK, *message, ACK]
    originals, again = packets[2:5], packets[6:9]
    assert psns_of(again) == psns_of(originals)
    missing = originals[0].psn
    assert [packet.comment for packet in originals] == [""] * 3
    assert [packet.comment for packet in again] == [
        f"{NO_RECEIVE}: PSN {missing} was refused, attempt 2, the original is frame {frame}"
        for frame in (3, 4, 5)
    ]
    for refusal in (packets[5], packets[9]):
        assert refusal.comment.startswith(f"RNR NAK: no receive request for PSN {missing}")


# ---- packets of two processes on this host ------------------------------------------------------

ROCE = {"VERBENA_CARRIER": "roce"}


def both_ways(packets: list[Packet]) -> tuple[Counter[int], Counter[int]]:
    """The opcodes of packets as they left and as they came."""
    return (
        opcodes([packet for packet in packets if packet.direction == OUTBOUND]),
        opcodes([packet for packet in packets if packet.direction == INBOUND]),
    )


@pytest.mark.parametrize("name", CASES)
def test_packets_of_both_processes(captured: Captured, name: str) -> None:
    option, size, expected = CASES[name]
    words = (option, str(size)) if option else ()
    numbers = ("-F", "-x", gid_of_loopback(), "-m", "1024", "-n", str(ITERATIONS))
    captured.run(name, *numbers, *words, env=ROCE)
    packets = captured.packets()
    left, came = both_ways(packets)
    assert left == came
    # On a busy machine an answer may be so late that a request is probed for, and answered again.
    probed = any(packet.comment.startswith(RETRANSMISSION) for packet in packets)
    once = Counter(opcode for opcode, _ in {(packet.opcode, packet.psn) for packet in packets})
    for opcode in expected:
        assert (once if probed else left)[opcode] == ITERATIONS or opcode == ACK
    assert set(left) == set(expected)


def test_comments_say_why_packets_were_sent_again(captured: Captured) -> None:
    words = ("-g", gid_of_loopback(), "-c", "-n", "300")
    # Not the acknowledgements: the side that has all it waits for ends, and repeats none.
    captured.run("ibv_rc_pingpong", *words, env=ROCE, fault="drop 2% opcode=send; seed 5")
    comments = Counter(packet.comment for packet in captured.packets())
    assert [text for text in comments if text.startswith("dropped by the fault rule: drop 2%")]
    # A packet that was sent again may be dropped once more: then both are said.
    reasons = (
        re.split(r": PSN \d", text)[0] for text in comments if text.startswith(RETRANSMISSION)
    )
    again = {re.sub(r"for (\d+ us|a few round trips)", "for N us", text) for text in reasons}
    assert again
    assert again <= {
        "retransmitted: no acknowledgement within the timeout",
        "probe: no answer for N us",
        "retransmitted: the responder missed a packet (NAK: PSN sequence error)",
        NO_RECEIVE,
    }


AGAIN = re.compile(r"PSN (\d+) (?:is|was) [a-z ]+, attempt (\d+), the original is frame (\d+)")


def test_what_is_sent_again_names_what_was_missing_and_its_original(captured: Captured) -> None:
    words = ("-F", "-x", gid_of_loopback(), "-m", "1024", "-s", "65536", "-n", "40")
    captured.run("ib_write_bw", *words, env=ROCE, fault="drop 3% opcode=write; seed 5")
    packets = captured.packets()
    attempts: Counter[tuple[int, int]] = Counter()
    found = 0
    for number, packet in enumerate(packets, 1):
        if packet.opcode not in DATA or packet.direction != OUTBOUND:
            continue
        attempts[packet.dest, packet.psn] += 1
        if not packet.comment.startswith(RETRANSMISSION):
            continue
        match = AGAIN.search(packet.comment)
        assert match, packet
        missing, attempt, frame = map(int, match.groups())
        assert attempt == attempts[packet.dest, packet.psn]
        assert frame < number
        original = packets[frame - 1]
        assert (original.psn, original.dest, original.direction) == (
            packet.psn,
            packet.dest,
            OUTBOUND,
        )
        assert not original.comment.startswith(RETRANSMISSION)
        assert (packet.psn - missing) % (1 << 24) < 1 << 16
        found += 1
    assert found
    naks = [packet for packet in packets if packet.comment.startswith("NAK: PSN sequence error")]
    assert naks
    for nak in naks:
        assert (nak.opcode, nak.comment) == (
            ACK,
            f"NAK: PSN sequence error: PSN {nak.psn} is missing",
        )
    assert {nak.direction for nak in naks} == {INBOUND, OUTBOUND}
    late = [packet for packet in packets if "out of sequence" in packet.comment]
    assert late
    assert {packet.direction for packet in late} == {INBOUND}


REFUSALS = FAILURES.replace(
    "time.sleep(0.01)",
    "while not context.counters()['engine']['nak_rnr_received']: time.sleep(0.01)",
)


def test_what_is_refused_says_why(captured: Captured) -> None:
    """As packets: a SEND without a receive request, and a WRITE with an rkey of nothing."""
    packets = packets_of(captured, REFUSALS, ROCE)
    said = {(packet.opcode, packet.direction, packet.comment) for packet in packets}
    refused = "refused: key names nothing (refused_key)"
    assert (SEND_ONLY, INBOUND, "refused: no receive request (RNR NAK)") in said
    assert (WRITE_ONLY, INBOUND, refused) in said
    for direction in (INBOUND, OUTBOUND):
        naks = [text for opcode, way, text in said if opcode == ACK and way == direction]
        assert any(text.startswith("RNR NAK: no receive request for PSN ") for text in naks)
        assert any(text.startswith("NAK: remote access error: PSN ") for text in naks)


# A datagram with another queue key than the receiver's.
WRONG_QKEY = """
import time
from verbena import verbs

with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = (pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD) for _ in range(2))
    for qp in (near, far):
        verbs.bring_up_ud(qp)
    info, gid_index = verbs.local_qp_info(far)
    ah = pd.create_ah(verbs.address_of(info, gid_index))
    memory = pd.alloc(64)
    near.send(memory, length=8, ah=ah, remote_qpn=far.qp_num, remote_qkey=77)
    cq.wait()
    time.sleep(0.1)
    cq.poll()
"""


def test_what_is_dropped_says_why(captured: Captured) -> None:
    came = [
        packet for packet in packets_of(captured, WRONG_QKEY, ROCE) if packet.direction == INBOUND
    ]
    assert [packet.comment for packet in came] == ["dropped: wrong queue key (drop_qkey)"]
