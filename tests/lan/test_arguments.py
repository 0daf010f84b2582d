# SPDX-License-Identifier: Apache-2.0
"""Arguments of a type that a parameter of verbena.lan does not take."""

from __future__ import annotations

import pytest

from tests.wrong_arguments import Parameter, parameters_of, refusal
from verbena.lan import Lan, LanError, mac_address

RECORDS = {"PortCounters"}
CALLED_FOR_EACH_FRAME = {"Port.arrive", "Port.send", "SpanningTree.receive"}


@pytest.mark.parametrize(
    "one", parameters_of(["verbena.lan"], RECORDS | CALLED_FOR_EACH_FRAME), ids=str
)
def test_an_argument_without_sense_is_named(one: Parameter) -> None:
    text = refusal(one, LanError)
    assert f"{one.name} is nonsense, and not " in text


def test_a_station_is_on_something() -> None:
    with pytest.raises(LanError, match="on is 'hub', and not a Cable, a Hub or a LearningSwitch"):
        Lan().station("a", "hub")


def test_an_address_may_be_any_bytes() -> None:
    assert mac_address(bytearray(6)) == bytes(6)
    with pytest.raises(LanError, match="has 6 bytes, and not 5"):
        mac_address(bytearray(5))
