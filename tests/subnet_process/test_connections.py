# SPDX-License-Identifier: Apache-2.0
"""Programs at hosts of a live fabric connect by ``verbena.cm``, and the fabric is in their way."""

from __future__ import annotations

import errno
import ipaddress
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.subnet_process.live import Live, Program
from tests.support import clean_environment, verbena_command
from verbena import fabrics
from verbena.manage.agents import PortEvent, subnet_of_fabric
from verbena.manage.cm.settings import CmSettings
from verbena.subnet_process.fabric_managers import FabricManagers
from verbena.subnet_process.ip_plan import IpPlan

SHORT = CmSettings(response_timeout=17, max_retries=0)  # 512 ms
PACKET_SECONDS = 2.048  # there and back, by the packet life of the path
LISTEN = "from verbena.cm import sync; listener = sync.listen(7174); result = 0"
ACCEPT = "conn = listener.get_request(20).accept(); result = conn.qp.qp_num"
CONNECT = """
from verbena import cm
from verbena.cm import sync
try:
    conn = sync.connect({host!r}, 7174, timeout={seconds})
    result = [0, '', conn.qp.qp_num]
except cm.ConnectionManagerError as error:
    result = [error.errno, str(error), 0]
"""


def managers(live: Live) -> FabricManagers:
    assert live.made.connections is not None
    return live.made.connections


@pytest.fixture
def make() -> Iterator[Callable[..., tuple[Live, Program, Program]]]:
    """make(managed=…): a fabric, and a program at h0 and one at h3 across the cable s0-s1."""
    made: list[tuple[Live, Program, Program]] = []

    def build(*, managed: bool = True) -> tuple[Live, Program, Program]:
        live = Live(fabrics.dumbbell(2, 2), managed=managed)
        live.do(lambda: setattr(managers(live), "settings", SHORT))
        made.append((live, Program(live.name, "h1"), Program(live.name, "h3")))
        return made[-1]

    yield build
    for live, *programs in made:
        for program in programs:
            program.kill()
        live.end()


def members(live: Live) -> set[int]:
    """The GUIDs of the ports that are members of 239.1.2.3."""

    def read() -> set[int]:
        assert live.made.manager is not None
        records = live.made.manager.administration.groups.records(all_members=True)
        group = bytes.fromhex("ff124001ffff00000000") + bytes(2) + bytes((0xF, 1, 2, 3))
        return {int.from_bytes(each.port_gid[8:], "big") for each in records if each.mgid == group}

    return live.do(read)


def connect(program: Program, host: str, seconds: float = 10) -> tuple[int, str, int]:
    code, text, number = program.run(CONNECT.format(host=host, seconds=seconds))
    return code, text, number


def assert_connects(client: Program, server: Program) -> None:
    server.begin(ACCEPT)
    code, text, number = connect(client, "h3")
    assert (code, text) == (0, "")
    assert number
    assert server.result()


