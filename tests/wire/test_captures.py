# SPDX-License-Identifier: Apache-2.0
"""Every packet of the Linux driver's captures: bytes, ICRC, and the ICRC as a socket sees it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.wire.shared import CAPTURES, VECTORS, frames, refusal
from verbena import wire

# Captures of other projects are no part of this one: they are read where they are kept beside it.
KEPT_BESIDE = [
    *sorted((VECTORS / "captures").glob("*.pcap")),
    *sorted((VECTORS / "traces").glob("cap_loss.pcap")),
]
NOT_ROCE = {"ETHERNET_TYPE", "IPV4_PROTOCOL", "IPV6_NEXT_HEADER", "UDP_PORT"}


def roce_frames(capture: Path) -> list[bytes]:
    found = []
    for frame in frames(capture):
        if error := refusal(frame):
            assert error.name in NOT_ROCE, frame.hex()
        else:
            found.append(frame)
    assert len(found) >= 8
    return found


@pytest.mark.parametrize("capture", [*CAPTURES, *KEPT_BESIDE], ids=lambda path: path.stem)
class TestCapture:
    def test_every_packet_has_its_icrc(self, capture: Path) -> None:
        for frame in roce_frames(capture):
            packet = wire.parse(frame)
            assert packet.icrc == wire.icrc(frame)
            assert packet.to_bytes() == frame

    def test_the_identification_is_found_without_looking(self, capture: Path) -> None:
        last = 0
        for frame in roce_frames(capture):
            packet = wire.parse(frame)
            if packet.ipv4 is None:
                continue
            header = packet.ipv4.id, packet.ipv4.frag == 0x4000
            for guess in ((0, True), (last + 1 & 0xFFFF, True), header, (0xFFFF, False)):
                assert wire.unseen_id(frame, guess) == header
            last = packet.ipv4.id

    def test_damage_is_not_explained_by_an_identification(self, capture: Path) -> None:
        explained = 0
        for frame in roce_frames(capture):
            packet = wire.parse(frame)
            if packet.ipv4 is None:
                continue
            damaged = bytearray(frame)
            damaged[packet.roce_end - 5] ^= 0x10
            with contextlib.suppress(wire.UnseenError):
                wire.unseen_id(damaged)
                explained += 1
        assert explained <= 1


def test_ours_are_here() -> None:
    assert len(CAPTURES) >= 4
