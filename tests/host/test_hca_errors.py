# SPDX-License-Identifier: Apache-2.0
"""The RDMA adapter when something is missing: packets, receives, pages, translations."""

from __future__ import annotations

import pytest

from verbena.host import DeviceFault, IommuFault, Pcie
from verbena.host.errors import HostError
from verbena.host.hca import HcaAccess, HcaStatus, Wire, connected
from verbena.host.hca.packets import Packet
from verbena.host.hca.pages import DemandPages
from verbena.host.hca.pair import Node

CONTENT = bytes(range(256)) * 64
BASE, SIZE = 0x10000, len(CONTENT)


class Dropping:
    """Loses the packets of the given numbers, counted from 0."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.count = set(numbers), 0

    def __call__(self, packet: Packet) -> bool:
        del packet
        self.count += 1
        return self.count - 1 in self.numbers


@pytest.mark.parametrize("lost", [(0,), (1,), (3,), (0, 4), (2, 3, 4)])
def test_lost_packets_are_sent_again(lost: tuple[int, ...]) -> None:
    left, right = connected(wire=Wire(mtu=4096, drop=Dropping(*lost)))
    left.computer.write(BASE, CONTENT)
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    left.qp.write(source, target)
    left.run()
    assert right.computer.read(BASE, SIZE) == CONTENT
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]


def test_a_wire_that_loses_all_ends_with_an_error_after_its_retries() -> None:
    left, right = connected(
        wire=Wire(drop=lambda packet: True), queue_pair={"retry": 2, "timeout_us": 50}
    )
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    for _ in range(2):
        left.qp.write(source, target, 64)
    left.run()
    statuses = [one.entry.status for one in left.cq.poll()]
    assert statuses == [HcaStatus.RETRY_EXC_ERR, HcaStatus.WR_FLUSH_ERR]
    assert left.computer.now >= 3 * 50_000_000


def test_a_send_waits_for_a_receive_and_gives_up_after_its_retries() -> None:
    left, right = connected(queue_pair={"rnr_us": 20, "rnr_retry": 3})
    there = right.register(BASE, SIZE)
    left.qp.send(b"early")
    left.run(30_000_000)
    right.qp.receive(there)
    left.run()
    assert right.computer.read(BASE, 5) == b"early"
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]
    left.qp.send(b"never")
    left.run()
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.RNR_RETRY_EXC_ERR]


def test_compare_and_swap_swaps_what_is_equal() -> None:
    left, right = connected()
    here, there = left.register(BASE, SIZE), right.register(BASE, SIZE)
    right.computer.write(BASE, (7).to_bytes(8, "little"))
    for number, (compare, swap) in enumerate([(6, 1), (7, 2)]):
        left.qp.compare_and_swap(here, there, compare, swap, into_offset=8 * number)
        left.run()
        value = int.from_bytes(right.computer.read(BASE, 8), "little")
        assert value == (7, 2)[number]
    assert left.computer.read(BASE, 16) == (7).to_bytes(8, "little") * 2


@pytest.mark.parametrize("count", [2, 8, 32])
def test_a_batch_has_one_doorbell(count: int) -> None:
    """The requests come by one DMA: 32 + 64k bytes of doorbell and fetch, not k times 32 + 84."""
    left, right = connected(pcie=Pcie(tags=256))
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    left.qp.write(source, target, 64)
    left.run()
    left.slot.reset_counts()
    seen = left.watch()
    for number in range(count):
        left.qp.write(source, target, 64, ring=False, signalled=number == count - 1)
    left.qp.ring()
    left.run()
    doorbells = [one for one in seen if not one.up and one.kind == "MWr"]
    assert len(doorbells) == 1
    fetch = 64 * count + -(-64 * count // 256) * 20
    assert left.slot.down.bytes == 32 + fetch + count * (64 + 20)
    assert left.slot.up.bytes == -(-64 * count // 512) * 24 + count * 24 + 88
    assert len(left.cq.poll()) == 2  # of the first request, and of the last of the batch


def test_a_cold_translation_costs_a_read_of_the_table() -> None:
    """With room for 4 translations, 8 pages in turn miss each time, and 4 never after the first."""
    times = {}
    for pages in (4, 8):
        left, right = connected(hca={"translations": 4})
        source = left.register(BASE, 4096 * 8)
        target = right.register(BASE, 4096)
        for _ in range(2):  # the second round is measured
            seen = left.watch()
            start = left.computer.now
            for page in range(pages):
                left.qp.write(source, target, 64, source_offset=4096 * page)
                left.run()
            times[pages] = (left.computer.now - start) / pages
        reads = [one for one in seen if one.up and one.kind == "MRd"]
        assert len(reads) == pages * (2 if pages == 4 else 3)
    assert times[8] - times[4] == pytest.approx(900_000, rel=0.1)


def test_an_absent_page_is_brought_when_the_adapter_needs_it() -> None:
    """Without on_demand registration pins the pages; with it the access waits for each."""
    left, right = connected()
    there = DemandPages(right.computer, 0x400000, 4)
    target = right.driver.register(0, SIZE, pages=there, on_demand=True)
    left.computer.write(BASE, CONTENT)
    source = left.register(BASE, SIZE)
    assert there.physical(0) is None
    left.qp.write(source, target)
    left.run()
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]
    frames = [there.physical(page) for page in range(0, SIZE, 4096)]
    assert None not in frames
    data = b"".join(right.computer.read(frame, 4096) for frame in frames if frame is not None)
    assert data == CONTENT
    pinned = right.driver.register(0, 4096, pages=there)
    with pytest.raises(HostError, match="is pinned"):
        there.evict(0)
    pinned.deregister()
    there.evict(0)


def test_a_read_waits_for_a_page_longer_than_for_its_answer() -> None:
    """Its time runs out meanwhile: it begins anew, and what came before does not count."""
    for timeout in [*range(10, 50, 5), *range(50, 64), 200]:
        left, right = connected(queue_pair={"timeout_us": timeout})
        right.computer.write(BASE, CONTENT)
        here = DemandPages(left.computer, 0x400000, 2)
        for page in range(4):  # the first two are in storage then
            here.write(4096 * page, bytes(4096))
        target = left.driver.register(0, SIZE, pages=here, on_demand=True)
        left.qp.read(target, right.register(BASE, SIZE), 8192)
        time, found = left.computer.now, []
        while not found:
            time += 500_000
            left.run(time)
            found = left.cq.poll()
        assert [one.entry.status for one in found] == [HcaStatus.SUCCESS]
        assert target.faults["major"] == 2
        assert here.read(0, 8192) == CONTENT[:8192]


@pytest.mark.parametrize("iommu", [False, True])
def test_a_page_may_leave_at_any_time(iommu: bool) -> None:
    """Whatever the adapter has read of the table by then, the bytes come to where the page is."""
    refused = 0
    for time in range(0, 16_000_000, 200_000):
        left, right = connected(iommu=iommu)
        left.computer.write(BASE, CONTENT)
        there = DemandPages(right.computer, 0x400000, 2)
        there.write(0, bytes(8192))
        target = right.driver.register(0, 4096, pages=there, on_demand=True)
        left.qp.write(left.register(BASE, SIZE), target, 4096)
        left.run(left.computer.now + time)
        if right.computer.dma_is_under_way(0x400000):
            refused += 1
            with pytest.raises(HostError, match="reads or writes the page at 0x0 now"):
                there.evict(0)
        else:
            there.evict(0)
            there.write(8192, bytes(4096))  # another page has the frame
            assert there.physical(8192) == 0x400000
        left.run()
        assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]
        assert there.read(0, 4096) == CONTENT[:4096]
        assert there.read(8192, 4096) == bytes(4096)
    assert 0 < refused < 30


def test_dma_goes_by_the_iommu_and_what_is_not_mapped_is_refused_by_name() -> None:
    left, right = connected(iommu=True)
    left.computer.write(BASE, CONTENT)
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    left.qp.write(source, target)
    left.run()
    assert right.computer.read(BASE, SIZE) == CONTENT
    assert right.hca.iommu is not None
    right.hca.iommu.unmap(BASE, 4096)
    left.qp.write(source, target, 64)
    with pytest.raises(HostError, match=r"may not write to 0x10000, which is not mapped"):
        left.run()


def test_a_doorbell_on_the_page_of_another_process_is_refused() -> None:
    left, right = connected()
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    left.qp.write(source, target, 64, ring=False)
    words = (left.qp.number | 1 << 32).to_bytes(8, "little")
    left.driver.store(2, 0, words)
    left.run()
    assert left.cq.poll() == []
    assert [(one.qpn, one.what) for one in left.hca.refusals] == [
        (left.qp.number, "a doorbell on page 2")
    ]
    left.driver.store(1, 0, words)
    left.run()
    assert len(left.cq.poll()) == 1


def test_a_region_of_another_adapter_is_refused_where_it_is_named() -> None:
    left, right = connected()
    here, there = left.register(0, 64), right.register(0, 64)
    assert here.key == there.key  # so the adapter could not tell them apart
    local = "a local buffer is registered at Hca of 'left', and not at Hca of 'right'"
    remote = "names at the peer is registered at Hca of 'right', and not at Hca of 'left'"
    for ask, text in (
        (lambda: left.qp.send(there), local),
        (lambda: left.qp.receive(there), local),
        (lambda: left.qp.write(there, there), local),
        (lambda: left.qp.write(here, here), remote),
        (lambda: left.qp.read(here, here), remote),
        (lambda: left.qp.fetch_and_add(here, here, 1), remote),
    ):
        with pytest.raises(HostError, match=text):
            ask()


def test_a_region_of_another_computer_with_the_same_name_is_told_apart() -> None:
    left, _ = connected()
    _, other = connected()
    with pytest.raises(HostError, match="'right', of another computer with that name: each"):
        left.qp.write(left.register(0, 64), other.register(0, 64))


class DropsOnce:
    """Loses the request's packet with this PSN once."""

    def __init__(self, psn: int | None) -> None:
        self.psn = psn

    def __call__(self, packet: Packet) -> bool:
        lost = packet.reply is None and packet.psn == self.psn
        if lost:
            self.psn = None
        return lost


