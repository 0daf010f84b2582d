# SPDX-License-Identifier: Apache-2.0
"""MADs in packets of the vectors, of hardware and of soft-RoCE: read, and written byte for byte."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.wire.shared import VECTORS, vectors
from verbena import wire
from verbena.manage.attributes import attribute_of
from verbena.manage.cm_messages import CmReq
from verbena.manage.mad import MAD_BYTES, CmMad, DirectedSmp, MadHeader, SaMad, parse_mad
from verbena.manage.sa_records import PathRecord


def carried() -> list[tuple[str, bytes]]:
    """The MADs that packets of the vectors carry, each with what the packet is from."""
    found = []
    for vector in vectors():
        packet = wire.parse(bytes.fromhex(vector["hex"]), vector["layer"])
        if packet.dest_qp in (0, 1) and len(packet.payload) == MAD_BYTES:
            found.append((vector["layer"], packet.payload))
    return found


FOUND = carried()
pytestmark = pytest.mark.skipif(
    not FOUND,
    reason=f"{VECTORS / 'packets.json'}, which is no part of this project, is missing;"
    " VERBENA_SHARED names the folder of one who has vectors/packets.json in it",
)


def test_same_bytes_from_fields_alone() -> None:
    kinds: Counter[tuple[str, str]] = Counter()
    for layer, raw in FOUND:
        mad = parse_mad(raw)
        record = attribute_of(mad)
        assert record is not None
        again = type(mad)(**mad.values()).with_attribute(type(record)(**record.values()))
        assert again.pack() == raw
        kinds[layer, type(record).__name__] += 1
    assert kinds[wire.Layer.IB, "CmReq"] >= 3
    assert kinds[wire.Layer.IB, "SmInfo"] >= 6
    assert kinds[wire.Layer.IB, "PathRecord"] >= 2
    assert kinds[wire.Layer.ETHERNET, "CmRej"] >= 1


def of_hardware(kind: type[MadHeader]) -> list[MadHeader]:
    mads = [parse_mad(raw) for layer, raw in FOUND if layer == wire.Layer.IB]
    return [mad for mad in mads if isinstance(mad, kind)]


def test_directed_routes_of_hardware() -> None:
    """On the first link of two hops the pointer is 1, whichever way the packet goes."""
    smps = [mad for mad in of_hardware(DirectedSmp) if isinstance(mad, DirectedSmp)]
    assert {(smp.hop_pointer, smp.hop_count) for smp in smps} == {(1, 2)}
    assert {smp.is_returning for smp in smps} == {False, True}


def test_connections_of_hardware() -> None:
    requests = [
        mad.attribute(CmReq) for mad in of_hardware(CmMad) if mad.attribute_id == CmReq.ATTRIBUTE
    ]
    for request in requests:
        assert request.primary.local_lid not in (0, 0xFFFF)
        assert request.primary.packet_rate == 3


def test_paths_of_hardware() -> None:
    (answer,) = (mad for mad in of_hardware(SaMad) if mad.is_response)
    path = answer.attribute(PathRecord)
    assert path.slid
    assert path.dlid
    assert path.mtu.payload in (256, 512, 1024, 2048, 4096)
