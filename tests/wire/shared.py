# SPDX-License-Identifier: Apache-2.0
"""Packets to test with: captures of our own, and the vectors that are kept beside the project."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import ROOT
from verbena import wire

VECTORS = Path(os.environ.get("VERBENA_SHARED", ROOT.parent / "shared")) / "vectors"
CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.pcap"))
PATH_HEADERS = ("eth", "lrh", "grh", "ipv4", "ipv6", "udp")


def vectors() -> list[dict[str, Any]]:
    """Every RoCE and InfiniBand packet of the vectors; none where they are not kept."""
    file = VECTORS / "packets.json"
    if not file.exists():
        return []
    found: list[dict[str, Any]] = json.loads(file.read_text())["vectors"]
    return [vector for vector in found if vector["layer"] in list(wire.Layer)]


def refusal(data: bytes, layer: str = wire.Layer.ETHERNET) -> wire.PacketError | None:
    """Why ``data`` is no packet, or None if it is one."""
    try:
        wire.parse(data, layer)
    except wire.PacketError as error:
        return error
    return None


def frames(capture: Path) -> Iterator[bytes]:
    """The packets of a pcap file of this machine's byte order."""
    data = capture.read_bytes()
    magic, *_, link = struct.unpack_from("=IHHiIII", data)
    assert (magic, link) == (0xA1B2C3D4, 1), capture
    at = 24
    while at < len(data):
        _, _, kept, length = struct.unpack_from("=IIII", data, at)
        assert kept == length, f"{capture}: a packet is cut off"
        yield data[at + 16 : at + 16 + kept]
        at += 16 + kept
