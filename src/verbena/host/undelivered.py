# SPDX-License-Identifier: Apache-2.0
"""Why a core could not deliver an exception or an interrupt, in words.

``Core`` asks when the processor has stopped at one. The processor reads an entry of the table of
handlers, and then pushes a frame of five words, or six with an error code (SDM volume 3, 6.14.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.host._cpu import CoreState

if TYPE_CHECKING:
    from verbena.host.computer_records import Range

_PRESENT, _GATES = 0x80, (0xE, 0xF)  # of an entry's sixth byte
_WORD = 8


def why_undelivered(
    state: CoreState, find: Callable[[int], Range | None], vector: int, *, has_error: bool
) -> str:
    """What is wrong with the table of handlers, or with the stack for the frame. ``find`` gets the
    range of a physical address."""
    special = state.special()
    table, in_ring_3 = special["idt"], special["ring"] == 3
    missing = "no handler is set (see LIDT): "
    if not table:
        return (
            f"{missing}no table of handlers was loaded: let lidt load one, whose entry {vector} "
            "leads to a handler"
        )
    if in_ring_3 and not special["ring0_stack"]:
        return (
            f"{missing}it would run in ring 0, whose stack is not set: WRMSR its address to MSR "
            "0x175"
        )
    unread = _why_no_word(state, find, table + 16 * vector)
    if unread is not None:
        return f"entry {vector} of the table of handlers at {table:#x} cannot be read: {unread}"
    if not _is_gate(state, table + 16 * vector):
        return (
            f"{missing}entry {vector} of the table at {table:#x} is not present, or behind its end"
        )
    stack = special["ring0_stack"] if in_ring_3 else state.get(4)
    advice = "set MSR 0x175" if in_ring_3 else "set rsp"
    for at in _frame(stack, has_error=has_error):
        why = _why_no_word(state, find, at)
        if why is not None:
            return (
                f"pushing the frame to {at:#x} failed: {why}: {advice} to the end of a part of "
                "memory"
            )
    return (
        f"{missing}entry {vector} of the table at {table:#x} is behind its end, or its frame "
        f"cannot be written below {stack:#x}"
    )


def _is_gate(state: CoreState, at: int) -> bool:
    """Whether an entry of the table is present and leads to a handler."""
    physical = state.physical(at)
    low = None if physical is None else state.memory.read(physical, _WORD)
    return low is not None and low[5] & _PRESENT != 0 and low[5] & 0xF in _GATES


def _frame(stack: int, *, has_error: bool) -> list[int]:
    """The addresses of the words of a frame that is pushed to a stack, the highest first."""
    top = stack & ~15
    return [(top - _WORD * place) % (1 << 64) for place in range(1, 7 if has_error else 6)]


def _why_no_word(state: CoreState, find: Callable[[int], Range | None], at: int) -> str | None:
    physical = state.physical(at)
    if physical is None:
        return "no page is mapped there"
    found = find(physical)
    if found is None or found.end < physical + _WORD:
        return "no memory is there"
    return None
