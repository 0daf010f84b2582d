# SPDX-License-Identifier: Apache-2.0
"""Captures that the C core writes, as Wireshark's tshark reads them."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support import native_build, plain_environment
from verbena import wire

# tshark guesses what a payload is. These guesses find protocols in any bytes.
NO_GUESSES = ("--disable-protocol", "rpcordma", "-o", "infiniband.try_heuristic_first:FALSE")
CHECKS = ("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
FLAWS = "_ws.malformed || _ws.expert.severity >= 6291456"  # warning
PACKET = 6

Tshark = Callable[..., list[str]]
Sample = Callable[[str], Path]


def run_tshark(program: str, file: Path, *options: str) -> list[str]:
    """Its output, line by line. It must find the file whole."""
    done = subprocess.run(
        [program, "-r", str(file), *NO_GUESSES, *CHECKS, *options],
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "cut short" not in done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def tshark(debian_program: Callable[[str], str]) -> Tshark:
    """tshark(file, *options) is its output, line by line. It must find the file whole."""
    return partial(run_tshark, debian_program("tshark"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """sample(name) is a capture that test_capture.c writes."""
    folder = tmp_path_factory.mktemp("captures")
    program = native_build("test_capture") / "tests" / "test_capture"

    def write(name: str) -> Path:
        file = folder / f"{name}.pcapng"
        if not file.exists():
            subprocess.run([program, name, file], env=plain_environment(), check=True, timeout=60)
        return file

    return write


def frames(file: Path) -> Iterator[bytes]:
    """The packets of a pcapng file, read without tshark."""
    data, at = file.read_bytes(), 0
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        if kind == PACKET:
            captured = struct.unpack_from("=I", data, at + 20)[0]
            yield data[at + 28 : at + 28 + captured]
        at += length


def icrc_by_zlib(frame: bytes) -> bytes:
    """The ICRC of a frame, by another CRC than the core's (IBA A17.3.3)."""
    ip = bytearray(frame[14:-4])
    if ip[0] >> 4 == 4:
        ip[1] = ip[8] = 0xFF
        ip[10:12] = ip[26:28] = b"\xff\xff"
        ip[32] = 0xFF
    else:
        ip[0:4] = bytes((ip[0] | 0x0F, 0xFF, 0xFF, 0xFF))
        ip[7] = 0xFF
        ip[46:48] = b"\xff\xff"
        ip[52] = 0xFF
    return zlib.crc32(b"\xff" * 8 + ip).to_bytes(4, "little")


@pytest.mark.parametrize("name", ["comments", "messages", "large"])
def test_nothing_is_malformed(sample: Sample, tshark: Tshark, name: str) -> None:
    assert tshark(sample(name), "-Y", FLAWS) == []


@pytest.mark.parametrize("name", ["messages", "large"])
def test_every_icrc_is_right(sample: Sample, name: str) -> None:
    found = list(frames(sample(name)))
    assert found
    for frame in found:
        assert frame[-4:] == icrc_by_zlib(frame) == wire.icrc(frame) == wire.parse(frame).icrc


FLUSH, ATOMIC_WRITE = 0x1C, 0x1D  # newer than some versions of tshark, which show no ICRC then


def test_tshark_shows_the_same_icrc(sample: Sample, tshark: Tshark) -> None:
    shown = tshark(sample("messages"), "-T", "fields", "-e", "infiniband.invariant.crc")
    of_frames = list(zip(shown, frames(sample("messages")), strict=True))
    assert all(crc or wire.parse(frame).opcode in (FLUSH, ATOMIC_WRITE) for crc, frame in of_frames)
    assert [(int(crc, 16), frame) for crc, frame in of_frames if crc] == [
        (int.from_bytes(icrc_by_zlib(frame)), frame) for crc, frame in of_frames if crc
    ]


def test_comments_say_why(sample: Sample, tshark: Tshark) -> None:
    fields = ("-e", "infiniband.bth.psn", "-e", "frame.comment")
    shown = tshark(sample("comments"), "-T", "fields", *fields)
    assert shown[:7] == [
        "0\t",
        "1\tretransmitted: no acknowledgement within the timeout: PSN 40 is not acknowledged",
        "2\tretransmitted: the responder missed a packet (NAK: PSN sequence error): "
        "PSN 40 was missing",
        "3\tretransmitted: the responder had no receive request (RNR NAK): PSN 40 was refused",
        "4\tretransmitted: a response is missing (implied NAK): PSN 40 is missing",
        "5\tsent again: the requester repeated its request",
        "6\tprobe: no answer for 420 us: PSN 40 is not acknowledged",
    ]
    assert shown[7] == "0\tdropped by the fault rule: drop nth=1"
    text = "\n".join(shown)
    for words in (
        "duplicated by the fault rule: duplicate nth=1",
        "corrupted by the fault rule: corrupt nth=2",
        "truncated by the fault rule: truncate nth=3 to=60",
        "delayed by the fault rule: delay 500ns nth=4",
        "\tdropped: no such queue pair",
        "\tcorrupted by the fault rule: corrupt dir=in nth=3",
        "\tdropped: the ICRC is wrong",
    ):
        assert text.count(words) >= 1, words


