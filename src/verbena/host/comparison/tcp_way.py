# SPDX-License-Identifier: Apache-2.0
"""From one computer's memory to another's by TCP: charged processors, and what the adapters move.

Processors are charged by verbena.host.tcp_path, for a receiver that sleeps until the bytes are
there. The adapter's transactions are those of a doorbell, a descriptor and the frames by DMA, and
a descriptor written back for each frame, and an interrupt. ``ways.py`` lists it.
"""

from __future__ import annotations

from verbena.host.comparison.recording import Recording
from verbena.host.comparison.rows import Crossing, Row, Side
from verbena.host.comparison.settings import Setup, checked_size
from verbena.host.comparison.tcp_rows import TcpRows
from verbena.host.costs import Ledger
from verbena.host.pcie import Direction, Slot
from verbena.host.tcp_path import HEADERS, TcpPath

_DESCRIPTOR = 16
_ETHERNET = 14  # header of a frame, in memory
_ON_WIRE = 38  # with preamble, FCS and gap (IEEE 802.3)
_AFTER = ("hard_irq", "softirq_poll", "ack")  # of the sender, once the receiver answers


def by_tcp(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """A message by a stream socket."""
    path = TcpPath(ghz=setup.ghz, wakes=True)
    frames, segments = path.frames(checked_size(size)), path.segments(size, joined=True)
    sender, receiver = path.sender(size), path.receiver(size)
    near, far = Slot(setup.pcie), Slot(setup.pcie)
    rows = TcpRows(setup.ghz)
    if recording is not None:
        rows.follow("here", near)
        rows.follow("there", far)
        recording.begin(0, rows)
    before = {name: spent for name, spent in sender.cycles.items() if name not in _AFTER}
    at = near.store(rows.charge("here", 0, before, "system call"), 8)
    at = near.read_from_memory(at, _DESCRIPTOR * segments)
    at = near.read_from_memory(at, size + segments * (HEADERS + _ETHERNET))
    wire = round((size + frames * (HEADERS + _ON_WIRE)) * 8000 / setup.gbps)
    rows.send(at, wire, frames)
    at += wire + round(setup.wire_us * 1e6)
    at = far.write_to_memory(at, size + frames * (HEADERS + _ETHERNET))
    far.write_to_memory(at, _DESCRIPTOR * frames)
    at = far.message(at)
    latency = rows.charge("there", at, receiver.cycles, "interrupt")
    near.write_to_memory(at, _DESCRIPTOR)  # sent: the buffer is free again
    after = {name: sender.cycles[name] for name in _AFTER}
    rows.charge("here", near.message(at), after, "interrupt")
    rows.rest("here", latency)
    return Row(
        "tcp", size, latency, setup.ghz, _side(sender, near), _side(receiver, far),
        demands={"the wire": wire},
    )  # fmt: skip


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
