# SPDX-License-Identifier: Apache-2.0
"""Several devices in one process: what shows them, and QPs of one that talk to QPs of another."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import Run, Start
from tests.programs.pairs import Pair, assert_good, start_pair
from tests.support import (
    child,
    clean_environment,
    own_network_or_skip,
    verbena_command,
)

Find = Callable[[str], str]

TWO = ("--devices", "2")
NAMES = ["verbena0", "verbena1"]
MIXED = ("--device", "--port", "ethernet", "--port", "infiniband", "--device", "--port",
         "infiniband,lmc=1")  # fmt: skip
ETHERNET, INFINIBAND = "ethernet", "infiniband"
ETHERNET_BY_GUID = "ethernet by GUID"


# ---- what shows them


@pytest.mark.debian
def test_ibv_devinfo_shows_each_with_its_ports(verbena_run: Run, debian_program: Find) -> None:
    text = verbena_run(debian_program("ibv_devinfo"), options=MIXED).stdout
    words = [line.split() for line in text.splitlines()]
    found = {word[0]: [w[1] for w in words if w and w[0] == word[0]] for word in words if word}
    assert found["hca_id:"] == NAMES
    assert found["phys_port_cnt:"] == ["2", "1"]
    assert found["link_layer:"] == ["Ethernet", "InfiniBand", "InfiniBand"]
    assert found["port_lid:"] == ["0", "2", "6"]  # the third of the host, with two LIDs for each
    first, second = (int(guid.replace(":", ""), 16) for guid in found["node_guid:"])
    assert second == first + 2  # a device may have two ports, each of which has a GUID


@pytest.mark.debian
def test_ibstat_and_ibv_devices_show_each(verbena_run: Run, debian_program: Find) -> None:
    text = verbena_run(debian_program("ibstat"), options=TWO).stdout
    assert [line for line in text.splitlines() if line.startswith("CA '")] == [
        "CA 'verbena0'",
        "CA 'verbena1'",
    ]
    text = verbena_run(debian_program("ibv_devices"), options=TWO).stdout
    assert [line.split()[0] for line in text.splitlines()[2:]] == NAMES


def test_sysfs_and_dev_have_each(verbena_run: Run) -> None:
    script = """
