# SPDX-License-Identifier: Apache-2.0
"""C19: an adapter that takes page faults."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, between, equal, near
from verbena.host import Pcie
from verbena.host.hca import HcaCosts, HcaStatus, Node, Region, connected
from verbena.host.hca.pages import DemandPages

PAGE = 4096
RNR_US = 10.0
LINK = Pcie(3, 8, round_trip_ns=900)


class Side:
    """Writes of 64 bytes between two nodes, one of whose buffers is paged on demand."""

    def __init__(self, paged: str, **queue_pair: int) -> None:
        settings = {"rnr_us": RNR_US, **queue_pair}
        self.left, self.right = connected(pcie=LINK, queue_pair=settings)
        self.paged = paged
        node = self.left if paged == "source" else self.right
        self.pages = DemandPages(node.computer, 0x400000, 8)
        self.source = self._registered(self.left, paged == "source")
        self.target = self._registered(self.right, paged == "target")

    def _registered(self, node: Node, paged: bool) -> Region:
        if paged:
            return node.register(0, 16 * PAGE, pages=self.pages, on_demand=True)
        return node.register(0, 16 * PAGE)

    def write(self, page: int) -> HcaStatus:
        """Of a page of the buffer that is paged."""
        offsets = (page * PAGE, 0) if self.paged == "source" else (0, page * PAGE)
        self.left.qp.write(
            self.source, self.target, 64, source_offset=offsets[0], target_offset=offsets[1]
        )
        self.left.run()
        (done,) = self.left.cq.poll()
        return done.entry.status

    def took(self, page: int) -> float:
        """The us of a write."""
        start = self.left.machines.clock.now
        assert self.write(page) is HcaStatus.SUCCESS
        return (self.left.machines.clock.now - start) / 1e6


def faults(side: Side) -> tuple[float, float, float]:
    """The us that a page takes that is present, absent for the first time, and evicted."""
    side.took(0)
    present = side.took(0)
    minor = side.took(1) - present
    side.pages.evict(PAGE)
    return present, minor, side.took(1) - present


def measure(scope: Scope) -> Iterator[Figure]:
    del scope
    costs = HcaCosts()
    minor_us, major_us = costs.minor_fault_ns / 1000, costs.major_fault_ns / 1000
    yield between("a minor fault, as published", minor_us, 3.5, 5.7, "us")
    yield near("a major fault, as published", major_us, 60.0, 0.05, "us")
    # the absent entry and the one written for it are read from the table: 8 bytes, twice
    table = 2 * (LINK.round_trip_ns / 1000 + LINK.time_ps(24 + 28) / 1e6)
    _, minor, major = faults(Side("source"))
    yield near("requester: a first touch takes longer by", minor, minor_us + table, 1e-3, "us")
    yield near("an evicted page", major, major_us + table, 1e-3, "us")
    present, minor, major = faults(Side("target"))
    text = "responder, which says RNR: a first touch takes longer by"
    yield between(text, minor, RNR_US, RNR_US + present + table, "us")
    # the table may be read while the fault ends
    least, most = major_us - table, major_us + RNR_US + present + table
    yield between("an evicted page", major, least, most, "us")
    status = Side("target", rnr_retry=0).write(0)
    yield equal("without RNR retries: status", status, HcaStatus.RNR_RETRY_EXC_ERR)


ROW = Row(
    number="C19",
    title="On-demand paging (NP-RDMA, 2023)",
    setup="WRITEs of 64 bytes from and to pages that are in memory, were never touched, or were "
    "evicted; 900 ns there and back on the bus, an RNR timer of 10 us.",
    expected="a minor fault takes 3.5 to 5.7 us and a major one 60 us, as NP-RDMA publishes of its "
    "own handling (abstract, arXiv 2310.11062). At the requester a fault delays the "
    "request by its time and two reads of the translation table; at the responder the requester "
    "waits in steps of the RNR timer.",
    fails="a fault is not waited for, or the responder does not say that it is not ready.",
    meaning="Memory that is not pinned can be used, but its first touch costs more than the whole "
    "request. A program whose RNR retry count is 0 fails at the first page that is absent.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    missing="the 1.75 to 2.85 ms that the publication implies for faults of adapters with ODP.",
)