@pytest.mark.parametrize("lost", [None, 1, 2, 3])
@pytest.mark.parametrize("is_send", [False, True], ids=["write", "send"])
def test_what_is_refused_is_refused_also_when_a_later_packet_is_lost(
    lost: int | None, is_send: bool
) -> None:
    """To ask for a lost packet acknowledges those before it, which are carried out first."""
    left, right = connected(wire=Wire(drop=DropsOnce(lost)))
    left.computer.write(BASE, CONTENT)
    source, target = left.register(BASE, 4096), right.register(0x200000, SIZE)
    locked = right.register(0x300000, 4096, access=HcaAccess.LOCAL_WRITE)
    for number in range(4):
        if is_send:
            right.qp.receive(target, 64 if number == 1 else 4096, id=number)
            left.qp.send(source, 4096, id=number)
        else:
            left.qp.write(source, locked if number == 1 else target, id=number)
    left.run()
    refused = HcaStatus.REM_INV_REQ_ERR if is_send else HcaStatus.REM_ACCESS_ERR
    flushed = HcaStatus.WR_FLUSH_ERR
    assert [(one.id, one.entry.status) for one in left.cq.poll()] == [
        (0, HcaStatus.SUCCESS),
        (1, refused),
        (2, flushed),
        (3, flushed),
    ]
    assert right.computer.read(0x300000, 64) == bytes(64)


