# SPDX-License-Identifier: Apache-2.0
"""The environment that verbena.launch makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verbena import _native, launch


def test_base_is_not_changed() -> None:
    base = {"PATH": "/bin"}
    launch.environment(base)
    assert base == {"PATH": "/bin"}


def test_other_variables_are_kept() -> None:
    assert launch.environment({"PATH": "/bin", "EXTRA": "1"})["EXTRA"] == "1"


def test_applied_twice_is_applied_once() -> None:
    once = launch.environment({"PATH": "/bin"}, shared_heap=True, log="debug", spin_us=0)
    assert launch.environment(once, shared_heap=True) == once


def test_no_empty_entry_in_a_path() -> None:
    """An empty entry would mean the current folder."""
    changed = launch.environment({})
    assert "" not in changed["LD_LIBRARY_PATH"].split(":") + changed["PATH"].split(":")


def test_libraries_in_a_folder_with_spaces_are_preloaded_by_name() -> None:
    assert launch.preload_name(Path("/my projects/lib/libx.so")) == "libx.so"


def test_folder_that_the_linker_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="without them"):
        launch.preload_name(Path("/a:b/libx.so"))


def test_unknown_log_level() -> None:
    with pytest.raises(ValueError, match="loud"):
        launch.environment({}, log="loud")


@pytest.mark.parametrize("spin", [-1, 1000001])
def test_spin_out_of_range(spin: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 1000000 microseconds"):
        launch.environment({}, spin_us=spin)


def test_part_id_of_more_than_32_bits() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        launch.environment({}, part_id=2**32)


@pytest.mark.parametrize(
    ("ports", "complaint"),
    [
        (["infiniband,lid=2", "infiniband,lid=2"], "the LID 2 is of port 1 and of port 2"),
        (["infiniband,lid=2", "infiniband"], "the LID 2 is of port 1 and of port 2"),
        (["infiniband,lid=8,lmc=2", "infiniband,lid=11"], "the LID 11 is of port 1 and of port 2"),
        (["infiniband,lid=11", "infiniband,lid=8,lmc=2"], "the LID 11 is of port 1 and of port 2"),
        (["infiniband,lid=0b11"], "'0b11' is not a number, as 8 or 0x8 is"),
        (["infiniband,lid=1_0"], "'1_0' is not a number"),
        (["ethernet,pkeys=0xffff+0o7"], "'0o7' is not a number"),
        (["infiniband,lid=2,lid=3"], "has lid twice"),
        (["infiniband,pkeys=1,pkeys=1"], "has pkeys twice"),
        (["ethernet,"], "a comma too many"),
        (["ethernet;ethernet"], "more than one port; write --port once for each"),
        (
            ["ethernet,pkeys=0xffff,0x8001"],
            "'0x8001': the P_Keys of a port are joined by [+], as pkeys=0xffff[+]0x8001",
        ),
        (["ethernet,0x8001"], "'0x8001': an ethernet port has netdev, pkeys"),
        (["ethernet,netdev=lo;ethernet"], "more than one port; write --port once for each"),
        (["ethernet,netdev=éééééééé"], "the name of no interface"),
    ],
)
def test_ports_that_the_library_would_ignore_are_refused(ports: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        launch.environment({}, ports=ports)


@pytest.mark.parametrize(
    "ports",
    [
        ["infiniband,lid=8,lmc=2", "infiniband,lid=12,lmc=2"],
        ["infiniband,lmc=7", "infiniband,lmc=7"],
        ["ethernet", "infiniband,lid=010"],
    ],
)
def test_ports_without_a_lid_in_common(ports: list[str]) -> None:
    assert launch.environment({}, ports=ports)["VERBENA_PORTS"] == ";".join(ports)


# ---- options and the variables of an environment


@pytest.mark.parametrize(
    ("base", "options", "complaint"),
    [
        ({"VERBENA_PORTS": "ethernet/infiniband"}, {"devices": 1},
         "VERBENA_PORTS describes 2 devices, which is more than 1 .VERBENA_PORTS in the"),
        ({}, {"netdev": "eth0", "ports": ["ethernet,netdev=lo"]},
         "netdev .--netdev. has no effect: each Ethernet port has one of its own$"),
        ({}, {"netdev": "eth0", "ports": ["infiniband"]},
         "netdev .--netdev. has no effect: no port is an Ethernet one$"),
        ({}, {"netdev": "eth0", "link_layer": "infiniband"},
         "netdev .--netdev. has no effect: no port is an Ethernet one$"),
        ({"VERBENA_PORTS": "ethernet,netdev=lo"}, {"netdev": "eth0"},
         "port 1 has netdev of its own .VERBENA_PORTS in the environment: unset it"),
        ({"VERBENA_PORTS": "ethernet;infiniband,pkeys=1"}, {"pkeys": [0xFFFF]},
         "port 2 has pkeys of its own .VERBENA_PORTS in the environment: unset it"),
        ({"VERBENA_DEVICES": "2"}, {"ports": ["infiniband,lid=4"]},
         "or describe each .--device. .VERBENA_DEVICES in the environment: unset it"),
        ({"VERBENA_PORTS": "token-ring"}, {"devices": 2}, "VERBENA_PORTS=token-ring: a port is"),
    ],
)  # fmt: skip
def test_an_option_that_contradicts_a_variable_is_refused(
    base: dict[str, str], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        launch.environment(base, **options)


@pytest.mark.parametrize(
    ("base", "options", "expected"),
    [
        ({"VERBENA_PORTS": "ethernet;infiniband"}, {"link_layer": "infiniband"},
         {"VERBENA_LINK_LAYER": "infiniband"}),
        ({"VERBENA_PORTS": "ethernet;infiniband"}, {"ports": ["ethernet"]},
         {"VERBENA_PORTS": "ethernet"}),
        ({"VERBENA_LINK_LAYER": "infiniband"}, {"ports": ["ethernet"]},
         {"VERBENA_PORTS": "ethernet"}),
        ({"VERBENA_LINK_LAYER": "infiniband"}, {"devices": [["ethernet"], []]},
         {"VERBENA_PORTS": "ethernet/infiniband", "VERBENA_DEVICES": "2"}),
        ({"VERBENA_PORTS": "ethernet;infiniband"}, {"devices": 2},
         {"VERBENA_PORTS": "ethernet;infiniband", "VERBENA_DEVICES": "2"}),
        ({"VERBENA_PKEYS": "1"}, {"ports": ["ethernet,pkeys=2"], "pkeys": [3]},
         {"VERBENA_PORTS": "ethernet,pkeys=2", "VERBENA_PKEYS": "0x0003"}),
        ({"VERBENA_SPIN_US": "1"}, {"spin_us": 2}, {"VERBENA_SPIN_US": "2"}),
        ({"VERBENA_CAPTURE": "/f"}, {"capture_direct": True}, {"VERBENA_CAPTURE_DIRECT": "yes"}),
    ],
)  # fmt: skip
def test_an_option_replaces_what_variables_say(
    base: dict[str, str], options: dict[str, Any], expected: dict[str, str]
) -> None:
    changed = launch.environment(base, **options)
    assert expected.items() <= changed.items()
    if "link_layer" in options:
        assert "VERBENA_PORTS" not in changed


def test_the_same_description_for_two_devices_cannot_have_a_lid() -> None:
    with pytest.raises(ValueError, match="leave lid out, or describe each"):
        launch.environment({}, ports=["infiniband,lid=4"], devices=2)


def test_missing_libraries_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_native, "PARTS", [str(tmp_path)])
    _native.library_dir.cache_clear()
    try:
        with pytest.raises(FileNotFoundError, match="pip install"):
            launch.environment({})
    finally:
        _native.library_dir.cache_clear()
