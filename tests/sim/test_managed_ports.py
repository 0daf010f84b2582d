# SPDX-License-Identifier: Apache-2.0
"""What a subnet manager sets at ports holds for data: P_Keys, lanes, weights and PortState."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.sim.test_managed import MICRO, MILLI, SECOND, all_reach_all, bare, clos
from verbena import cm, fabrics, sim, verbs
from verbena.manage.agents import MadPacket, NodePort
from verbena.manage.agents.pma import port_total
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import PortState
from verbena.manage.mad import LidRoutedSmp
from verbena.manage.notices import TrapNumber
from verbena.manage.sm import SmSettings
from verbena.manage.sm.partitions import Membership, Partition, Partitions
from verbena.manage.smp_attributes import PortInfo
from verbena.sim import World
from verbena.sim.build import build_bare
from verbena.sim.managed import ManagedWorld
from verbena.sim.managed_ports import passing
from verbena.sim.managers import SimulatedManager, bring_up

KEY = 0x8001
DEFAULT = Partition("Default", 0x7FFF, everybody=Membership.FULL)
DONE = 2


def members(managed: ManagedWorld, **hosts: Membership) -> Partitions:
    guids = {managed.agent(name).ports[1].guid: kind for name, kind in hosts.items()}
    return Partitions((DEFAULT, Partition("one", KEY & 0x7FFF, members=guids)))


def unmanaged(**keywords: Any) -> tuple[World, ManagedWorld]:
    fabric = clos()
    world = World(framing="infiniband", **keywords)
    build_bare(world, fabric)
    return world, ManagedWorld(world, fabric)


def partitioned(enforce: bool, **hosts: Membership) -> tuple[World, ManagedWorld, SimulatedManager]:
    world, managed = unmanaged(timeout=8, retry_count=2)
    settings = SmSettings(partitions=members(managed, **hosts), enforce_partitions=enforce)
    manager = SimulatedManager(managed, "h0", settings)
    bring_up(manager)
    return world, managed, manager


def sent(world: World, *pairs: tuple[int, int], key: int = KEY, **more: Any) -> list[int]:
    """Return the states of flows with a P_Key after they have had time to end."""
    first = world.add_flows(
        [one for one, _ in pairs], [other for _, other in pairs], 8192, world.now, pkey=key, **more
    )
    world.run(world.now + SECOND // 10)
    return [int(state) for state in world.flows()["state"][first:]]


def trapped(manager: SimulatedManager) -> list[int]:
    return [int(notice.trap_number) for _, notice in manager.traps]


def leaf_of(managed: ManagedWorld, host: str) -> NodePort:
    peer = managed.agent(host).ports[1].peer
    assert peer is not None
    return peer


def violations(port: NodePort) -> int:
    return int(PortInfo.get(port.info, "p_key_violations"))


def put(managed: ManagedWorld, port: NodePort, attribute: int, modifier: int, data: bytes) -> None:
    """Set an attribute by an SMP from h0, as a subnet manager does."""
    smp = LidRoutedSmp(
        method=Method.SET,
        attribute_id=attribute,
        attribute_modifier=modifier,
        transaction_id=0xABC,
        data=data,
    )
    source = managed.agent("h0").ports[1]
    packet = MadPacket(smp.pack(), 1, port.end_port.lid, source.lid)
    managed.send(source, [packet])
    managed.world.run(managed.world.now + MILLI)


# ---- partitions --------------------------------------------------------------------------------


def test_a_host_refuses_packets_of_a_partition_that_it_is_not_in() -> None:
    full = Membership.FULL
    world, managed, manager = partitioned(False, h1=full, h2=full)
    assert sent(world, (1, 2)) == [DONE]
    assert sent(world, (1, 3), key=0xFFFF) == [DONE]
    assert manager.traps == []
    assert sent(world, (1, 3)) == [3]
    refused = world.kept_back(*managed.place(managed.agent("h3").ports[1]))[0]
    assert refused > 1  # the packet and its repetitions
    assert trapped(manager)[0] == TrapNumber.BAD_P_KEY
    managed.ports.count_violations(managed.agent("h3"))
    assert violations(managed.agent("h3").ports[1]) == refused
    assert world.check(at_rest=True) is None


def test_limited_members_reach_full_members_alone() -> None:
    full, limited = Membership.FULL, Membership.LIMITED
    world, managed, _ = partitioned(False, h1=limited, h2=full, h3=limited)
    assert sent(world, (1, 2), key=KEY & 0x7FFF) == [DONE]
    assert sent(world, (1, 3), key=KEY & 0x7FFF) == [3]
    assert world.kept_back(*managed.place(managed.agent("h3").ports[1]))[0]


def test_a_switch_drops_on_receipt_and_before_sending_where_partitions_are_enforced() -> None:
    full = Membership.FULL
    world, managed, manager = partitioned(True, h1=full, h2=full)
    assert sent(world, (1, 2), (2, 1)) == [DONE, DONE]
    out, into = leaf_of(managed, "h3"), leaf_of(managed, "h4")
    assert sent(world, (1, 3)) == [3]
    assert port_total(out, "xmit_constraint_errors") > 1
    assert port_total(out, "rcv_constraint_errors") == 0
    assert not world.kept_back(*managed.place(managed.agent("h3").ports[1]))[0]
    assert sent(world, (4, 2)) == [3]
    assert port_total(into, "rcv_constraint_errors") > 1
    assert set(trapped(manager)) == {TrapNumber.BAD_P_KEY_AT_SWITCH}
    managed.ports.count_violations(into.node)
    assert violations(into) == port_total(into, "rcv_constraint_errors")
    assert world.check(at_rest=True) is None


def test_a_partition_that_is_left_ends_a_flow() -> None:
    world, _, manager = partitioned(False, h1=Membership.FULL, h2=Membership.FULL)
    first = world.add_flows(1, 2, 64 << 20, world.now, pkey=KEY)
    world.run(world.now + MILLI)
    assert world.flows()["state"][first] == 1  # it runs
    manager.manager.settings = SmSettings(partitions=Partitions(), enforce_partitions=False)
    manager.request_sweep()
    world.run(world.now + SECOND // 2)
    assert world.flows()["state"][first] == 3


def test_datagrams_are_dropped_where_their_partition_does_not_lead() -> None:
    world, managed, _ = partitioned(True, h1=Membership.FULL)
    port = leaf_of(managed, "h3")
    number = managed.place(port)[0]
    assert sent(world, (1, 3), transport="ud", operation="send") == [5]
    assert port_total(port, "xmit_constraint_errors") == 2  # 8192 bytes
    assert world.kept_back(number, port.number)[1] == 2


def test_a_table_of_partitions_has_a_bit_for_each_key_that_passes() -> None:
    table = bytes.fromhex("8001 0002 0000 ffff".replace(" ", ""))

    def keys(both: bool) -> set[int]:
        bits = passing(table, both)
        return {key for key in range(1 << 16) if bits[key >> 3] >> (key & 7) & 1}

    assert keys(False) == {0x8001, 0x0001, 0x8002, 0xFFFF, 0x7FFF}
    assert keys(True) == keys(False) | {0x0002}


@pytest.mark.parametrize("key", [0, 0x8000, 0x10000])
def test_a_flow_needs_a_p_key(key: int) -> None:
    world, _, _ = partitioned(False)
    with pytest.raises(ValueError, match="is no P_Key"):
        world.add_flows(1, 2, 8192, world.now, pkey=key)


# ---- lanes -------------------------------------------------------------------------------------


def lanes_of(weights: Iterable[int]) -> bytes:
    """A half of a VL arbitration table with these weights, from VL 0 on."""
    entries = b"".join(bytes((lane, weight)) for lane, weight in enumerate(weights))
    return entries.ljust(64, b"\0")


def two_lanes(high_limit: int = 0, **settings: Any) -> tuple[World, ManagedWorld]:
    fabric = fabrics.one_switch(4, rate="4xEDR", length_m=5)
    world = World(framing="infiniband", window=64 << 20)
    lane = {"flow": "credits", "room": 256 << 10}
    build_bare(world, fabric, {"lanes": [lane, lane], "management": 8192})
    managed = ManagedWorld(world, fabric)
    manager = SimulatedManager(managed, "h0", SmSettings(vl_high_limit=high_limit, **settings))
    bring_up(manager)
    return world, managed


def shares(world: World) -> float:
    """Return how much of a link to h3 the level 1 got of what levels 0 and 1 got together."""
    first = world.add_flows([1, 2], 3, 64 << 20, world.now, level=[0, 1], depth=4)
    world.run(world.now + 4 * MILLI)
    one, other = (world.delivered(range(first + 2), first + 2)[first:]).tolist()
    assert one + other
    return float(other / (one + other))


def arbitrate(managed: ManagedWorld, high: Iterable[int], low: Iterable[int], limit: int) -> None:
    """Set the tables of the switch's port to h3 as a subnet manager does, by SMPs."""
    port = leaf_of(managed, "h3")
    for block, data in ((1, lanes_of(low)), (3, lanes_of(high))):
        put(managed, port, 0x18, block << 16 | port.number, data)
    info = bytearray(port.info)
    info[38], info[32], info[33] = limit, info[32] & 0xF0, info[33] & 0x0F
    put(managed, port, 0x15, port.number, bytes(info))


