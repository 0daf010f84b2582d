# SPDX-License-Identifier: Apache-2.0
"""Single rules of the diagnosis, on snapshots that a test writes."""

from __future__ import annotations

import pytest

from verbena import fabrics
from verbena.manage.agents import link_rate
from verbena.manage.diagnose import (
    FabricSnapshot,
    FaultFinding,
    FaultKind,
    FaultSeverity,
    FlowTrouble,
    PortKey,
    diagnose,
)

SECONDS = 10.0
WORDS = int(100e9 * SECONDS / 32)


def two_tiers(leaves: int = 4, spines: int = 2, hosts: int = 4) -> FabricSnapshot:
    """Leaves e0.. with hosts at ports from 1, spines a0.. at ports from 11, and all tables."""
    made = FabricSnapshot(0.0)
    lids: dict[str, int] = {}
    for leaf in range(leaves):
        made.add_node(f"e{leaf}", is_switch=True)
        for number in range(hosts):
            name = f"h{leaf * hosts + number}"
            lids[name] = len(lids) + 1
            made.add_node(name, is_switch=False).lids[1] = range(lids[name], lids[name] + 1)
            made.connect(PortKey(f"e{leaf}", number + 1), PortKey(name, 1))
        for spine in range(spines):
            made.add_node(f"a{spine}", is_switch=True)
            made.connect(PortKey(f"e{leaf}", 11 + spine), PortKey(f"a{spine}", leaf + 1))
    for node in made.nodes.values():
        if node.is_switch:
            table = bytearray(b"\xff" * (len(lids) + 1))
            for name, lid in lids.items():
                leaf, number = divmod(int(name[1:]), hosts)
                below = number + 1 if node.name == f"e{leaf}" else 11 + lid % spines
                table[lid] = leaf + 1 if node.name[0] == "a" else below
            node.table = bytes(table)
    for key in made.peers:
        view = made.port(key)
        view.state, view.active = 4, link_rate("4xEDR")
    return made


def found(now: FabricSnapshot, before: FabricSnapshot | None = None) -> list[FaultFinding]:
    return diagnose(now, before)


def later(**counters: dict[str, int]) -> tuple[FabricSnapshot, FabricSnapshot]:
    """Two sweeps; ``counters`` are by port, as e0_1, and were counted between them."""
    before, now = two_tiers(), two_tiers()
    now.time = SECONDS
    for name, values in counters.items():
        node, _, number = name.partition("_")
        now.add_counters(PortKey(node, int(number)), values)
    return before, now


def test_a_good_fabric_has_no_findings() -> None:
    assert found(two_tiers()) == []
    before, now = later()
    assert found(now, before) == []


def test_errors_at_both_ends_are_the_cable_s() -> None:
    before, now = later(e0_11={"symbol_errors": 400}, a0_1={"symbol_errors": 300})
    (only,) = found(now, before)
    assert only.kind is FaultKind.BAD_CABLE
    assert str(only.suspect) == "cable a0[1]-e0[11]"


def test_errors_at_one_end_name_the_direction() -> None:
    before, now = later(e0_11={"symbol_errors": 400})
    (only,) = found(now, before)
    assert only.kind is FaultKind.ONE_DIRECTION
    assert "transmitter of a0[1]" in only.reason


def lossy(**ends: tuple[int, int]) -> FaultFinding:
    """The finding of one cable whose ends have (errors, packets received well)."""
    _, now = later(
        **{name: {"rcv_errors": bad, "rcv_packets": good} for name, (bad, good) in ends.items()}
    )
    (only,) = found(now)
    return only


def test_errors_are_compared_with_the_packets_received() -> None:
    """Both directions lose 5 %, and one end receives hardly more than acknowledgements."""
    only = lossy(e0_1=(1768, 33696), h0_1=(125, 1886))
    assert only.kind is FaultKind.BAD_CABLE
    assert "125 of 2011 packets at h0[1]" in only.reason
    assert "1768 of 35464 packets at e0[1]" in only.reason


def test_few_errors_of_as_many_packets_are_one_direction() -> None:
    only = lossy(e0_1=(1768, 33696), h0_1=(9, 30000))
    assert only.kind is FaultKind.ONE_DIRECTION
    assert "h0[1] has 9 of 30009 packets" in only.reason


def test_the_direction_with_the_larger_share_of_errors_is_the_bad_one() -> None:
    only = lossy(e0_1=(200, 1_000_000), h0_1=(100, 900))
    assert only.kind is FaultKind.ONE_DIRECTION
    assert "h0[1] receives with errors (100 of 1000 packets), and e0[1] has 200" in only.reason


def test_a_port_that_received_few_packets_does_not_tell() -> None:
    only = lossy(e0_1=(1768, 33696), h0_1=(0, 20))
    assert only.kind is FaultKind.BAD_CABLE
    assert "h0[1] has received too little (20 packets) to tell" in only.reason


def test_errors_of_a_bit_error_rate_of_1e_12_are_normal() -> None:
    before, now = later(e0_11={"symbol_errors": 2}, a0_1={"symbol_errors": 3})
    assert found(now, before) == []


