# SPDX-License-Identifier: Apache-2.0
"""Where the diagnosis gets its snapshots from: saved output, management packets, simulated runs.

``saved`` has what Debian's infiniband-diags printed over ibsim, of ``clos2(4)`` with errors set at
e0[3] and e0[4].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.manage.agents.managing import change
from verbena import fabrics
from verbena.fabrics import Fabric
from verbena.manage.agents import Subnet, subnet_of_fabric
from verbena.manage.codes import PortPhysicalState
from verbena.manage.diagnose import (
    FaultKind,
    FaultSeverity,
    PortKey,
    SubnetAsker,
    diagnose,
    findings_as_text,
    sweep_fabric,
)
from verbena.manage.diagnose.saved_output import read_saved
from verbena.manage.diagnose.simulated_run import snapshots_of_result
from verbena.manage.errors import MadError
from verbena.manage.mad import PerformanceMad
from verbena.manage.pma_counters import PortExtendedSpeedsCounters
from verbena.manage.sm import SmSettings, SubnetManager
from verbena.sim import Scenario

SAVED = Path(__file__).with_name("saved")
BAD = PortKey("e0", 3)


def saved(*names: str) -> list[str]:
    return [(SAVED / f"{name}.txt").read_text() for name in names]


@pytest.mark.parametrize(
    "names",
    [
        ("ibnetdiscover", "ibqueryerrors"),
        ("ibqueryerrors", "iblinkinfo"),
        ("iblinkinfo_l", "ibqueryerrors"),
        ("ibqueryerrors_report",),
    ],
)
def test_saved_errors_name_the_cable(names: tuple[str, ...]) -> None:
    seen = read_saved(saved(*names))
    suspects = [each for each in diagnose(seen) if each.severity > FaultSeverity.NOTE]
    assert [str(each.suspect) for each in suspects] == ["cable a0[1]-e0[3]"]
    assert seen.ports[BAD].counters["symbol_errors"] == 500


@pytest.mark.parametrize("name", ["ibnetdiscover", "iblinkinfo", "iblinkinfo_l"])
def test_saved_output_has_all_cables(name: str) -> None:
    seen = read_saved(saved(name))
    assert len(seen.cables()) == 16
    assert sum(node.is_switch for node in seen.nodes.values()) == 6
    assert seen.peers[BAD] == PortKey("a0", 1)
    assert str(seen.ports[BAD].active) == "4xEDR"
    assert diagnose(seen, intended=fabrics.clos2(4))[1:] == []


def test_perfquery_names_a_port_by_its_lid() -> None:
    seen = read_saved(saved("perfquery", "perfquery_x", "ibnetdiscover"))
    assert seen.ports[PortKey("h0", 1)].counters["xmit_packets"] == 1269
    alone = read_saved(saved("perfquery"))
    assert alone.ports[PortKey("LID 1", 1)].counters["xmit_data"] == 91368


def test_other_text_is_refused() -> None:
    with pytest.raises(MadError, match="text 2 is no output of"):
        read_saved([*saved("ibqueryerrors"), "root:x:0:0:root\n"])


def test_forwarding_tables_are_read() -> None:
    tables = """\
Unicast lids [0x0-0xe] of switch DR path slid 0; dlid 0; 0,1 guid 0x0000000020000000 (e0):
  Lid  Out   Destination
       Port     Info