cd /sys/class/infiniband; echo *; cat */ports/1/link_layer
cat /sys/class/infiniband_verbs/uverbs{0,1}/{ibdev,dev}
stat -c %t:%T /dev/infiniband/uverbs{0,1}
cat verbena1/uevent /sys/class/infiniband_verbs/uverbs1/device/uevent
head -1 verbena{0,1}/node_guid verbena1/ports/1/gids/1 | grep -v =
"""
    lines = verbena_run("bash", "-c", script, options=TWO).stdout.split()
    assert lines[:4] == [*NAMES, "Ethernet", "Ethernet"]
    assert lines[4:8] == ["verbena0", "231:192", "verbena1", "231:193"]
    assert lines[8:12] == ["e7:c0", "e7:c1", "NAME=verbena1", "DRIVER=verbena"]
    first, second, gid = lines[12:]
    assert int(second.replace(":", ""), 16) == int(first.replace(":", ""), 16) + 2
    assert gid == f"fe80:0000:0000:0000:{second}"


def test_rdma_shows_each(verbena_run: Run) -> None:
    links = json.loads(verbena_run("rdma", "-j", "link", options=MIXED).stdout)
    assert [(link["ifindex"], link["ifname"], link["port"]) for link in links] == [
        (0, "verbena0", 1),
        (0, "verbena0", 2),
        (1, "verbena1", 1),
    ]
    devices = json.loads(verbena_run("rdma", "-j", "dev", options=TWO).stdout)
    assert [(each["ifindex"], each["ifname"]) for each in devices] == [*enumerate(NAMES)]
    (only,) = json.loads(verbena_run("rdma", "-j", "dev", "show", "verbena1", options=TWO).stdout)
    assert only["ifname"] == "verbena1"


def test_verbena_devices_and_info_show_each(verbena_run: Run) -> None:
    text = verbena_run(*verbena_command("devices", "--json"), options=TWO).stdout
    assert [device["name"] for device in json.loads(text)] == NAMES
    info = json.loads(verbena_run(*verbena_command("info", "--json"), options=MIXED).stdout)
    assert ["reason" in device["roce"] for device in info["devices"]] == [False, True]
    text = verbena_run(*verbena_command("info"), options=TWO).stdout
    assert text.count("Ways to peers:") == 2


def test_one_device_unless_more_are_asked_for(verbena_run: Run) -> None:
    text = verbena_run(*verbena_command("devices", "--json")).stdout
    assert [device["name"] for device in json.loads(text)] == ["verbena0"]


# ---- what asks for them


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--devices", "0"), "'0' is not a number of devices from 1 to 8"),
        (("--devices", "9"), "'9' is not a number of devices from 1 to 8"),
        (("--device",) * 9, "'9' is not a number of devices from 1 to 8"),
        (("--devices", "2", "--device"), "--devices is how often there is a --device"),
        (("--port", "ethernet", "--device"), "put --port behind the --device"),
        (("--device", *("--port", "ethernet") * 3), "an adapter has 1 to 2 ports, not 3"),
        (("--devices", "2", "--port", "infiniband,lid=4"),
         "one description holds for both: leave lid out, or describe each (--device)"),
        (("--device", "--port", "infiniband,lid=3", "--device", "--port", "infiniband"),
         "the LID 3 is of port 1 of verbena0 and of port 1 of verbena1"),
    ],
)  # fmt: skip
def test_devices_that_cannot_be_are_refused(
    verbena_run: Run, options: tuple[str, ...], complaint: str
) -> None:
    done = verbena_run("true", options=options)
    assert done.returncode == 2
    assert complaint in " ".join(done.stdout.split())


LIST = "from verbena import verbs; print(*[each.name for each in verbs.get_device_list()])"


@pytest.mark.parametrize(
    ("devices", "ports", "count"),
    [("3", "", 3), ("", "ethernet/infiniband", 2), ("3", "ethernet/infiniband", 3),
     ("8", "infiniband;infiniband", 8)],
)  # fmt: skip
def test_the_variables_ask_for_devices(devices: str, ports: str, count: int) -> None:
    done = child(LIST, VERBENA_DEVICES=devices, VERBENA_PORTS=ports)
    assert done.stdout.split() == [f"verbena{number}" for number in range(count)]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("devices", "ports", "bad"),
    [("0", "", "DEVICES"), ("9", "", "DEVICES"), ("two", "", "DEVICES"),
     ("1", "ethernet/ethernet", "DEVICES"), ("", "ethernet/", "PORTS"), ("", "/ethernet", "PORTS"),
     ("", "ethernet/token-ring", "PORTS"), ("", "ethernet" + 8 * "/ethernet", "PORTS"),
     ("2", "infiniband,lid=4", "PORTS")],
)  # fmt: skip
def test_a_variable_that_is_wrong_is_ignored_with_a_line(
    devices: str, ports: str, bad: str
) -> None:
    done = child(LIST, VERBENA_DEVICES=devices, VERBENA_PORTS=ports)
    value = devices if bad == "DEVICES" else ports
    assert f"VERBENA_{bad}={value} is ignored: " in done.stderr
    ignored = devices if bad == "PORTS" else ports.count("/") + 1
    assert len(done.stdout.split()) == int(ignored or 1)


def test_an_interface_that_is_missing_is_said_once() -> None:
    done = child(LIST, VERBENA_DEVICES="3", VERBENA_NETDEV="nowhere0")
    assert done.stderr.count("VERBENA_NETDEV=nowhere0: there is no such interface now") == 1


# ---- QPs of two devices

# A QP of each device, connected to the other's; a message each way. With "wrong" the address is
# that of the first device's own port.
TALK = """
import json, sys
from tests.one_message import connect, open_pair, send_one
from verbena import verbs
from verbena.verbs import LinkLayer, QPType

kind, index, wrong = QPType[sys.argv[1]], int(sys.argv[2]), "wrong" in sys.argv
first, second = (verbs.open_device(f"verbena{n}") for n in (0, 1))
(here, _), (there, _) = (open_pair(ctx.alloc_pd(), kind) for ctx in (first, second))
assert here.qp_num != there.qp_num