def test_an_adapter_that_is_away_while_packets_are_lost_has_all_that_it_acknowledged() -> None:
    """For each of many moments: a packet is lost, the adapter goes, and it comes back."""
    done = 0
    for lost in (3, 9, 17, 35):
        for time in range(22_000_000, 34_000_000, 1_500_000):
            left, right = connected(
                wire=Wire(drop=DropsOnce(lost)), queue_pair={"timeout_us": 50.0}
            )
            left.computer.write(BASE, 4 * CONTENT)
            source, target = left.register(BASE, 4 * SIZE), right.register(0x200000, 16 * SIZE)
            for number in range(4):
                left.qp.write(source, target, target_offset=number * 4 * SIZE, id=number)
            left.run(until=time)
            right.hca.fail(DeviceFault.GONE)
            left.run(until=time + 100_000_000)
            right.hca.fail(None)
            left.run(until=10**12)
            for one in left.cq.poll():
                if one.entry.status is HcaStatus.SUCCESS:
                    done += 1
                    place = 0x200000 + one.id * 4 * SIZE
                    assert right.computer.read(place, 4 * SIZE) == 4 * CONTENT
    assert done > 10


def run_through(machine: Node, until: int) -> None:
    """Runs on where an IOMMU refuses DMA, which it tells of each transfer."""
    is_refused = True
    while is_refused:
        is_refused = False
        try:
            machine.run(until=until)
        except IommuFault:
            is_refused = True


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", ["read", "write", "send", "atomic"])
def test_what_an_iommu_refuses_meanwhile_is_no_success(kind: str, count: int) -> None:
    """For each of many moments the range of the destination is taken from the adapter."""
    size = 8 if kind == "atomic" else SIZE // count
    ended = set()
    for time in range(1_000_000, 24_000_000, 250_000):
        left, right = connected(iommu=True, queue_pair={"timeout_us": 50.0})
        near, far = left.register(BASE, SIZE), right.register(BASE, SIZE)
        local, remote = left.register(0x400000, SIZE), right.register(0x200000, SIZE)
        left.computer.write(BASE, CONTENT)
        right.computer.write(BASE, CONTENT)
        for number in range(count):
            at = number * size
            if kind == "read":
                left.qp.read(local, far, size, into_offset=at, source_offset=at, id=number)
            elif kind == "write":
                left.qp.write(near, remote, size, source_offset=at, target_offset=at, id=number)
            elif kind == "send":
                right.qp.receive(remote, size, offset=at, id=number)
                left.qp.send(near, size, source_offset=at, id=number)
            else:
                left.qp.fetch_and_add(local, remote, 7, target_offset=at, id=number)
        left.run(until=time)
        where, place = (left, 0x400000) if kind == "read" else (right, 0x200000)
        assert where.hca.iommu is not None
        where.hca.iommu.unmap(place, SIZE)
        run_through(left, time + 10**10)
        expected = (7).to_bytes(8, "little") * count if kind == "atomic" else CONTENT
        told = [*left.cq.poll(), *(right.cq.poll() if kind == "send" else [])]
        assert {one.id for one in told} == set(range(count))
        for one in told:
            ended.add(one.entry.status)
            if one.entry.status is HcaStatus.SUCCESS:
                at = one.id * size
                assert where.computer.read(place + at, size) == expected[at : at + size]
    refused = HcaStatus.LOC_PROT_ERR if kind == "read" else HcaStatus.REM_OP_ERR
    assert {HcaStatus.SUCCESS, refused} <= ended