0x0001 001 : (Channel Adapter portguid 0x0000000000100001: 'h0')
0x0002 002 : (Channel Adapter portguid 0x0000000000100003: 'h1')
"""
    seen = read_saved([*saved("ibnetdiscover"), tables])
    assert seen.output_of("e0", 2) == 2
    missing = [each for each in diagnose(seen) if each.kind is FaultKind.NO_ROUTE]
    assert [each.numbers["LIDs"] for each in missing] == [6]


def managed(fabric: Fabric | None = None, **settings: Any) -> Subnet:
    """``clos2(4)``, or another fabric, brought up by our subnet manager."""
    subnet = subnet_of_fabric(fabric or fabrics.clos2(4))
    manager = SubnetManager(subnet.node("h0").ports[1].guid, SmSettings(**settings))
    subnet.attach("h0", lambda packet: send(manager.receive(packet, subnet.now)))

    def send(packets: list) -> None:  # type: ignore[type-arg]
        for packet in packets:
            subnet.inject("h0", packet)

    send(manager.start(subnet.now))
    return subnet


def test_a_sweep_by_management_packets_sees_what_the_subnet_is() -> None:
    subnet = managed()
    seen = sweep_fabric(SubnetAsker(subnet, "h3"), 0.0)
    assert set(seen.nodes) == set(subnet.nodes)
    assert len(seen.cables()) == 16
    view = seen.ports[BAD]
    assert (view.mtu, view.lanes, str(view.supported)) == (4096, 8, "4xEDR")
    assert seen.nodes["h5"].lids[1][0] == subnet.node("h5").ports[1].lid
    assert view.counters["xmit_packets"] > 0
    assert diagnose(seen, intended=fabrics.clos2(4)) == []


class WithFec(SubnetAsker):
    """A fabric whose nodes count blocks of forward error correction; one port loses some."""

    def ask_all(self, requests: Sequence[tuple[bytes, int | None]]) -> list[bytes | None]:
        answers = super().ask_all(requests)
        for place, (raw, lid) in enumerate(requests):
            mad = PerformanceMad.unpack(raw)
            if lid is not None and mad.attribute_id == PortExtendedSpeedsCounters.ATTRIBUTE:
                asked = mad.attribute(PortExtendedSpeedsCounters)
                bad = lid == self.bad_lid and asked.port_select == BAD.number
                counted = (7 * bad,) + (0,) * 11
                record = asked.replace(
                    fec_correctable_blocks=(10**6,) * 12, fec_uncorrectable_blocks=counted
                )
                answers[place] = mad.response(record).pack()
        return answers

    bad_lid = 0


def test_blocks_that_error_correction_lost_are_the_cable_s() -> None:
    subnet = managed()
    asker = WithFec(subnet, "h3")
    asker.bad_lid = subnet.node(BAD.node).ports[0].lid
    (only,) = diagnose(sweep_fabric(asker, 0.0))
    assert str(only.suspect) == "cable a0[1]-e0[3]"
    assert only.numbers["fec_uncorrectable_blocks of e0[3]"] == 7


@pytest.mark.parametrize(
    ("fabric", "engine", "lmc"),
    [
        (fabrics.fat_tree(6), "ftree", 0),
        (fabrics.torus((4, 4), 2), "dor", 0),
        (fabrics.clos2(12, oversubscription=3), "minhop", 1),
        (fabrics.xgft((4, 3, 3), (1, 2, 3)), "updn", 0),
        (fabrics.dragonfly(2, 4, 2), "minhop", 0),
        (fabrics.one_switch(40), "minhop", 0),
        (fabrics.chain(4, 3), "sssp", 0),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_other_topologies_have_no_findings(fabric: Fabric, engine: str, lmc: int) -> None:
    asker = SubnetAsker(managed(fabric, engine=engine, lmc=lmc), "h0")
    before, now = sweep_fabric(asker, 0.0), sweep_fabric(asker, 1.0)
    assert diagnose(now, before, intended=fabric) == []
    assert diagnose(now) == []


def test_nodes_of_one_description_have_the_names_of_ibnetdiscover() -> None:
    subnet = managed()
    for host in ("h2", "h6"):
        subnet.node(host).description[:4] = b"ca\0\0"
    seen = sweep_fabric(SubnetAsker(subnet, "h3"), 0.0)
    names = [f"H-{subnet.node(host).guid:016x}" for host in ("h2", "h6")]
    assert {*names, "h3"} <= set(seen.nodes)
    assert "ca" not in seen.nodes


def test_a_sweep_changes_nothing() -> None:
    subnet = managed()
    before = [bytes(port.info) for node in subnet.nodes.values() for port in node.ports.values()]
    sweep_fabric(SubnetAsker(subnet, "h3"))
    after = [bytes(port.info) for node in subnet.nodes.values() for port in node.ports.values()]
    assert before == after


def test_a_fabric_without_a_subnet_manager_is_swept_without_counters() -> None:
    subnet = subnet_of_fabric(fabrics.clos2(4))
    seen = sweep_fabric(SubnetAsker(subnet, "h0"))
    assert len(seen.cables()) == 16
    assert not any(view.counters for view in seen.ports.values())
    assert diagnose(seen) == []


@pytest.mark.parametrize(
    ("scenario", "variant", "suspects"),
    [
        ("bad-cable", "go-back-n", ["cable h0[1]-s0[1]"]),
        ("incast", "lossless", []),
        ("incast", "lossy", []),
        ("two-senders", "lossy", []),
        ("victim", "pauses", []),
        ("pause-storm", "adapter", ["host h0"]),
        ("long-haul", "short", ["port s1[2]"]),
    ],
)
def test_simulated_runs(scenario: str, variant: str, suspects: list[str]) -> None:
    made = Scenario.load(scenario).variant(variant)
    before, after = snapshots_of_result(made.run(), made.routes)
    found = [each for each in diagnose(after, before) if each.severity > FaultSeverity.NOTE]
    assert [str(each.suspect) for each in found] == suspects


def test_a_simulated_deadlock_is_a_credit_loop() -> None:
    made = Scenario.load("deadlock").variant("shortest")
    before, after = snapshots_of_result(made.run(), made.routes)
    assert FaultKind.CREDIT_LOOP in {each.kind for each in diagnose(after, before)}


def test_a_sweep_reads_the_counters_of_ports_whose_link_was_cut() -> None:
    """Two links were cut before the first sweep: one of a host, and one between switches."""
    subnet = managed()
    subnet.cut("h5", 1)
    subnet.cut("e1", 3)
    asker = SubnetAsker(subnet, "h3")
    now = sweep_fabric(asker, 1.0)
    for found in (diagnose(now), diagnose(now, sweep_fabric(asker, 0.0))):
        gone = {str(each.suspect) for each in found if each.kind is FaultKind.LINK_DOWN}
        assert gone == {"port e2[2]", "port e1[3]", "port a0[2]"}


def test_a_disabled_port_is_a_note() -> None:
    """Its host is out of reach, and nothing is broken."""
    subnet = managed()
    change(subnet, "h4", (1,), 2, port_physical_state=PortPhysicalState.DISABLED)
    (only,) = diagnose(sweep_fabric(SubnetAsker(subnet, "h3"), 1.0))
    assert (only.kind, only.severity) == (FaultKind.DISABLED, FaultSeverity.NOTE)
    assert only.reason.startswith("port 2 of e2 is disabled")
    assert f"ibportstate {subnet.node('e2').ports[0].lid} 2 enable" in only.advice
    assert only.numbers["link_downed of e2[2]"] == 1


def test_a_host_without_a_link_says_so() -> None:
    subnet = managed()
    before = sweep_fabric(SubnetAsker(subnet, "h5"), 0.0)
    subnet.cut("h5", 1)
    now = sweep_fabric(SubnetAsker(subnet, "h5"), 1.0)
    for intended in (None, fabrics.clos2(4)):
        (only,) = diagnose(now, before, intended=intended)
        assert only.kind is FaultKind.ASKER_DOWN
        assert "h5[1], the port that asks, has no link" in only.reason


UNPLACED = """\
Errors for 0x20000000 "leaf 0"
   GUID 0x20000000 port 3: [LinkDownedCounter == 4] [PortXmitWait == 4000]
   GUID 0x20000000 port 4: [PortXmitDiscards == 8]