def test_lanes_share_a_link_by_the_weights_that_were_set() -> None:
    world, managed = two_lanes()
    assert shares(world) == pytest.approx(0.5, abs=0.02)
    world, managed = two_lanes()
    arbitrate(managed, (), (64, 192), 0)
    assert shares(world) == pytest.approx(0.75, abs=0.02)


def test_the_limit_of_high_priority_leaves_the_low_table_its_turns() -> None:
    found = []
    for limit in (255, 0, 2):
        world, managed = two_lanes()
        arbitrate(managed, (0, 64), (64,), limit)
        found.append(shares(world))
    without, one_packet, more = found
    assert without > 0.98
    assert one_packet == pytest.approx(0.5, abs=0.02)
    assert more == pytest.approx(2 / 3, abs=0.03)


def test_a_manager_that_sets_lane_tables_gives_lanes_their_weights() -> None:
    world, _ = two_lanes(high_limit=255, lane_tables=True)
    assert shares(world) < 0.02  # VL 0 is in the table of high priority, as OpenSM has it


def test_a_host_sends_on_the_lane_that_its_map_has() -> None:
    world, managed = two_lanes()
    host, leaf = managed.agent("h1").ports[1], leaf_of(managed, "h1")
    put(managed, host, 0x17, 0, bytes([0x11] * 8))
    place = managed.place(leaf_of(managed, "h1").peer or leaf)
    samples = world.sample(MICRO, [(*place, 0), (*place, 1)])
    world.add_flows(1, 3, 4 << 20, world.now, level=0, depth=4)
    world.add_flows(2, 3, 4 << 20, world.now, level=0, depth=4)
    world.run(world.now + MILLI)
    most = samples.data["bytes"].max(axis=0)
    assert most[1] > 0
    assert most[0] == 0