def test_only_harmed_packets_have_a_wrong_icrc(sample: Sample, tshark: Tshark) -> None:
    comments = tshark(sample("comments"), "-T", "fields", "-e", "frame.comment")
    for frame, comment in zip(frames(sample("comments")), comments, strict=True):
        harmed = any(word in comment for word in ("corrupted", "truncated", "ICRC is wrong"))
        assert (frame[-4:] == icrc_by_zlib(frame)) is not harmed, comment


def test_directions_and_interface(sample: Sample, tshark: Tshark) -> None:
    fields = ("-e", "frame.packet_flags_direction", "-e", "frame.interface_name", "-e", "ip.src")
    shown = set(tshark(sample("comments"), "-T", "fields", *fields))
    assert shown == {"0x00000002\tverbena0\t10.0.0.1", "0x00000001\tverbena0\t10.0.0.2"}


def test_times_have_nanoseconds(sample: Sample, tshark: Tshark) -> None:
    shown = tshark(sample("comments"), "-T", "fields", "-e", "frame.time_epoch", "-c", "1")
    assert shown == ["1700000000.000001000"]


def test_what_surrounds_a_packet(sample: Sample) -> None:
    first = wire.parse(next(frames(sample("messages"))))
    assert first.eth is not None
    assert first.ipv4 is not None
    assert first.udp is not None
    assert (first.eth.src, first.eth.dst) == (b"\x02\0\x0a\0\0\x01", b"\x02\0\x0a\0\0\x02")
    assert (first.ipv4.ttl, first.ipv4.tos) == (17, 0x6A)
    assert (first.udp.sport, first.udp.dport) == (0xC001, 4791)


def opcodes(tshark: Tshark, file: Path, qp: int) -> list[str]:
    shown = tshark(file, "-Y", f"ip && infiniband.bth.destqp == {qp}", "-T", "fields", "-e",
                   "infiniband.bth.opcode", "-e", "infiniband.bth.psn")  # fmt: skip
    return [line.replace("\t", " ") for line in shown]


def test_a_message_is_cut_as_the_engine_would(sample: Sample, tshark: Tshark) -> None:
    """From PSN 0xfffffe on; opcode and PSN of each packet, as the specification has them."""
    requests = opcodes(tshark, sample("messages"), 0x222)
    assert requests[:13] == [
        "4 16777214",  # SEND, nothing
        "4 16777215",  # SEND, one byte
        *("0 0", "3 1"),  # SEND with immediate, 2 * 1024
        *("0 2", "1 3", "22 4"),  # SEND with invalidate, 2 * 1024 + 1
        *("6 5", "7 6", "7 7", "8 8"),  # WRITE, 4000
        "10 9",
        "6 10",
    ]
    assert requests[13:20] == ["9 11", "12 12", "12 15", "19 16", "20 17", "29 18", "28 19"]
    answers = opcodes(tshark, sample("messages"), 0x111)
    assert answers[:7] == ["17 16777214", "17 16777215", "17 1", "17 4", "17 8", "17 9", "17 11"]
    assert answers[7:15] == ["13 12", "14 13", "15 14", "16 15", "18 16", "18 17", "16 18", "16 19"]


def test_payload_is_whole(sample: Sample) -> None:
    sent = bytes((i * 7 + i // 256 + 0x51) & 0xFF for i in range(4096))
    packets = [wire.parse(frame) for frame in frames(sample("messages"))]
    write = [p for p in packets if 6 <= p.opcode <= 8 and p.ipv4 is not None][:4]
    assert b"".join(p.payload for p in write) == sent[:4000]
    assert wire.parse(next(frames(sample("large")))).payload == sent


def test_a_flush_is_one_packet_without_payload(sample: Sample) -> None:
    packets = [wire.parse(frame) for frame in frames(sample("messages"))]
    found = [packet for packet in packets if packet.opcode == FLUSH]
    assert len(found) == 2  # IPv4 and IPv6
    for packet in found:
        assert packet.feth is not None
        assert packet.reth is not None
        assert (packet.feth.plt, packet.feth.sel, packet.payload) == (1, 1, b"")
        assert (packet.reth.va, packet.reth.rkey, packet.reth.dmalen) == (
            0x7F0000001000, 0x1234, 4000)  # fmt: skip