"""


def test_counters_without_cables_are_findings() -> None:
    seen = read_saved([UNPLACED])
    downed, discards = diagnose(seen)
    assert (str(downed.suspect), downed.kind) == ("port leaf 0[3]", FaultKind.LINK_FLAPS)
    assert (str(discards.suspect), discards.severity) == ("port leaf 0[4]", FaultSeverity.NOTE)
    text = findings_as_text([downed, discards], seen)
    assert "0 hosts, 0 switches, 1 nodes that are one or the other, 0 cables: 1 suspect." in text
    assert "Note: This is not enough" in text


def test_a_port_without_a_cable_in_ibnetdiscover_had_a_link() -> None:
    seen = read_saved(
        [*saved("ibnetdiscover"), UNPLACED.replace("leaf 0", "e0").replace("3:", "9:")]
    )
    assert [str(each.suspect) for each in diagnose(seen)] == ["port e0[9]"]


def test_a_port_of_a_node_whose_other_links_are_not_known_may_have_one() -> None:
    """iblinkinfo of e0 alone names the spine a0 by one link, and not what is at its port 3."""
    rows = [line for line in saved("iblinkinfo_l")[0].splitlines() if ' e0"' in line[:60]]
    seen = read_saved(["\n".join(rows), UNPLACED.replace("leaf 0", "a0")])
    assert seen.peers[BAD] == PortKey("a0", 1)
    downed = [each for each in diagnose(seen) if each.suspect.ports == (PortKey("a0", 3),)]
    assert [each.kind for each in downed] == [FaultKind.LINK_FLAPS]
