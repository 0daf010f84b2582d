# SPDX-License-Identifier: Apache-2.0
"""Machine code with handlers that note when they begin and end, on a computer with APICs."""

from __future__ import annotations

from functools import cache

from verbena.host import Computer, Device, InterruptController, Program, Ram

ORIGIN, NOTES, TABLE_POINTER = 0x1000, 0x60000, 0x6F00


class ENTRY:
    """Bits of an I/O APIC's entry."""

    MASKED, LEVEL, ACTIVE_LOW = 1 << 16, 1 << 15, 1 << 13


class Handlers:
    """Handlers by vector; ``ends``: each writes EOI."""

    def __init__(self, bodies: dict[int, str], *, ends: bool = True) -> None:
        self.bodies, self._ends = bodies, ends

    def assembly(self) -> str:
        """Their code, which notes the vector, and that plus 0x100 at the end, at [NOTES]."""
        lines = []
        for vector, body in self.bodies.items():
            lines += [f"handler_{vector}:", self._note(vector), body]
            lines += [self._note(vector + 0x100), self._end(), "iretq"]
        return "\n".join(lines)

    def _note(self, value: int) -> str:
        return (
            f"push rax\n mov eax, [{NOTES}]\n mov dword ptr [rax*4+{NOTES + 4}], {value}\n"
            f"inc dword ptr [{NOTES}]\n pop rax"
        )

    def _end(self) -> str:
        return "mov dword ptr [rbp+0x0b0], 0" if self._ends else ""

    def order(self, computer: Computer) -> list[str]:
        """What was noted: "+30" where the handler of 0x30 began, "-30" where it ended."""
        count = int.from_bytes(computer.read(NOTES, 4), "little")
        data = computer.read(NOTES + 4, 4 * count)
        noted = [int.from_bytes(data[4 * i : 4 * i + 4], "little") for i in range(count)]
        return [f"{'-' if one & 0x100 else '+'}{one & 0xFF:x}" for one in noted]


@cache
def _assembled(text: str) -> Program:
    return Program.assemble(text, ORIGIN)


def machine(
    text: str,
    handlers: Handlers,
    devices: dict[str, tuple[int, Device]] | None = None,
    *,
    cores: int = 1,
) -> InterruptController:
    """A computer that runs ``text`` with its local APIC on, whose address is in RBP; the names of
    devices are addresses."""
    computer = Computer(cores=cores)
    computer.map(Ram(1 << 20), 0)
    found = InterruptController(computer)
    names = []
    for name, (base, device) in (devices or {}).items():
        computer.map(device, base)
        names.append(f"{name} equ {base}")
    install(computer, "\n".join([*names, text]), handlers)
    return found


def install(computer: Computer, text: str, handlers: Handlers, core: int = 0) -> None:
    """Lets a core begin with its stack, the table of handlers, its local APIC on, and ``text``."""
    head = [
        "mov rsp, 0x5f000",
        f"lidt [{TABLE_POINTER}]",
        "mov rbp, 0xfee00000",
        "mov dword ptr [rbp+0xf0], 0x1ff",
    ]
    program = _assembled("\n".join([*head, text, handlers.assembly()]))
    computer.load(program, core)
    gates = bytearray(4096)
    for vector in handlers.bodies:
        at = program.labels[f"handler_{vector}"]
        gate = at & 0xFFFF | 8 << 16 | 0x8E << 40 | (at >> 16) << 48
        gates[16 * vector : 16 * vector + 8] = gate.to_bytes(8, "little")
    computer.write(0x50000, bytes(gates))
    computer.write(TABLE_POINTER, (4095).to_bytes(2, "little") + (0x50000).to_bytes(8, "little"))
