# SPDX-License-Identifier: Apache-2.0
"""From one computer's memory to another's by TCP: charged processors, and what the adapters move.

Processors are charged by verbena.host.tcp_path, for a receiver that sleeps until the bytes are
there. What crosses each PCIe link is what verbena.host.nic's adapters take for the same frames,
except that one descriptor is of a segment of up to 64 KiB, which the adapter splits:

    out   a doorbell for each segment; its descriptor and its bytes by DMA; its status written back
    in    a descriptor for each frame; the frame, and its length and status, by DMA; one interrupt
    then  one doorbell that gives the descriptors of the round back to the adapter

The message goes so from here to there, and its acknowledgements from there to here. The status of
what was sent raises no interrupt of its own: it is looked at with the next. ``ways.py`` lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from verbena.host.comparison.recording import Recording
from verbena.host.comparison.rows import Crossing, Row, Side
from verbena.host.comparison.settings import Setup, checked_size
from verbena.host.comparison.tcp_rows import TcpRows
from verbena.host.costs import Ledger
from verbena.host.nic import DESCRIPTOR, SHORTEST
from verbena.host.pcie import Slot
from verbena.host.pcie_direction import Direction
from verbena.host.tcp_path import HEADERS, SEGMENT, TcpPath

_REGISTER = 8  # bytes of a store to one
_SENT, _RECEIVED = 4, 8  # bytes of a descriptor that are written back
_FRAME = HEADERS + SHORTEST  # bytes of a frame in memory beside its data
_ON_WIRE = HEADERS + 38  # with preamble, Ethernet header, FCS and gap (IEEE 802.3)
_AFTER = ("hard_irq", "softirq_poll", "ack")  # of the sender, once the receiver answers
_AWAKE = ("wakeup", "syscall", "copy_memory", "copy_l3")  # of the receiver, behind its poll

_Frames = list[tuple[int, int]]  # when each is there, in ps, and its bytes of data
_Part = tuple[int, int]  # the segment that has a frame's last byte, and the frame's bytes of data


def by_tcp(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """A message by a stream socket."""
    path = TcpPath(ghz=setup.ghz, wakes=True)
    acks = [0] * path.acknowledgements(checked_size(size))  # bytes of data in each
    sender, receiver = path.sender(size), path.receiver(size)
    posting, answered = _parted(sender, _AFTER)
    polled, awake = _parted(receiver, _AWAKE)
    answered["doorbell"] = sender.add("doorbell")
    polled["doorbell"] = receiver.add("doorbell", len(acks) + 1)
    near, far = Slot(setup.pcie), Slot(setup.pcie)
    rows = TcpRows(setup.ghz)
    if recording is not None:
        rows.follow("here", near)
        rows.follow("there", far)
        recording.begin(0, rows)
    wire = _Wire(setup, rows)

    at = rows.charge("here", 0, posting, "system call")
    fetched = _fetched(near, at, _parts(size, SEGMENT))
    frames = wire.carry("here", near, fetched, _frames(size, path.mtu - HEADERS))
    at = far.message(_received(far, frames))

    at = rows.charge("there", at, polled, "interrupt")
    latency = rows.charge("there", at, awake, "interrupt")
    far.store(at, _REGISTER)  # descriptors for further frames
    fetched = _fetched(far, at, acks)
    frames = wire.carry("there", far, fetched, list(enumerate(acks)))
    at = rows.charge("here", near.message(_received(near, frames)), answered, "interrupt")
    near.store(at, _REGISTER)
    rows.rest("here", latency)
    return Row(
        "tcp", size, latency, setup.ghz, _side(sender, near), _side(receiver, far),
        demands={f"the wire from {name}": busy for name, busy in wire.busy.items()},
    )  # fmt: skip


def _parted(ledger: Ledger, later: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
    """The cycles by name without those of ``later``, and these."""
    spent = ledger.cycles
    first = {name: cycles for name, cycles in spent.items() if name not in later}
    return first, {name: cycles for name, cycles in spent.items() if name in later}


def _parts(size: int, most: int) -> list[int]:
    """``size`` bytes in parts of ``most`` and the rest."""
    return [min(most, size - start) for start in range(0, size, most)]


def _frames(size: int, most: int) -> list[_Part]:
    """The frames of a message, which are full but the last, whatever the segments' borders."""
    ends = [*range(most, size, most), size]
    return [((end - 1) // SEGMENT, end - start) for start, end in pairwise([0, *ends])]


# ---- what the adapters and the wire do ----


def _fetched(slot: Slot, at: int, segments: Iterable[int]) -> _Frames:
    """Rings a doorbell for each segment; when its bytes are in the adapter."""
    asked = [
        (slot.read_from_memory(bell, DESCRIPTOR), size)
        for size, bell in [(size, slot.store(at, _REGISTER)) for size in segments]
    ]
    return [(slot.read_from_memory(when, size + _FRAME), size) for when, size in asked]


def _received(slot: Slot, frames: _Frames) -> int:
    """Lets an adapter write frames to memory as they come; when the last is there."""
    done, waiting = 0, [(at, number, False) for number, (at, _) in enumerate(frames)]
    heapify(waiting)
    while waiting:
        at, number, has_descriptor = heappop(waiting)
        if has_descriptor:
            slot.write_to_memory(at, frames[number][1] + _FRAME)
            done = slot.write_to_memory(at, _RECEIVED)
        else:
            heappush(waiting, (slot.read_from_memory(at, DESCRIPTOR), number, True))
    return done


class _Wire:
    """Both directions of the cable; ``busy`` has the ps of each, by its sender."""

    def __init__(self, setup: Setup, rows: TcpRows) -> None:
        self._rows, self._gbps = rows, setup.gbps
        self._delay = round(setup.wire_us * 1e6)
        self.busy = {"here": 0, "there": 0}

    def carry(self, side: str, slot: Slot, segments: _Frames, frames: list[_Part]) -> _Frames:
        """Sends the frames, and lets the adapter note each segment as sent; when they arrive.

        A frame leaves when the segment that has its last byte is in the adapter.
        """
        made: _Frames = []
        free = 0
        for number, (segment, data) in enumerate(frames):
            took = round((data + _ON_WIRE) * 8000 / self._gbps)
            start = max(free, segments[segment][0])
            free = start + took
            self.busy[side] += took
            self._rows.send(side, start, took)
            made.append((free + self._delay, data))
            if number + 1 == len(frames) or frames[number + 1][0] != segment:
                slot.write_to_memory(free, _SENT)
        return made


def _side(ledger: Ledger, slot: Slot) -> Side:
    return Side(
        cycles=round(ledger.total),
        charged={name: round(cycles) for name, cycles in ledger.cycles.items()},
        copied=ledger.copied_bytes,
        interrupts=1,
        system_calls=1,
        to_device=_crossing(slot.down),
        to_memory=_crossing(slot.up),
    )


def _crossing(direction: Direction) -> Crossing:
    return Crossing(direction.transactions, direction.bytes, direction.busy)