def address(ctx):
    port = ctx.query_port(1)
    if port.link_layer == LinkLayer.INFINIBAND:
        return verbs.AHAttr(dlid=port.lid, is_global=False)
    return verbs.AHAttr(dgid=ctx.query_gid(1, index))

to_there, to_here = address(first if wrong else second), address(first)
for qp, peer, to in ((here, there, to_there), (there, here, to_here)):
    qp.to_init(1)
    connect(qp, peer, to, retry_cnt=1 if wrong else 7, timeout=8 if wrong else 14)
outcomes = [send_one(here, there, to_there, arrives=not wrong)]
if not wrong:
    outcomes.append(send_one(there, here, to_here))
print(json.dumps([[done.status, len(done.came), done.text] for done in outcomes]))
counted = [ctx.counters()["direct"] for ctx in (first, second)]
print(json.dumps([sum(each.values()) > 0 for each in counted]))
"""


def talk(layer: str, kind: str, *more: str, way: str = "auto") -> tuple[list[list[object]], str]:
    index = "1" if layer == ETHERNET_BY_GUID else "0"
    layer = layer.split()[0]
    done = child(TALK, kind, index, *more, VERBENA_PORTS=f"{layer}/{layer}", VERBENA_CARRIER=way)
    assert done.returncode == 0, done.stderr
    outcomes, counted = done.stdout.splitlines()
    return json.loads(outcomes), counted


@pytest.mark.parametrize("layer", [ETHERNET, ETHERNET_BY_GUID, INFINIBAND])
@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_directly_a_qp_talks_to_one_of_another_device(layer: str, kind: str) -> None:
    outcomes, counted = talk(layer, kind)
    assert [outcome[:2] for outcome in outcomes] == [["SUCCESS", 1]] * 2, outcomes
    assert counted == "[true, true]"


@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_by_packets_a_qp_talks_to_one_of_another_device(kind: str) -> None:
    outcomes, counted = talk(ETHERNET, kind, way="roce")
    assert [outcome[:2] for outcome in outcomes] == [["SUCCESS", 1]] * 2, outcomes
    assert counted == "[false, false]"


@pytest.mark.parametrize("layer", [ETHERNET_BY_GUID, INFINIBAND])
def test_an_address_of_one_device_leads_to_no_qp_of_another(layer: str) -> None:
    ((status, came, text),) = talk(layer, "RC", "wrong")[0]
    assert (status, came) == ("RETRY_EXC_ERR", 0)
    if layer == INFINIBAND:
        assert re.search(r": its port does not have LID \d+\.", str(text)), text
    else:
        assert "it uses another port than the one that the address leads to" in str(text)
    assert talk(layer, "UD", "wrong")[0][0][:2] == ["SUCCESS", 0]


CONNECTED = """
import numpy as np
from verbena import verbs

def pair(first, second):
    far_pd = second.alloc_pd()
    near_pd, cq = first.alloc_pd(), first.create_cq(16)
    near = near_pd.create_qp(send_cq=cq)
    far = far_pd.create_qp(send_cq=second.create_cq(16))
    verbs.connect_pair(near, far)
    data = np.arange(100_000, dtype="f8")
    source = near_pd.reg_mr(data)
    target = far_pd.alloc(
        data.nbytes, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE)
    near.write(source, target.addr, target.rkey)
    cq.wait_one(10).raise_for_status()
    assert (target.array("f8") == data).all()
"""


@pytest.mark.parametrize("way", ["auto", "roce"])
def test_connect_pair_of_two_devices(way: str) -> None:
    program = CONNECTED + 'pair(verbs.open_device("verbena0"), verbs.open_device("verbena1"))'
    done = child(program, VERBENA_DEVICES="2", VERBENA_CARRIER=way)
    assert done.returncode == 0, done.stderr


def test_each_may_be_open_several_times_and_closed_by_itself() -> None:
    program = (
        CONNECTED
        + """
from threading import enumerate as threads
opened = [verbs.open_device(f"verbena{n % 2}") for n in range(6)]
pair(opened[0], opened[3])
slots = [ctx.describe()["slot"] for ctx in opened]
assert slots[0::2] == [slots[0]] * 3 and slots[1::2] == [slots[1]] * 3 and slots[0] != slots[1]
assert [ctx.describe()["device"] for ctx in opened[:2]] == ["verbena0", "verbena1"]
for ctx in opened[0::2]:
    ctx.close()
