# SPDX-License-Identifier: Apache-2.0
"""Partitions of a scenario: what its subnet manager sets, and the P_Keys of its flows."""

from __future__ import annotations

from typing import Any

import pytest

from verbena.manage.codes import PortState
from verbena.sim import Scenario
from verbena.sim.document import ScenarioError
from verbena.sim.paced import PacedScenario

TEXT = """
allow = ["failures"]
fabric = {topology = "clos2", radix = 4, rate = "4xHDR"}
switch = {flow = "credits", room = "64 KiB"}
adapter = {framing = "infiniband", timeout = 8, retry_count = 1}
management = {begin = "bare"}

[[partition]]
name = "storage"
pkey = 0x0001
full = ["h1"]
limited = ["h2", "h5"]

[[traffic]]
name = "members"
pattern = "flows"
from = "h2"
to = "h1"
size = "64 KiB"
pkey = "storage"

[[traffic]]
name = "limited"
pattern = "flows"
from = "h2"
to = "h5"
size = "64 KiB"
pkey = "storage"

[[traffic]]
name = "strangers"
pattern = "flows"
from = "h3"
to = "h1"
size = "64 KiB"
pkey = 0x8001

[[traffic]]
name = "all"
pattern = "flows"
from = "h3"
to = "h5"
size = "64 KiB"
"""
DONE, FAILED = 2, 3


def states(scenario: Scenario) -> list[int]:
    made = scenario.run()
    return [int(state) for state in made.flows["state"]]


def test_flows_of_members_arrive() -> None:
    """Two limited members cannot reach each other, and nobody reaches a partition from outside."""
    scenario = Scenario.parse(TEXT)
    result = scenario.run()
    assert [int(state) for state in result.flows["state"]] == [DONE, FAILED, FAILED, DONE]
    assert "partitions: " in result.summary()
    assert "packets were refused, at 2 ports" in result.summary()


def test_switches_need_not_enforce_them() -> None:
    """Then the packets of strangers reach the host, which refuses them."""
    scenario = Scenario.parse(TEXT).changed({"management.enforce": False})
    assert states(scenario) == [DONE, FAILED, FAILED, DONE]


def test_the_default_partition_can_be_another() -> None:
    """All hosts but h5 are limited members, which reach h5 alone."""
    default = {"name": "Default", "pkey": 0x7FFF, "full": ["h5"], "others": "limited"}
    scenario = Scenario.parse(TEXT)
    settings: dict[str, Any] = dict(scenario.document.settings)
    settings["partition"] = [*settings["partition"], default]
    settings["traffic"] = [
        {"pattern": "flows", "from": "h3", "to": to, "size": "4 KiB", "pkey": "Default"}
        for to in ("h5", "h1")
    ]
    assert states(Scenario.make(settings)) == [DONE, FAILED]


def test_a_paced_scenario_has_them_too() -> None:
    paced = PacedScenario(Scenario.parse(TEXT), 1e3, manager="h0")
    for _ in range(2000):
        paced.advance()
        if paced.began is not None:
            break
    port = paced.managed.agent("h2").ports[1]
    assert port.state == PortState.ACTIVE
    assert bytes(port.p_keys[:4]) == b"\xff\xff\x00\x01"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"management.begin": "managed"}, 'write management.begin = "bare"'),
        ({"partition.storage.full": ["h77"]}, "there is no such host"),
        ({"partition.storage.full": ["h2"]}, "has h2, which is a full member already"),
        ({"partition.storage.pkey": 0x8001}, "32767"),
        (
            {"traffic.members.pkey": "stores"},
            "there is no partition of that name: there is s",
        ),
        ({"traffic.members.pkey": 0x8000}, "write a P_Key of 16 bits"),
        ({"partition": []}, "there is no partition of that name: there is none"),
    ],
)
def test_mistakes(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Scenario.parse(TEXT).changed(changes)


def test_a_p_key_without_partitions_is_a_mistake() -> None:
    changes = {"partition": [], "traffic.members.pkey": 0xFFFF, "traffic.limited.pkey": 0xFFFF}
    with pytest.raises(ScenarioError, match=r"add a \[\[partition\]\]"):
        Scenario.parse(TEXT).changed(changes)
