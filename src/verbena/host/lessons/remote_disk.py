# SPDX-License-Identifier: Apache-2.0
"""The lesson of a disk of another computer: a SEND, DMA there, an RDMA WRITE into memory here.

programs.py lists it.

The left computer runs machine code, which is shown. What the driver of the right one does, at the
interrupts of its adapter and its disk, is Python: it posts and stores as machine code would.
"""

from __future__ import annotations

from verbena.host.assembler import Program
from verbena.host.disk import ADDRESS, BLOCK, COMMAND, COUNT, ENABLE, READ_DMA, Disk
from verbena.host.hca import Wire, connected
from verbena.host.hca.device import DOORBELL
from verbena.host.hca.pair import Node
from verbena.host.hca.regions import Region
from verbena.host.lessons.scene import Scene
from verbena.host.pcie import Pcie

_DISK, _ORIGIN, _MESSAGE, _BUFFER, _ARRIVED = 0x20_0000_0000, 0x1000, 0x4000, 0x5000, 0x6000
_VECTOR, _DISK_VECTOR, _BLOCK = 46, 47, 32


class _Server:
    """The driver of the computer that has the disk."""

    def __init__(self, node: Node, inbox: Region, blocks: Region, target: Region) -> None:
        self.node, self.inbox, self.blocks, self.target = node, inbox, blocks, target
        node.computer.memory_observers.append(self.see)

    def see(self, kind: str, vector: int, core: int) -> None:
        """An interrupt is at the processor: of a command, or the disk's data are in memory."""
        if (kind, vector) == ("MSI", _VECTOR) and self.node.cq.poll():
            first = int.from_bytes(self.node.computer.read(self.inbox.address, 8), "little")
            to = self.blocks.address
            stores = ((ENABLE, 1), (BLOCK, first), (COUNT, 1), (ADDRESS, to), (COMMAND, READ_DMA))
            for register, value in stores:
                self.node.computer.store(_DISK + register, value.to_bytes(8, "little"))
        elif (kind, vector) == ("MSI", _DISK_VECTOR):
            self.node.qp.write(self.blocks, self.target, immediate=0, signalled=False)


def remote_disk() -> Scene:
    """The left computer asks for the block with number 5, which then is in its memory."""
    scenes: list[Scene] = []
    wire = Wire(drop=lambda packet: scenes[0].see_packet(packet))
    left, right = connected(wire=wire, vector=_VECTOR)
    scene = Scene(left.computer)
    scenes.append(scene)
    disk = Disk(bytes(range(256)) * 16, block=_BLOCK, latency_us=10, vector=_DISK_VECTOR)
    right.computer.map(disk, _DISK, pcie=Pcie())
    arrived = left.register(_ARRIVED, _BLOCK)
    inbox = right.register(_MESSAGE, 8)
    _Server(right, inbox, right.register(_BUFFER, _BLOCK), arrived)
    right.qp.receive(inbox)
    right.cq.arm()
    left.qp.receive(arrived)
    left.cq.arm()
    left.machines.run()
    left.qp.send((5).to_bytes(8, "little"), signalled=False, ring=False)
    scene.watch(left.hca, "left")
    scene.watch(right.hca, "right")
    scene.watch(disk, "right")
    bell = left.driver.page_address(left.qp.context.page) + DOORBELL
    value = left.qp.number | left.qp.posted << 32
    left.computer.load(Program.assemble(_program(bell, value), _ORIGIN))
    return scene


def _program(bell: int, value: int) -> str:
    return f"""
        mov  rsp, 0x8000              ; a stack, on which interrupts save what they stop
        lidt [table]                  ; say where the handlers are
        mov  rbx, {bell:#x}           ; the address of the adapter's doorbell
        mov  rax, {value:#x}          ; the queue pair has a SEND: "read block 5"
        mov  [rbx], rax               ; ring it; adapters and the other computer do the rest
        sti                           ; let interrupts in
        hlt
        cli
        mov  rcx, [{_ARRIVED:#x}]     ; the block's first eight bytes are in memory here
        hlt
handler:
        iretq                         ; no processor has copied a byte
        align 16
idt:    times {_VECTOR} dq 0, 0
        dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table:  dw {_VECTOR} * 16 + 15
        dq idt
    """
