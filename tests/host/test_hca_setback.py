# SPDX-License-Identifier: Apache-2.0
"""The RDMA adapter when it fails or is unmapped in the middle of something, and comes back.

A completion that says SUCCESS speaks of bytes that are there, every request completes, and a new
queue pair works; whatever was under way.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.host import DeviceFault, Pcie
from verbena.host.hca import HcaStatus, Node, QpState, connected
from verbena.host.hca.pages import DemandPages

BASE, SIZE = 0x100000, 65536
SHORT = {"timeout_us": 50.0, "retry": 2}
FAULTS = ("SILENT", "GONE", "unmapped")
US = 1_000_000


def interrupt_service(node: Node, what: str, after_ps: int, for_ps: int) -> None:
    """Lets an adapter be away for a while."""
    hca, computer, base = node.hca, node.computer, node.hca.base
    assert base is not None

    def leave() -> None:
        if what == "unmapped":
            computer.unmap(base)
        else:
            hca.fail(DeviceFault[what])

    def back() -> None:
        if what == "unmapped":
            computer.map(hca, base, pcie=Pcie())
        else:
            hca.fail(None)

    computer.at(computer.now + after_ps, leave)
    computer.at(computer.now + after_ps + for_ps, back)


def statuses(node: Node) -> list[HcaStatus]:
    return [one.entry.status for one in node.cq.poll()]


def check_new_pair(left: Node, right: Node) -> None:
    """A new queue pair moves data both ways."""
    mine, other = (one.driver.queue_pair(one.cq, timeout_us=50.0) for one in (left, right))
    mine.connect(other)
    source, target = left.register(0x300000, 4096), right.register(0x300000, 4096)
    for node, qp, here, there in ((left, mine, source, target), (right, other, target, source)):
        node.computer.write(0x300000, node.computer.name.encode().ljust(8))
        qp.write(here, there)
        left.run()
        assert statuses(node) == [HcaStatus.SUCCESS]
        qp.fetch_and_add(here, there, 0)
        left.run()
        assert statuses(node) == [HcaStatus.SUCCESS]
        for one in (left, right):
            assert one.computer.read(0x300000, 8) == node.computer.name.encode().ljust(8)


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("opcode", ["write", "read"])
def test_success_speaks_of_bytes_that_are_there(opcode: str, side: str, what: str) -> None:
    def when_all_is_there() -> int:
        """In ns: a run without a setback, up to the last byte of payload."""
        left, right = connected(queue_pair=SHORT)
        node, times = right if opcode == "write" else left, [0]

        def show(kind: str, address: int, size: int) -> None:
            if kind == "write" and address < BASE + SIZE:
                times.append(node.computer.now)

        node.computer.memory_observers.append(show)
        source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
        getattr(left.qp, opcode)(source, target)
        left.run()
        return times[-1] // 1000

    found: set[HcaStatus] = set()
    end = when_all_is_there()
    for time in (250, 900, *range(3000, end - 1000, 1500), *range(end - 900, end + 900, 90)):
        left, right = connected(queue_pair=SHORT)
        source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
        left.computer.write(BASE, b"L" * SIZE)
        right.computer.write(BASE, b"R" * SIZE)
        interrupt_service({"left": left, "right": right}[side], what, time * 1000, 100_000)
        getattr(left.qp, opcode)(source, target)
        left.run()
        (status,) = statuses(left)
        found.add(status)
        reader, text = (right, b"L") if opcode == "write" else (left, b"R")
        if status is HcaStatus.SUCCESS:
            assert left.qp.state is QpState.RTS
            assert reader.computer.read(BASE, SIZE) == text * SIZE, time
        else:
            assert left.qp.state is QpState.ERROR
            check_new_pair(left, right)
    lost = HcaStatus.WR_FLUSH_ERR if side == "left" else HcaStatus.RETRY_EXC_ERR
    assert found == {HcaStatus.SUCCESS, lost}


ROOM = 16384  # bytes of each request's place


def post(left: Node, right: Node, kind: str, place: int, length: int, told: bool) -> None:
    """Posts a request whose bytes are ``place`` + 1, and adds that to what is 0."""
    at = BASE + place * ROOM
    source, target = left.register(at, ROOM), right.register(at, ROOM)
    data = bytes([place + 1]) * length
    (right if kind == "read" else left).computer.write(at, data)
    if kind == "write":
        left.qp.write(source, target, length, signalled=told, id=place)
    elif kind == "read":
        left.qp.read(source, target, length, signalled=told, id=place)
    elif kind == "send":
        right.qp.receive(target, id=place)
        left.qp.send(source, length, signalled=told, id=place)
    elif kind == "add":
        left.qp.fetch_and_add(source, target, place + 1, id=place)
    else:
        left.qp.write(data[:64], target, signalled=told, blueflame=True, id=place)


def is_there(left: Node, right: Node, kind: str, place: int, length: int) -> bool:
    """Whether the bytes of a request are where they belong."""
    node, at = left if kind == "read" else right, BASE + place * ROOM
    if kind == "add":
        return int.from_bytes(node.computer.read(at, 8), "little") == place + 1
    length = min(length, 64) if kind == "inline" else length
    return node.computer.read(at, length) == bytes([place + 1]) * length


REQUESTS = st.tuples(
    st.sampled_from(["write", "read", "send", "add", "inline"]),
    st.sampled_from([8, 64, 4096, 9000]),
    st.booleans(),  # signalled
)
SETBACKS = st.tuples(
    st.booleans(),  # left
    st.sampled_from(FAULTS),
    st.integers(0, 20 * US),  # after the one before
    st.sampled_from([0, 1000, 100_000, 3 * US]),
)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=8),
    setbacks=st.lists(SETBACKS, min_size=1, max_size=2),
    iommu=st.booleans(),
)
def test_all_requests_complete_whatever_happens_to_the_adapters(
    requests: list[tuple[str, int, bool]],
    setbacks: list[tuple[bool, str, int, int]],
    iommu: bool,
) -> None:
    left, right = connected(queue_pair=SHORT, iommu=iommu)
    now = 0
    for is_left, what, after, length in setbacks:
        what = "GONE" if iommu else what  # it would be mapped again without its IOMMU
        interrupt_service(left if is_left else right, what, now + after, length)
        now += after + length + 1
    last = len(requests) - 1
    for place, (kind, length, told) in enumerate(requests):
        post(left, right, kind, place, length, told or place == last)
    left.run()
    found = {one.id: one.entry.status for one in left.cq.poll()}
    assert last in found
    if set(found.values()) == {HcaStatus.SUCCESS}:
        good = last + 1
    else:
        assert left.qp.state is QpState.ERROR
        good = max(
            (one for one, status in found.items() if status is HcaStatus.SUCCESS), default=-1
        )
        good += 1
        told = {place for place, (kind, _, told) in enumerate(requests) if told or kind == "add"}
        assert found.keys() >= told
    for place, (kind, length, _) in enumerate(requests[:good]):
        assert is_there(left, right, kind, place, length)
    received = [one.id for one in right.cq.poll()]
    if right.qp.state is QpState.ERROR:
        assert received == [place for place, one in enumerate(requests) if one[0] == "send"]
    check_new_pair(left, right)


def test_packets_for_an_adapter_that_is_away_are_lost_and_sent_again() -> None:
    for what in FAULTS:
        left, right = connected(queue_pair=SHORT)
        source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
        left.qp.write(source, right.register(0x400000, 64), 64)  # its queue pair is in the cache
        left.run()
        assert statuses(left) == [HcaStatus.SUCCESS]
        left.computer.write(BASE, b"L" * SIZE)
        interrupt_service(right, what, 0, 70 * US)
        left.qp.write(source, target)
        left.run()
        assert statuses(left) == [HcaStatus.SUCCESS]
        assert right.computer.read(BASE, SIZE) == b"L" * SIZE


def test_a_packet_that_waits_for_its_queue_pair_is_one_that_is_lost() -> None:
    """The adapter was reading its table for the first packet: it has nothing else under way."""
    found = set()
    for time in range(3000, 8000, 200):
        left, right = connected(queue_pair=SHORT)
        source, target = left.register(BASE, 64), right.register(BASE, 64)
        interrupt_service(right, "SILENT", time * 1000, 1000)
        left.qp.write(source, target)
        left.run()
        expected = {QpState.RTS: HcaStatus.SUCCESS, QpState.ERROR: HcaStatus.RETRY_EXC_ERR}
        (status,) = statuses(left)
        if left.qp.state is QpState.ERROR or right.qp.state is QpState.RTS:
            assert status is expected[right.qp.state]
        found.add(status)
        check_new_pair(left, right)
    assert found == {HcaStatus.SUCCESS, HcaStatus.RETRY_EXC_ERR}


def test_an_atomic_that_was_dropped_holds_up_no_other() -> None:
    found = set()
    for time in range(3000, 8000, 200):
        left, right = connected(queue_pair=SHORT)
        source, target = left.register(BASE, 8), right.register(BASE, 8)
        interrupt_service(right, "SILENT", time * 1000, 1000)
        left.qp.fetch_and_add(source, target, 5)
        left.run()
        (status,) = statuses(left)
        added = int.from_bytes(right.computer.read(BASE, 8), "little")
        assert added == 5 if status is HcaStatus.SUCCESS else added in (0, 5)
        found.add(status)
        check_new_pair(left, right)
    assert found == {HcaStatus.SUCCESS, HcaStatus.RETRY_EXC_ERR}


def test_a_peer_that_is_gone_for_good_ends_the_retries() -> None:
    left, right = connected(queue_pair=SHORT)
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    assert right.hca.base is not None
    left.qp.write(source, target)
    left.run(left.computer.now + 4 * US)
    right.computer.unmap(right.hca.base)
    left.run()
    assert statuses(left) == [HcaStatus.RETRY_EXC_ERR]


def test_doorbells_that_nobody_heard_are_rung_again() -> None:
    left, right = connected(vector=50, queue_pair=SHORT)
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    left.computer.write(BASE, b"L" * 64)
    interrupts: list[str] = []
    left.computer.memory_observers.append(lambda kind, address, size: interrupts.append(kind))
    left.hca.fail(DeviceFault.SILENT)
    left.cq.arm()
    left.qp.write(source, target, 64)
    left.run()
    assert statuses(left) == []
    left.hca.fail(None)
    left.run()
    assert statuses(left) == [HcaStatus.SUCCESS]
    assert right.computer.read(BASE, 64) == b"L" * 64
    assert interrupts.count("MSI") == 1


@pytest.mark.parametrize("msix", [False, True])
def test_whoever_waits_for_an_interrupt_gets_one(msix: bool) -> None:
    for time in range(0, 9 * US, US // 5):
        left, right = connected(vector=50, queue_pair=SHORT, msix=msix)
        source, target = left.register(BASE, 64), right.register(BASE, 64)
        seen: list[str] = []
        left.cq.arm()
        left.run()
        left.computer.memory_observers.append(lambda kind, *_, seen=seen: seen.append(kind))  # type: ignore[misc]
        interrupt_service(left, "SILENT", time, 1000)
        left.qp.write(source, target)
        left.run()
        assert len(left.cq.poll()) == 1
        assert 1 <= seen.count("MSI") <= 2


def test_doorbells_of_machine_code_are_not_taken_for_lost_ones() -> None:
    left, right = connected()
    source, target = left.register(BASE, 64), right.register(BASE, 64)
    left.qp.write(source, target, ring=False)
    left.driver.store(1, 0, (left.qp.number | 1 << 32).to_bytes(8, "little"))
    left.run()
    left.hca.fail(DeviceFault.GONE)
    left.run()
    left.hca.fail(None)
    left.run()
    assert statuses(left) == [HcaStatus.SUCCESS]
    assert left.hca.refusals == []


def test_a_receive_that_a_message_has_begun_to_fill_is_flushed_with_the_others() -> None:
    left, right = connected(queue_pair=SHORT)
    source, target = left.register(BASE, SIZE), right.register(BASE, SIZE)
    for number in range(3):
        right.qp.receive(target, id=number)
    interrupt_service(right, "SILENT", 8 * US, 1000)
    left.qp.send(source)
    left.run()
    assert statuses(left) == [HcaStatus.RETRY_EXC_ERR]
    found = right.cq.poll()
    assert [one.id for one in found] == [0, 1, 2]
    assert {one.entry.status for one in found} == {HcaStatus.WR_FLUSH_ERR}


def test_requests_that_wait_for_a_page_are_flushed_too() -> None:
    for time in range(0, 30 * US, 2 * US):
        left, right = connected(queue_pair=SHORT)
        pages = DemandPages(left.computer, 0x400000, 4)
        source = left.driver.register(0, 4 * 4096, pages=pages, on_demand=True)
        interrupt_service(left, "GONE", time, 1000)
        left.qp.write(source, right.register(BASE, SIZE), 4 * 4096)
        left.run()
        assert len(left.cq.poll()) == 1
        check_new_pair(left, right)
