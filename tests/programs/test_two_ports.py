# SPDX-License-Identifier: Apache-2.0
"""An adapter with two ports, of each pair of link layers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.support import (
    child,
    clean_environment,
    own_network_or_skip,
    verbena_command,
)

Find = Callable[[str], str]

ETHERNET, INFINIBAND = "ethernet", "infiniband"
LAYERS = [(one, other) for one in (ETHERNET, INFINIBAND) for other in (ETHERNET, INFINIBAND)]
NAMES = {ETHERNET: "Ethernet", INFINIBAND: "InfiniBand"}

# A QP of each kind on one port, and its peer on another; with the peer's LID, or its GID.
PROGRAM = """
import json, sys
from tests.one_message import connect, open_pair, send_one
from verbena import verbs
from verbena.verbs import LinkLayer, QPType

kind, port, other, lid = QPType[sys.argv[1]], *map(int, sys.argv[2:5])
bits = int(sys.argv[5])
with verbs.open_device("verbena0") as ctx:
    here, there = open_pair(ctx.alloc_pd(), kind)

    def address(of, towards, dlid, path_bits):
        if ctx.query_port(of).link_layer == LinkLayer.INFINIBAND:
            return verbs.AHAttr(
                dlid=dlid, is_global=False, port_num=of, src_path_bits=path_bits
            )
        return verbs.AHAttr(dgid=ctx.query_gid(towards, 0), port_num=of)

    there_is = address(port, other, lid, bits)
    here_is = address(other, port, ctx.query_port(port).lid or 1, 0)
    for qp, peer, of, peer_is in ((here, there, port, there_is), (there, here, other, here_is)):
        qp.to_init(of)
        connect(qp, peer, peer_is, retry_cnt=1)
        assert qp.query().port_num == of
    done = send_one(here, there, there_is, "drops" not in sys.argv)
    print(json.dumps([done.status, [[wc.slid, wc.dlid_path_bits] for wc in done.came], done.text]))