@pytest.mark.parametrize("vector", [-1, 31, 256, 300])
def test_a_vector_that_is_none_is_refused_before_an_interrupt(vector: int) -> None:
    with pytest.raises(HostError, match=f"32 to 255, .*: not {vector}"):
        connected(vector=vector)


def test_a_registration_that_fails_gives_back_its_pins_key_and_part_of_the_table() -> None:
    left, _ = connected()
    pages = DemandPages(left.computer, 0x400000, 3)
    for _ in range(5):
        with pytest.raises(HostError, match="no frame for the page at 0x3000"):
            left.driver.register(0, 4 * 4096, pages=pages)
    kept = left.driver.register(0, 3 * 4096, pages=pages)
    kept.deregister()
    for page in range(3):
        pages.evict(4096 * page)


def test_freed_parts_of_the_table_serve_a_larger_region() -> None:
    left, _ = connected(ram=64 << 20)
    whole = 16384 * 4096
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        parts = [left.register(part * whole // 4, whole // 4) for part in range(4)]
        with pytest.raises(HostError, match="has no room for 1 pages"):
            left.register(0, 64)
        for each in order:
            parts[each].deregister()
        left.register(0, whole).deregister()


def test_a_long_message_to_a_slow_responder_is_sent_once() -> None:
    """Each page is a translation that is not in the cache: what waits there takes longer than the
    timeout, and acknowledgements within the message say that it goes on."""
    size, sent = 24 << 20, []

    def note(packet: Packet) -> bool:
        if packet.reply is None:
            sent.append(packet.psn)
        return False

    left, right = connected(wire=Wire(drop=note), ram=64 << 20, queue_pair={"timeout_us": 200.0})
    source, target = left.register(0, size), right.register(0, size)
    left.qp.write(source, target)
    left.run()
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]
    assert sent == sorted(set(sent))