def test_errors_from_before_the_first_sweep_are_nobody_s() -> None:
    before, now = later(e0_11={"symbol_errors": 4000})
    before.add_counters(PortKey("e0", 11), {"symbol_errors": 4000})
    assert found(now, before) == []


def test_a_tree_of_waiting_ports_leads_to_the_slow_host() -> None:
    before, now = later(
        e1_1={"xmit_wait": WORDS // 2},
        a0_2={"xmit_wait": WORDS // 3},
        a1_2={"xmit_wait": WORDS // 4},
        e0_11={"xmit_wait": WORDS // 10},
        h0_1={"xmit_wait": WORDS // 10},
    )
    (only,) = found(now, before)
    assert only.kind is FaultKind.SLOW_RECEIVER
    assert str(only.suspect) == "host h4"
    assert only.numbers["ports"] == 5


def test_incast_is_no_fault() -> None:
    """The port of the common target sends all the time and does not wait itself."""
    before, now = later(
        e1_1={"xmit_data": WORDS * 97 // 100},
        a0_2={"xmit_wait": WORDS // 3},
        a1_2={"xmit_wait": WORDS // 4},
        e0_11={"xmit_wait": WORDS // 10},
    )
    (only,) = found(now, before)
    assert only.severity is FaultSeverity.NOTE
    assert only.kind is FaultKind.HOT_PORT
    assert str(only.suspect) == "port e1[1]"


def test_ports_that_wait_in_a_circle_are_a_credit_loop() -> None:
    now, before = FabricSnapshot(SECONDS), FabricSnapshot(0.0)
    for snapshot in (now, before):
        for number in range(4):
            snapshot.add_node(f"s{number}", is_switch=True)
        for number in range(4):
            snapshot.connect(PortKey(f"s{number}", 1), PortKey(f"s{(number + 1) % 4}", 2))
    for number in range(4):
        now.add_counters(PortKey(f"s{number}", 1), {"xmit_wait": WORDS})
    (only,) = found(now, before)
    assert only.kind is FaultKind.CREDIT_LOOP
    assert only.numbers["ports"] == 4


def flows(bad: set[str]) -> list[FlowTrouble]:
    """Between all hosts; those that cross a link of ``bad`` lose one of a hundred packets."""
    snapshot, made = two_tiers(), []
    hosts = [name for name in snapshot.nodes if name[0] == "h"]
    for one in hosts:
        for other in hosts:
            if one != other:
                way = {f"e{int(one[1:]) // 4}{_spine(other)}", f"{_spine(other)}{_leaf(other)}"}
                lost = 100 if way & bad and _leaf(one) != _leaf(other) else 0
                made.append(FlowTrouble(one, other, lost, 10_000))
    return made


def _spine(host: str) -> str:
    return f"a{(int(host[1:]) + 1) % 2}"


def _leaf(host: str) -> str:
    return f"e{int(host[1:]) // 4}"


def test_pairs_that_lose_packets_have_one_link_in_common() -> None:
    now = two_tiers()
    now.flows = flows({"e2a0"})
    (only,) = found(now)
    assert only.kind is FaultKind.PATH_LOSS
    assert str(only.suspect) == "cable a0[3]-e2[11]"
    assert not only.others


def test_two_links_that_lose_packets_are_both_named() -> None:
    now = two_tiers()
    now.flows = flows({"e2a0", "a1e3"})
    assert {str(each.suspect) for each in found(now)} == {
        "cable a0[3]-e2[11]",
        "cable a1[4]-e3[12]",
    }


def test_losses_in_a_full_queue_are_no_cable_s() -> None:
    now = two_tiers()
    now.flows = flows({"e2a0"})
    now.add_counters(PortKey("e2", 11), {"xmit_discards": 5000})
    assert all(each.severity is FaultSeverity.NOTE for each in found(now))


def test_a_report_of_the_node_is_passed_on() -> None:
    now = two_tiers()
    now.nodes["a1"].reports.append("the second power supply has no input")
    (only,) = found(now)
    assert only.kind is FaultKind.NODE_REPORT
    assert "power supply" in only.reason


def test_a_slower_rack_is_a_design_and_a_slower_host_is_not() -> None:
    now = two_tiers(leaves=12)
    for number in range(4):
        now.port(PortKey(f"h{number}", 1)).supported = link_rate("4xFDR")
    assert found(now) == []
    now.port(PortKey("h9", 1)).supported = link_rate("4xFDR")
    (only,) = found(now)
    assert only.kind is FaultKind.SLOWER_THAN_PEERS
    assert str(only.suspect) == "port h9[1]"


def test_a_port_that_was_not_reached_before_has_counted_nothing_since() -> None:
    before, now = later(e0_11={"symbol_errors": 400}, a0_1={"symbol_errors": 300})
    before.asks_all = True
    assert found(now, before) == []


def test_unknown_counters_are_no_zeros() -> None:
    """A port without counters has not lost what its peer has sent."""
    before, now = later(e0_11={"xmit_packets": 1_000_000})
    assert found(now, before) == []
    now.add_counters(PortKey("a0", 1), {"rcv_packets": 900_000})
    before.add_counters(PortKey("a0", 1), {"rcv_packets": 0})
    (only,) = found(now, before)
    assert only.kind is FaultKind.SILENT_LOSS


def test_a_port_that_is_down_and_had_a_link_is_a_suspect() -> None:
    """One sweep knows it by LinkDowned; a port that never had a link is free."""
    now = two_tiers()
    now.port(PortKey("e1", 20)).state = now.port(PortKey("e1", 21)).state = 1
    now.add_counters(PortKey("e1", 20), {"link_downed": 1})
    now.add_counters(PortKey("e1", 21), {"link_downed": 0})
    (only,) = found(now)
    assert only.kind is FaultKind.LINK_DOWN
    assert (str(only.suspect), only.severity) == ("port e1[20]", FaultSeverity.WARNING)
    before = two_tiers()
    assert [each.kind for each in found(now, before)] == [FaultKind.LINK_DOWN]
    before.connect(PortKey("e1", 20), PortKey("a1", 20))
    assert [each.kind for each in found(now, before)] == [FaultKind.LINK_LOST]


@pytest.mark.parametrize(
    ("name", "way"), [("rcv_constraint_errors", "from"), ("xmit_constraint_errors", "to")]
)
def test_partition_enforcement_that_drops_packets_is_a_finding(name: str, way: str) -> None:
    before, now = later(e1_2={name: 1})
    (only,) = found(now, before)
    assert only.kind is FaultKind.PARTITION_DROPS
    assert str(only.suspect) == "host h5"
    assert f"e1[2] has dropped 1 packets {way} h5 for their P_Key" in only.reason


def test_partition_enforcement_between_switches_names_the_port() -> None:
    before, now = later(e1_11={"rcv_constraint_errors": 3})
    (only,) = found(now, before)
    assert (only.kind, str(only.suspect)) == (FaultKind.PARTITION_DROPS, "port e1[11]")


def test_a_link_that_went_down_once_is_a_warning() -> None:
    before, now = later(e0_11={"link_downed": 1}, a0_1={"link_downed": 1})
    (only,) = found(now, before)
    assert (only.kind, only.severity) == (FaultKind.LINK_ONCE_DOWN, FaultSeverity.WARNING)
    assert "went down once and is up again" in only.reason


def test_the_total_of_a_link_that_went_down_is_a_note() -> None:
    """It may be of last year; many links are one note."""
    _, now = later(e0_11={"link_downed": 1}, a0_1={"link_downed": 1})
    (only,) = found(now)
    assert (only.kind, only.severity) == (FaultKind.LINK_ONCE_DOWN, FaultSeverity.NOTE)
    assert "the link a0[1]-e0[11] went down once since its counters were cleared" in only.reason
    assert only.numbers == {"link_downed of a0[1]": 1, "link_downed of e0[11]": 1}
    _, now = later(
        **{f"e{leaf}_{port}": {"link_downed": port} for leaf in (0, 1) for port in (1, 2, 3)}
    )
    (only,) = found(now)
    assert only.reason.startswith("6 links went down since")
    assert only.reason.endswith("and 2 more")
    assert len(only.others) == 5


def test_discards_of_a_port_whose_link_was_down_are_no_congestion() -> None:
    before, now = later(h2_1={"link_downed": 1, "xmit_discards": 256}, e0_3={"link_downed": 1})
    for earlier in (None, before):
        kinds = {each.kind: each for each in found(now, earlier)}
        assert set(kinds) == {FaultKind.LINK_ONCE_DOWN, FaultKind.DOWN_DISCARDS}
        note = kinds[FaultKind.DOWN_DISCARDS]
        assert "h2[1] has discarded 256 packets, and its link went down once" in note.reason
        assert "not to blame" not in note.advice


def test_a_host_that_was_restarted_is_a_note() -> None:
    before, now = later(e0_1={"link_downed": 1})
    (only,) = found(now, before)
    assert (only.kind, only.severity) == (FaultKind.LINK_ONCE_DOWN, FaultSeverity.NOTE)
    assert "h0 has not counted it and may have been restarted" in only.reason


@pytest.mark.parametrize(("size", "is_far"), [(4, False), (8, True)])
def test_an_intended_topology_that_is_far_off_is_asked_about_first(size: int, is_far: bool) -> None:
    now = FabricSnapshot()
    fabric = fabrics.clos2(4)
    for name in fabric.graph:
        now.add_node(name, is_switch=name in fabric.switches)
    for cable in list(fabric.cables())[1:]:
        now.connect(PortKey(cable.a, cable.a_port), PortKey(cable.b, cable.b_port))
    kinds = [each.kind for each in diagnose(now, intended=fabrics.clos2(size))]
    assert (kinds[0] is FaultKind.ANOTHER_TOPOLOGY) == is_far
    assert kinds.count(FaultKind.ANOTHER_TOPOLOGY) == is_far