"""


def talk(
    ports: str,
    kind: str,
    port: int,
    other: int,
    lid: int = 0,
    bits: int = 0,
    *more: str,
    **settings: str,
) -> tuple[str, list[list[int]], str]:
    arguments = (kind, *map(str, (port, other, lid, bits)))
    done = child(PROGRAM, *arguments, *more, VERBENA_PORTS=ports, **settings)
    assert done.returncode == 0, done.stderr
    status, came, text = json.loads(done.stdout)
    return status, came, text


def options(layers: tuple[str, str]) -> tuple[str, ...]:
    return tuple(word for layer in layers for word in ("--port", layer))


@pytest.mark.debian
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_ibv_devinfo_shows_both(
    verbena_run: Run, debian_program: Find, layers: tuple[str, str]
) -> None:
    text = verbena_run(debian_program("ibv_devinfo"), options=options(layers)).stdout
    words = [line.split() for line in text.splitlines()]
    found = {word[0]: [w[1] for w in words if w and w[0] == word[0]] for word in words if word}
    assert found["phys_port_cnt:"] == ["2"]
    assert found["link_layer:"] == [NAMES[layer] for layer in layers]
    lids = [str(n + 1) if layer == INFINIBAND else "0" for n, layer in enumerate(layers)]
    assert found["port_lid:"] == lids


@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_sysfs_shows_both(verbena_run: Run, layers: tuple[str, str]) -> None:
    names = "link_layer,lid,lid_mask_count,state,pkeys/0,pkeys/31,rate,counters/port_xmit_data"
    files = f"/sys/class/infiniband/verbena0/ports/{{1,2}}/{{{names}}}"
    lines = verbena_run("bash", "-c", f"cat {files}", options=options(layers)).stdout.split("\n")
    for n, layer in enumerate(layers):
        own = lines[8 * n : 8 * n + 8]
        assert own[0] == NAMES[layer]
        assert own[1] == (f"0x{n + 1:x}" if layer == INFINIBAND else "0x0")
        assert own[2:6] == ["0", "4: ACTIVE", "0xffff", "0x0000"]
    command = "ls /sys/class/infiniband/verbena0/ports; cat /sys/class/infiniband/*/ports/2/gids/0"
    first, second, gid = verbena_run("bash", "-c", command, options=options(layers)).stdout.split()
    assert (first, second, len(gid)) == ("1", "2", 39)


def test_rdma_and_devices_show_both(verbena_run: Run) -> None:
    ports = options((ETHERNET, INFINIBAND))
    links = json.loads(verbena_run("rdma", "-j", "link", options=ports).stdout)
    assert [link["port"] for link in links] == [1, 2]
    assert ["netdev" in link for link in links] == [True, False]
    (device,) = json.loads(verbena_run(*verbena_command("devices", "--json"), options=ports).stdout)
    assert [port["link_layer"] for port in device["ports"]] == ["Ethernet", "InfiniBand"]
    assert [gid["type"] for gid in device["ports"][1]["gids"]] == ["IB"]


@pytest.mark.parametrize("carrier", ["roce", "auto"])
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_a_qp_uses_either_port(carrier: str, layers: tuple[str, str], kind: str) -> None:
    for number, layer in enumerate(layers, 1):
        lid = number if layer == INFINIBAND else 0
        status, came, text = talk(
            ";".join(layers), kind, number, number, lid, VERBENA_CARRIER=carrier
        )
        assert (status, len(came)) == ("SUCCESS", 1), text


@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_two_infiniband_ports_reach_each_other(kind: str) -> None:
    status, came, text = talk("infiniband;infiniband,lid=0x40,lmc=3", kind, 1, 2, 0x42)
    assert (status, len(came)) == ("SUCCESS", 1), text
    if kind == "UD":
        assert came == [[1, 2]]  # slid, and the path bits of the LID that it came to
        assert talk("infiniband;infiniband,lid=0x40,lmc=3", kind, 2, 1, 1, 5)[1] == [[0x45, 0]]


def test_a_lid_leads_to_no_other_port() -> None:
    status, came, text = talk("infiniband;infiniband", "RC", 1, 2, 1)
    assert (status, came) == ("RETRY_EXC_ERR", [])
    assert "its port does not have LID 1. Compare" in text
    assert "its port does not have LID 9. Compare" in talk("infiniband", "RC", 1, 1, 9)[2]
    assert talk("infiniband;infiniband", "UD", 1, 2, 1, 0, "drops")[:2] == ("SUCCESS", [])


# A datagram to the QP of port 2, to an address of each port; and which of them it takes.
TO_EACH_PORT = """
import time
from verbena import verbs
time.sleep(0.3)
with verbs.open_device("verbena0") as ctx:
    pd = ctx.alloc_pd()
    cq = ctx.create_cq(8)
    near, far = (pd.create_qp(send_cq=ctx.create_cq(8), recv_cq=cq, qp_type=verbs.QPType.UD)
                 for _ in range(2))
    mr = pd.alloc(8192, 1)
    gids = {number: ctx.query_gid(number, 0) for number in (1, 2)}
    assert [list(gids[number].raw[-4:]) for number in (1, 2)] == [[10, 1, 0, 1], [10, 2, 0, 1]]
    for number, qp in enumerate((near, far), 1):
        qp.to_init(number)
        qp.to_rtr()
        qp.to_rts()
    for number in (1, 2):
        far.recv(mr, 0, 4096, wr_id=number)
    for number in (1, 2):
        ah = pd.create_ah(verbs.AHAttr(dgid=gids[number], port_num=1))
        memoryview(mr)[4096] = number
        near.send(mr, 4096, 1, ah=ah, remote_qpn=far.qp_num, remote_qkey=0x11111111)
        near.send_cq.wait(1, 5)
    cq.wait_one(10)
    print(memoryview(mr)[40], len(cq.wait(1, 0.3)), ctx.counters()["engine"]["drop_no_qp"])
