# SPDX-License-Identifier: Apache-2.0
"""`verbena fabric`, and `verbena run --fabric`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.pairs import free_port
from tests.subnet_process.support import RunningFabric, running_fabric
from tests.support import clean_environment, ends, verbena_command

LID_FILE = "/sys/class/infiniband/verbena0/ports/1/lid"
FOLDER = "/sys/class/infiniband/verbena0/ports/1"
SCENARIO = """
teaches = "Nothing."
duration = "1ms"
[fabric]
topology = "clos2"
radix = 4
[[traffic]]
pattern = "shift"
by = 1
size = "1kB"
"""


def verbena(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        verbena_command(*arguments),
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFabric]:
    with running_fabric("clos2:4", tmp_path_factory.mktemp("fabric")) as made:
        yield made


def test_it_says_how_to_attach_a_program(fabric: RunningFabric) -> None:
    said = fabric.log.read_text()
    assert "8 hosts and 6 switches" in said
    assert "subnet manager: built in, MASTER at h0" in said
    assert f"verbena run --fabric {fabric.name} --host h1 -- ibnetdiscover" in said


def test_list_and_status(fabric: RunningFabric) -> None:
    assert fabric.name in verbena("fabric", "--list").stdout.splitlines()
    said = verbena("fabric", "--status", "--name", fabric.name).stdout
    assert f"8 hosts and 6 switches, process {fabric.process.pid}" in said
    assert "ports: 32 ACTIVE" in said


def test_a_link_is_cut_and_restored(fabric: RunningFabric) -> None:
    name = ("--name", fabric.name)
    assert verbena("fabric", *name, "--cut", "h3:1").stdout.endswith("is cut\n")
    again = verbena("fabric", *name, "--cut", "h3:1")
    assert again.returncode == 1
    assert "is cut already" in again.stderr
    assert verbena("fabric", *name, "--restore", "h3:1").stdout.endswith("is repaired\n")


@pytest.mark.parametrize("option", ["--cut", "--restore"])
def test_an_empty_link_is_no_link(fabric: RunningFabric, option: str) -> None:
    done = verbena("fabric", "--name", fabric.name, option, "")
    assert done.returncode == 1
    assert "'' is no link: write the names" in done.stderr


def test_links_that_lose_packets(fabric: RunningFabric) -> None:
    name = ("--name", fabric.name)
    both = verbena("fabric", *name, "--loss", "e0-a0=1%", "--loss", "h3:1=0.25").stdout
    assert both.splitlines()[0].startswith("the link between e0:3 and a0:1 loses 1 % of the")
    assert "h3:1" in both.splitlines()[1]
    assert "loses 25 % of the packets" in both
    status = verbena("fabric", *name, "--status").stdout
    assert "lossy links, each by one end: " in status
    assert "a0:1 1 %" in status
    assert "25 %" in status
    assert "no link: write the names" in verbena("fabric", *name, "--loss", "e9-a9=1%").stderr
    assert (
        verbena("fabric", *name, "--loss", "all=0").stdout == "each of the 16 links loses nothing\n"
    )
    assert "lossy" not in verbena("fabric", *name, "--status").stdout


def test_losses_from_the_start(tmp_path: Path) -> None:
    with running_fabric("clos2:4", tmp_path, "--loss", "all=0.1%") as fabric:
        assert "each of the 16 links loses 0.1 % of the packets" in fabric.log.read_text()
        assert fabric.control(do="status")["loss"] == {"all": 0.001}


PARTITIONS = """
Default=0x7fff, ipoib : ALL=limited, SELF=full ;
storage=0x0012, ipoib, defmember=full : 0x0000000000100001, 0x0000000000a00004 ;
"""


def test_settings_of_the_built_in_manager(tmp_path: Path) -> None:
    """Partitions as OpenSM's -P has them, a priority, and others by their names."""
    path = tmp_path / "partitions.conf"
    path.write_text(PARTITIONS)
    more = ("--partitions", str(path), "--sm-priority", "7", "--sm-set", "lmc=1")
    with running_fabric("clos2:4", tmp_path, *more) as fabric:
        keys = {
            host: fabric.run(host, "cat", f"{FOLDER}/pkeys/0", f"{FOLDER}/pkeys/1").stdout.split()
            for host in ("h0", "h1")
        }
        lmc = fabric.run("h1", "cat", f"{FOLDER}/lid_mask_count").stdout.strip()
        status = fabric.control(do="status")
    assert keys == {"h0": ["0xffff", "0x8012"], "h1": ["0x7fff", "0x0000"]}
    assert lmc == "1"
    assert ", priority 7," in status["manager"]
    assert "storage has 0x0000000000a00004, which is the GUID of no port" in status["manager"]


