# SPDX-License-Identifier: Apache-2.0
"""Packets that others made: their fields, their bytes again, their checksums."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.wire.shared import VECTORS, vectors
from verbena import wire

# What the vectors say about the content of a payload.
NOT_OURS = {"mad"}
FOUND = vectors()
pytestmark = pytest.mark.skipif(
    not FOUND,
    reason=f"{VECTORS / 'packets.json'}, which is no part of this project, is missing;"
    " VERBENA_SHARED names the folder of one who has vectors/packets.json in it",
)


def as_value(value: Any) -> Any:
    """A field as the vectors write it."""
    return value.hex() if isinstance(value, bytes) else value


def differences(got: Any, expected: dict[str, Any], where: str = "") -> Iterator[str]:
    for name, value in expected.items():
        if not where and name in NOT_OURS:
            continue
        found = getattr(got, name)
        if isinstance(value, dict):
            yield from differences(found, value, f"{where}{name}.")
        elif as_value(found) != value:
            yield f"{where}{name} is {as_value(found)}, not {value}"


@pytest.mark.parametrize("vector", FOUND, ids=lambda vector: vector["id"])
class TestVector:
    def test_fields(self, vector: dict[str, Any]) -> None:
        packet = wire.parse(bytes.fromhex(vector["hex"]), vector["layer"])
        assert list(differences(packet, vector["fields"])) == []

    def test_no_other_header(self, vector: dict[str, Any]) -> None:
        packet = wire.parse(bytes.fromhex(vector["hex"]), vector["layer"])
        extended = ("rdeth", "deth", "xrceth", "feth", "reth", "atomiceth", "aeth")
        for name in (*extended, "atomicacketh", "immdt", "ieth"):
            assert (getattr(packet, name) is None) == (name not in vector["fields"])

    def test_same_bytes_again(self, vector: dict[str, Any]) -> None:
        data = bytes.fromhex(vector["hex"])
        assert wire.parse(data, vector["layer"]).to_bytes() == data

    def test_checksums(self, vector: dict[str, Any]) -> None:
        data = bytes.fromhex(vector["hex"])
        packet = wire.parse(data, vector["layer"])
        assert packet.icrc.hex() == vector["icrc_wire"]
        assert wire.icrc(data, vector["layer"]).hex() == vector["icrc_wire"]
        if packet.layer is wire.Layer.IB:
            assert packet.vcrc is not None
            assert packet.vcrc.hex() == wire.vcrc(data[:-2]).hex() == vector["vcrc_wire"]

    def test_from_its_fields_alone(self, vector: dict[str, Any]) -> None:
        data = bytes.fromhex(vector["hex"])
        packet = dataclasses.replace(wire.parse(data, vector["layer"]), icrc=bytes(4))
        packet.icrc = wire.icrc(packet.to_bytes(), vector["layer"])
        assert packet.to_bytes() == data


def test_there_are_as_many_as_ever() -> None:
    layers = [vector["layer"] for vector in FOUND]
    assert layers.count("ethernet") >= 83
    assert layers.count("ib-lrh") >= 45
