# SPDX-License-Identifier: Apache-2.0
"""Service levels and lanes: the tables of the nodes put no path on lanes with a credit loop."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from tests.manage.sm.asking import SaClient
from tests.manage.sm.managed import ManagedSubnet, problems_of
from verbena import fabrics
from verbena.fabrics import Fabric
from verbena.manage.sa_records import PathRecord, SlToVlRecord, VlArbitrationRecord


@pytest.mark.parametrize(
    ("engine", "fabric"),
    [
        ("dfsssp", fabrics.torus((5, 5))),
        ("dor", fabrics.torus((4, 4))),
        ("dragonfly", fabrics.dragonfly(2, 4, 2)),
        ("updn", fabrics.clos2(8)),
    ],
)
def test_no_path_can_wait_for_itself(engine: str, fabric: Fabric) -> None:
    managed = ManagedSubnet(fabric)
    attributes = {
        fabric.guid(name): {
            key: value
            for key, value in fabric.graph.nodes[name].items()
            if key in ("group", "coordinate")
        }
        for name in fabric.switches
    }
    manager = managed.add(fabric.hosts[0], engine=engine, node_attributes=attributes)
    managed.run()
    assert problems_of(managed, between_switches=engine != "updn") == []
    assert manager.routes is not None
    routes = manager.routes.routes
    client = SaClient(managed, fabric.hosts[1])
    channels = nx.DiGraph()
    by_lid = {int(lid): end for end, lid in enumerate(routes.tables.lid)}
    levels = {(path.slid, path.dlid): path.sl for path in client.table(PathRecord)}
    hosts = [managed.subnet.node(name).ports[1].lid for name in fabric.hosts]
    for slid in hosts:
        for dlid in hosts:
            if slid == dlid:
                continue
            way = managed.subnet.path(slid, dlid, sl=levels[slid, dlid])
            assert way.arrives
            ends = np.array([by_lid[slid]]), np.array([by_lid[dlid]])
            links = routes.links(*ends)
            lanes = routes.lanes_of(*ends, links)[0][: len(way.lanes)]
            assert way.lanes == lanes.tolist()
            used = [
                (hop.node.name, hop.output_port, lane)
                for hop, lane in zip(way.hops, way.lanes, strict=False)
            ]
            nx.add_path(channels, used)
    assert nx.is_directed_acyclic_graph(channels)


def test_lane_tables_are_in_the_database() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    managed.add("h0", lane_tables=True)
    managed.run()
    client = SaClient(managed, "h1")
    tables = client.table(SlToVlRecord)
    assert {(each.input_port, each.output_port) for each in tables if each.input_port} == {
        (into, out) for into in (1, 2, 3) for out in (1, 2, 3) if into != out
    }
    assert all(each.sl_to_vl.vls[:9] == (0, 1, 2, 3, 4, 5, 6, 7, 0) for each in tables)
    high = [each for each in client.table(VlArbitrationRecord) if each.block == 3]
    assert len(high) == 6
    assert all(
        [entry.weight for entry in each.table.entries[:8]] == [4, 0, 0, 0, 0, 0, 0, 0]
        for each in high
    )
