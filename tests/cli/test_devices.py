# SPDX-License-Identifier: Apache-2.0
"""`verbena devices` and `verbena info`: what they say of the device, and whether it is so."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.conftest import Run
from tests.support import clean_environment, verbena_command
from verbena.cli import probe
from verbena.cli.survey import address_text
from verbena.cli.table import aligned

SYSFS = "/sys/class/infiniband/verbena0"


def verbena(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        verbena_command(*words),
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def as_json(*words: str, **variables: str) -> Any:
    done = verbena(*words, "--json", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


# ---- devices -----------------------------------------------------------------------------------


def test_table_shows_the_device_and_its_gids() -> None:
    lines = verbena("devices").stdout.splitlines()
    assert lines[1].split()[0] == "verbena0"
    assert "ACTIVE" in lines[1]
    gids = [line.split() for line in lines[4:]]
    assert [words[2] for words in gids] == [str(index) for index in range(len(gids))]
    assert gids[0][3] in [words[3] for words in gids[2:]]


def test_an_infiniband_port_shows_its_lids_and_partitions() -> None:
    ports = "infiniband,lid=8,lmc=2,pkeys=0xffff+0x8001;ethernet"
    head, first, second, *_ = verbena("devices", VERBENA_PORTS=ports).stdout.splitlines()
    assert head.split()[-4:] == ["MTU", "LID", "LMC", "P_Keys"]
    assert first.split()[-4:] == ["4096", "8", "2", "0xffff,0x8001"]
    assert second.split()[4] == "Ethernet"
    assert len(second.split()) == 6
    (device,) = as_json("devices", VERBENA_PORTS=ports)
    found = [[port[name] for name in ("lid", "lmc", "pkeys")] for port in device["ports"]]
    assert found == [[8, 2, [0xFFFF, 0x8001]], [0, 0, [0xFFFF]]]


def test_an_ethernet_port_shows_no_lid() -> None:
    assert verbena("devices").stdout.splitlines()[0].endswith("MTU")


def test_device_and_sysfs_agree(verbena_run: Run) -> None:
    """libibverbs.so.1 and the preloaded files are two libraries with one source of values."""
    (device,) = as_json("devices")
    (port,) = device["ports"]
    listing = f"cd / && cat {SYSFS}/node_guid {SYSFS}/fw_ver && ls {SYSFS}/ports/1/gids | wc -l"
    guid, firmware, gids = verbena_run("sh", "-c", listing).stdout.split()
    assert device["guid"] == guid.replace(":", "")
    assert device["firmware"] == firmware
    assert len(port["gids"]) == int(gids)
    for gid in port["gids"]:
        attributes = f"{SYSFS}/ports/1/gid_attrs"
        done = verbena_run(
            "cat", f"{attributes}/types/{gid['index']}", f"{attributes}/ndevs/{gid['index']}"
        )
        assert done.stdout.splitlines() == [
            gid["type"],
            gid["interface"],
        ]


def test_library_that_is_none() -> None:
    done = verbena("devices", "--library", "/no/such/library.so")
    assert done.returncode == 1
    assert "/no/such/library.so" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("gid", "text"),
    [
        ("00000000000000000000ffff0a000001", "10.0.0.1"),
        ("fe8000000000000000000000000000ab", "fe80::ab"),
    ],
)
def test_gid_is_written_as_an_address(gid: str, text: str) -> None:
    assert address_text(bytes.fromhex(gid)) == text


def test_columns_are_aligned_and_lines_have_no_blanks_at_their_end() -> None:
    assert aligned([["a", "b"], ["long", ""]], "  ") == "  a     b\n  long"


# ---- info --------------------------------------------------------------------------------------


def test_info_says_how_memory_is_reached() -> None:
    done = verbena("info")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.split() == ["device", "verbena0"] for line in lines)
    assert any("shared mapping: yes" in line for line in lines)
    assert lines[-1].strip().startswith("a program's own memory")


@pytest.mark.parametrize(
    ("carrier", "roce", "words"),
    [
        ("auto", {"udp_port": 4791, "local_peers": False}, "this host    direct, without packets"),
        ("roce", {"udp_port": 4791, "local_peers": True}, "this host    packets too"),
        (
            "direct",
            {"reason": "VERBENA_CARRIER=direct asks for it"},
            "other hosts  not reached: VERB",
        ),
    ],
)
def test_info_shows_the_ways_to_peers(carrier: str, roce: dict[str, object], words: str) -> None:
    assert roce.items() <= as_json("info", VERBENA_CARRIER=carrier)["roce"].items()
    done = verbena("info", VERBENA_CARRIER=carrier)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"  {words}" in done.stdout
    assert "active MTU" in done.stdout


def test_info_says_which_port_a_gid_a_lid_and_a_partition_is_of() -> None:
    ports = "ethernet;infiniband,lid=8,pkeys=0xffff+0x8001"
    lines = verbena("info", VERBENA_PORTS=ports).stdout.splitlines()
    (port,) = [line for line in lines if line.startswith("port 2")]
    assert port.endswith(", LID 8, LMC 0, P_Keys 0xffff,0x8001")
    table = lines[lines.index("GIDs:") + 1 :]
    assert table[0].split()[:2] == ["port", "GID"]
    assert [line.split()[:2] for line in table[: table.index("")]][-1] == ["2", "0"]


def test_info_tells_a_forced_way() -> None:
    reached = as_json("info", VERBENA_COPY="bounce")["peer_memory"]
    assert reached["own_memory"] == "bounce ring"
    assert reached["reason"]


def test_info_reports_truthful_limits() -> None:
    (device,) = as_json("info")["devices"]
    assert device["limits"]["max_qp"] >= 1 << 16
    assert device["limits"]["max_sge"] >= 32
    assert device["limits"]["max_qp_rd_atom"] == 128


def test_probe_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERBENA_LIBRARY", "/no/such/library.so")
    with pytest.raises(probe.ProbeError, match=r"/no/such/library\.so"):
        probe.probe()


def test_probe_that_finds_no_peer() -> None:
    with pytest.raises(probe.ProbeError, match="no peer with pid 7"):
        probe.reach_of_peer({"peers": []}, 7)