def test_a_fabric_in_the_background(tmp_path: Path) -> None:
    name = f"detached{os.getpid()}"
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    started = verbena("fabric", str(path), "--name", name, "--detach")
    assert started.returncode == 0, started.stderr
    assert f"`verbena fabric --stop --name {name}` ends it" in started.stdout
    second = verbena("fabric", "pair", "--name", name, "--detach")
    assert second.returncode == 1
    assert f"a fabric '{name}' runs already" in second.stderr
    stopped = verbena("fabric", "--stop", "--name", name)
    assert stopped.stdout.endswith("has ended\n")
    assert name not in verbena("fabric", "--list").stdout.splitlines()


def test_a_fabric_in_the_background_outlives_the_reader_of_its_output() -> None:
    """As in `verbena fabric … --detach | head -1`, which may end before all lines are written."""
    name = f"unread{os.getpid()}"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = verbena_command("fabric", "pair", "--name", name, "--detach")
        done = subprocess.run(command, env=clean_environment(), stdout=writing, timeout=60)
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert verbena("fabric", "--stop", "--name", name).stdout.endswith("has ended\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(number: signal.Signals, tmp_path: Path) -> None:
    """Also while nothing happens."""
    with running_fabric("pair", tmp_path, "--sm", "none") as fabric:
        fabric.process.send_signal(number)
        assert fabric.process.wait(10) == 0
        assert ends(fabric.process.pid)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "name a topology, as in: verbena fabric clos2:8"),
        (("clos:8",), 1, "is no file, and no topology of"),
        (("pair", "--name", "a/b"), 2, "is no name"),
        (("pair", "--status"), 2, "name a running fabric by --name"),
        (("--status", "--name", "nobody"), 1, "`verbena fabric TOPOLOGY --name nobody` starts it"),
        (("pair", "--name", "x", "--sm-host", "h9"), 1, "there is no node 'h9'"),
        (("pair", "--sm", "ours"), 2, "invalid choice"),
        (("pair", "--loss", "h0-h1"), 2, "write LINK=CHANCE, as in h1-s0=1% or all=0.01"),
        (("pair", "--loss", "h0-h1=half"), 2, "write LINK=CHANCE"),
        (("pair", "--loss", "h0-h1=2"), 2, "write LINK=CHANCE"),
        (("pair", "--loss", "h0=1%"), 1, "h0 is a node: name one of its links, h0-h1"),
        (("clos2:4", "--loss", "h0-h1=1%"), 1, "no cable joins h0 and h1; h0 has h0-e0"),
        (("pair", "--sm-set", "help"), 1, "sets nothing; write NAME=VALUE with a setting of the"),
        (("pair", "--loss", "h0-h7=1%"), 1, "is no link: write the names of its two nodes"),
        (("--status", "--loss", "h0-h1=1%"), 2, "--loss and --rate stand by themselves"),
        (("--status", "--rate", "h0-h1=1xSDR"), 2, "--loss and --rate stand by themselves"),
        (("pair", "--rate", "h0-h1=10"), 2, "write 4xHDR, 100GbE or 37.5 Gb/s (full ends"),
        (("pair", "--sm-priority", "16"), 1, "priority is 16, and may be 0 to 0xf"),
        (("pair", "--sm-set", "lmcc=1"), 1, "is lmc meant?"),
        (("pair", "--sm-set", "lmc"), 1, "'lmc' has no value: lmc=0 is its default"),
        (("pair", "--sm-set", "lmc=one"), 1, "lmc=one is not a number"),
        (("pair", "--sm-set", "enforce_partitions=maybe"), 1, "is not yes or no"),
        (("pair", "--sm", "none", "--sm-priority", "1"), 2, "which --sm none leaves out"),
        (("pair", "--partitions", "/nowhere"), 1, "/nowhere"),
        (("pair", "--partitions", "/etc/hostname"), 1, "is not 'Name = key, flags : members'"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = verbena("fabric", *arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_run_without_what_it_needs(fabric: RunningFabric) -> None:
    def refusal(*options: str) -> str:
        done = verbena("run", *options, "--", "true")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "no fabric 'nobody' runs" in refusal("--fabric", "nobody", "--host", "h0")
    assert "no host 'h99', as h" in refusal("--fabric", fabric.name, "--host", "h99")
    assert "e0 is a switch" in refusal("--fabric", fabric.name, "--host", "e0")
    assert "name the host of the fabric" in refusal("--fabric", fabric.name)
    ports = refusal("--fabric", fabric.name, "--host", "h0", "--link-layer", "infiniband")
    assert "the ports are those of the fabric's host" in ports
    keys = refusal("--fabric", fabric.name, "--host", "h0", "--pkeys", "0xffff,0x8001")
    assert "OpenSM reads partitions by its option -P" in keys


HOST_SERVER = """
import socket
with socket.create_server(("127.0.0.1", {port})) as made:
    print(open("{file}").read())
    made.accept()
"""
HOST_CLIENT = """
import socket
socket.create_connection(("127.0.0.1", {port})).close()
print(open("{file}").read())
"""


@pytest.mark.parametrize("hosts", [["h5,h0"], ["h5", "h0"], ["h0"]])
def test_the_two_of_a_pair_are_at_hosts(hosts: list[str], fabric: RunningFabric) -> None:
    options = [word for host in hosts for word in ("--host", host)]
    port = free_port()
    server, client = (
        [sys.executable, "-c", text.format(port=port, file=LID_FILE)]
        for text in (HOST_SERVER, HOST_CLIENT)
    )
    done = verbena("pair", "--fabric", fabric.name, *options, "--", *server, "--", *client)
    assert done.returncode == 0, done.stderr
    names = hosts[0].split(",") if len(hosts) == 1 else hosts
    two = names[0], names[-1]
    lids = [fabric.run(name, "cat", LID_FILE).stdout.strip() for name in two]
    said = {line for line in done.stdout.splitlines() if line.strip() not in ("", "server:")}
    assert said == {f"server: {lids[0]}", lids[1]}


def test_too_many_hosts(fabric: RunningFabric) -> None:
    def refusal(command: str, hosts: list[str]) -> str:
        options = [word for host in hosts for word in ("--host", host)]
        return verbena(command, "--fabric", fabric.name, *options, "--", "true").stderr

    assert "--host names h0, h1, and can name one host" in refusal("run", ["h0", "h1"])
    assert "can name the hosts of the server and of its" in refusal("pair", ["h0,h1,h2"])
    assert "no host 'h99'" in refusal("pair", ["h0", "h99"])


def test_a_host_of_two_ports(tmp_path: Path) -> None:
    topology = tmp_path / "two.net"
    topology.write_text(
        'Switch 4 "S-1"\n[1] "H-1"[1]\n[2] "H-1"[2]\n[3] "H-2"[1]\n\n'
        'Ca 2 "H-1"\n[1] "S-1"[1]\n[2] "S-1"[2]\n\nCa 1 "H-2"\n[1] "S-1"[3]\n'
    )
    with running_fabric(str(topology), tmp_path) as fabric:
        ports = "/sys/class/infiniband/verbena0/ports"
        script = f"cat /sys/class/infiniband_mad/umad?/port {ports}/?/lid"
        done = fabric.run("H-1", "sh", "-c", script)
    words = done.stdout.split()
    assert words[:2] == ["1", "2"]
    assert len({int(lid, 16) for lid in words[2:]} - {0}) == 2
