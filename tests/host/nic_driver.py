# SPDX-License-Identifier: Apache-2.0
"""A driver of the Ethernet adapter in machine code, and what its frames take of the PCIe links.

Tests of the adapter call it, and row C2 of `make validate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena.host import Cable, Computer, EthernetAdapter, Pcie, Program, Ram
from verbena.host.machines import Machines
from verbena.host.nic import ENABLE, PACKETS, RX_RING, RX_SIZE, RX_TAIL, TX_RING, TX_SIZE

NIC = 1 << 30
FRAME, SEND_RING, RECEIVE_RING, BUFFERS = 0x8000, 0xC000, 0x10000, 0x20000
RING, BUFFER = 64, 0x800  # descriptors of each ring, bytes from one buffer to the next
VECTOR, TABLE, TABLE_POINTER = 43, 0x6000, 0x5FF0

DRIVER = """
    mov   rsp, 0x5000
    lidt  [{pointer}]
    mov   rbx, {nic}
    mov   r9, {ring}            ; descriptors given to the adapter
    xor   r8d, r8d              ; frames given to it
    sti
    cmp   r8, {count}
    je    idle
    add   r8, {each}
    mov   [rbx+0x28], r8        ; TX_TAIL
idle:
    hlt
    jmp   idle
handler:
    mov   rax, [rbx+0x38]       ; CAUSE
    test  al, 1
    jz    transmitted
    add   r9, {each}
    mov   [rbx+0x10], r9        ; RX_TAIL: the buffers may be filled again
transmitted:
    test  al, 2
    jz    done
    cmp   r8, {count}
    je    done
    add   r8, {each}
    mov   [rbx+0x28], r8
done:
    iretq
"""


@dataclass(frozen=True)
class FrameBytes:
    """Bytes of the links for each frame, to memory (up) and to the adapter (down)."""

    sender_up: float
    sender_down: float
    receiver_up: float
    receiver_down: float

    @property
    def up(self) -> float:
        """Of a frame that is sent and one that is received."""
        return self.sender_up + self.receiver_up

    @property
    def down(self) -> float:
        return self.sender_down + self.receiver_down


def _driven(computer: Computer, size: int, count: int, each: int) -> EthernetAdapter:
    """A computer whose driver sends ``count`` frames of ``size`` bytes, ``each`` at a time."""
    adapter = EthernetAdapter(VECTOR)
    computer.map(Ram(1 << 20), 0)
    computer.map(adapter, NIC, pcie=Pcie())
    for number in range(RING):
        buffer = (BUFFERS + number * BUFFER).to_bytes(8, "little")
        computer.write(RECEIVE_RING + 16 * number, buffer + bytes(8))
        frame = FRAME.to_bytes(8, "little") + size.to_bytes(8, "little")
        computer.write(SEND_RING + 16 * number, frame)
    computer.write(FRAME, bytes(index & 255 for index in range(size)))
    rings = {RX_RING: RECEIVE_RING, RX_SIZE: RING, TX_RING: SEND_RING, TX_SIZE: RING}
    for offset, value in {**rings, RX_TAIL: RING, PACKETS: each, ENABLE: 1}.items():
        adapter.write(offset, 8, value)  # not over the link: only frames are counted
    names = {"pointer": TABLE_POINTER, "nic": NIC, "ring": RING, "count": count, "each": each}
    program = Program.assemble(DRIVER.format(**names), 0x1000)
    gate = program.labels["handler"] | 8 << 16 | 0x8E << 40
    computer.write(TABLE + 16 * VECTOR, gate.to_bytes(8, "little") + bytes(8))
    computer.write(TABLE_POINTER, (4095).to_bytes(2, "little") + TABLE.to_bytes(8, "little"))
    computer.load(program)
    return adapter


def bytes_of_frames(size: int, count: int, each: int = 1) -> FrameBytes:
    """What ``count`` frames take, which one computer sends to another, ``each`` at a time.

    A driver is interrupted once, reads CAUSE once and stores a pointer once for so many.
    """
    machines = Machines(lookahead_ns=400)
    left, right = machines.computer("left"), machines.computer("right")
    sender, receiver = _driven(left, size, count, each), _driven(right, size, 0, each)
    Cable(sender, receiver, gbps=100.0)
    machines.run()
    assert right.read(BUFFERS, size) == left.read(FRAME, size)
    assert (sender.transmitted, receiver.received, receiver.dropped) == (count, count, 0)
    assert sender.interrupts == receiver.interrupts == count // each
    ends = [adapter.slot for adapter in (sender, receiver)]
    up = [end.up.bytes / count for end in ends if end is not None]
    down = [end.down.bytes / count for end in ends if end is not None]
    return FrameBytes(up[0], down[0], up[1], down[1])