def test_a_host_is_found_by_its_name_and_messages_are_counted(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    live, client, server = make()
    server.run(LISTEN)
    before = live.counts("h3")
    assert_connects(client, server)
    after = live.counts("h3")
    assert after["rcv_packets"] - before.get("rcv_packets", 0) >= 2  # REQ and RTU
    code, text, _ = connect(client, "h9")
    assert code == errno.EADDRNOTAVAIL
    assert "no host 'h9'" in text


def test_times_begin_with_the_command(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    """Also when the connection manager has had nothing to do for long."""
    live, client, _ = make()
    live.set_route("s0", live.lid("h0"), 255)  # subnet administration does not answer

    def idle() -> None:
        manager = managers(live).host("h1").cm.cm
        manager.now -= 100

    client.run("from verbena.cm import sync; result = 0")
    live.do(idle)
    begun = time.monotonic()
    code, _, _ = connect(client, "h3", seconds=2)
    assert code == errno.ETIMEDOUT
    assert time.monotonic() - begun > 0.5


def test_a_host_without_listener_refuses(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    _, client, _ = make()
    code, text, _ = connect(client, "h2")  # nobody has opened the device there
    assert code == errno.ECONNREFUSED, text


def test_a_peer_to_which_no_table_leads_is_unreachable(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    live, client, server = make()
    server.run(LISTEN)
    forth, _ = live.between("s0", "s1")
    live.set_route("s0", live.lid("h3"), 255)
    begun = time.monotonic()
    code, text, _ = connect(client, "h3")
    assert code == errno.ETIMEDOUT
    assert "does not answer" in text
    assert PACKET_SECONDS <= time.monotonic() - begun < 3 * PACKET_SECONDS
    live.set_route("s0", live.lid("h3"), forth)
    assert_connects(client, server)


def test_the_log_names_the_place(
    make: Callable[..., tuple[Live, Program, Program]], debian_program: Callable[[str], str]
) -> None:
    """Of a loop in tables that were set by hand, or a link that is cut before a manager sees it."""
    live, _, _ = make()
    rping = [debian_program("rping"), "-c", "-a", "10.0.0.4", "-C", "1"]
    options = ["--fabric", live.name, "--host", "h1", "--log", "errors"]

    def said() -> str:
        done = subprocess.run(
            verbena_command("run", *options, "--", *rping),
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "RDMA_CM_EVENT_UNREACHABLE" in done.stdout + done.stderr
        return done.stderr

    lid = live.lid("h3")
    _, back = live.between("s0", "s1")
    live.set_route("s1", lid, back)
    assert f"to LID {lid}: the tables lead back to s1" in said()
    live.set_route("s0", lid, 255)
    assert f"to LID {lid}: switch s0 has no entry for it." in said()


def test_a_cut_takes_the_path_away(make: Callable[..., tuple[Live, Program, Program]]) -> None:
    live, client, server = make()
    server.run(LISTEN)
    cable, _ = live.between("s0", "s1")
    live.do(lambda: live.subnet.cut("s0", cable))
    code, text, _ = connect(client, "h3")
    assert code == errno.EHOSTUNREACH
    assert "Subnet administration knows no path" in text
    live.do(lambda: live.subnet.restore("s0", cable))
    deadline = time.monotonic() + 10
    while connect(client, "h2")[0] == errno.EHOSTUNREACH:  # the manager sweeps
        assert time.monotonic() < deadline
    assert_connects(client, server)


def test_without_a_subnet_manager_there_is_no_route(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    _, client, _ = make(managed=False)
    code, text, _ = connect(client, "h3")
    assert code == errno.EAGAIN
    assert "No subnet manager has brought the port up" in text


def test_a_subnet_manager_whose_program_has_ended_is_told(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    """Its host answers that nobody takes the question: no port is to be looked for."""
    live, client, _ = make()
    manager = live.made.manager
    assert manager is not None
    agents = [each for each in live.made.live.agents.values() if each.port is manager.port]
    for each in agents:
        live.do(partial(manager.port.unregister, each))
    code, text, _ = connect(client, "h3")
    assert code == errno.EHOSTUNREACH
    assert "No subnet manager answers" in text
    assert "not ACTIVE" not in text
    assert "(status 0x000c)" in text


def test_a_service_of_datagrams_and_a_group(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    live, client, server = make()
    server.run("from verbena.cm import sync; listener = sync.listen(7175, datagram=True)\nresult=0")
    server.begin("peer = listener.get_request(20).accept_datagrams(); result = peer.qp.qp_num")
    assert (
        client.run(
            "from verbena.cm import sync; peer = sync.resolve_datagram('h3', 7175, timeout=10)\n"
            "result = peer.qpn"
        )
        == server.result()
    )
    join = "group = sync.join('239.1.2.3', timeout=10); result = group.qpn"
    assert [each.run(join) for each in (client, server)] == [0xFFFFFF] * 2
    assert members(live) == {live.port("h1").guid, live.port("h3").guid}
    client.run("other = sync.join('239.1.2.3', timeout=10); group.close(); result = 0")
    assert live.port("h1").guid in members(live)  # the port is a member for another program
    client.run("other.close(); result = 0")
    assert members(live) == {live.port("h3").guid}


def test_programs_of_an_ended_fabric_are_told(
    make: Callable[..., tuple[Live, Program, Program]],
) -> None:
    live, client, server = make()
    server.run(LISTEN)
    live.end()
    code, text, _ = connect(client, "h3")
    assert code
    assert "has ended" in text


def test_addresses_are_by_the_order_of_the_topology() -> None:
    subnet = subnet_of_fabric(fabrics.clos2(30))
    plan = IpPlan(subnet)
    found = {name: plan.texts(subnet.nodes[name]) for name in ("h0", "h249", "h250", "h449")}
    assert found == {
        "h0": ["10.0.0.1"],
        "h249": ["10.0.0.250"],
        "h250": ["10.0.1.1"],
        "h449": ["10.0.1.200"],
    }
    port = subnet.nodes["h250"].ports[1]
    assert plan.of(port, ipv6=True) == ipaddress.ip_address("fd00::10.0.1.1").packed
    assert plan.owner(plan.of(port, ipv6=True)) is port


def test_groups_are_joined_again(make: Callable[..., tuple[Live, Program, Program]]) -> None:
    """After CLIENT_REREGISTER, a new subnet manager, or a port that was down."""
    live, client, _ = make()
    client.run("from verbena.cm import sync; group = sync.join('239.1.2.3', timeout=10)")
    guid, port = live.port("h1").guid, live.port("h1")

    def forget() -> None:
        assert live.made.manager is not None
        groups = live.made.manager.administration.groups
        vars(groups).update(vars(type(groups)(groups.prefix)))

    def told() -> int:
        """How many events the program has not read."""
        manager = managers(live).host("h1").cm
        return live.do(lambda: sum(map(len, manager._table._channels.values())))

    before = told()
    for count, event in enumerate((PortEvent.CLIENT_REREGISTER, PortEvent.SM, PortEvent.LID), 1):
        live.do(forget)
        assert members(live) == set()
        live.do(lambda event=event: live.subnet.port_event(port, event))  # type: ignore[misc]
        wait_for(lambda: members(live) == {guid})
        assert told() == before + count
    live.do(lambda: live.subnet.cut("h1", 1))
    wait_for(lambda: told() == before + 4)
    live.do(forget)
    live.do(lambda: live.subnet.restore("h1", 1))
    wait_for(lambda: members(live) == {guid})
    client.run("group.close()")
    wait_for(lambda: members(live) == set())


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
