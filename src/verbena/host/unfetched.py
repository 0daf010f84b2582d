# SPDX-License-Identifier: Apache-2.0
"""Why a core could not fetch an instruction, in words.

``Core`` asks when the processor has stopped at an address from which no instruction can come:
registers of a device, or addresses that have neither memory nor a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from verbena.host.disassembler import instruction_text

if TYPE_CHECKING:
    from verbena.host.computer_records import Range


def why_unfetched(found: Range | None, physical: int, came_by: str) -> str:
    """What is at the physical address of the missing byte; ``came_by`` is from ``jump_to``."""
    belongs = f"{physical:#x} belongs to" if found is not None else "there is none at"
    what = f"{found.device!r}" if found is not None else f"{physical:#x}"
    by = f"; {came_by} led there" if came_by else ""
    return f"instructions come from memory only, and {belongs} {what}{by}"


def jump_to(
    address: int,
    places: Iterable[int],
    bytes_at: Callable[[int], bytes],
    register: Callable[[str], int | None],
) -> str:
    """The one jump or call of those at ``places`` that leads to an address, as "0x5: jmp rax".

    It is known for a jump to a fixed address or to that in a register, whose value ``register``
    gives; "" if no instruction leads there, or several do.
    """
    found = []
    for place in places:
        text = instruction_text(bytes_at(place), place) or ""
        name, _, target = text.partition(" ")
        leads = target == f"{address:#x}" or register(target) == address
        if leads and (name.startswith("j") or name == "call"):
            found.append(f"{place:#x}: {text}")
    return found[0] if len(found) == 1 else ""