pair(opened[1], opened[3])
again = verbs.open_device("verbena0")
pair(again, opened[1])
pair(opened[5], again)
"""
    )
    done = child(program, VERBENA_DEVICES="2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", ["auto", "roce"])
def test_a_forked_child_opens_devices_of_its_own(way: str) -> None:
    program = (
        CONNECTED
        + """
import os
parents = [verbs.open_device(f"verbena{n}") for n in range(2)]
pair(*parents)
child = os.fork()
if not child:
    try:
        parents[1].alloc_pd()
    except verbs.VerbsError as error:
        assert "belongs to the process that forked" in str(error)
    own = [verbs.open_device(f"verbena{n}") for n in range(2)]
    pair(*own)
    pair(own[1], own[0])
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
pair(*reversed(parents))
"""
    )
    done = child(program, VERBENA_DEVICES="2", VERBENA_CARRIER=way)
    assert done.returncode == 0, done.stderr


INTERFACES = " && ".join(
    f"ip link add d{n} type veth peer name e{n} && ip addr add 10.{n}.0.1/24 dev d{n}"
    f" && ip link set d{n} up && ip link set e{n} up"
    for n in (0, 1)
)
EVENTS = """
import subprocess
from verbena import verbs
opened = [verbs.open_device(f"verbena{n}") for n in range(2)]
assert [list(ctx.query_gid(1, 0).raw[-4:]) for ctx in opened] == [[10, 0, 0, 1], [10, 1, 0, 1]]
subprocess.run("ip link set e1 down", shell=True, check=True)
event = opened[1].get_async_event(10)
while event.event_type != verbs.EventType.PORT_ERR:
    event = opened[1].get_async_event(10)
came = []
while (event := opened[0].get_async_event(0.3)) is not None:
    came.append(event.event_type)
assert verbs.EventType.PORT_ERR not in came, came
print(*[ctx.query_port(1).state.name for ctx in opened])
"""


def test_each_stands_for_an_interface_and_hears_of_it_alone() -> None:
    done = subprocess.run(
        [*own_network_or_skip(), "sh", "-c", f'{INTERFACES} && exec "$0" "$@"', sys.executable,
         "-c", EVENTS],
        env=clean_environment() | {"VERBENA_PORTS": "ethernet,netdev=d0/ethernet,netdev=d1"},
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ACTIVE DOWN\n"


# ---- real programs


@pytest.fixture
def two(verbena_start: Start, debian_program: Find) -> Callable[..., Pair]:
    """two(program, server's words, client's words, way): both sides with two devices."""

    def run(program: str, server: tuple[str, ...], client: tuple[str, ...], way: str) -> Pair:
        return start_pair(
            verbena_start,
            debian_program(program),
            server_only=server,
            client_only=client,
            options=TWO,
            env={"VERBENA_CARRIER": way},
        ).finish()

    return run


@pytest.mark.debian
@pytest.mark.parametrize("way", ["direct", "roce"])
@pytest.mark.parametrize(("server", "client"), [(1, 1), (0, 1), (1, 0)])
def test_perftest_between_devices(
    two: Callable[..., Pair], server: int, client: int, way: str
) -> None:
    words = (("-d", f"verbena{number}", "-n", "200") for number in (server, client))
    assert_good(two("ib_write_bw", *words, way))


@pytest.mark.debian
@pytest.mark.parametrize("way", ["direct", "roce"])
def test_ucx_stripes_over_two_devices(verbena_start: Start, debian_program: Find, way: str) -> None:
    pair = start_pair(
        verbena_start,
        debian_program("ucx_perftest"),
        client_only=("-t", "tag_bw", "-s", "1000000", "-n", "50", "-w", "5"),
        options=TWO,
        env={
            "UCX_TLS": "rc_verbs,ud_verbs:aux",
            "UCX_NET_DEVICES": "verbena0:1,verbena1:1",
            "UCX_MAX_RNDV_RAILS": "2",
            "UCX_LOG_LEVEL": "info",
            "VERBENA_CARRIER": way,
        },
    ).finish()
    assert_good(pair, allowed="rdmacm")
    assert "rc_verbs/verbena0:1" in pair.client.output
    assert "rc_verbs/verbena1:1" in pair.client.output