# ---- states ------------------------------------------------------------------------------------


def test_a_host_that_is_not_active_waits_and_goes_on() -> None:
    world, managed, manager = bare(timeout=8)
    bring_up(manager)
    port = managed.agent("h1").ports[1]
    port.put_state(PortState.INIT)
    managed.ports.settle(port.node)
    first = world.add_flows(1, 6, 1 << 20, world.now)
    before = world.now
    end = world.run(before + MILLI)
    assert end == "time"
    assert world.flows()["done"][first] == 0
    packets = int(managed.link_row(port)["packets"])
    port.put_state(PortState.ARMED)
    managed.ports.settle(port.node)
    world.run(world.now + MILLI)
    assert int(managed.link_row(port)["packets"]) == packets
    port.put_state(PortState.ACTIVE)
    managed.ports.settle(port.node)
    world.run(world.now + SECOND // 10)
    flow = world.flows()[first]
    assert flow["state"] == DONE
    assert flow["finish"] > before + 2 * MILLI


@pytest.mark.parametrize(("state", "arrives"), [("INIT", False), ("ARMED", True)])
def test_an_armed_port_receives_and_one_in_init_does_not(state: str, arrives: bool) -> None:
    world, managed, _ = partitioned(False)
    port = managed.agent("h3").ports[1]
    port.put_state(PortState[state])
    managed.ports.settle(port.node)
    found = sent(world, (1, 3), key=0xFFFF, transport="ud", operation="send")
    assert found == [DONE if arrives else 5]
    assert world.kept_back(*managed.place(port))[2] == (0 if arrives else 2)


def test_flows_begin_when_their_ports_are_active() -> None:
    world, managed, manager = bare()
    pairs = [(0, 5), (1, 6), (7, 2)]
    waiting = [managed.add_flows(one, other, 1 << 20) for one, other in pairs]
    assert [each.first for each in waiting] == [None] * 3
    sweep = bring_up(manager)
    world.run(world.now + SECOND // 100)
    flows = world.flows()
    assert sorted(each.first for each in waiting if each.first is not None) == [0, 1, 2]
    assert (flows["state"] == DONE).all()
    assert sweep.tables_set is not None
    assert (flows["start"] >= sweep.tables_set).all()
    assert sweep.end is not None
    assert (flows["start"] <= sweep.end).all()
    all_reach_all(world, 8)


def test_programs_wait_for_the_port_of_their_host() -> None:
    world, managed, manager = bare(timeout=8)
    bring_up(manager)
    opened = world.now + 5 * MILLI
    port = managed.agent("h1").ports[1]
    port.put_state(PortState.ARMED)
    managed.ports.settle(port.node)

    def activate(world: World) -> None:
        port.put_state(PortState.ACTIVE)
        managed.ports.settle(port.node)

    world.call_at(opened, activate)

    async def server() -> None:
        async with cm.listen(7174) as listener:
            request = await listener.get_request()
            async with await request.accept() as conn:
                await conn.aqp.recv(conn.pd.alloc(64, verbs.AccessFlags.LOCAL_WRITE))

    async def client() -> float:
        import asyncio

        async with cm.connect("h6", 7174) as conn:
            await asyncio.sleep(1e-4)
            await conn.aqp.send(conn.pd.alloc(64, verbs.AccessFlags.LOCAL_WRITE))
            return asyncio.get_running_loop().time()

    managed.stops = True
    result = sim.run({"h6": server, "h1": client}, managed)
    assert result.returned["h1"] * SECOND > opened


def arm(managed: ManagedWorld, *ports: NodePort) -> None:
    for port in ports:
        port.put_state(PortState.ARMED)
        port.node.surroundings.routing_changed()
    managed.settle()


def test_data_make_an_armed_port_active() -> None:
    """IBA 7.2.7: a host's port, and that of a switch by which packets come in."""
    world, managed = unmanaged(timeout=12)
    bring_up(SimulatedManager(managed, "h0", SmSettings()))
    told: list[NodePort] = []
    managed.on_port_event.append(lambda port, event: told.append(port))
    host, still = (managed.agent(name).ports[1] for name in ("h6", "h3"))
    arm(managed, host, still)
    assert sent(world, (1, 6), key=0xFFFF) == [DONE]
    assert [host.state, still.state] == [PortState.ACTIVE, PortState.ARMED]
    assert told == [host]
    first = world.add_flows(1, 6, 1 << 20, world.now)
    world.run(world.now + 20 * MICRO)
    leaf = leaf_of(managed, "h1")
    arm(managed, leaf)
    world.run(world.now + SECOND // 10)
    assert world.flows()["state"][first] == DONE
    assert leaf.state == PortState.ACTIVE
    assert told == [host, leaf]
