# SPDX-License-Identifier: Apache-2.0
"""Programs of verbs on simulated hosts that have no inside, against recorded runs.

The digests are those of each packet with its time, so a host without an inside behaves as it did,
byte for byte. ``test_recorded.py`` has those of flows. A change of behaviour that is meant puts in
what the test prints.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.recorded_programs import BTH, RUNS, SIZE, digest, packets_of

RECORDED = {
    "rc-send": "870cb5757f5d2bcd",
    "rc-write": "7eff2a0df3fa5e85",
    "read": "50bf3f2b73a9f125",
    "atomics": "74c469ff2accbf47",
    "uc-send": "ca990812c84333c3",
    "uc-write": "cf58742215647071",
    "ud": "76cd8a3802fb253a",
    "rc-lossy": "7a59763145bd724a",
    "ud-lossy": "24eac659b22528aa",
}
RC_OPCODES = {
    "rc-send": {0x00, 0x01, 0x02, 0x04, 0x11},
    "rc-write": {0x06, 0x07, 0x08, 0x0A, 0x11},
    "read": {0x0C, 0x0D, 0x0E, 0x0F, 0x10},
    "atomics": {0x12, 0x13, 0x14},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_programs_is_as_recorded(name: str, tmp_path: Path) -> None:
    assert digest(name, tmp_path) == RECORDED[name]


@pytest.mark.parametrize("name", RC_OPCODES)
def test_the_recorded_packets_are_those_of_the_verb(name: str, tmp_path: Path) -> None:
    packets, result = packets_of(name, tmp_path)
    assert {frame[BTH] for _, _, frame in packets} <= RC_OPCODES[name]
    assert len({frame[BTH] for _, _, frame in packets}) >= 3
    assert {host for host, _, _ in packets} == {0, 1}
    assert [*result.returned] == ["h1", "h0"] or [*result.returned] == ["h0", "h1"]


@pytest.mark.parametrize("name", ["rc-lossy", "ud-lossy"])
def test_the_lossy_links_lose_packets(name: str, tmp_path: Path) -> None:
    _, result = packets_of(name, tmp_path)
    assert result.world.packets["dropped"] > 0
    if name == "ud-lossy":
        assert result.returned["h0"][-1] == (0, 0)  # some never came
    else:
        assert result.returned["h0"] is not None
        assert result.returned["h1"] is not None


def test_what_was_read_is_what_was_there(tmp_path: Path) -> None:
    """The hash that programs return is of their memory: after READs both have the server's."""
    _, result = packets_of("read", tmp_path)
    assert SIZE > 16 * 1024  # several packets
    assert result.returned["h0"] == result.returned["h1"]


def test_an_inside_of_one_host_is_noticed(tmp_path: Path) -> None:
    assert digest("rc-send", tmp_path, (1,)) != RECORDED["rc-send"]
