# SPDX-License-Identifier: Apache-2.0
"""What the inside of a computer raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.host.core import Core


class HostError(Exception):
    """A mistake in the description of a computer, or an access that nothing answers."""

    has_place = False
    """Its text names the instruction that has led to it, or none has."""


class HostTypeError(HostError, TypeError):
    """An argument of a type that the parameter does not take, one too many, or one missing."""


class AssemblyError(HostError):
    """A line that the assembler cannot translate; ``line`` is its number, from 1."""

    def __init__(self, message: str, line: int | None = None, text: str = "") -> None:
        where = "" if line is None else f"line {line}: {text.strip()!r}: "
        super().__init__(where + message)
        self.line = line


class AccessError(HostError):
    """An access of a debugger or of DMA to an address without memory."""


class ProcessorError(HostError):
    """A fault of a program that no handler takes; ``address`` is the instruction's.

    A further run tries the instruction again. ``core.shut_down()`` lets the others go on without
    ``core``, which had the fault.
    """

    def __init__(
        self, message: str, address: int, vector: int | None = None, core: Core | None = None
    ) -> None:
        super().__init__(message)
        self.address = address
        self.vector = vector
        self.core = core


class UnansweredError(HostError):
    """An access that no device answered, on a bus with ``unanswered="stop"``; ``address`` is the
    physical one. The core that made it is shut down, and everything else can go on: run again."""

    def __init__(self, message: str, address: int) -> None:
        super().__init__(message)
        self.address = address
