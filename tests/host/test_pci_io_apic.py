# SPDX-License-Identifier: Apache-2.0
"""Two disks that share INTA# of a PCI bus, whose wire leads to an I/O APIC."""

from __future__ import annotations

from tests.host.test_pci_interrupts import LEFT, RIGHT, SHARED
from verbena.host import Computer, Disk, InterruptController, PciBus, Program, Ram, Stop

LINE = 16
APIC = """
    mov  rdi, 0xfee00000                ; the local APIC
    mov  dword ptr [rdi+0xf0], 0x1ff
    mov  rsi, 0xfec00000
    mov  dword ptr [rsi], 0x31
    mov  dword ptr [rsi+0x10], 0
    mov  dword ptr [rsi], 0x30
    mov  dword ptr [rsi+0x10], 0xa02e   ; level, low while active, vector 46
"""


def test_a_shared_wire_at_an_io_apic_interrupts_until_every_disk_was_asked() -> None:
    bus = PciBus(
        raise_line=lambda wire: controller.io.raise_line(LINE + "ABCD".index(wire[3]), wire),
        lower_line=lambda wire: controller.io.lower_line(LINE + "ABCD".index(wire[3]), wire),
    )
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    controller = InterruptController(computer)
    for number, base in enumerate((LEFT, RIGHT)):
        computer.map(Disk(bytes([number + 1]) * 4096, latency_us=10), base, pci=bus)
    text = SHARED.replace("    lidt [table]\n", "    lidt [table]\n" + APIC)
    text = text.replace("    iretq\n", "    mov  dword ptr [rdi+0xb0], 0        ; EOI\n    iretq\n")
    computer.load(Program.assemble(text, origin=0x1000))
    assert computer.run() is Stop.HALT
    registers = computer.cores[0].registers
    assert (registers.r8, registers.r9) == (1, 1)
    assert registers.r10 <= 2
    assert controller.io.sent == registers.r10
    assert not bus.wires["INTA#"].is_active
