# SPDX-License-Identifier: Apache-2.0
"""The lessons of `verbena step`, and the computer on which a file of assembly is shown.

A comment behind an instruction is its sentence. Each call of ``build`` makes the computers anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host.assembler import Program
from verbena.host.computer import Computer
from verbena.host.devices import Keyboard, Ram
from verbena.host.disk import Disk
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca import Wire, connected
from verbena.host.hca.device import DOORBELL
from verbena.host.lessons.remote_disk import remote_disk
from verbena.host.lessons.scene import Scene
from verbena.host.pcie import Pcie

KEYBOARD, DISK = 0x10_0000, 0x20_0000
_ORIGIN, _BUFFER = 0x1000, 0x4000
_VECTOR = 46

MAP = (
    f"memory from 0 to 0xfffff, a keyboard at {KEYBOARD:#x}, and a disk of 4 KiB in blocks of 32 "
    f"bytes at {DISK:#x}, which interrupts by vector {_VECTOR}; the program is at {_ORIGIN:#x}"
)


@dataclass(frozen=True)
class Lesson:
    """A program to be shown. ``build`` may raise AssemblyError."""

    name: str
    title: str
    build: Callable[[], Scene]


_POLLED = f"""
wait:   movzx eax, byte ptr [{KEYBOARD:#x}]   ; load from the keyboard's address: 0 is no key
        test eax, eax
        jz   wait                         ; no key yet, so ask again
        mov  [{_BUFFER:#x}], al               ; keep the key in memory
        hlt
"""

_HEAD = f"""
        mov  rsp, 0x8000                  ; a stack, on which interrupts save what they stop
        lidt [table]                      ; say where the handlers are
        mov  rbx, {DISK:#x}               ; the address of the disk's registers
        mov  qword ptr [rbx+0x28], 1      ; ask the disk for interrupts
        mov  qword ptr [rbx+0x10], 1      ; one block of 32 bytes
"""
_WAIT = """
        sti                               ; let interrupts in
        hlt
        cli
        hlt
"""
_TABLE = f"""
        align 16
idt:    times {_VECTOR} dq 0, 0
        dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table:  dw {_VECTOR} * 16 + 15
        dq idt
"""
_PIO = (
    _HEAD
    + "        mov  qword ptr [rbx], 1           ; command: read into the disk's own buffer\n"
    + _WAIT
    + f"""
handler:
        lea  rsi, [rbx+0x1000]            ; from the disk's buffer
        mov  rdi, {_BUFFER:#x}                ; to memory
        mov  ecx, 4                       ; four words of 8 bytes
next:   mov  rax, [rsi]                   ; a load from the disk: the core waits a round trip
        mov  [rdi], rax                   ; and stores the word in memory
        add  rsi, 8
        add  rdi, 8
        dec  ecx
        jnz  next
        iretq                             ; back to the program
"""
    + _TABLE
)
_DMA = (
    _HEAD
    + f"""
        mov  qword ptr [rbx+0x18], {_BUFFER:#x} ; the address to which the disk shall write
        mov  qword ptr [rbx], 2           ; command: read, to memory
"""
    + _WAIT
    + """
handler:
        iretq                             ; the bytes are in memory already: back to the program
"""
    + _TABLE
)


def _machine(text: str, keys: str = "") -> Scene:
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    keyboard = Keyboard()
    computer.map(keyboard, KEYBOARD)
    disk = Disk(bytes(range(256)) * 16, block=32, latency_us=10, vector=_VECTOR)
    computer.map(disk, DISK, pcie=Pcie())
    computer.load(Program.assemble(text, _ORIGIN))
    if keys:
        computer.at(4000, lambda: keyboard.press(keys))
    scene = Scene(computer)
    scene.watch(disk)
    return scene


def _doorbell() -> Scene:
    """A WRITE with immediate data, whose request is in memory: the program rings its doorbell."""
    scenes: list[Scene] = []
    wire = Wire(drop=lambda packet: scenes[0].see_packet(packet))
    left, right = connected(wire=wire, vector=_VECTOR)
    scene = Scene(left.computer)
    scenes.append(scene)
    source, target = left.register(_BUFFER, 64), right.register(_BUFFER, 64)
    left.computer.write(_BUFFER, b"from the left computer".ljust(64, b"."))
    right.qp.receive(target)
    right.cq.arm()
    left.machines.run()
    left.qp.write(source, target, immediate=7, ring=False)
    scene.watch(left.hca, "left")
    scene.watch(right.hca, "right")
    bell = left.driver.page_address(left.qp.context.page) + DOORBELL
    value = left.qp.number | left.qp.posted << 32
    text = f"""
        mov  rbx, {bell:#x}           ; the address of the adapter's doorbell
        mov  rax, {value:#x}          ; the queue pair's number, and how many requests it has
        mov  [rbx], rax                   ; ring it: one store, and the processor is done
        hlt
    """
    left.computer.load(Program.assemble(text, _ORIGIN))
    return scene


LESSONS = {
    lesson.name: lesson
    for lesson in (
        Lesson("keyboard", "a keyboard that is polled", lambda: _machine(_POLLED, "A")),
        Lesson("disk-pio", "a disk, read word by word", lambda: _machine(_PIO)),
        Lesson("disk-dma", "a disk that writes to memory by DMA", lambda: _machine(_DMA)),
        Lesson("disk-remote", "a disk of another computer, by RDMA", remote_disk),
        Lesson("doorbell", "a doorbell, and the memory of another computer", _doorbell),
    )
}


@checked_arguments(HostTypeError)
def lesson_of_file(name: str, text: str) -> Lesson:
    """A lesson of a reader's own assembly, on the computer that ``MAP`` describes."""
    if not Program.assemble(text, _ORIGIN).code:
        raise HostError(f"{name} has no instruction: it is empty, or has only comments")
    return Lesson(name, name, lambda: _machine(text))