"""


INTERFACES = " && ".join(
    f"ip link add d{n} type veth peer name e{n} && ip addr add 10.{n}.0.1/24 dev d{n}"
    f" && ip link set d{n} up && ip link set e{n} up"
    for n in (1, 2)
)
EACH_INTERFACE = "ethernet,netdev=d1;ethernet,netdev=d2"


def on_two_interfaces(
    *arguments: str, interfaces: str = INTERFACES, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program with a port for each of two interfaces, d1 (10.1.0.1) and d2 (10.2.0.1)."""
    return subprocess.run(
        [*own_network_or_skip(), "sh", "-c", f'{interfaces} && exec "$0" "$@"', sys.executable,
         *arguments],
        env=clean_environment() | {"VERBENA_PORTS": EACH_INTERFACE} | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip


# A message between QPs of each pair of ports, with the GID of each port; which of them came.
BY_EACH_GID = """
import json, sys
from tests.one_message import connect, open_pair, send_one
from verbena import verbs

kind, index = verbs.QPType[sys.argv[1]], int(sys.argv[2])
came = []
with verbs.open_device("verbena0") as ctx:
    for port, other, named in ((p, o, n) for p in (1, 2) for o in (1, 2) for n in (1, 2)):
        here, there = open_pair(ctx.alloc_pd(), kind)
        address = verbs.AHAttr(dgid=ctx.query_gid(named, index), port_num=port)
        back = verbs.AHAttr(dgid=ctx.query_gid(port, index), port_num=other)
        for qp, peer, of, to in ((here, there, port, address), (there, here, other, back)):
            qp.to_init(of)
            connect(qp, peer, to, retry_cnt=1)
        done = send_one(here, there, address, arrives=other == named)
        came += [(port, other, named)] * len(done.came)
        assert done.came or kind != verbs.QPType.RC or (
            "it uses another port than the one that the address leads to" in done.text), done
print(json.dumps(came))
"""


@pytest.mark.parametrize("index", [0, 1], ids=["address", "GUID"])
@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_directly_a_gid_leads_to_the_qps_of_its_port(kind: str, index: int) -> None:
    done = on_two_interfaces("-c", BY_EACH_GID, kind, str(index), VERBENA_CARRIER="direct")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[1, 1, 1], [1, 2, 2], [2, 1, 1], [2, 2, 2]]


# The other process has the same interfaces at the other numbers; its QP uses port 1, which is d2.
TO_OTHER_NUMBERS = """
import ipaddress, os, subprocess, sys
from verbena import verbs
from verbena.verbs import AHAttr, QPType

def open_qp(cqe=8):
    pd = verbs.open_device("verbena0").alloc_pd()
    cq = pd.context.create_cq(cqe)
    qp = pd.create_qp(send_cq=cq, qp_type=QPType.UD)
    qp.to_init(1)
    qp.to_rtr()
    qp.to_rts()
    return pd, cq, qp, pd.alloc(8192, 1)

pd, cq, qp, mr = open_qp()
if len(sys.argv) > 1:
    for _ in range(2):
        qp.recv(mr, 0, 4096)
    group = ipaddress.IPv6Address("ff0e::7").packed
    qp.attach_mcast(group, 0)
    print(qp.qp_num, flush=True)
    sys.stdin.readline()
    print(len(cq.wait(2, 0.3)), memoryview(mr)[40])
else:
    settings = os.environ | {"VERBENA_PORTS": "ethernet,netdev=d2;ethernet,netdev=d1"}
    other = subprocess.Popen([sys.executable, __file__, "receive"], env=settings, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    number = int(other.stdout.readline())
    for named in (1, 2):
        ah = pd.create_ah(AHAttr(dgid=pd.context.query_gid(named, 0), port_num=1))
        memoryview(mr)[4096] = named
        qp.send(mr, 4096, 1, ah=ah, remote_qpn=number, remote_qkey=0x11111111)
        cq.wait(1, 5)
    group = verbs.Gid(ipaddress.IPv6Address("ff0e::7").packed)
    group = pd.create_ah(AHAttr(dgid=group, port_num=1))
    memoryview(mr)[4096] = 7
    qp.send(mr, 4096, 1, ah=group, remote_qpn=0xffffff, remote_qkey=0x11111111)
    cq.wait(1, 5)
    print(other.communicate("\\n")[0], end="")
"""


