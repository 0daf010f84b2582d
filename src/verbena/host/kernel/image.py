# SPDX-License-Identifier: Apache-2.0
"""The kernel as machine code: the assembly of this package's folder ``asm``, put together.

``kernel.py`` writes it into a computer's memory. The entry of each vector pushes the vector, and an
error code where the processor has none, so that all trap frames are alike.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from verbena.host.assembler import Program
from verbena.host.kernel.layout import (
    FIRST_VECTOR,
    KERNEL_CODE,
    KERNEL_DATA,
    LAST_VECTOR,
    UNEXPECTED_VECTOR,
    equates,
)
from verbena.host.kernel.numbers import CALLS

SUBJECTS = ("entry", "scheduler", "memory", "calls", "consoles", "disk", "adapter", "sockets",
            "interrupts")  # fmt: skip
_EXCEPTIONS = (0, 1, 3, 6, 13, 14)
_WITH_ERROR_CODE = (13, 14)
_BREAKPOINT = 3


def _entries() -> str:
    lines = []
    for vector in (*_EXCEPTIONS, *range(FIRST_VECTOR, LAST_VECTOR + 1)):
        lines.append(f"vector_{vector}:")
        if vector not in _WITH_ERROR_CODE:
            lines.append("    push 0")
        lines += [f"    push {vector}", "    jmp interrupt_entry"]
    return "\n".join(lines)


@cache
def kernel_image() -> Program:
    """The kernel's code and its data at their addresses; the label ``boot`` is its beginning."""
    folder = files("verbena.host.kernel") / "asm"
    code = [(folder / f"{name}.asm").read_text() for name in SUBJECTS]
    table = "    align 8\ncall_table:\n" + "\n".join(f"    dq call_{one.name}" for one in CALLS)
    data = f"    org {KERNEL_DATA:#x}\n" + (folder / "data.asm").read_text()
    return Program.assemble("\n".join([equates(), *code, _entries(), table, data]), KERNEL_CODE)


def interrupt_table(labels: dict[str, int]) -> bytes:
    """The 256 gates of the IDT (SDM volume 3, 6.14.1): interrupt gates, of which programs may use
    that of the breakpoint alone."""
    gates = bytearray()
    for vector in range(256):
        handler = labels.get(f"vector_{vector}", labels[f"vector_{UNEXPECTED_VECTOR}"])
        kind = 0xEE if vector == _BREAKPOINT else 0x8E
        low = handler & 0xFFFF | 8 << 16 | kind << 40 | (handler >> 16 & 0xFFFF) << 48
        gates += low.to_bytes(8, "little") + (handler >> 32).to_bytes(8, "little")
    return bytes(gates)
