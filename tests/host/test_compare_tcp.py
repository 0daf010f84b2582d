# SPDX-License-Identifier: Apache-2.0
"""The comparison's TCP: each byte that crosses a PCIe link, and each store that is charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from verbena.host import Machines, Pcie, Ram
from verbena.host.comparison import Recording, Row, compare_ways
from verbena.host.comparison.rows import Crossing
from verbena.host.nic import (
    ENABLE,
    PACKETS,
    RX_RING,
    RX_SIZE,
    RX_TAIL,
    TX_RING,
    TX_SIZE,
    TX_TAIL,
    Cable,
    EthernetAdapter,
)
from verbena.host.pcie import Tlp

SIZE = 8192  # in one frame, and one segment
HEADERS = 14 + 20 + 32  # Ethernet, IPv4, TCP with time stamps
REGISTERS, RX, TX, BUFFERS, FRAMES = 1 << 32, 0x1000, 0x2000, 0x1_0000, 0x4_0000
Kinds = Counter[tuple[str, bool, int, int]]


def tcp(size: int) -> Row:
    (row,) = compare_ways(size, ["tcp"])
    return row


def counted(crossing: Crossing) -> tuple[int, int]:
    return crossing.bytes, crossing.transactions


def test_every_transaction_of_a_message_of_one_frame() -> None:
    """Headers are 24 bytes of a request and 20 of a completion; MRRS is 512, MPS 256 bytes. The
    frame has 8,258 bytes in memory, an acknowledgement 66."""
    row = tcp(SIZE)
    assert row.there is not None
    doorbell, descriptor, acknowledgement, interrupt = 24 + 8, 20 + 16, 66, 28
    frame, reads, packets = SIZE + HEADERS, 17, 33
    assert counted(row.here.to_device) == (
        2 * doorbell + 2 * descriptor + frame + packets * 20,
        2 + 2 + packets,
    )
    assert counted(row.here.to_memory) == (
        2 * 24 + reads * 24 + (24 + 4) + (24 + acknowledgement) + (24 + 8) + interrupt,
        2 + reads + 4,
    )
    assert counted(row.there.to_device) == (2 * doorbell + 2 * descriptor + 66 + 20, 5)
    assert counted(row.there.to_memory) == (
        24 + frame + packets * 24 + (24 + 8) + interrupt + 2 * 24 + (24 + 4),
        1 + packets + 1 + 1 + 2 + 1,
    )


def test_a_longer_message_takes_so_much_for_each_frame_and_segment() -> None:
    """1 MiB: 16 segments of 64 KiB, 118 frames of 8,948 bytes of data, 16 acknowledgements."""
    row, segments, frames = tcp(1 << 20), 16, 118
    assert row.there is not None
    per_segment = 65536 + HEADERS
    reads, packets = segments * -(-per_segment // 512), segments * -(-per_segment // 256)
    last = (1 << 20) - 117 * 8948
    writes = 117 * -(-(8948 + HEADERS) // 256) + -(-(last + HEADERS) // 256)
    assert counted(row.here.to_device) == (
        17 * 32 + 32 * 36 + (1 << 20) + segments * HEADERS + packets * 20,
        17 + 32 + packets,
    )
    assert counted(row.here.to_memory) == (
        32 * 24 + reads * 24 + 16 * (28 + 90 + 32) + 28,
        32 + reads + 16 * 3 + 1,
    )
    assert counted(row.there.to_device) == (
        17 * 32 + (frames + 16) * 36 + 16 * 86,
        17 + frames + 16 + 16,
    )
    assert counted(row.there.to_memory) == (
        frames * 24 + (1 << 20) + frames * HEADERS + writes * 24 + frames * 32 + 28 + 16 * 76,
        2 * frames + writes + 1 + 16 * 3,
    )


def test_each_store_to_an_adapter_is_charged() -> None:
    """A doorbell of each segment or acknowledgement, and one for the descriptors given back."""
    for size, stores in ((SIZE, 2), (1 << 20, 17)):
        for side in tcp(size).sides.values():
            assert side.charged["doorbell"] == stores * 100
            assert side.cycles == pytest.approx(sum(side.charged.values()), abs=len(side.charged))


def test_two_ethernet_adapters_have_the_same_transactions() -> None:
    """verbena.host.nic's adapters, driven with the message's frame and its acknowledgement."""
    recording = Recording()
    compare_ways(SIZE, ["tcp"], recording=recording)
    events = list(recording.events())
    for side, seen in zip(("here", "there"), driven(), strict=True):
        processes = [one for one in events if one["name"] == "process_name"]
        pid = next(one["pid"] for one in processes if one["args"]["name"].endswith(side))
        assert of_recording(events, pid) == of_link(seen), side


def of_recording(events: list[dict[str, object]], pid: int) -> Kinds:
    """Packets by kind, direction, data and bytes."""
    rows = {one["tid"]: str(one["args"]["name"]) for one in events  # type: ignore[index]
            if one["name"] == "thread_name" and one["pid"] == pid}  # fmt: skip
    return Counter(
        (one["name"], rows[one["tid"]].endswith("up"), one["args"]["data"], one["args"]["bytes"])  # type: ignore[index,misc]
        for one in events
        if one["ph"] == "X" and one["pid"] == pid and one["cat"] == "PCIe"
    )


def of_link(seen: Iterable[Tlp]) -> Kinds:
    return Counter((one.kind, one.up, one.data, one.bytes) for one in seen)


def driven() -> tuple[list[Tlp], list[Tlp]]:
    """What crosses the links of two adapters whose driver polls after one interrupt."""
    machines = Machines()
    ends = [EthernetAdapter(), EthernetAdapter()]
    computers = [machines.computer(name) for name in ("here", "there")]
    seen: tuple[list[Tlp], list[Tlp]] = ([], [])
    for number, (computer, adapter) in enumerate(zip(computers, ends, strict=True)):
        computer.map(Ram(1 << 20), 0)
        computer.map(adapter, REGISTERS, pcie=Pcie())
        size = HEADERS + (0 if number else SIZE)
        for place, address, length in ((RX, BUFFERS, 0), (TX, FRAMES, size)):
            text = address.to_bytes(8, "little") + length.to_bytes(8, "little")
            computer.write(place, text)
        # Here the interrupt tells of two: the frame is sent, and the acknowledgement there.
        for register, value in ((RX_RING, RX), (RX_SIZE, 1), (RX_TAIL, 1), (TX_RING, TX),
                                (TX_SIZE, 1), (ENABLE, 1), (PACKETS, 2 - number)):  # fmt: skip
            adapter.write(register, 8, value)
        assert adapter.slot is not None
        adapter.slot.observers.append(seen[number].append)
    Cable(ends[0], ends[1], gbps=100.0, delay_ns=1000.0)
    doorbell = (1).to_bytes(8, "little")
    computers[0].store(REGISTERS + TX_TAIL, doorbell)
    machines.run()
    ends[1].write(PACKETS, 8, 1000)  # it polls from now on
    computers[1].store(REGISTERS + RX_TAIL, (2).to_bytes(8, "little"))
    computers[1].store(REGISTERS + TX_TAIL, doorbell)
    machines.run()
    computers[0].store(REGISTERS + RX_TAIL, (2).to_bytes(8, "little"))
    machines.run()
    assert [one.received for one in ends] == [1, 1]
    return seen