def test_directly_a_process_may_number_the_interfaces_otherwise(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TO_OTHER_NUMBERS)
    done = on_two_interfaces(str(program), VERBENA_CARRIER="direct")
    assert done.stdout == "1 2\n", done.stderr


def test_a_datagram_reaches_the_qps_of_the_port_that_it_is_addressed_to() -> None:
    done = on_two_interfaces("-c", TO_EACH_PORT, VERBENA_CARRIER="roce", VERBENA_LOG="errors")
    assert done.stdout == "2 0 1\n", done.stderr
    assert "that uses another port than the address leads to" in done.stderr


def interfaces(first: str, second: str, *, second_is_up: bool = True) -> str:
    """Two pairs of veth; d1 and d2 have these addresses."""
    lines = []
    for n, address in enumerate((first, second), 1):
        family = " nodad" if ":" in address else ""
        lines += [
            f"ip link add d{n} type veth peer name e{n}",
            f"ip link set e{n} up",
            f"ip addr add {address} dev d{n}{family}",
        ]
        lines += [f"ip link set d{n} up"] * (n == 1 or second_is_up)
    return " && ".join(lines)  # fmt: skip


@pytest.mark.parametrize("way", ["direct", "roce"])
@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
@pytest.mark.parametrize(
    ("first", "second"),
    [("10.1.0.1/24", "10.2.0.1/24"), ("10.1.0.1/24", "fd00:2::1/64"),
     ("fd00:1::1/64", "fd00:2::1/64")],
    ids=["IPv4", "IPv4 and IPv6", "IPv6"],
)  # fmt: skip
def test_each_of_two_interfaces_carries_the_qps_of_its_port(
    first: str, second: str, kind: str, way: str
) -> None:
    for port in ("1", "2"):
        done = on_two_interfaces(
            "-c", PROGRAM, kind, port, port, "0", "0",
            interfaces=interfaces(first, second), VERBENA_CARRIER=way,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        status, came, text = json.loads(done.stdout)
        assert (status, len(came)) == ("SUCCESS", 1), text


# The states of both ports, then the port's events of each command, with the states after it.
AFTER_COMMANDS = """
import json, subprocess, sys
from verbena import verbs
from verbena.verbs import EventType

PORT_EVENTS = {EventType.PORT_ERR, EventType.PORT_ACTIVE}
with verbs.open_device("verbena0") as ctx:
    def states():
        return [ctx.query_port(number).state.name for number in (1, 2)]

    def port_events():
        event = ctx.get_async_event(10)
        while event.event_type not in PORT_EVENTS:
            event = ctx.get_async_event(10)
        found = []
        while event is not None:
            if event.event_type in PORT_EVENTS:
                found.append([event.event_type.name, event.port_num])
            event = ctx.get_async_event(0.3)
        return found

    seen = [states()]
    for command in sys.argv[1:]:
        subprocess.run(command, shell=True, check=True)
        seen += [port_events(), states()]
    print(json.dumps(seen))
"""
BOTH, FIRST, SECOND = ["ACTIVE", "ACTIVE"], ["ACTIVE", "DOWN"], ["DOWN", "ACTIVE"]


@pytest.mark.parametrize("way", ["auto", "roce"])
@pytest.mark.parametrize(("port", "other_alone"), [(1, SECOND), (2, FIRST)])
def test_a_port_tells_when_its_interface_goes_down_and_up(
    port: int, other_alone: list[str], way: str
) -> None:
    change = f"ip link set e{port} "
    done = on_two_interfaces(
        "-c", AFTER_COMMANDS, change + "down", change + "up", VERBENA_CARRIER=way
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        BOTH, [["PORT_ERR", port]], other_alone, [["PORT_ACTIVE", port]], BOTH
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["auto", "roce"])
def test_an_interface_that_is_down_at_the_start_may_come_up(way: str) -> None:
    down = interfaces("10.1.0.1/24", "10.2.0.1/24", second_is_up=False)
    done = on_two_interfaces(
        "-c", AFTER_COMMANDS, "ip link set d2 up", interfaces=down, VERBENA_CARRIER=way
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [FIRST, [["PORT_ACTIVE", 2]], BOTH]


@pytest.mark.debian
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_ibstat_shows_both(verbena_run: Run, debian_program: Find, layers: tuple[str, str]) -> None:
    ports = [f"{layer},lid={8 * n},lmc=1" if layer == INFINIBAND else layer
             for n, layer in enumerate(layers, 1)]  # fmt: skip
    text = verbena_run(debian_program("ibstat"), options=options((ports[0], ports[1]))).stdout
    fields = [line.strip().partition(": ")[::2] for line in text.splitlines()]
    found = {name: [value for key, value in fields if key == name] for name, _ in fields}
    assert found["Number of ports"] == ["2"]
    assert found["Link layer"] == [NAMES[layer] for layer in layers]
    assert found["State"] == ["Active", "Active"]
    is_infiniband = [layer == INFINIBAND for layer in layers]
    assert found["Base lid"] == [str(8 * n * is_ib) for n, is_ib in enumerate(is_infiniband, 1)]
    assert found["LMC"] == [str(int(is_ib)) for is_ib in is_infiniband]


@pytest.mark.debian
def test_ibv_devinfo_shows_the_port_that_is_asked_for(
    verbena_run: Run, debian_program: Find
) -> None:
    ports = options((ETHERNET, "infiniband,lid=8,lmc=1"))
    for number, lid, lmc, layer in (
        ("1", "0", "0x00", "Ethernet"),
        ("2", "8", "0x01", "InfiniBand"),
    ):
        text = verbena_run(debian_program("ibv_devinfo"), "-v", "-i", number, options=ports).stdout
        words = [line.split() for line in text.splitlines()]
        found = {line[0]: line[1] for line in words if len(line) > 1}
        assert (found["phys_port_cnt:"], found["port:"]) == ("2", number)
        assert (found["port_lid:"], found["port_lmc:"]) == (lid, lmc)
        assert (found["link_layer:"], found["pkey_tbl_len:"]) == (layer, "32")
        assert sum(line[0] == "port:" for line in words if line) == 1


def test_an_ethernet_and_an_infiniband_port_do_not_meet() -> None:
    status, came, _ = talk("ethernet;infiniband", "RC", 1, 2)
    assert (status, came) == ("RETRY_EXC_ERR", [])


def test_an_address_of_another_port_is_refused() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
qp = ctx.alloc_pd().create_qp(send_cq=ctx.create_cq(8))
qp.to_init(2)
qp.to_rtr(dest_qp_num=1, ah_attr=verbs.AHAttr(dgid=ctx.query_gid(1, 0)))
"""
    done = child(program, VERBENA_PORTS="ethernet;ethernet")
    assert "port_num (ah_attr.port_num) is 1, and the QP was given port 2" in done.stderr


def test_an_address_handle_of_another_port_is_refused() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
pd = ctx.alloc_pd()
qp = pd.create_qp(send_cq=ctx.create_cq(8), qp_type=verbs.QPType.UD)
qp.to_init(1)
qp.to_rtr()
qp.to_rts()
ah = pd.create_ah(dlid=2, is_global=False, port_num=2)
qp.send(pd.alloc(64, 1), 0, 8, ah=ah, remote_qpn=1, remote_qkey=1)
"""
    done = child(program, VERBENA_PORTS="ethernet;infiniband")
    assert "(wr.ud.ah) is of port 2, and the QP was given port 1 in INIT" in done.stderr


def test_the_gid_table_has_entries_of_both_ports() -> None:
    program = """
from verbena import verbs
ctx = verbs.open_device()
assert ctx.query_device().phys_port_cnt == 2
table = ctx.query_gid_table()
assert {entry.port_num for entry in table} == {1, 2}
guids = [ctx.query_gid(1, 1).raw[8:], ctx.query_gid(2, 0).raw[8:]]
first, second = (int.from_bytes(guid, "big") for guid in guids)
print(second - first, hex(ctx.query_pkey(2, 0)), hex(ctx.query_pkey(1, 0)))
"""
    done = child(program, VERBENA_PORTS="ethernet;infiniband,pkeys=0x8001+0xffff")
    assert done.stdout == "1 0x8001 0xffff\n", done.stderr


@pytest.mark.parametrize(
    ("ports", "complaint"),
    [
        (("--port", "ethernet,"), "ethernet, has a comma too many; a port is as those of"),
        (("--port", "infiniband,,lid=3"), "infiniband,,lid=3 has a comma too many"),
        (("--port", "token-ring"), "a port is ethernet or infiniband, not 'token-ring'"),
        (("--port", "ethernet,lid=3"), "an ethernet port has netdev, pkeys"),
        (("--port", "infiniband,lid=0xc000"), "lid is from 1 to 49151, not 0xc000"),
        (("--port", "infiniband,lid=3,lmc=1"), "with lmc=1 it is a multiple of 2"),
        (("--port", "infiniband,lid=x"), "'x' is not a number"),
        (("--port", "ethernet") * 3, "an adapter has 1 to 2 ports, not 3"),
        (
            ("--port", "ethernet", "--link-layer", "infiniband"),
            "leave link_layer (--link-layer) out",
        ),
    ],
)
def test_a_port_that_is_none_is_refused(
    verbena_run: Run, ports: tuple[str, ...], complaint: str
) -> None:
    done = verbena_run("true", options=ports)
    assert done.returncode == 2
    assert complaint in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "ports",
    ["token-ring", "ethernet,", "ethernet,,netdev=lo", ",ethernet", "ethernet;",
     "ethernet;ethernet;ethernet", "infiniband,lid=3,lmc=1",
     "infiniband,lid=2;infiniband,lid=2", "ethernet,lid=3", "infiniband,netdev=lo"],
)  # fmt: skip
def test_a_variable_that_is_wrong_is_ignored_with_a_line(ports: str) -> None:
    program = "from verbena import verbs; print(verbs.open_device().query_device().phys_port_cnt)"
    done = child(program, VERBENA_PORTS=ports)
    assert f"VERBENA_PORTS={ports} is ignored: " in done.stderr
    assert done.stdout == "1\n"


@pytest.mark.parametrize("port", ["ethernet,", "infiniband,,lid=3"])
def test_the_option_and_the_variable_refuse_a_comma_too_many_alike(
    verbena_run: Run, port: str
) -> None:
    said = f"{port} has a comma too many; a port is as those of ethernet,netdev=eth0;infiniband,"
    assert said in " ".join(verbena_run("true", options=("--port", port)).stdout.split())
    variable = child("from verbena import verbs; verbs.open_device()", VERBENA_PORTS=port)
    assert f"VERBENA_PORTS={port} is ignored: {said}" in variable.stderr


IN_INIT = """
from verbena import verbs

with verbs.open_device("verbena0") as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(4)
    here, there = (pd.create_qp(send_cq=cq) for _ in range(2))
    for qp in (here, there):
        qp.to_init(2, pkey_index=1)
    verbs.connect_pair(here, there)
    for qp in (here, there):
        attr = qp.query()
        print(attr.port_num, attr.pkey_index)
"""


def test_a_connection_keeps_the_port_and_the_pkey_of_init() -> None:
    done = child(IN_INIT, VERBENA_PORTS="ethernet;ethernet,pkeys=0xffff+0x8001")
    assert (done.returncode, done.stdout) == (0, "2 1\n2 1\n"), done.stderr
